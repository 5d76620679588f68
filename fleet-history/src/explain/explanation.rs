//! An answer to "why": a reason as a word, the sentence, and what to do.

/// The reason, as a word, as a sentence, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// One word, for programs.
    pub reason: &'static str,
    /// The facts.
    pub because: String,
    /// What to do about it.
    pub next: String,
    /// What to type for that, each a command of its own; words in capitals are to be replaced. Empty where `next` says all.
    pub commands: Vec<String>,
}

impl Explanation {
    pub(super) fn with_commands(self, commands: impl Into<Vec<String>>) -> Self {
        Self {
            commands: commands.into(),
            ..self
        }
    }
}

pub(super) fn because(
    reason: &'static str,
    because: impl Into<String>,
    next: impl Into<String>,
) -> Explanation {
    Explanation {
        reason,
        because: because.into(),
        next: next.into(),
        commands: Vec::new(),
    }
}

/// A time span in seconds, with tenths where there are any.
pub(super) fn seconds(span: time::Duration) -> String {
    let tenths = span.whole_milliseconds() / 100;
    match tenths % 10 {
        0 => format!("{} s", tenths / 10),
        tenth => format!("{}.{tenth} s", tenths / 10),
    }
}

/// So many of them.
pub(super) fn counted(number: i64, one: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {one}{s}")
}
