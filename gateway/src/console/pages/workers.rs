//! The workers of the fleet: which are alive, what they run, and how one that is silent is proven gone.

use axum::{Extension, extract::State, response::Response};
use maud::{Markup, html};
use serde::Deserialize;
use time::OffsetDateTime;

use super::super::{
    frame::{Page, Place, Shown, framed},
    moment::{self, TimeForm},
    shown,
    state::{Console, Looking, Pages},
    text,
    visitor::Visitor,
    words,
};
use crate::refusal::Refused;

/// A worker, as `GET /v1/workers` has it.
#[derive(Debug, Deserialize)]
struct Worker {
    worker_id: String,
    name: String,
    host: String,
    pid: i64,
    state: String,
    queues: Vec<String>,
    concurrency: i64,
    running: i64,
    #[serde(with = "time::serde::rfc3339")]
    beat_at: OffsetDateTime,
    fenced_by: Option<String>,
    fence_note: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Workers {
    workers: Vec<Worker>,
}

/// The page.
pub(in super::super) async fn page(State(console): Pages, Extension(visitor): Looking) -> Response {
    let shown = shown(&console, &visitor).await;
    framed(&console, &visitor, shown).await
}

/// What the page is made from.
pub(in super::super) fn asks(visitor: &Visitor) -> Result<String, Refused> {
    Ok(format!("/v1/workers?all={}", wants_all(visitor)?))
}

fn wants_all(visitor: &Visitor) -> Result<bool, Refused> {
    Ok(visitor.query(&["all"])?.text("all") == Some("true"))
}

async fn shown(console: &Console, visitor: &Visitor) -> Shown {
    let all = wants_all(visitor)?;
    let found: Workers = console.api.get(visitor, &asks(visitor)?).await?;
    let heads = [
        words::NAME,
        words::STATE,
        words::QUEUES,
        words::SLOTS,
        words::BEAT,
        words::MACHINE,
        words::GONE,
    ];
    let table = html! {
        table {
            thead { tr { @for head in heads { th scope="col" { (visitor.say(head)) } } } }
            tbody { @for worker in &found.workers { (row(visitor, worker)) } }
        }
    };
    let main = html! {
        div #workers data-live {
            @if found.workers.is_empty() { p { (visitor.say(words::NO_WORKERS)) } }
            @else { (shown::wide(visitor.say(words::WORKERS), &table)) }
        }
        @if !all { p { a href=(visitor.link("/console/workers?all=true")) { (visitor.say(words::ALL_WORKERS)) } } }
    };
    Ok(Page {
        place: Place::Workers,
        title: visitor.say(words::WORKERS).to_owned(),
        is_live: true,
        main,
    })
}

fn row(visitor: &Visitor, worker: &Worker) -> Markup {
    let id = format!("fence-{}", worker.worker_id);
    html! {
        tr data-key=(worker.worker_id) {
            td { (text::beginning(&worker.name, 80)) }
            td { (shown::state(visitor, &worker.state)) }
            td { @for queue in &worker.queues { code { (text::stranger(queue)) } " " } }
            td.number { (worker.running) "/" (worker.concurrency) }
            td { (moment::at(worker.beat_at, TimeForm::Date)) }
            td { (text::beginning(&worker.host, 60)) " " (worker.pid) }
            td {
                @if let Some(by) = &worker.fenced_by { (text::beginning(by, 60)) }
                @if let Some(note) = &worker.fence_note { " " (text::beginning(note, 200)) }
                @if worker.state == "dead" {
                    div.block {
                        button.copy type="button" data-copy=(id) { (visitor.say(words::COPY)) }
                        code id=(id) { "toolfleet workers fence " (worker.worker_id) " --note \"${NOTE:?say how you know that it is gone}\"" }
                    }
                }
            }
        }
    }
}
