//! The first page: how many calls there are, what became of the newest, and the calls themselves.

use axum::{Extension, extract::State, response::Response};
use fleet::{
    ids::CallId,
    tokens::Scope,
    wire::{code::Code, message::Message},
};
use maud::{Markup, html};
use serde::Deserialize;
use time::OffsetDateTime;

use super::{
    super::{
        frame::{Page, Place, Shown, framed},
        moment::{self, TimeForm},
        shown,
        state::{Console, Looking, Pages, see},
        text,
        visitor::{Visitor, encoded},
        words::{self, Word},
    },
    overview::{Minute, Overview},
};
use crate::refusal::Refused;

/// Rows of a page.
const LIMIT: usize = 50;
/// How long the newest page looks through calls; one that is asked for with `before` may take as long as the endpoint lets it.
const WITHIN_MS: u64 = 60;
/// What a page may be asked for.
const FILTERS: [&str; 7] = ["state", "tool", "session", "run", "since", "text", "before"];
const STATES: [&str; 8] = [
    "queued",
    "running",
    "awaiting_client",
    "in_doubt",
    "succeeded",
    "failed",
    "cancelled",
    "expired",
];
/// What calls come to, from the bottom of a bar to its top.
const CAME_TO: [&str; 7] = [
    "success",
    "fallback",
    "business_error",
    "system_error",
    "cancelled",
    "expired",
    "open",
];

/// A call in the table.
#[derive(Debug, Deserialize)]
struct LiveCall {
    call_id: String,
    tenant: String,
    tool: String,
    state: String,
    held: bool,
    outcome: Option<String>,
    attempts: i32,
    attempts_max: Option<i32>,
    error_code: Option<String>,
    worker: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    accepted_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    finished_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339")]
    now: OffsetDateTime,
    arguments: Option<String>,
    why: Option<LiveWhy>,
}

#[derive(Debug, Deserialize)]
struct LiveWhy {
    reason: String,
    because: String,
}

#[derive(Debug, Deserialize)]
struct LiveCalls {
    calls: Vec<LiveCall>,
    before: Option<String>,
}

impl LiveCalls {
    /// Where the look ended that has not found a whole page: older calls may be meant as well.
    fn looked_back_to(&self) -> Option<OffsetDateTime> {
        let until = self.before.as_deref().filter(|_| self.calls.len() < LIMIT);
        Some(until?.parse::<CallId>().ok()?.made_at())
    }
}

/// The page.
pub(in super::super) async fn page(State(console): Pages, Extension(visitor): Looking) -> Response {
    // Who may do one thing begins with that.
    let others = [
        (Scope::Settle, "/console/doubts"),
        (Scope::Approve, "/console/waiting"),
        (Scope::Call, "/console/tools"),
        (Scope::Admin, "/console/protection"),
    ];
    let own = others.iter().find(|(scope, _)| visitor.may(*scope));
    if let (false, Some((_, page))) = (visitor.may(Scope::Read), own) {
        return see(&visitor.link(page));
    }
    let shown = shown(&console, &visitor).await;
    framed(&console, &visitor, shown).await
}

/// What the table is made from.
fn asks(visitor: &Visitor) -> Result<String, Refused> {
    let query = visitor.query(&FILTERS)?;
    let mut path = format!("/v1/history?limit={LIMIT}&arguments=true");
    for name in FILTERS {
        if let Some(value) = query.text(name) {
            path.push('&');
            path.push_str(&parameter(name, value));
        }
    }
    if query.text("before").is_none() && query.text("text").is_none() {
        path.push_str(&format!("&within_ms={WITHIN_MS}"));
    }
    Ok(path)
}

/// What is asked for again each second while somebody follows the page.
///
/// # Errors
///
/// A look through texts, or at older calls, is made once.
pub(in super::super) fn follows(visitor: &Visitor) -> Result<String, Refused> {
    if is_live(visitor)? {
        return asks(visitor);
    }
    let what = Message::fixed(
        "a look through texts or at older calls is made once",
        "对文本或更早调用的查看只进行一次",
    );
    Err(Refused::new(Code::InvalidArguments, what))
}

/// Whether the page changes while it is looked at.
fn is_live(visitor: &Visitor) -> Result<bool, Refused> {
    let query = visitor.query(&FILTERS)?;
    let asked_once = ["before", "text", "since"];
    Ok(asked_once.iter().all(|name| query.text(name).is_none()))
}

