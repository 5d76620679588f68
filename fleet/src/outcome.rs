//! **May the effect have happened?** What an executor says about one attempt.
//!
//! An executor answers with one of four words, and each word is a claim about the world:
//!
//! - [`Outcome::Applied`]: the tool answered that it did what was asked.
//! - [`Outcome::NotStarted`]: it is *proven* that nothing reached the tool: the program was not found, the name did
//!   not resolve, a **fresh** connection was refused. Only this may be tried again for a `once` tool.
//! - [`Outcome::DefiniteFailure`]: the tool answered, and the answer says that there was no effect.
//! - [`Outcome::Unknown`]: everything else. A timeout, a broken connection, an undeclared status, a killed process.
//!
//! When an executor is not sure it says `Unknown`: a wrong `Unknown` costs a person a look, a wrong `NotStarted` costs a
//! customer a second charge.

use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    call::{Effect, EffectKnown, Language, words},
    input::ToolWish,
    taken_back::TakenBack,
    wire::{code::Code, message::Message},
};

/// What one attempt came to.
#[derive(Debug)]
pub enum Outcome {
    /// The tool did it. `flaw` is set when its answer cannot be used, or cannot be stored as it is; the effect stands all the
    /// same.
    Applied {
        /// The tool's answer: one JSON value, without NUL characters.
        result: Box<RawValue>,
        /// Why the answer is not what it should be, when it is not.
        flaw: Option<ToolFailure>,
    },
    /// Proven not to have started.
    NotStarted(ToolFailure),
    /// The tool answered that it did not do it.
    DefiniteFailure(ToolFailure),
    /// The effect may have happened.
    Unknown(ToolFailure),
}

words! {
    /// The word of an [`Outcome`] without its data, as stored in `attempts.outcome`.
    OutcomeWord {
        /// The tool did it.
        Applied = "applied",
        /// Proven not to have started.
        NotStarted = "not_started",
        /// The tool said that it did not do it.
        DefiniteFailure = "definite_failure",
        /// The effect may have happened.
        Unknown = "unknown",
    }
}

/// What is known of the effect of a tool of this class after an attempt with this outcome.
pub const fn effect_after(effect: Effect, word: OutcomeWord) -> EffectKnown {
    match effect {
        Effect::Read => EffectKnown::None,
        Effect::Idempotent | Effect::Once | Effect::Transaction => match word {
            OutcomeWord::Applied => EffectKnown::Applied,
            OutcomeWord::NotStarted | OutcomeWord::DefiniteFailure => EffectKnown::NotApplied,
            // The move that records it takes the row that the COMMIT needs, so there is no effect and there will be none.
            OutcomeWord::Unknown if matches!(effect, Effect::Transaction) => {
                EffectKnown::NotApplied
            }
            OutcomeWord::Unknown => EffectKnown::Unknown,
        },
    }
}

impl Outcome {
    /// The outcome with every text of its failure replaced by what `change` returns.
    #[must_use]
    pub fn reworded(self, change: impl Fn(&str) -> Option<String>) -> Self {
        match self {
            Self::Applied { result, flaw } => Self::Applied {
                result,
                flaw: flaw.map(|flaw| flaw.reworded(change)),
            },
            Self::NotStarted(failure) => Self::NotStarted(failure.reworded(change)),
            Self::DefiniteFailure(failure) => Self::DefiniteFailure(failure.reworded(change)),
            Self::Unknown(failure) => Self::Unknown(failure.reworded(change)),
        }
    }

    /// The word for it.
    pub const fn word(&self) -> OutcomeWord {
        match self {
            Self::Applied { .. } => OutcomeWord::Applied,
            Self::NotStarted(_) => OutcomeWord::NotStarted,
            Self::DefiniteFailure(_) => OutcomeWord::DefiniteFailure,
            Self::Unknown(_) => OutcomeWord::Unknown,
        }
    }

    /// What an answer of an `idempotent` tool proves when an earlier request with the same key may still be running, or may
    /// have had its effect.
    ///
    /// Then 409 means "in progress" (as in the IETF draft on the `Idempotency-Key` header), and an unexpected number of rows, or a row that
    /// is there already, may be what the earlier request left: neither proves that nothing was done. What is not the tool's own no, such as
    /// a statement that its database has ended, is about this request alone.
    #[must_use]
    pub fn after_unknown(self) -> Self {
        match self {
            Self::DefiniteFailure(failure) if failure.may_be_repetition() => {
                Self::Unknown(ToolFailure {
                    code: Code::Unavailable,
                    ..failure
                })
            }
            Self::DefiniteFailure(failure) if failure.code != Code::ToolError => {
                Self::NotStarted(failure)
            }
            Self::Applied { .. }
            | Self::NotStarted(_)
            | Self::DefiniteFailure(_)
            | Self::Unknown(_) => self,
        }
    }

