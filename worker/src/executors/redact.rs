//! Masks secrets in messages about failures: a tool may repeat the secret that it was given.

use fleet::{
    obstacle::Obstacle, outcome::ToolFailure, said, secrets::SecretError, wire::code::Code,
};
use secrecy::{ExposeSecret, SecretString};

/// The failure of a tool whose secret this worker lacks; another worker may have it.
pub fn missing_secret(error: &SecretError) -> ToolFailure {
    let what = said!("{error}", "工具需要的密钥不可用：{error}");
    let failure = ToolFailure::new(Code::Unavailable, what);
    match error.secret() {
        Some(name) => failure.with_details(Obstacle::details_of_secret(name)),
        None => failure,
    }
}

/// The text with each of these secrets masked; `None` where there is none. For
/// [`Outcome::reworded`](fleet::outcome::Outcome::reworded).
pub fn redact(text: &str, secrets: &[SecretString]) -> Option<String> {
    let found: Vec<&str> = secrets
        .iter()
        .map(ExposeSecret::expose_secret)
        .filter(|secret| !secret.is_empty() && text.contains(secret))
        .collect();
    let redacted = |text: String, secret: &&str| text.replace(*secret, "[secret]");
    (!found.is_empty()).then(|| found.iter().fold(text.to_owned(), redacted))
}
