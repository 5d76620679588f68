//! The files of a `dev`.

use std::path::{Path, PathBuf};

use fleet::{config::ConfigError, explain::chain};

use super::private::only_ours_to_write;

/// The folders and files below `--data`.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    data: PathBuf,
}

impl Layout {
    pub(super) fn create(data: &Path) -> anyhow::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;

        let create = || -> std::io::Result<PathBuf> {
            std::fs::create_dir_all(data)?;
            let data = data.canonicalize()?;
            only_ours_to_write(&data)?;
            for private in ["secrets", "logs", "nats", "workers"] {
                std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(data.join(private))?;
            }
            // The folder is usually in a project, and passwords and a database must not be committed.
            let ignore = data.join(".gitignore");
            if !ignore.exists() {
                std::fs::write(ignore, "*\n")?;
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