fn parameter(name: &str, value: &str) -> String {
    format!("{name}={}", encoded(value))
}

async fn shown(console: &Console, visitor: &Visitor) -> Shown {
    let query = visitor.query(&FILTERS)?;
    let chosen: Vec<(&str, &str)> = FILTERS
        .iter()
        .filter_map(|name| Some((*name, query.text(name)?)))
        .collect();
    // Why each does not run is looked up for who reads it, and not each second.
    let path = format!("{}&why=true", asks(visitor)?);
    // Which calls are meant may be wrong, or this look too wide: the rest of the page is there all the same.
    let (overview, calls) = tokio::join!(
        Overview::get(console, visitor),
        console.api.get::<LiveCalls>(visitor, &path)
    );
    let value = |name| query.text(name).unwrap_or_default();
    let main = html! {
        @if let Ok(overview) = &overview {
            (counters(visitor, overview))
            (strip(visitor, &overview.ten_minutes()))
        }
        (filters(visitor, value))
        p.flow {
            button #pause type="button" aria-pressed="false" hidden data-pause=(visitor.say(words::PAUSE)) data-resume=(visitor.say(words::RESUME)) { (visitor.say(words::PAUSE)) }
            " " a #news hidden href=(visitor.here()) {}
        }
        @match &calls {
            Ok(calls) => (table(visitor, calls, &chosen)),
            Err(refused) => (shown::refused(visitor, words::PROBLEM, refused)),
        }
    };
    Ok(Page {
        place: Place::Live,
        title: visitor.say(words::LIVE).to_owned(),
        is_live: is_live(visitor)?,
        main,
    })
}

fn counters(visitor: &Visitor, overview: &Overview) -> Markup {
    let counters = [
        ("running", words::RUNNING),
        ("queued", words::QUEUED),
        ("held", words::HELD),
        ("awaiting_client", words::AWAITING),
        ("in_doubt", words::IN_DOUBT),
    ];
    html! {
        dl #counters.counters data-live {
            @for (state, word) in counters {
                div class={ "counter counter-" (state) } { dt { (visitor.say(word)) } dd { (overview.open(state)) } }
            }
        }
    }
}

/// Ten bars; their heights are shares of the fullest minute.
fn strip(visitor: &Visitor, minutes: &[Minute]) -> Markup {
    const WIDTH: i64 = 24;
    const HEIGHT: i64 = 48;
    let sum = |minute: &Minute| minute.calls.values().sum::<i64>();
    let most = minutes.iter().map(sum).max().unwrap_or(0).max(1);
    let width = i64::try_from(minutes.len().max(1)).unwrap_or(1) * WIDTH;
    let bars = |minute: &Minute| {
        let mut top = HEIGHT;
        let counts = CAME_TO
            .iter()
            .filter_map(|word| Some((*word, *minute.calls.get(*word)?)));
        let rects = counts.map(|(word, calls)| {
            let height = (calls * HEIGHT / most).max(1);
            top -= height;
            (word, top, height)
        });
        rects.collect::<Vec<_>>()
    };
    html! {
        figure #minutes.minutes data-live {
            figcaption title=(visitor.say(words::MINUTES_HINT)) { (visitor.say(words::MINUTES)) }
            svg.strip viewBox=(format!("0 0 {width} {HEIGHT}")) preserveAspectRatio="none" aria-hidden="true" {
                @for (place, minute) in (0_i64..).zip(minutes) {
                    @for (word, top, height) in bars(minute) {
                        rect class={ "bar-" (word) } x=(place * WIDTH) y=(top) width=(WIDTH - 2) height=(height) {}
                    }
                }
            }
            table.unseen {
                caption { (visitor.say(words::MINUTES)) }
                thead { tr { th { (visitor.say(words::MINUTE)) } @for word in CAME_TO { th { (word_of(visitor, word)) } } } }
                tbody {
                    @for minute in minutes {
                        tr {
                            th { (moment::at(minute.from, TimeForm::Time)) }
                            @for word in CAME_TO { td { (minute.calls.get(word).copied().unwrap_or_default()) } }
                        }
                    }
                }
            }
        }
    }
}

fn word_of<'a>(visitor: &Visitor, word: &'a str) -> &'a str {
    shown::state_word(word).map_or(word, |word| visitor.say(word))
}

