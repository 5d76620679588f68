//! Files that only their owner may read, replaced as a whole.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

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
    let kept = match fs::read_to_string(file) {
        Ok(text) => Some(text.trim().to_owned()),
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
}
