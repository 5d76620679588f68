//! Tools like to repeat the secret that they were given or refuse; what is told of a failure must not carry it on.

use secrecy::{ExposeSecret, SecretString};

/// The text with every known secret in it replaced; `None` where there is none.
pub(crate) fn veil(text: &str, secrets: &[SecretString]) -> Option<String> {
    let found: Vec<&str> = secrets
        .iter()
        .map(ExposeSecret::expose_secret)
        .filter(|secret| !secret.is_empty() && text.contains(secret))
        .collect();
    let veiled = |text: String, secret: &&str| text.replace(*secret, "[secret]");
    (!found.is_empty()).then(|| found.iter().fold(text.to_owned(), veiled))
}
