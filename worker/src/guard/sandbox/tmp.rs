//! The folder of one attempt.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// A folder that is removed with all that is in it when this is dropped.
#[derive(Debug)]
pub(in crate::guard) struct Tmp(PathBuf);

impl Tmp {
    /// Makes it, empty, for this user alone.
    pub(in crate::guard) fn make() -> io::Result<Self> {
        let name = format!("toolfleet-tool-{}", uuid::Uuid::new_v4());
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    pub(in crate::guard) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Tmp {
    fn drop(&mut self) {
        // Follows no link. What a tool has made unremovable stays; there is no channel left to say so.
        fs::remove_dir_all(&self.0).unwrap_or(());
    }
}
