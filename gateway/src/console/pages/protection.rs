//! What may hold calls up: the controls that hold, breakers, limits, interceptors; and the switches, for who may turn them.

use axum::{Extension, body::Body, extract::State, response::Response};
use fleet::{modes::Brake, tokens::Scope};
use maud::{Markup, html};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use time::OffsetDateTime;

use super::{
    super::{
        form::SentForm,
        frame::{Page, Place, Shown, framed},
        moment::{self, TimeForm},
        shown::{self, Refusal},
        state::{Console, Looking, Pages, see},
        text,
        visitor::{Visitor, encoded},
        words::{self, Word},
    },
    actor,
    switches::{self, BREAKER, KnownNames, LIMIT, MODE, ONLY, PAUSE, PURGE, RefusedSwitch},
};
use crate::{asked::Asked, refusal::Refused};

/// What the page is made from: of all tools, or of the one that is named.
pub(in super::super) fn asks(visitor: &Visitor) -> Result<[String; 4], Refused> {
    let query = visitor.query(&["tool"])?;
    let of = query
        .text("tool")
        .map_or_else(String::new, |tool| format!("?tool={}", encoded(tool)));
    Ok(["control", "breakers", "limits", "interceptors"].map(|part| format!("/v1/{part}{of}")))
}

#[derive(Debug, Deserialize)]
struct Controls {
    controls: Vec<Control>,
}

#[derive(Debug, Deserialize)]
struct Control {
    control_id: i64,
    kind: String,
    tool: Option<String>,
    queue: Option<String>,
    tenant: Option<String>,
    pointer: Option<String>,
    value: Option<Box<RawValue>>,
    subject: Option<String>,
    setting: Option<Box<RawValue>>,
    told: Option<String>,
    actor: String,
    #[serde(default)]
    note: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    set_at: OffsetDateTime,
    #[serde(default, with = "time::serde::rfc3339::option")]
    expires_at: Option<OffsetDateTime>,
    waiting: Option<i64>,
}

#[derive(Debug, Deserialize)]
struct Breakers {
    breakers: Vec<Breaker>,
}

#[derive(Debug, Deserialize)]
struct Breaker {
    tool: String,
    #[serde(default)]
    target: Option<String>,
    state: String,
    forced: Option<String>,
    #[serde(default, with = "time::serde::rfc3339::option")]
    opened_at: Option<OffsetDateTime>,
    #[serde(default, with = "time::serde::rfc3339::option")]
    open_until: Option<OffsetDateTime>,
    #[serde(default)]
    why: Option<Box<RawValue>>,
    #[serde(default)]
    waiting: Option<i64>,
}

#[derive(Debug, Deserialize)]
struct Limits {
    limits: Vec<Bucket>,
}

#[derive(Debug, Deserialize)]
struct Bucket {
    name: String,
    shared_by: String,
    tenant: Option<String>,
    calls: Option<i64>,
    per_ms: Option<i64>,
    #[serde(default, with = "time::serde::rfc3339::option")]
    next_start_at: Option<OffsetDateTime>,
}

#[derive(Debug, Deserialize)]
struct Interceptors {
    interceptors: Vec<Interceptor>,
}

#[derive(Debug, Deserialize)]
struct Interceptor {
    name: String,
    workers: i64,
    #[serde(default)]
    calls: Option<i64>,
    #[serde(default)]
    changed: Option<i64>,
    #[serde(default)]
    errors: Option<i64>,
    #[serde(default)]
    mean_ms: Option<Box<RawValue>>,
    modes: Box<RawValue>,
}

/// The page.
pub(in super::super) async fn page(State(console): Pages, Extension(visitor): Looking) -> Response {
    let shown = shown(&console, &visitor, None).await;
    framed(&console, &visitor, shown).await
}

/// A part of the page, or why it cannot be shown: the others are there all the same.
async fn part<T: DeserializeOwned>(
    console: &Console,
    visitor: &Visitor,
    path: &str,
    rows: impl FnOnce(T) -> Markup,
) -> Markup {
    match console.api.get::<T>(visitor, path).await {
        Ok(found) => rows(found),
        Err(refused) => shown::refused(visitor, words::PROBLEM, &refused),
    }
}

