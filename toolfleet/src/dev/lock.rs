//! One `dev` per data folder: a lock that the kernel releases when this process ends, however it ends.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, Write},
    path::Path,
};

use anyhow::{Context, bail};
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

use super::private::{only_ours_to_write, open_no_link};

/// The lock on a data folder, held while this lives.
#[derive(Debug)]
pub(crate) struct DevLock {
    _held: Flock<File>,
}

impl DevLock {
    /// Takes the lock and writes our pid into it.
    ///
    /// # Errors
    ///
    /// Another `dev` holds it; the message names its pid and what to do.
    pub(crate) fn take(file: &Path) -> anyhow::Result<Self> {
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(true).truncate(false);
        let open = open_no_link(&mut how, file);
        let open = open.with_context(|| format!("open {}", file.display()))?;
        only_ours_to_write(file).with_context(|| format!("protect {}", file.display()))?;
        match Flock::lock(open, FlockArg::LockExclusiveNonblock) {
            Ok(mut held) => {
                let mut write = || -> std::io::Result<()> {
                    held.set_len(0)?;
                    held.rewind()?;
                    write!(held, "{}", std::process::id())
                };
                write().with_context(|| format!("write our pid to {}", file.display()))?;
                Ok(Self { _held: held })
            }
            Err((mut open, Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                open.read_to_string(&mut pid)
                    .with_context(|| format!("read {}", file.display()))?;
                let data = file.parent().unwrap_or(file).display();
                // It has the lock, and writes its pid in a moment.
                if pid.is_empty() {
                    bail!(
                        "another `toolfleet dev` starts on {data} at this moment: \
                         give this one a folder of its own with `--data DIR`"
                    )
                }
                bail!(
                    "another `toolfleet dev` (pid {pid}) runs on {data}: \
                     stop it with `kill {pid}`, or give this one a folder of its own with `--data DIR`"
                )
            }
            Err((_, reason)) => Err(reason).with_context(|| format!("lock {}", file.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn the_second_is_refused_with_the_first_ones_pid_until_the_first_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("dev.lock");
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o664)).unwrap();
        let first = DevLock::take(&file).unwrap();
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(
            mode & 0o022,
            0,
            "clients believe nothing that others may write"
        );
        let refusal = DevLock::take(&file).unwrap_err().to_string();
        assert!(
            refusal.contains(&format!("pid {}", std::process::id())),
            "{refusal}"
        );
        assert!(refusal.contains("--data"), "{refusal}");
        drop(first);
        DevLock::take(&file).unwrap();
    }
}
