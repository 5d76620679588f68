//! A folder of one attempt.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// A folder that is removed with all that is in it when this is dropped.
#[derive(Debug)]
pub(crate) struct Tmp(PathBuf);

impl Tmp {
    /// Makes it, empty, for this user alone, with a name that begins like this.
    pub(crate) fn make(kind: &str) -> io::Result<Self> {
        let name = format!("{kind}-{}", uuid::Uuid::new_v4());
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    /// One that was made elsewhere.
    pub(in crate::guard) const fn made(path: PathBuf) -> Self {
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
        fs::remove_dir_all(&self.0).unwrap_or(());
    }
}
