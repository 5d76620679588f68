//! The pieces that pages share: states, JSON of strangers, problems, tables.

use fleet::call::Language;
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    json,
    own_api::Answered,
    reasons, text,
    visitor::Visitor,
    words::{self, Word},
};
use crate::refusal::Refused;

/// A state or an outcome: a dot, and the word.
pub(super) fn state(visitor: &Visitor, word: &str) -> Markup {
    let told = state_word(word).map_or(word, |word| visitor.say(word));
    dotted(word, told)
}

/// The state of a breaker: one that is open lets nothing through, where a call that is open goes on.
pub(super) fn breaker(visitor: &Visitor, word: &str) -> Markup {
    match word {
        "open" => dotted(word, visitor.say(words::BREAKER_OPEN)),
        _others => state(visitor, word),
    }
}

/// A dot in the colour of a state, and words.
pub(super) fn dotted(word: &str, told: &str) -> Markup {
    html! {
        span class={ "state state-" (class(word)) } {
            span.dot aria-hidden="true" {}
            (told)
        }
    }
}

/// A word as a part of a class: only what the style sheet may know.
fn class(word: &str) -> &str {
    let is_plain = word
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if is_plain { word } else { "other" }
}

/// What a state or an outcome is called; `None` of a later release's.
pub(super) fn state_word(word: &str) -> Option<Word> {
    Some(match word {
        "queued" => words::QUEUED,
        "held" => words::HELD,
        "running" => words::RUNNING,
        "awaiting_client" => words::AWAITING,
        "in_doubt" => words::IN_DOUBT,
        "succeeded" => words::SUCCEEDED,
        "failed" => words::FAILED,
        "cancelled" => words::CANCELLED,
        "expired" => words::EXPIRED,
        "success" => words::SUCCESS,
        "business_error" => words::BUSINESS_ERROR,
        "fallback" => words::FALLBACK,
        "system_error" => words::SYSTEM_ERROR,
        "open" => words::OPEN,
        "live" => words::WORKER_LIVE,
        "draining" => words::WORKER_DRAINING,
        "dead" => words::WORKER_DEAD,
        "left" => words::WORKER_LEFT,
        "fenced" => words::WORKER_FENCED,
        "half_open" => words::BREAKER_HALF_OPEN,
        "closed" => words::BREAKER_CLOSED,
        _ => return None,
    })
}

/// What a word of `calls explain` means, for who does not read its English sentence.
pub(super) fn meaning(visitor: &Visitor, reason: &str, is_over: bool) -> Option<String> {
    match visitor.language() {
        Language::En => None,
        Language::Zh => reasons::chinese(reason, is_over),
    }
}

/// JSON of a stranger, with a button that copies it. `all`: where all of it is shown, if it is long.
pub(super) fn json_block(visitor: &Visitor, id: &str, raw: &str, all: Option<&str>) -> Markup {
    let (beginning, is_whole) = text::cut(raw);
    html! {
        div.block {
            button.copy type="button" data-copy=(id) { (visitor.say(words::COPY)) }
            pre.json id=(id) tabindex="0" { (json::shown(beginning)) }
            @if !is_whole {
                p.hint {
                    (visitor.say(words::CUT)) " (" (raw.len()) " B). "
                    @if let Some(all) = all { a href=(all) { (visitor.say(words::SHOW_ALL)) } }
                }
            }
        }
    }
}

/// The beginning of JSON in a table.
pub(super) fn json_line(raw: &str) -> Markup {
    html! { code.arguments { (text::beginning(&json::visible(raw), 120)) } }
}

/// The number of an attempt, and of how many, where that is no less: attempts that were taken back do not count.
pub(super) fn attempts(visitor: &Visitor, number: i32, most: Option<i32>) -> Markup {
    html! { (number) @if let Some(most) = most.filter(|most| number <= *most) { " " (visitor.say(words::OF)) " " (most) } }
}

/// Whose it is, for who looks at all tenants.
pub(super) fn tenant(visitor: &Visitor, tenant: &str) -> Markup {
    let is_told = visitor.tenant().is_none() && tenant != "default";
    html! { @if is_told { div.why { (visitor.say(words::TENANT)) " " code { (text::stranger(tenant)) } } } }
}

/// A table that scrolls sideways by itself.
pub(super) fn wide(label: &str, table: &Markup) -> Markup {
    html! { div.wide tabindex="0" role="region" aria-label=(label) { (table) } }
}

/// A refusal, as far as a page shows it.
#[derive(Debug, Deserialize)]
pub(super) struct Refusal {
    error: RefusalError,
}

/// What went wrong, as far as a page shows it.
#[derive(Debug, Deserialize)]
struct RefusalError {
    code: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    path: Option<String>,
}

impl Refusal {
    /// Of an answer that is none about a call.
    pub(super) fn of(answered: &Answered) -> Option<Self> {
        let is_refused = answered.status.is_client_error() || answered.status.is_server_error();
        is_refused.then(|| answered.read().ok()).flatten()
    }

    /// On a page.
    pub(super) fn shown(&self, visitor: &Visitor, title: Word) -> Markup {
        let RefusalError {
            code,
            message,
            path,
        } = &self.error;
        html! {
            div.problem role="alert" {
                h2 { (visitor.say(title)) }
                p { (text::stranger(message)) " " code { (text::stranger(code)) } }
                @if let Some(path) = path { p { code { (text::stranger(path)) } } }
            }
        }
    }
}

/// What the gateway itself refuses, on a page.
pub(super) fn refused(visitor: &Visitor, title: Word, refused: &Refused) -> Markup {
    let envelope = refused.envelope(visitor.language());
    let failure = envelope.error.map(|error| RefusalError {
        code: error.code.as_str().to_owned(),
        message: error.message,
        path: error.path,
    });
    let shown = failure.map(|error| Refusal { error }.shown(visitor, title));
    shown.unwrap_or_default()
}

/// Words of a language as a page is marked with.
pub(super) const fn language_tag(language: Language) -> &'static str {
    match language {
        Language::En => "en",
        Language::Zh => "zh-CN",
    }
}
