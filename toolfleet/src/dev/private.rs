//! Files that only their owner may read, replaced as a whole.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use nix::{fcntl::OFlag, unistd::geteuid};
use uuid::Uuid;

/// Replaces the file, with mode 0600. Readers see the old content or the new, also after a power failure.
pub(crate) fn replace(file: &Path, text: &[u8]) -> io::Result<()> {
    let mut next = file.as_os_str().to_owned();
    next.push(".new");
    // A file that a crash left may have another mode.
    match fs::remove_file(&next) {
        Err(reason) if reason.kind() != io::ErrorKind::NotFound => return Err(reason),
        _ => {}
    }
    let mut open = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&next)?;
    open.write_all(text)?;
    open.sync_all()?;
    fs::rename(&next, file)?;
    file.parent()
        .map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// The password in this file; where there is none, a new one of 32 hexadecimal digits.
pub(super) fn password(file: &Path) -> io::Result<String> {
    let kept = match read(file) {
        Ok(text) => Some(String::from_utf8_lossy(&text).trim().to_owned()),
        Err(reason) if reason.kind() == io::ErrorKind::NotFound => None,
        Err(reason) => return Err(reason),
    };
    // It becomes part of SQL and of a URL.
    let is_one = |text: &String| text.len() >= 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if let Some(kept) = kept.filter(is_one) {
        return Ok(kept);
    }
    let new = Uuid::new_v4().simple().to_string();
    replace(file, new.as_bytes())?;
    Ok(new)
}

/// Opens a file as these options say, unless its name is a link, which may lead anywhere.
pub(super) fn open_no_link(options: &mut OpenOptions, file: &Path) -> io::Result<File> {
    options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(file)
}

/// The content of a file whose name is no link.
pub(super) fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_no_link(OpenOptions::new().read(true), file)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Refuses a folder that another user owns or may write: what is in it may be theirs, or lead to where this user alone may write.
pub(super) fn only_ours(folder: &Path) -> io::Result<()> {
    let refused = |why: &str| {
        let why = format!("{} {why}", folder.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    };
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() {
        return refused("is no folder, or a link to one");
    }
    if metadata.uid() != geteuid().as_raw() {
        return refused("belongs to another user");
    }
    if metadata.mode() & 0o022 != 0 {
        return refused("may be written by others: look what is in it, then chmod go-w");
    }
    Ok(())
}

/// Takes write access from the group and from others, whatever the umask left: client commands trust no file that another user
/// could have written.
pub(super) fn only_ours_to_write(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;

    let mut permissions = path.metadata()?.permissions();
    let mode = permissions.mode();
    if mode & 0o022 != 0 {
        permissions.set_mode(mode & !0o022);
        fs::set_permissions(path, permissions)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_private_whatever_was_there_before() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("dev.json");
        for open in [&file, &folder.path().join("dev.json.new")] {
            fs::write(open, "old").unwrap();
            fs::set_permissions(open, fs::Permissions::from_mode(0o666)).unwrap();
        }
        replace(&file, b"new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_password_is_made_once_and_anything_else_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tools.password");
        let first = password(&file).unwrap();
        assert_eq!(first, password(&file).unwrap());
        fs::write(&file, format!("{}'", &first[1..])).unwrap();
        assert_ne!(first, password(&file).unwrap());
    }

    #[test]
    fn a_folder_of_others_is_refused_and_a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        only_ours(folder.path()).unwrap();
        for mode in [0o775, 0o757, 0o777] {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            let refused = only_ours(folder.path()).unwrap_err().to_string();
            assert!(refused.contains("others"), "{refused}");
        }
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        assert!(only_ours(&link).is_err());
        if !geteuid().is_root() {
            let refused = only_ours(Path::new("/")).unwrap_err().to_string();
            assert!(refused.contains("another user"), "{refused}");
        }
        let (victim, planted) = (
            folder.path().join("victim"),
            folder.path().join("tools.password"),
        );
        fs::write(&victim, "theirs").unwrap();
        std::os::unix::fs::symlink(&victim, &planted).unwrap();
        assert!(read(&planted).is_err() && password(&planted).is_err());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "theirs");
    }
}
