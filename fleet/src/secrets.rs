//! Secrets by reference: `secret://NAME` is resolved in the worker, at the gate, and never stored or logged.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use secrecy::SecretString;

/// Where secrets are read: a folder with a file per secret, then environment variables `TOOLFLEET_SECRET_<NAME>`.
#[derive(Debug, Clone)]
pub struct Secrets {
    folder: Option<PathBuf>,
    environment: fn(&str) -> Option<OsString>,
}

/// A secret that cannot be resolved. The message contains its name, never its value.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// Neither the folder nor the environment has it.
    #[error("secret {0} is neither in the secrets folder nor in the environment")]
    Missing(String),
    /// The reference is not a name. It is not repeated here, for it may be a secret in the wrong place.
    #[error(
        "a secret is named secret://NAME, with 1 to 64 letters, digits, underscores or hyphens"
    )]
    InvalidName,
    /// Its file exists and cannot be read.
    #[error("secret {name} cannot be read from the secrets folder")]
    Unreadable {
        /// The secret.
        name: String,
        /// What the system says.
        source: io::Error,
    },
    /// Its value cannot be used in a header or an environment variable.
    #[error("secret {0} is not UTF-8 text, holds a NUL character or is larger than 64 KiB")]
    Unusable(String),
}

impl SecretError {
    /// The secret's name, where the reference has one.
    pub fn secret(&self) -> Option<&str> {
        match self {
            Self::Missing(name) | Self::Unusable(name) | Self::Unreadable { name, .. } => {
                Some(name)
            }
            Self::InvalidName => None,
        }
    }
}

impl Default for Secrets {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Secrets {
    /// The scheme of a reference.
    pub const SCHEME: &'static str = "secret://";
    /// The beginning of a secret's environment variable.
    pub const VARIABLE_PREFIX: &'static str = "TOOLFLEET_SECRET_";
    /// The most bytes a secret may have.
    pub const SIZE_MAX: usize = 64 * 1024;

    /// Secrets from this folder, if any, and from the environment.
    pub const fn new(folder: Option<PathBuf>) -> Self {
        Self {
            folder,
            environment: |name| std::env::var_os(name),
        }
    }

