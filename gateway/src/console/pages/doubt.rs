//! A call in doubt: what the API says of it, and what a person has to know who settles it.

use maud::{Markup, html};
use serde::Deserialize;
use time::OffsetDateTime;

use super::super::{
    json,
    moment::{self, TimeForm},
    text,
    visitor::{Visitor, encoded},
    words,
};

/// A call in doubt, as `GET /v1/doubts` has it.
#[derive(Debug, Deserialize)]
pub(super) struct Doubt {
    pub(super) call_id: String,
    pub(super) tenant: String,
    pub(super) tool: String,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) since: OffsetDateTime,
    pub(super) why: Option<String>,
    pub(super) worker: Option<String>,
    pub(super) worker_fenced: bool,
    pub(super) by_client: bool,
    pub(super) worker_id: Option<String>,
    /// Whether the attempt's own time is over.
    pub(super) attempt_over: bool,
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub(super) attempt_until: Option<OffsetDateTime>,
    pub(super) quarantined: bool,
    pub(super) probe_state: Option<String>,
    pub(super) probes: Option<i64>,
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub(super) next_probe_at: Option<OffsetDateTime>,
    /// Who made the call.
    #[serde(default)]
    pub(super) asked_by: Option<String>,
    pub(super) arguments: Option<String>,
    pub(super) arguments_length: Option<i64>,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) now: OffsetDateTime,
}

#[derive(Debug, Deserialize)]
pub(super) struct Doubts {
    pub(super) doubts: Vec<Doubt>,
    pub(super) more: bool,
}

/// What is asked for of one call.
pub(super) fn asks_of(call: &str) -> String {
    format!("/v1/doubts?call={}", encoded(call))
}

/// What is known of it.
pub(super) fn known(visitor: &Visitor, doubt: &Doubt) -> Markup {
    let is_whole = match (&doubt.arguments, doubt.arguments_length) {
        (Some(shown), Some(length)) => i64::try_from(shown.chars().count()) == Ok(length),
        (_, _) => true,
    };
    html! {
        dl.facts {
            dt { (visitor.say(words::SENT)) }
            dd {
                @match &doubt.arguments {
                    Some(arguments) => code.arguments { (json::visible(arguments)) @if !is_whole { " …" } },
                    None => (visitor.say(words::NONE)),
                }
            }
            @if let Some(by) = &doubt.asked_by { dt { (visitor.say(words::ASKED_BY)) } dd { (text::beginning(by, 80)) } }
            dt { (visitor.say(words::IN_DOUBT_SINCE)) } dd { (moment::at(doubt.since, TimeForm::Date)) }
            dt { (visitor.say(words::WHY)) }
            dd {
                code { (text::stranger(doubt.why.as_deref().unwrap_or("-"))) }
                @if doubt.quarantined { " " (visitor.say(words::QUARANTINED)) }
            }
            dt { (visitor.say(words::WORKER)) }
            dd {
                @if doubt.by_client { (visitor.say(words::BY_CLIENT)) }
                @if let Some(worker) = &doubt.worker {
                    (text::beginning(worker, 80)) ", "
                    @if doubt.worker_fenced { (visitor.say(words::FENCED)) } @else { strong { (visitor.say(words::NOT_FENCED)) } }
                }
            }
            dt { (visitor.say(words::PROBE)) }
            dd {
                @match doubt.probe_state.as_deref().filter(|state| *state != "none") {
                    Some(state) => { code { (text::stranger(state)) } " (" (doubt.probes.unwrap_or_default()) ")" },
                    None => (visitor.say(words::PROBE_NONE)),
                }
                @if let (Some(next), Some(_)) = (doubt.next_probe_at, &doubt.probe_state) { ", " (visitor.say(words::PROBE_NEXT)) " " (moment::at(next, TimeForm::Time)) }
            }
        }
    }
}