    /// The outcome with the message of its failure cut to [`ToolFailure::MESSAGE_MAX`].
    #[must_use]
    pub fn bounded(self) -> Self {
        match self {
            Self::Applied { result, flaw } => Self::Applied {
                result,
                flaw: flaw.map(ToolFailure::bounded),
            },
            Self::NotStarted(failure) => Self::NotStarted(failure.bounded()),
            Self::DefiniteFailure(failure) => Self::DefiniteFailure(failure.bounded()),
            Self::Unknown(failure) => Self::Unknown(failure.bounded()),
        }
    }

    /// Why the answer of a successful tool cannot be used. An answer in which characters were replaced can be used.
    pub fn useless(&self) -> Option<&ToolFailure> {
        match self {
            Self::Applied { flaw, .. } => flaw.as_ref().filter(|flaw| !flaw.is_mended()),
            Self::NotStarted(_) | Self::DefiniteFailure(_) | Self::Unknown(_) => None,
        }
    }

    /// The failure, if this is one.
    pub const fn failure(&self) -> Option<&ToolFailure> {
        match self {
            Self::Applied { flaw, .. } => flaw.as_ref(),
            Self::NotStarted(failure) | Self::DefiniteFailure(failure) | Self::Unknown(failure) => {
                Some(failure)
            }
        }
    }
}

/// Why an attempt did not do what was asked. Stored and sent: never put arguments or secrets into it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolFailure {
    /// The stable code: `timeout`, `unavailable`, `tool_crashed`, `tool_error`, `output_invalid`, …
    pub code: Code,
    /// One sentence, at most [`ToolFailure::MESSAGE_MAX`] bytes in each language. For `tool_error` it is the tool's own message.
    pub message: Message,
    /// How long the remote asked us to wait before another attempt.
    pub retry_after_ms: Option<u64>,
    /// Diagnostics for people: HTTP status, exit code, the end of stderr. At most a few KiB.
    pub details: Option<serde_json::Value>,
    /// Whether the tool's answer is there all the same: see [`ToolFailure::mended`].
    pub(crate) is_mark: bool,
    /// Whether the same call may be made once another tool was called, which the message names.
    pub(crate) is_early: bool,
    /// Whether only an operator can mend it: see [`ToolFailure::for_operators`].
    pub(crate) needs_operator: bool,
    /// Why the platform ended the attempt, where the tool was not the reason.
    pub(crate) taken_back: Option<TakenBack>,
    /// What the tool waits for: then it is no failure, unless the call cannot wait.
    pub(crate) wanted: Option<ToolWish>,
}

/// A [`ToolFailure`] in one language, as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToldFailure<'a> {
    code: Code,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a serde_json::Value>,
}

impl ToolFailure {
    /// Whether it is an HTTP 409, an unexpected number of rows, or SQLSTATE class 23, which says that a row is there already: a repetition
    /// may get each.
    fn may_be_repetition(&self) -> bool {
        let detail = |name| self.details.as_ref().and_then(|details| details.get(name));
        let status = detail("status").and_then(serde_json::Value::as_u64);
        let state = detail("sqlstate").and_then(serde_json::Value::as_str);
        status == Some(409)
            || detail(ToolFailure::EXPECTED_ROWS).is_some()
            || state.is_some_and(|state| state.starts_with("23"))
    }

    /// For how long the remote wants no further attempt of anybody: what it asked for with HTTP status 429 or 503, or without a
    /// status of HTTP.
    pub fn asked_to_wait(&self) -> Option<Duration> {
        let pause = Duration::from_millis(self.retry_after_ms?);
        let details = self.details.as_ref();
        let status = details.and_then(|details| details.get("status"));
        status
            .is_none_or(|status| status == 429 || status == 503)
            .then_some(pause)
    }

    /// The detail with the number of rows that a statement was expected to return or change.
    pub const EXPECTED_ROWS: &'static str = "expected_rows";

    /// The flaw of an answer in which characters were replaced: the answer is there, and not exactly as it was sent.
    pub fn mended() -> Self {
        const SAID: Message = Message::fixed(
            "some characters of the tool's answer were NUL or not Unicode; each stands as U+FFFD (\u{fffd}) in `result`",
            "工具返回的内容中有些字符是 NUL 或不是有效的 Unicode；它们在 `result` 中都已替换成 U+FFFD（\u{fffd}）",
        );
        Self {
            is_mark: true,
            ..Self::new(Code::OutputInvalid, SAID)
        }
        .with_details(serde_json::json!({ "characters_replaced": true }))
    }

    /// Whether it is [`ToolFailure::mended`]: no failure, but the flaw of an answer that can be used.
    pub const fn is_mended(&self) -> bool {
        self.is_mark
    }

    /// The most bytes a message may have in any language; longer ones are cut at a character boundary.
    pub const MESSAGE_MAX: usize = 512;

    /// A failure with a bounded message.
    pub fn new(code: Code, message: Message) -> Self {
        Self {
            code,
            message: message.map(bounded),
            retry_after_ms: None,
            details: None,
            is_mark: false,
            is_early: false,
            needs_operator: false,
            taken_back: None,
            wanted: None,
        }
    }

