//! What a server tells while a request is under way.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::value::RawValue;

use super::message;
use crate::executors::{Progress, redact::redact};
use secrecy::SecretString;

/// Hears what a server tells: how far an attempt is, and that its tools have changed.
#[derive(Debug, Clone, Default)]
pub(super) struct Hear {
    pub(super) progress: Progress,
    /// The attempt's token.
    pub(super) token: String,
    pub(super) secrets: Vec<SecretString>,
    /// Set when the tools of the server have changed.
    pub(super) stale: Arc<AtomicBool>,
}

impl Hear {
    /// Takes a message that nobody answers. Never waits and never fails.
    pub(super) fn told(&self, method: &str, params: Option<&RawValue>) {
        match (method, params) {
            ("notifications/tools/list_changed", _) => self.stale.store(true, Ordering::Release),
            ("notifications/progress", Some(params)) => {
                if let Some((fraction, text)) = message::progress(params, &self.token) {
                    let text = redact(&text, &self.secrets).unwrap_or(text);
                    self.progress.report(fraction, &text);
                }
            }
            (_, _) => {}
        }
    }
}
