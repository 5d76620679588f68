//! The fleet of a client command without an address: that of the nearest `.toolfleet/dev.json`.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use nix::{fcntl::OFlag, unistd::geteuid};

use crate::{
    dev::{DATA_FOLDER, DevEnded, DevState},
    servers::process::command_line,
};

/// Far more than a `dev.json` has.
const BYTES_MAX: u64 = 64 * 1024;
/// Far more than a process id has.
const PID_BYTES_MAX: u64 = 32;

/// The nearest fleet, and why nearer files were skipped.
#[derive(Debug, Default)]
pub(super) struct NearestFleet {
    pub(super) fleet: Option<(PathBuf, Result<DevState, DevEnded>)>,
    pub(super) passed_over: Vec<String>,
}

/// Looks in this folder and in every folder above it.
pub(super) fn nearest(here: &Path) -> NearestFleet {
    let mut found = NearestFleet::default();
    for folder in here.ancestors() {
        let data = folder.join(DATA_FOLDER);
        let file = data.join("dev.json");
        let state = read(&data, &file).and_then(|state| {
            let with_life = |state| runs(&data).map(|runs| (state, runs));
            state.map(with_life).transpose()
        });
        match state {
            Ok(None) => {}
            Ok(Some((state, true))) => {
                found.fleet = Some((file, Ok(state)));
                break;
            }
            Ok(Some((_left, false))) => {
                found.fleet = Some((file, Err(DevEnded(folder.to_path_buf()))));
                break;
            }
            Err(reason) => {
                let file = file.display();
                found
                    .passed_over
                    .push(format!("{file} is not used: {reason}"));
            }
        }
    }
    found
}

/// The content of the file; `None` when it does not exist.
fn read(data: &Path, file: &Path) -> Result<Option<DevState>, String> {
    // Another user's `.toolfleet` may be a link to a folder of ours, so the name itself is checked.
    match fs::symlink_metadata(data) {
        Ok(folder) if folder.is_dir() => trusted("its folder", &folder)?,
        Ok(_other) => return Err("its folder is no real folder".to_owned()),
        Err(reason) if is_absent(&reason) => return Ok(None),
        Err(reason) => return Err(reason.to_string()),
    }
    let Some(text) = content(file, BYTES_MAX)? else {
        return Ok(None);
    };
    let state = serde_json::from_slice(&text);
    state.map(Some).map_err(|reason| reason.to_string())
}

