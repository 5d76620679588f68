//! A folder of one attempt.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// A folder that is removed with all that is in it when this is dropped.
#[derive(Debug)]
pub(crate) struct Tmp(PathBuf);

impl Tmp {
    /// Makes it, empty, for this user alone, with a name that begins like this.
    pub(crate) fn make(kind: &str) -> io::Result<Self> {
        Self::make_in(&std::env::temp_dir(), kind)
    }

    /// The same in another folder than that for temporary files.
    pub(crate) fn make_in(below: &Path, kind: &str) -> io::Result<Self> {
        let path = below.join(format!("{kind}-{}", uuid::Uuid::new_v4()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    /// One that was made elsewhere.
    pub(crate) const fn made(path: PathBuf) -> Self {
        Self(path)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Tmp {
    fn drop(&mut self) {
        // Follows no link. What a tool has made unremovable stays; there is no channel left to say so.
        if fs::remove_dir_all(&self.0).is_ok() {
            return;
        }
        // Of a folder that is read-only, as those with files are, nothing can be removed.
        let within = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let within = within.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for folder in within.map(|entry| entry.path()).chain([self.0.clone()]) {
            fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap_or(());
        }
        fs::remove_dir_all(&self.0).unwrap_or(());
    }
}