    /// The value itself, or the secret that `secret://NAME` refers to. A file's trailing newline is not part of the secret.
    ///
    /// # Errors
    ///
    /// The reference names a secret that does not exist or cannot be used.
    pub fn resolve(&self, value: &str) -> Result<SecretString, SecretError> {
        let Some(name) = value.strip_prefix(Self::SCHEME) else {
            return Ok(value.into());
        };
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if !(1..=64).contains(&name.len()) || !name.bytes().all(allowed) {
            return Err(SecretError::InvalidName);
        }
        if let Some(bytes) = self
            .folder
            .as_deref()
            .map_or(Ok(None), |folder| read(folder, name))?
        {
            let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
            return usable(name, line.strip_suffix(b"\r").unwrap_or(line));
        }
        match (self.environment)(&format!("{}{name}", Self::VARIABLE_PREFIX)) {
            Some(value) => usable(name, value.as_encoded_bytes()),
            None => Err(SecretError::Missing(name.to_owned())),
        }
    }
}

/// The file's bytes, and one more if it is too large; `None` if there is no such file.
fn read(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, SecretError> {
    let unreadable = |source| SecretError::Unreadable {
        name: name.to_owned(),
        source,
    };
    let file = match File::open(folder.join(name)) {
        Ok(file) => file,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(err) => return Err(unreadable(err)),
    };
    let mut bytes = Vec::new();
    // A newline is trimmed from it, and one byte more shows that it is too large.
    file.take(Secrets::SIZE_MAX as u64 + 3)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    Ok(Some(bytes))
}

fn usable(name: &str, bytes: &[u8]) -> Result<SecretString, SecretError> {
    let text = std::str::from_utf8(bytes).ok();
    let usable = text.filter(|text| text.len() <= Secrets::SIZE_MAX && !text.contains('\0'));
    usable
        .map(SecretString::from)
        .ok_or_else(|| SecretError::Unusable(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use secrecy::ExposeSecret;

    use super::*;

    /// A folder of its own for each test. If the test fails, the system's own cleanup removes it.
    struct Folder(PathBuf);

    impl Folder {
        fn with(files: &[(&str, &[u8])]) -> Self {
            let path = std::env::temp_dir().join(format!("secrets-{}", uuid::Uuid::new_v4()));
            fs::create_dir(&path).unwrap();
            files
                .iter()
                .for_each(|(name, bytes)| fs::write(path.join(name), bytes).unwrap());
            Self(path)
        }

        fn secrets(&self) -> Secrets {
            let environment = |name: &str| match name {
                "TOOLFLEET_SECRET_token" => Some("from environment".into()),
                "TOOLFLEET_SECRET_binary" => Some("\0".into()),
                _ => None,
            };
            Secrets {
                folder: Some(self.0.clone()),
                environment,
            }
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn resolve(secrets: &Secrets, value: &str) -> String {
        secrets.resolve(value).unwrap().expose_secret().to_owned()
    }

    #[test]
    fn what_is_no_reference_stays_as_it_is() {
        for value in ["", "plain", "Secret://x", " secret://x"] {
            assert_eq!(resolve(&Secrets::default(), value), value);
        }
    }

    #[test]
    fn the_folder_comes_before_the_environment() {
        let folder = Folder::with(&[("token", b"a b\n"), ("lines", b"1\n2\r\n"), ("empty", b"")]);
        assert_eq!(resolve(&folder.secrets(), "secret://token"), "a b");
        assert_eq!(resolve(&folder.secrets(), "secret://lines"), "1\n2");
        assert_eq!(resolve(&folder.secrets(), "secret://empty"), "");
        assert_eq!(
            resolve(&Folder::with(&[]).secrets(), "secret://token"),
            "from environment"
        );
    }

    #[test]
    fn a_name_cannot_leave_the_folder() {
        let folder = Folder::with(&[]);
        let long = "x".repeat(65);
        for name in ["", "..", "../x", "a/b", "a.b", "a\0b", "é", &long] {
            let refused = folder.secrets().resolve(&format!("secret://{name}"));
            assert!(matches!(refused, Err(SecretError::InvalidName)), "{name}");
        }
    }

    #[test]
    fn size_has_a_limit_and_text_must_be_text() {
        let most = vec![b'x'; Secrets::SIZE_MAX];
        let folder = Folder::with(&[
            ("most", &[&most[..], b"\r\n"].concat()),
            ("more", &[&most[..], b"x"].concat()),
            ("bytes", b"\xff"),
        ]);
        assert_eq!(
            resolve(&folder.secrets(), "secret://most").len(),
            Secrets::SIZE_MAX
        );
        for name in ["more", "bytes", "binary"] {
            let refused = folder.secrets().resolve(&format!("secret://{name}"));
            assert!(
                matches!(refused, Err(SecretError::Unusable(named)) if named == name),
                "{name}"
            );
        }
    }

    #[test]
    fn errors_and_debug_name_a_secret_and_never_show_it() {
        let folder = Folder::with(&[("token", b"hunter2\xff"), ("good", b"hunter2")]);
        let missing = folder.secrets().resolve("secret://missing").unwrap_err();
        assert_eq!(
            missing.to_string(),
            "secret missing is neither in the secrets folder nor in the environment"
        );
        let unusable = folder.secrets().resolve("secret://token").unwrap_err();
        assert!(unusable.to_string().contains("token"));
        let resolved = folder.secrets().resolve("secret://good").unwrap();
        for shown in [
            format!("{unusable:?}"),
            format!("{resolved:?}"),
            format!("{:?}", folder.secrets()),
        ] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }
}
