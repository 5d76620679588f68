//! What is said of a line, and what it comes to in all.

use std::{collections::BTreeMap, fmt};

use anyhow::Context;
use fleet::{
    call::{EffectKnown, Language},
    ids::CallId,
    wire::{code::Code, envelope::Envelope, error::ErrorBody, message::Message},
};
use serde::{Deserialize, Serialize};

/// What an envelope says that counts here.
#[derive(Debug, Deserialize)]
pub(super) struct Said {
    pub(super) call_id: Option<CallId>,
    #[serde(default)]
    pub(super) state: String,
    #[serde(default)]
    replayed: bool,
    #[serde(default)]
    effect: String,
    error: Option<Error>,
}

#[derive(Debug, Deserialize)]
struct Error {
    code: String,
    message: String,
}

impl Said {
    pub(super) fn of(envelope: &str) -> anyhow::Result<Self> {
        serde_json::from_str(envelope).context("read the answer")
    }

    pub(super) fn is_refused(&self) -> bool {
        self.state == "refused"
    }

    /// It was refused for a reason that passes by itself.
    pub(super) fn may_pass(&self) -> bool {
        self.is_refused()
            && matches!(
                self.code(),
                "overloaded" | "quota_exceeded" | "store_unavailable"
            )
    }

    pub(super) fn nothing_happened(&self) -> bool {
        self.effect == "none"
    }

    pub(super) fn is_decided(&self) -> bool {
        matches!(
            self.state.as_str(),
            "succeeded" | "failed" | "cancelled" | "expired" | "in_doubt"
        )
    }

    pub(super) fn message(&self) -> &str {
        self.error.as_ref().map_or("", |error| &error.message)
    }

    fn code(&self) -> &str {
        self.error.as_ref().map_or("", |error| &error.code)
    }
}

/// The refusal of a line that was not sent.
pub(super) fn unfit(code: Code, what: &str) -> String {
    let what = Message::verbatim(what.to_owned());
    let error = ErrorBody::refused(code, &what, Language::En);
    text(&Envelope::refused("", error))
}

/// What is said of a line without a key whose batch was not answered.
pub(super) fn unanswered() -> String {
    text(&Envelope {
        effect: EffectKnown::Unknown,
        ..Envelope::refused("", ErrorBody::unconfirmed(false, Language::En))
    })
}

fn text(envelope: &Envelope) -> String {
    String::from_utf8(envelope.to_bytes()).expect("JSON is UTF-8")
}

/// Everything in numbers.
#[derive(Debug, Default, Serialize)]
pub(super) struct Summary {
    pub(super) lines: u64,
    accepted: u64,
    already_there: u64,
    refused: u64,
    refused_by_code: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    ended: BTreeMap<String, u64>,
}

/// For a call that is not over when the time is.
const NOT_OVER: &str = "not_over";

impl Summary {
    pub(super) fn count(&mut self, said: &Said) {
        self.lines += 1;
        if said.is_refused() {
            self.refused += 1;
            *self
                .refused_by_code
                .entry(said.code().to_owned())
                .or_default() += 1;
        } else if said.replayed {
            self.already_there += 1;
        } else {
            self.accepted += 1;
        }
    }

    pub(super) fn ended(&mut self, state: Option<String>) {
        let state = state.unwrap_or_else(|| NOT_OVER.to_owned());
        *self.ended.entry(state).or_default() += 1;
    }

    pub(super) fn over(&self) -> u64 {
        self.ended.values().sum()
    }

    /// Nothing was refused, and what was waited for succeeded.
    pub(super) fn is_good(&self) -> bool {
        self.refused == 0 && self.ended.keys().all(|state| state == "succeeded")
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = |counts: &BTreeMap<String, u64>| {
            let counts: Vec<String> = counts
                .iter()
                .map(|(what, times)| format!("{times} {what}"))
                .collect();
            counts.join(", ")
        };
        write!(
            f,
            "{} lines: {} accepted, {} there already, {} refused",
            self.lines, self.accepted, self.already_there, self.refused
        )?;
        if self.refused > 0 {
            write!(f, " ({})", counts(&self.refused_by_code))?;
        }
        if !self.ended.is_empty() {
            write!(f, "; {}", counts(&self.ended))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_and_says_whether_all_is_well() {
        let mut summary = Summary::default();
        for envelope in [
            r#"{"call_id":"01980000-0000-7000-8000-000000000000","state":"queued","replayed":false}"#,
            r#"{"call_id":"01980000-0000-7000-8000-000000000000","state":"failed","replayed":true}"#,
        ] {
            summary.count(&Said::of(envelope).unwrap());
        }
        assert!(summary.is_good());
        summary.count(&Said::of(&unfit(Code::MalformedJson, "no")).unwrap());
        assert!(!summary.is_good());
        summary.ended(Some("succeeded".to_owned()));
        summary.ended(None);
        assert_eq!(
            summary.to_string(),
            "3 lines: 1 accepted, 1 there already, 1 refused (1 malformed_json); 1 not_over, 1 succeeded"
        );
    }

    #[test]
    fn only_what_passes_by_itself_is_tried_again() {
        let said = |code| Said::of(&unfit(code, "no")).unwrap();
        for passing in [
            Code::Overloaded,
            Code::QuotaExceeded,
            Code::StoreUnavailable,
        ] {
            assert!(said(passing).may_pass());
        }
        assert!(!said(Code::InvalidArguments).may_pass());
        assert!(!Said::of(&unanswered()).unwrap().nothing_happened());
    }
}