fn filters<'a>(visitor: &Visitor, value: impl Fn(&'static str) -> &'a str) -> Markup {
    let field = |name: &'static str, word: Word| {
        html! {
            label { (visitor.say(word)) " " input name=(name) value=(text::visible(value(name))) autocomplete="off"; }
        }
    };
    let is_failed = value("state") == "failed";
    html! {
        form.filters action="/console" {
            @if let (true, Some(tenant)) = (visitor.may_choose_tenant(), visitor.tenant()) {
                input type="hidden" name="tenant" value=(tenant.as_str());
            }
            label { (visitor.say(words::STATE)) " "
                select name="state" {
                    option value="" { (visitor.say(words::ANY)) }
                    @for state in STATES {
                        option value=(state) selected[value("state") == state] { (word_of(visitor, state)) }
                    }
                }
            }
            (field("tool", words::TOOL))
            (field("session", words::SESSION))
            (field("run", words::RUN))
            (field("since", words::SINCE))
            (field("text", words::TEXT))
            button { (visitor.say(words::FILTER)) }
            " "
            @if is_failed {
                a #failed-only href=(visitor.link("/console")) { (visitor.say(words::ALL_CALLS)) }
            } @else {
                a #failed-only href=(visitor.link("/console?state=failed")) { (visitor.say(words::FAILED_ONLY)) }
            }
        }
    }
}

fn table(visitor: &Visitor, calls: &LiveCalls, chosen: &[(&str, &str)]) -> Markup {
    let older = calls.before.as_ref().map(|before| {
        let kept = chosen.iter().filter(|(name, _)| *name != "before");
        let kept = kept.map(|(name, value)| parameter(name, value));
        let all: Vec<String> = kept.chain([parameter("before", before)]).collect();
        visitor.link(&format!("/console?{}", all.join("&")))
    });
    let heads = [
        words::WHEN,
        words::STATE,
        words::TOOL,
        words::ARGUMENTS,
        words::ATTEMPT,
        words::TOOK,
        words::WORKER,
    ];
    let table = html! {
        table.calls {
            thead { tr { @for head in heads { th scope="col" { (visitor.say(head)) } } } }
            tbody #rows data-live data-rows {
                @for call in &calls.calls { (row(visitor, call)) }
            }
        }
    };
    html! {
        (shown::wide(visitor.say(words::CALLS), &table))
        @match (older, calls.looked_back_to()) {
            (Some(on), Some(moment)) => {
                p.hint { (visitor.say(words::LOOKED_BACK_TO)) " " (moment::at(moment, TimeForm::Date)) }
                p { a href=(on) { (visitor.say(words::LOOK_ON)) } }
            }
            (Some(older), None) => p { a href=(older) { (visitor.say(words::OLDER)) } },
            (None, _) if calls.calls.is_empty() => p.hint { (visitor.say(words::NO_CALLS)) },
            (None, _) => {}
        }
    }
}

fn row(visitor: &Visitor, call: &LiveCall) -> Markup {
    let state = if call.held { "held" } else { &call.state };
    let took = call.finished_at.unwrap_or(call.now) - call.accepted_at;
    let has_failed = call
        .outcome
        .as_deref()
        .is_some_and(|outcome| outcome != "success");
    html! {
        tr data-key=(call.call_id) {
            td { a href=(visitor.of_tenant(&call.tenant).link(&format!("/console/calls/{}", call.call_id))) { (moment::at(call.accepted_at, TimeForm::Time)) } }
            td {
                (shown::state(visitor, state))
                @if has_failed { @if let Some(code) = &call.error_code { div.why { code { (text::stranger(code)) } } } }
                @if let Some(why) = &call.why {
                    div.why title=(text::visible(&why.because)) {
                        code { (why.reason) } ": "
                        @match shown::meaning(visitor, &why.reason, call.finished_at.is_some()) {
                            Some(meaning) => (meaning),
                            None => span lang="en" { (text::beginning(&why.because, 120)) },
                        }
                    }
                }
            }
            td { a href=(visitor.link(&format!("/console/tools/{}", encoded(&call.tool)))) { (text::stranger(&call.tool)) } (shown::tenant(visitor, &call.tenant)) }
            td { @if let Some(arguments) = &call.arguments { (shown::json_line(arguments)) } }
            td.number { (shown::attempts(visitor, call.attempts, call.attempts_max)) }
            td.number { (moment::span(took)) }
            td { @if let Some(worker) = &call.worker { (text::beginning(worker, 40)) } }
        }
    }
}
