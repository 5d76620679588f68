//! References to secrets in a manifest.

use super::problem::Problems;
use crate::secrets::Secrets;

/// Checks that a worker can resolve a reference to a secret.
pub(super) fn secret(path: String, value: &str, problems: &mut Problems) {
    let Some(name) = value.strip_prefix(Secrets::SCHEME) else {
        return;
    };
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !(1..=64).contains(&name.len()) || !name.bytes().all(letter) {
        problems.add(
            path,
            "the name of a secret has 1 to 64 characters of A-Z, a-z, 0-9, _ and -",
        );
    }
}
