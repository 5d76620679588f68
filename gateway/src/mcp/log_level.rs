//! The levels of log messages. Pure.

use serde::Deserialize;

/// A level, as syslog has them; a later one is more severe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    /// The level that this JSON names.
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        serde_json::from_slice(value).ok()
    }

    /// Its word.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_their_words_and_their_order() {
        let words = [
            "debug",
            "info",
            "notice",
            "warning",
            "error",
            "critical",
            "alert",
            "emergency",
        ];
        let levels = words.map(|word| {
            let level = LogLevel::read(format!("\"{word}\"").as_bytes()).unwrap();
            assert_eq!(level.as_str(), word);
            level
        });
        assert!(levels.is_sorted());
        assert!(LogLevel::read(b"\"Debug\"").is_none() && LogLevel::read(b"1").is_none());
    }
}
