//! The files of a `dev`.

use std::path::{Path, PathBuf};

use fleet::{config::ConfigError, explain::chain};

use super::private::{only_ours, only_ours_to_write};

/// The folders and files below `--data`.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    data: PathBuf,
}

impl Layout {
    pub(super) fn create(data: &Path) -> anyhow::Result<Self> {
        use std::{io::Write as _, os::unix::fs::DirBuilderExt};

        let create = || -> std::io::Result<PathBuf> {
            if !data.exists() {
                let mut made = std::fs::DirBuilder::new();
                made.recursive(true).create(data)?;
                only_ours_to_write(data)?;
            }
            let data = data.canonicalize()?;
            only_ours(&data)?;
            for private in ["secrets", "logs", "nats", "workers"] {
                std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(data.join(private))?;
                only_ours(&data.join(private))?;
            }
            // The folder is usually in a project, and passwords and a database must not be committed.
            let ignore = data.join(".gitignore");
            let mut new = std::fs::OpenOptions::new();
            match new.write(true).create_new(true).open(ignore) {
                Ok(mut ignore) => ignore.write_all(b"*\n")?,
                Err(reason) if reason.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(reason) => return Err(reason),
            }
            Ok(data)
        };
        let data = create().map_err(|reason| {
            ConfigError(vec![format!(
                "--data is {}, which cannot be the data folder: {}; name a folder of this user's own, or one that can be made",
                data.display(),
                chain(&reason)
            )])
        })?;
        Ok(Self { data })
    }

    pub(super) fn path(&self) -> &Path {
        &self.data
    }

    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.data.join("logs").join(format!("{name}.log"))
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.data.join(name)
    }
}
