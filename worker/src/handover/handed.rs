//! What the attempt of a call with files has of them, beside what it is told.

use std::{path::Path, sync::Arc};

use secrecy::SecretString;

use super::{folder::AttemptFolder, urls::FileUrl};

/// The folder or the URLs of the files of an attempt. Clones are of the same attempt; when the last one is dropped, the folder is gone.
#[derive(Debug, Clone, Default)]
pub struct HandedFiles {
    folder: Option<Arc<AttemptFolder>>,
    urls: Option<Arc<[FileUrl]>>,
}

impl HandedFiles {
    /// To a program.
    pub(super) fn in_folder(folder: AttemptFolder) -> Self {
        Self {
            folder: Some(Arc::new(folder)),
            urls: None,
        }
    }

    /// To a tool over HTTP or NATS.
    pub(super) fn at_urls(urls: Vec<FileUrl>) -> Self {
        Self {
            folder: None,
            urls: Some(urls.into()),
        }
    }

    /// Where a program finds them.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref().map(AttemptFolder::path)
    }

    /// Where a tool fetches them, one for each.
    pub(crate) fn urls(&self) -> &[FileUrl] {
        self.urls.as_deref().unwrap_or_default()
    }

    /// What must not be repeated of the URLs.
    pub(crate) fn secrets(&self) -> Vec<SecretString> {
        let urls = self.urls().iter();
        urls.map(|url| url.signature.clone()).collect()
    }
}
