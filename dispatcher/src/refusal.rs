//! A refusal at the door: why a request is not done, and what its caller is told.

use fleet::{
    call::{EffectKnown, Language},
    registry::Registry,
    store::{DecisionError, StoreError},
    telemetry::{metrics, report},
    wire::{code::Code, envelope::Envelope, error::ErrorBody, message::Message},
};
use serde_json::Value;

/// A refusal at the door. Its message is written with the envelope, in the caller's language.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) code: Code,
    why: Why,
    path: Option<String>,
    /// In English and in Chinese, for it may contain sentences.
    details: Option<Box<[Value; 2]>>,
}

/// What was refused, and what that means for the call.
#[derive(Debug, Clone)]
enum Why {
    /// A call: nothing was stored and nothing ran. Or a request about a call: the call stays as it is.
    Refused(Message),
    /// What the caller's program handed in for a call: that waits on.
    WaitsOn(Message),
    /// A request about a file: it stays as it is.
    OfFile(Message),
    /// A request about a call that comes too early by so many milliseconds.
    TooEarly(Message, u64),
    /// A decision about a call that waits, while something lasts for so many milliseconds: the call waits on.
    NotYet(Message, u64),
    /// The ledger did not say whether it stored the call.
    Unconfirmed { has_key: bool },
    /// The ledger cannot be read.
    Unreadable,
}

impl Refusal {
    pub(crate) fn new(code: Code, what: Message) -> Self {
        Self::because(code, Why::Refused(what))
    }

    /// What the caller's program handed in does not do, and its call waits on.
    pub(crate) fn of_output(code: Code, what: Message) -> Self {
        Self::because(code, Why::WaitsOn(what))
    }

    /// A request about a file, or a call because of a file that it names.
    pub(crate) fn of_file(code: Code, what: Message) -> Self {
        Self::because(code, Why::OfFile(what))
    }

    pub(crate) fn too_early(code: Code, what: Message, retry_after_ms: u64) -> Self {
        Self::because(code, Why::TooEarly(what, retry_after_ms))
    }

    /// A decision about a call that waits on, while something lasts.
    pub(crate) fn not_yet(code: Code, what: Message, retry_after_ms: u64) -> Self {
        Self::because(code, Why::NotYet(what, retry_after_ms))
    }

    /// The ledger did not say whether it stored the call.
    pub(crate) const fn unconfirmed(has_key: bool) -> Self {
        Self::because(Code::StoreUnavailable, Why::Unconfirmed { has_key })
    }

    /// The ledger cannot be read.
    pub(crate) fn unreadable(error: &StoreError) -> Self {
        let error_text = report(error);
        if error.is_unavailable() {
            // Refusals are counted by their code, and the process says once that Postgres does not answer.
            tracing::debug!(error = error_text, "the ledger cannot be read");
        } else {
            tracing::warn!(error = error_text, "the ledger cannot be read");
        }
        Self::because(Code::StoreUnavailable, Why::Unreadable)
    }

    /// A decision was not made, or it is unknown whether it was; asking again is safe.
    pub(crate) fn undecided(error: DecisionError) -> Self {
        match error {
            DecisionError::Invalid(what) => {
                let chinese = format!("账本不接受这个请求：{what}");
                Self::new(Code::InvalidArguments, Message::new(what, chinese))
            }
            DecisionError::Store(error) => Self::unreadable(&error),
        }
    }

    pub(crate) fn not_found() -> Self {
        Self::new(
            Code::NotFound,
            Message::fixed("there is no such call", "不存在这个调用"),
        )
    }

    /// Names the argument that is wrong.
    pub(crate) fn at(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Adds details for programs and people.
    pub(crate) fn with_details(mut self, details: impl Fn(Language) -> Value) -> Self {
        self.details = Some(Box::new([Language::En, Language::Zh].map(details)));
        self
    }

    /// As a caller reads it.
    pub(crate) fn error(&self, language: Language) -> ErrorBody {
        let code = self.code;
        let error = match &self.why {
            Why::Refused(what) => ErrorBody::refused(code, what, language),
            Why::WaitsOn(what) => ErrorBody::waits_on(code, what, language),
            Why::OfFile(what) => ErrorBody::of_file(code, what, language),
            Why::TooEarly(what, wait_ms) => ErrorBody::too_early(code, what, *wait_ms, language),
            Why::NotYet(what, wait_ms) => ErrorBody::not_yet(code, what, *wait_ms, language),
            Why::Unconfirmed { has_key } => ErrorBody::unconfirmed(*has_key, language),
            Why::Unreadable => ErrorBody::unreadable(language),
        };
        ErrorBody {
            path: self.path.clone(),
            details: self.details.as_deref().map(|[english, chinese]| {
                let told = match language {
                    Language::En => english,
                    Language::Zh => chinese,
                };
                told.clone()
            }),
            ..error
        }
    }

    /// The envelope with this refusal.
    pub(crate) fn envelope(&self, tool: &str, language: Language) -> Envelope {
        self.envelope_of(tool, self.error(language))
    }

    /// The envelope with this error instead of its own.
    pub(crate) fn envelope_of(&self, tool: &str, error: ErrorBody) -> Envelope {
        Envelope {
            effect: match &self.why {
                // The call may be in the ledger.
                Why::Unconfirmed { .. } | Why::Unreadable => EffectKnown::Unknown,
                Why::Refused(_)
                | Why::WaitsOn(_)
                | Why::OfFile(_)
                | Why::TooEarly(..)
                | Why::NotYet(..) => EffectKnown::None,
            },
            ..Envelope::refused(tool, error)
        }
    }

    /// Counts it, under the name of the tool that its request names, if that tool exists.
    pub(crate) fn count(&self, registry: &Registry, named: &str) {
        let tool = named.parse().ok().filter(|tool| registry.knows(tool));
        metrics().rejected(self.code, tool.as_ref());
    }

    const fn because(code: Code, why: Why) -> Self {
        Self {
            code,
            why,
            path: None,
            details: None,
        }
    }
}

/// The language of a refusal: the one that the caller asks for, else the one of the tool that it names.
pub(crate) fn language_for(registry: &Registry, asked: Option<Language>, named: &str) -> Language {
    let of_tool = || {
        let tool = registry.current(&named.parse().ok()?)?;
        Some(tool.manifest.language)
    };
    asked.or_else(of_tool).unwrap_or(Language::En)
}