async fn shown(console: &Console, visitor: &Visitor, refused: Option<RefusedSwitch>) -> Shown {
    let [controls, breakers, limits, interceptors] = asks(visitor)?;
    let query = visitor.query(&["tool"])?;
    let tool = query.text("tool");
    // What is there to choose from.
    let mut known = KnownNames {
        interceptors: Brake::ALL
            .iter()
            .map(|brake| brake.as_str().to_owned())
            .collect(),
        ..KnownNames::default()
    };
    let controls = part(console, visitor, &controls, |found: Controls| {
        let heads = [
            words::NUMBER,
            words::KIND,
            words::ABOUT,
            words::SETTING,
            words::BY,
            words::UNTIL,
            words::WAITING,
        ];
        rows(
            visitor,
            words::PAUSES,
            &heads,
            found
                .controls
                .iter()
                .map(|control| control_row(visitor, control)),
        )
    })
    .await;
    let breakers = part(console, visitor, &breakers, |found: Breakers| {
        rows(
            visitor,
            words::BREAKERS,
            &[
                words::TOOL,
                words::STATE,
                words::TARGET,
                words::SINCE_THEN,
                words::UNTIL,
                words::WAITING,
                words::WHY,
            ],
            found
                .breakers
                .iter()
                .map(|breaker| breaker_row(visitor, breaker)),
        )
    })
    .await;
    let limits = part(console, visitor, &limits, |found: Limits| {
        known
            .limits
            .extend(found.limits.iter().map(|limit| limit.name.clone()));
        rows(
            visitor,
            words::LIMITS,
            &[words::NAME, words::LIMIT, words::TENANT, words::NEXT_START],
            found.limits.iter().map(bucket_row),
        )
    })
    .await;
    let interceptors = part(console, visitor, &interceptors, |found: Interceptors| {
        known
            .interceptors
            .extend(found.interceptors.iter().map(|one| one.name.clone()));
        rows(
            visitor,
            words::INTERCEPTORS,
            &[
                words::NAME,
                words::WORKERS,
                words::CALLS,
                words::CHANGED,
                words::ERROR,
                words::TOOK,
                words::MODE,
            ],
            found.interceptors.iter().map(interceptor_row),
        )
    })
    .await;
    let sections = [
        ("controls", words::PAUSES, controls, &[PAUSE, PURGE][..]),
        ("breakers", words::BREAKERS, breakers, &[BREAKER]),
        ("limits", words::LIMITS, limits, &[LIMIT]),
        (
            "interceptors",
            words::INTERCEPTORS,
            interceptors,
            &[MODE, ONLY],
        ),
    ];
    let main = html! {
        @if let Some(refused) = refused.as_ref().filter(|refused| refused.is_of_no_form()) { (refused.told) }
        @if !visitor.principal().has_all_tools() {
            form.filters action="/console/protection" {
                label { (visitor.say(words::TOOL)) " " input name="tool" required autocomplete="off" value=(tool.unwrap_or_default()); }
                button { (visitor.say(words::SHOW)) }
            }
        }
        @if let Some(tool) = tool {
            p { (visitor.say(words::TOOL)) " " code { (text::stranger(tool)) } ". " a href=(visitor.link("/console/protection")) { (visitor.say(words::ALL_TOOLS)) } }
        }
        (switches::names(&known))
        @for (id, word, part, switches) in &sections {
            section id=(id) {
                h2 { (visitor.say(*word)) }
                div id={ (id) "-rows" } data-live { (part) }
                @for switch in *switches { (switches::form(visitor, switch, tool, refused.as_ref())) }
                @if *id == "controls" { p.hint { (visitor.say(words::CONTROL_LOG)) " " code { "toolfleet control log" } } }
            }
        }
    };
    Ok(Page {
        place: Place::Protection,
        title: visitor.say(words::PROTECTION).to_owned(),
        // What stands in a form that was refused is not lost to a change elsewhere.
        is_live: refused.is_none(),
        main,
    })
}

fn rows(
    visitor: &Visitor,
    label: Word,
    heads: &[Word],
    rows: impl Iterator<Item = Markup>,
) -> Markup {
    let rows: Vec<Markup> = rows.collect();
    if rows.is_empty() {
        return html! { p { (visitor.say(words::NONE)) } };
    }
    let table = html! {
        table {
            thead { tr { @for head in heads { th scope="col" { (visitor.say(*head)) } } } }
            tbody { @for row in &rows { (row) } }
        }
    };
    shown::wide(visitor.say(label), &table)
}