/// The first `bytes_max` bytes of a regular file of ours; `None` when it does not exist.
fn content(file: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>, String> {
    // Opening a FIFO would wait for its writer, and a link may lead anywhere.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    let open = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(file);
    let open = match open {
        Ok(open) => open,
        Err(reason) if is_absent(&reason) => return Ok(None),
        Err(reason) => return Err(reason.to_string()),
    };
    // Of the open file: another file may have its name by now.
    let metadata = open.metadata().map_err(|reason| reason.to_string())?;
    if !metadata.is_file() {
        return Err("it is no regular file".to_owned());
    }
    trusted("it", &metadata)?;
    let mut text = Vec::new();
    open.take(bytes_max)
        .read_to_end(&mut text)
        .map_err(|reason| reason.to_string())?;
    Ok(Some(text))
}

fn is_absent(reason: &io::Error) -> bool {
    matches!(
        reason.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Another user with write access could lead our arguments and results elsewhere.
fn trusted(what: &str, metadata: &fs::Metadata) -> Result<(), String> {
    if metadata.uid() != geteuid().as_raw() {
        return Err(format!("{what} belongs to another user"));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(format!("others may write {what}"));
    }
    Ok(())
}

/// Whether the `dev` of this data folder runs: it writes its process id into its lock.
fn runs(data: &Path) -> Result<bool, String> {
    let lock = content(&data.join("dev.lock"), PID_BYTES_MAX)
        .map_err(|reason| format!("dev.lock: {reason}"))?;
    let pid = String::from_utf8(lock.unwrap_or_default()).unwrap_or_default();
    let pid = pid.trim().parse::<u32>();
    Ok(pid.is_ok_and(|pid| !command_line(pid).is_empty()))
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::{PermissionsExt, symlink},
        sync::mpsc,
        thread,
        time::Duration,
    };

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    fn fleet(folder: &Path, nats_url: &str, pid: u32) -> PathBuf {
        let data = folder.join(DATA_FOLDER);
        fs::create_dir_all(&data).unwrap();
        let state = DevState {
            nats_url: nats_url.to_owned(),
            ..DevState::default()
        };
        let file = data.join("dev.json");
        let lock = data.join("dev.lock");
        fs::write(&file, serde_json::to_vec(&state).unwrap()).unwrap();
        fs::write(&lock, pid.to_string()).unwrap();
        // Whatever the umask of the tests is.
        for (path, mode) in [(&data, 0o755), (&file, 0o600), (&lock, 0o644)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        file
    }

    fn url(found: &NearestFleet) -> Option<&str> {
        let (_, state) = found.fleet.as_ref()?;
        Some(&state.as_ref().ok()?.nats_url)
    }

    #[test]
    fn the_nearest_is_taken_that_belongs_to_us_alone() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b/c");
        fs::create_dir_all(&deep).unwrap();
        let of_us = std::process::id();
        fleet(folder.path(), "nats://far", of_us);
        assert_eq!(url(&nearest(&deep)), Some("nats://far"));
        let near = fleet(&folder.path().join("a/b"), "nats://near", of_us);
        assert_eq!(url(&nearest(&deep)), Some("nats://near"));

        let open = fs::Permissions::from_mode(0o666);
        fs::set_permissions(&near, open).unwrap();
        let found = nearest(&deep);
        assert_eq!(url(&found), Some("nats://far"));
        assert!(
            found.passed_over[0].contains("others may write it"),
            "{found:?}"
        );
        fs::set_permissions(&near, fs::Permissions::from_mode(0o600)).unwrap();
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(near.parent().unwrap(), open).unwrap();
        assert!(nearest(&deep).passed_over[0].contains("its folder"));
    }

    /// The fleet that is found here. A look that waits for a writer never ends, and fails here.
    fn found_in_time(here: &Path) -> NearestFleet {
        let (done, answer) = mpsc::channel();
        let here = here.to_path_buf();
        thread::spawn(move || {
            // A test that waited too long is gone.
            done.send(nearest(&here)).unwrap_or_default();
        });
        answer
            .recv_timeout(Duration::from_secs(10))
            .expect("the look at the folders ends")
    }

    #[test]
    fn what_is_no_regular_file_is_passed_over_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a");
        fleet(folder.path(), "nats://far", std::process::id());
        for name in ["dev.json", "dev.lock"] {
            let planted = fleet(&deep, "nats://near", std::process::id());
            let planted = planted.with_file_name(name);
            fs::remove_file(&planted).unwrap();
            mkfifo(&planted, Mode::from_bits_truncate(0o600)).unwrap();
            let found = found_in_time(&deep);
            assert_eq!(url(&found), Some("nats://far"), "{name}");
            assert!(
                found.passed_over[0].contains("no regular file"),
                "{found:?}"
            );
            fs::remove_dir_all(deep.join(DATA_FOLDER)).unwrap();
        }
    }

    #[test]
    fn a_link_to_a_fleet_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let of_another = fleet(elsewhere.path(), "nats://another", std::process::id());
        fleet(folder.path(), "nats://far", std::process::id());
        let deep = folder.path().join("a");
        fs::create_dir(&deep).unwrap();
        let link = deep.join(DATA_FOLDER);
        symlink(of_another.parent().unwrap(), &link).unwrap();
        assert_eq!(url(&nearest(&deep)), Some("nats://far"));

        fs::remove_file(&link).unwrap();
        let planted = fleet(&deep, "nats://near", std::process::id());
        fs::remove_file(&planted).unwrap();
        symlink(&of_another, &planted).unwrap();
        assert_eq!(url(&nearest(&deep)), Some("nats://far"));
    }

    #[test]
    fn what_a_group_may_write_is_not_ours_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = fleet(folder.path(), "nats://near", std::process::id());
        for name in ["dev.json", "dev.lock"] {
            let path = file.with_file_name(name);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
            assert_eq!(url(&nearest(folder.path())), None, "{name}");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        assert_eq!(url(&nearest(folder.path())), Some("nats://near"));
    }

    #[test]
    fn a_dev_that_has_ended_is_no_fleet_and_is_not_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a");
        fleet(folder.path(), "nats://far", std::process::id());
        // Process ids end at 2^22.
        fleet(&deep, "nats://near", 1 << 23);
        let found = nearest(&deep);
        let (_, state) = found.fleet.unwrap();
        let said = state.unwrap_err().to_string();
        assert!(
            said.contains("has ended") && said.contains("toolfleet dev"),
            "{said}"
        );
    }
}
