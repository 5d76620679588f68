//! What a server tells while a request is under way.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::value::RawValue;

use super::message::ToldProgress;
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
                if let Some(told) = ToldProgress::read(params) {
                    self.progressed(&told);
                }
            }
            (_, _) => {}
        }
    }

    /// The same of progress, which may be another attempt's.
    pub(super) fn progressed(&self, told: &ToldProgress) {
        if told.token == self.token {
            self.reports(told.fraction, &told.words);
        }
    }

    /// Tells on how far it is, in the server's words without secrets.
    pub(super) fn reports(&self, fraction: Option<f64>, text: &str) {
        let masked = redact(text, &self.secrets);
        self.progress
            .report(fraction, masked.as_deref().unwrap_or(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::channel;

    #[test]
    fn what_a_server_says_of_its_work_is_told_without_secrets() {
        let (progress, mut heard) = channel();
        let hear = Hear {
            progress,
            token: "t".to_owned(),
            secrets: vec!["hunter/2".into()],
            stale: Arc::default(),
        };
        let mut last = || heard.reports.last().and_then(|report| report.message);
        // As the status of a task comes.
        hear.reports(None, "asked with hunter/2");
        assert_eq!(last().as_deref(), Some("asked with [secret]"));
        let params = r#"{"progressToken":"t","progress":1,"total":4,"message":"still hunter/2"}"#;
        let params = RawValue::from_string(params.to_owned()).unwrap();
        hear.told("notifications/progress", Some(&params));
        assert_eq!(last().as_deref(), Some("still [secret]"));
    }
}