fn control_row(visitor: &Visitor, control: &Control) -> Markup {
    let whom = [
        ("tool", &control.tool),
        ("queue", &control.queue),
        ("tenant", &control.tenant),
        ("subject", &control.subject),
    ];
    html! {
        tr {
            td.number {
                (control.control_id)
                @if visitor.may(Scope::Admin) && (control.kind == "pause" || visitor.principal().has_all_tools()) {
                    details id={ "lift-" (control.control_id) } {
                        summary { (visitor.say(words::LIFT)) }
                        form.actions method="post" action=(visitor.link("/console/protection")) {
                            input type="hidden" name="control_id" value=(control.control_id);
                            input type="hidden" name="kind" value=(control.kind);
                            @for (name, value) in whom { @if let Some(value) = value { input type="hidden" name=(name) value=(value); } }
                            @if let Some(pointer) = &control.pointer { input type="hidden" name="pointer" value=(pointer); }
                            @if let Some(value) = &control.value { input type="hidden" name="value" value=(value.get()); }
                            input name="note" required maxlength="2000" aria-label=(visitor.say(words::REASON)) placeholder=(visitor.say(words::REASON));
                            (actor::field(visitor, &control.control_id.to_string()))
                            button.danger { (visitor.say(words::LIFT)) }
                        }
                    }
                }
            }
            td { code { (text::stranger(&control.kind)) } }
            td {
                @for (name, value) in whom { @if let Some(value) = value { (name) " " code { (text::stranger(value)) } " " } }
                @if let Some(pointer) = &control.pointer {
                    code { (text::stranger(pointer)) " = " @if let Some(value) = &control.value { (text::beginning(value.get(), 200)) } }
                }
            }
            td {
                @if let Some(setting) = &control.setting { code { (text::beginning(&plain(setting), 120)) } }
                @if let Some(told) = &control.told { div { "“" (text::beginning(told, 200)) "”" } }
            }
            td.note { (text::beginning(&control.actor, 60)) @if let Some(note) = &control.note { ": " (text::beginning(note, 200)) } div { (moment::at(control.set_at, TimeForm::Date)) } }
            td { @if let Some(expires) = control.expires_at { (moment::at(expires, TimeForm::Date)) } }
            td.number { @if let Some(waiting) = control.waiting { (waiting) } }
        }
    }
}

/// A text without its quotation marks, other JSON as it is.
fn plain(value: &RawValue) -> String {
    serde_json::from_str(value.get()).unwrap_or_else(|_no_text| value.get().to_owned())
}

fn breaker_row(visitor: &Visitor, breaker: &Breaker) -> Markup {
    html! {
        tr {
            td { a href=(visitor.link(&format!("/console/tools/{}", encoded(&breaker.tool)))) { (text::stranger(&breaker.tool)) } }
            td {
                (shown::breaker(visitor, &breaker.state))
                @if breaker.forced.is_some() { " " (visitor.say(words::FORCED)) }
            }
            td { @if let Some(target) = &breaker.target { (text::beginning(target, 120)) } }
            td { @if let Some(since) = breaker.opened_at { (moment::at(since, TimeForm::Time)) } }
            td { @if let Some(until) = breaker.open_until { (moment::at(until, TimeForm::Time)) } }
            td.number { @if let Some(waiting) = breaker.waiting { (waiting) } }
            td { @if let Some(why) = &breaker.why { code { (text::beginning(why.get(), 200)) } } }
        }
    }
}

fn bucket_row(bucket: &Bucket) -> Markup {
    html! {
        tr {
            td { (text::stranger(&bucket.name)) " (" (text::stranger(&bucket.shared_by)) ")" }
            td { @if let (Some(calls), Some(per)) = (bucket.calls, bucket.per_ms) { (calls) " / " (per) " ms" } }
            td { @if let Some(tenant) = &bucket.tenant { (text::stranger(tenant)) } }
            td { @if let Some(next) = bucket.next_start_at { (moment::at(next, TimeForm::Time)) } }
        }
    }
}

fn interceptor_row(interceptor: &Interceptor) -> Markup {
    let number =
        |count: Option<i64>| html! { td.number { @if let Some(count) = count { (count) } } };
    html! {
        tr {
            td { (text::stranger(&interceptor.name)) }
            td.number { (interceptor.workers) }
            (number(interceptor.calls))
            (number(interceptor.changed))
            (number(interceptor.errors))
            td.number { @if let Some(mean) = &interceptor.mean_ms { (mean.get()) " ms" } }
            td { code { (text::beginning(interceptor.modes.get(), 200)) } }
        }
    }
}

/// Turns a switch, or lifts a control.
pub(in super::super) async fn change(
    State(console): Pages,
    Extension(visitor): Looking,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    let form = SentForm::read(&console.gateway, &asked, body).await?;
    let wish = switches::wish(&visitor, &form);
    let answered = console
        .api
        .post(&visitor, "/v1/control", wish.to_string(), &[])
        .await?;
    match Refusal::of(&answered) {
        None => Ok(see(&visitor.link("/console/protection"))),
        Some(refusal) => {
            let told = refusal.shown(&visitor, words::NOT_DONE);
            let refused = RefusedSwitch { told, form };
            let shown = shown(&console, &visitor, Some(refused)).await;
            Ok(framed(&console, &visitor, shown).await)
        }
    }
}