    /// With its message cut to [`ToolFailure::MESSAGE_MAX`], for one that was set by hand.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.message = self.message.map(bounded);
        self
    }

    /// Marks a call that came before another one that must have succeeded first; the message names that tool.
    #[must_use]
    pub const fn early(mut self) -> Self {
        self.is_early = true;
        self
    }

    /// Marks what goes on until an operator has mended it, as a credential that a remote does not take: no policy tries it again, and its
    /// caller is not told that it may work later.
    #[must_use]
    pub const fn for_operators(mut self) -> Self {
        self.needs_operator = true;
        self
    }

    /// Whether it is [`ToolFailure::for_operators`].
    pub const fn needs_operator(&self) -> bool {
        self.needs_operator
    }

    /// In the language of its call.
    pub fn told(&self, language: Language) -> ToldFailure<'_> {
        ToldFailure {
            code: self.code,
            message: self.message.told(language),
            retry_after_ms: self.retry_after_ms,
            details: self.details.as_ref(),
        }
    }

    /// Marks an attempt whose tool waits for something. Where its call cannot wait, the failure counts.
    #[must_use]
    pub fn waiting_for(mut self, wanted: ToolWish) -> Self {
        self.wanted = Some(wanted);
        self
    }

    /// What the tool waits for, if it does.
    pub const fn wanted(&self) -> Option<&ToolWish> {
        self.wanted.as_ref()
    }

    /// Marks an attempt that the platform ended and not its tool: it does not count against `max_attempts`.
    #[must_use]
    pub const fn taken_back(mut self, why: TakenBack) -> Self {
        self.taken_back = Some(why);
        self
    }

    /// Why the platform ended the attempt, where the tool was not the reason.
    pub const fn why_taken_back(&self) -> Option<TakenBack> {
        self.taken_back
    }

    /// Adds diagnostics for people. NUL characters, which Postgres cannot read in JSON, are replaced.
    #[must_use]
    pub fn with_details(mut self, mut details: serde_json::Value) -> Self {
        replace_texts(&mut details, &|text| {
            text.contains('\0').then(|| text.replace('\0', "\u{fffd}"))
        });
        self.details = Some(details);
        self
    }

    /// Replaces every text in it by what `change` returns; `None` leaves a text as it is.
    #[must_use]
    pub fn reworded(mut self, change: impl Fn(&str) -> Option<String>) -> Self {
        self.message = self
            .message
            .map(|message| change(&message).unwrap_or(message));
        if let Some(details) = self.details.as_mut() {
            replace_texts(details, &change);
        }
        self
    }

    /// Adds the pause that the remote asked for.
    #[must_use]
    pub fn with_retry_after(mut self, pause: Option<Duration>) -> Self {
        self.retry_after_ms = pause.map(|p| u64::try_from(p.as_millis()).unwrap_or(u64::MAX));
        self
    }
}

fn bounded(mut message: String) -> String {
    if message.contains('\0') {
        message = message.replace('\0', "\u{fffd}");
    }
    message.truncate(message.floor_char_boundary(ToolFailure::MESSAGE_MAX));
    message
}

fn replace_texts(value: &mut serde_json::Value, change: &impl Fn(&str) -> Option<String>) {
    match value {
        serde_json::Value::String(text) => {
            if let Some(changed) = change(text) {
                *text = changed;
            }
        }
        serde_json::Value::Array(items) => items
            .iter_mut()
            .for_each(|item| replace_texts(item, change)),
        serde_json::Value::Object(members) => {
            members
                .values_mut()
                .for_each(|member| replace_texts(member, change));
            if members.keys().any(|name| change(name).is_some()) {
                *members = std::mem::take(members)
                    .into_iter()
                    .map(|(name, member)| (change(&name).unwrap_or(name), member))
                    .collect();
            }
        }
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_remote_asks_all_to_wait_with_429_or_503() {
        let asked = |details: Option<serde_json::Value>, pause: Option<u64>| {
            let mut failure = ToolFailure::new(Code::Unavailable, Message::fixed("no", "否"));
            failure.details = details;
            let pause = pause.map(Duration::from_secs);
            failure.with_retry_after(pause).asked_to_wait()
        };
        let five = Some(Duration::from_secs(5));
        for (status, expected) in [(429, five), (503, five), (500, None), (404, None)] {
            assert_eq!(asked(Some(json!({"status": status})), Some(5)), expected);
            assert_eq!(asked(Some(json!({"status": status})), None), None);
        }
        assert_eq!(asked(None, Some(5)), five, "a tool in the worker");
    }

    #[test]
    fn details_hold_no_nul_and_no_secret_in_a_text_or_a_name() {
        let details = json!({"a\0": ["b\0", {"key-1": "key-1"}], "c": 1});
        let failure =
            ToolFailure::new(Code::ToolError, Message::fixed("no", "否")).with_details(details);
        let hidden = failure.reworded(|text| (text == "key-1").then(|| "[secret]".to_owned()));
        assert_eq!(
            hidden.details.unwrap(),
            json!({"a\u{fffd}": ["b\u{fffd}", {"[secret]": "[secret]"}], "c": 1})
        );
    }
}
