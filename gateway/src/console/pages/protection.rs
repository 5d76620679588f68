//! What may hold calls up: the controls that hold, breakers, limits, interceptors; and the switches, for who may turn them.

use axum::{Extension, body::Body, extract::State, response::Response};
use fleet::tokens::Scope;
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
        visitor::Visitor,
        words::{self, Word},
    },
    actor,
    switches::{self, BREAKER, LIMIT, MODE, ONLY, PAUSE, PURGE},
};
use crate::{asked::Asked, refusal::Refused};

/// What the page is made from.
pub(in super::super) const ASKS: [&str; 4] = [
    "/v1/control",
    "/v1/breakers",
    "/v1/limits",
    "/v1/interceptors",
];

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
    subject: Option<String>,
    setting: Option<Box<RawValue>>,
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

async fn shown(console: &Console, visitor: &Visitor, came_of_it: Option<Markup>) -> Shown {
    visitor.query(&[])?;
    let [controls, breakers, limits, interceptors] = ASKS;
    let controls = part(console, visitor, controls, |found: Controls| {
        let mut heads = vec![
            words::KIND,
            words::TOOL,
            words::SETTING,
            words::BY,
            words::WHEN,
            words::EXPIRES,
            words::WAITING,
        ];
        heads.extend(visitor.may(Scope::Admin).then_some(words::LIFT));
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
    let breakers = part(console, visitor, breakers, |found: Breakers| {
        rows(
            visitor,
            words::BREAKERS,
            &[
                words::TOOL,
                words::STATE,
                words::TARGET,
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
    let limits = part(console, visitor, limits, |found: Limits| {
        rows(
            visitor,
            words::LIMITS,
            &[words::NAME, words::LIMIT, words::TENANT, words::NEXT_START],
            found.limits.iter().map(bucket_row),
        )
    })
    .await;
    let interceptors = part(console, visitor, interceptors, |found: Interceptors| {
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
        (came_of_it.unwrap_or_default())
        @for (id, word, part, switches) in &sections {
            section id=(id) {
                h2 { (visitor.say(*word)) }
                div id={ (id) "-rows" } data-live { (part) }
                @for switch in *switches { (switches::form(visitor, switch)) }
            }
        }
    };
    Ok(Page {
        place: Place::Protection,
        title: visitor.say(words::PROTECTION).to_owned(),
        is_live: true,
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
            td { code { (text::stranger(&control.kind)) } }
            td { @for (name, value) in whom { @if let Some(value) = value { (name) " " code { (text::stranger(value)) } " " } } }
            td { @if let Some(setting) = &control.setting { code { (text::beginning(setting.get(), 120)) } } }
            td { (text::beginning(&control.actor, 60)) @if let Some(note) = &control.note { ": " (text::beginning(note, 200)) } }
            td { (moment::at(control.set_at, TimeForm::Date)) }
            td { @if let Some(expires) = control.expires_at { (moment::at(expires, TimeForm::Date)) } }
            td.number { @if let Some(waiting) = control.waiting { (waiting) } }
            @if visitor.may(Scope::Admin) {
                td {
                    form.actions method="post" action=(visitor.link("/console/protection")) {
                        input type="hidden" name="control_id" value=(control.control_id);
                        input type="hidden" name="kind" value=(control.kind);
                        input name="note" required maxlength="2000" aria-label=(visitor.say(words::REASON)) placeholder=(visitor.say(words::REASON));
                        (actor::field(visitor, &control.control_id.to_string()))
                        button.danger { (visitor.say(words::LIFT)) }
                    }
                }
            }
        }
    }
}

fn breaker_row(visitor: &Visitor, breaker: &Breaker) -> Markup {
    html! {
        tr {
            td { (text::stranger(&breaker.tool)) }
            td { (shown::breaker(visitor, &breaker.state)) @if let Some(forced) = &breaker.forced { " (" (text::stranger(forced)) "!)" } }
            td { @if let Some(target) = &breaker.target { (text::beginning(target, 120)) } }
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
            let shown = shown(&console, &visitor, Some(told)).await;
            Ok(framed(&console, &visitor, shown).await)
        }
    }
}
