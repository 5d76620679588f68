//! `toolfleet calls show`.

use std::{collections::BTreeMap, fmt::Write, process::ExitCode};

use anyhow::{Context, bail};
use fleet::{config::StoreArgs, ids::CallId};
use serde::Deserialize;
use serde_json::value::RawValue;
use time::OffsetDateTime;

use crate::commands::{
    connect,
    history::{self, Story},
    json,
    output::{self, instant, plain, table},
};

/// What `calls show` is told.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// The call's id, as every envelope has it
    call_id: CallId,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON: {"call", "attempts", "events"}, rows of the views of these names
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let Some(story) = history::story(&pool, self.call_id).await? else {
            bail!(
                "there is no call {}; its history may have been dropped",
                self.call_id
            );
        };
        if self.json {
            let Story {
                call,
                attempts,
                events,
            } = story;
            let whole = format!(r#"{{"call":{call},"attempts":{attempts},"events":{events}}}"#);
            output::print(&json::compact(&whole))?;
        } else {
            output::print(&read(&story).context("read the views of a call")?)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The columns that are shown, in this order; those without a value are left out.
const COLUMNS: [(&str, &str); 31] = [
    ("call", "call_id"),
    ("tool", "tool"),
    ("version", "tool_version"),
    ("effect class", "effect"),
    ("tenant", "tenant"),
    ("session", "session"),
    ("run", "run"),
    ("queue", "queue"),
    ("priority", "priority"),
    ("state", "state"),
    ("held", "held"),
    ("held for", "held_why"),
    ("cancel asked", "cancel_requested"),
    ("outcome", "outcome"),
    ("source", "source"),
    ("attempts", "attempts"),
    ("accepted", "accepted_at"),
    ("not before", "not_before"),
    ("started", "started_at"),
    ("finished", "finished_at"),
    ("deadline", "deadline_at"),
    ("worker", "worker"),
    ("trace", "trace_id"),
    ("probe of", "probe_of"),
    ("language", "language"),
    ("meta", "meta"),
    ("arguments", "args"),
    ("as sent", "original_args"),
    ("corrections", "coercions"),
    ("result", "result"),
    ("error", "error"),
];

#[derive(Deserialize)]
struct Attempt {
    number: i32,
    worker: Option<String>,
    #[serde(with = "time::serde::rfc3339::option")]
    started_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339::option")]
    finished_at: Option<OffsetDateTime>,
    outcome: Option<String>,
    effect: Option<String>,
    late: bool,
    error: Option<Code>,
    #[serde(default, with = "time::serde::rfc3339::option")]
    worker_fenced_at: Option<OffsetDateTime>,
    worker_fenced_by: Option<String>,
}

#[derive(Deserialize)]
struct Code {
    code: Option<String>,
}

#[derive(Deserialize)]
struct Event {
    revision: Option<i32>,
    #[serde(with = "time::serde::rfc3339::option")]
    at: Option<OffsetDateTime>,
    from_state: Option<String>,
    to_state: String,
    actor: String,
    reason: String,
    details: Option<Details>,
}

/// What whoever moved it, or remarked on it, said.
#[derive(Deserialize)]
struct Details {
    note: Option<String>,
    reason: Option<String>,
    why: Option<String>,
    #[serde(default)]
    by_time_only: bool,
}

/// The story as text for a person.
fn read(story: &Story) -> serde_json::Result<String> {
    let call: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&story.call)?;
    let attempts: Vec<Attempt> = serde_json::from_str(&story.attempts)?;
    let events: Vec<Event> = serde_json::from_str(&story.events)?;

    let was_corrected = call
        .get("coercions")
        .is_some_and(|changes| changes.get() != "[]");
    let mut text = String::new();
    for (label, column) in COLUMNS {
        let repeats = ["original_args", "coercions"].contains(&column) && !was_corrected;
        let Some(value) = call.get(column).filter(|value| !is_nothing(value)) else {
            continue;
        };
        if !repeats {
            writeln!(text, "{label:<14}{}", shown(value)).expect("a String takes everything");
        }
    }
    if !attempts.is_empty() {
        let headings = [
            "ATTEMPT", "WORKER", "STARTED", "FINISHED", "OUTCOME", "EFFECT", "ERROR",
        ];
        let fenced: String = attempts.iter().filter_map(Attempt::fenced).collect();
        let rows: Vec<_> = attempts.into_iter().map(Attempt::cells).collect();
        text = text + "\n" + &table(&headings, &rows) + &fenced;
    }
    let rows: Vec<_> = events.into_iter().map(Event::cells).collect();
    Ok(text + "\n" + &table(&["MOVE", "AT", "FROM", "TO", "BY", "WHY", "NOTE"], &rows))
}

/// What need not be said: no value, or that the call is not held.
fn is_nothing(value: &RawValue) -> bool {
    matches!(value.get(), "null" | "false")
}

/// A column's value: text as it is, an instant shortened, everything else as JSON.
fn shown(value: &RawValue) -> String {
    match serde_json::from_str::<String>(value.get()) {
        Ok(text) => {
            let at = OffsetDateTime::parse(&text, &time::format_description::well_known::Rfc3339);
            at.map_or_else(|_no_instant| plain(&text), instant)
        }
        Err(_no_text) => json::indented(value.get(), 14),
    }
}

impl Attempt {
    /// A line about its worker, where that was proven gone.
    fn fenced(&self) -> Option<String> {
        let (at, by) = (self.worker_fenced_at?, self.worker_fenced_by.as_deref()?);
        Some(format!(
            "the worker of attempt {} was fenced at {} by {}\n",
            self.number,
            instant(at),
            plain(by)
        ))
    }

    fn cells(self) -> Vec<String> {
        let late = if self.late { " (too late)" } else { "" };
        vec![
            format!("{}{late}", self.number),
            or_none(self.worker),
            or_none(self.started_at.map(instant)),
            or_none(self.finished_at.map(instant)),
            or_none(self.outcome),
            or_none(self.effect),
            or_none(self.error.and_then(|error| error.code)),
        ]
    }
}

impl Event {
    fn cells(self) -> Vec<String> {
        vec![
            or_none(self.revision.map(|revision| revision.to_string())),
            or_none(self.at.map(instant)),
            or_none(self.from_state),
            self.to_state,
            self.actor,
            self.reason,
            self.details.map(Details::shown).unwrap_or_default(),
        ]
    }
}

impl Details {
    fn shown(self) -> String {
        let said = self.note.or(self.reason).or(self.why).unwrap_or_default();
        if self.by_time_only {
            format!("by time only: {said}")
        } else {
            said
        }
    }
}

fn or_none(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_reads_from_the_question_to_the_last_move() {
        let story = Story {
            call: r#"{"call_id":"01936c2e-0000-7000-8000-000000000001","tenant":"default","tool":"look","tool_version":1,
                "state":"failed","outcome":"system_error","source":"error","held":false,"args":{"days":9007199254740993},
                "original_args":{"days":"9007199254740993"},"coercions":[{"path":"/days","rule":"string_to_integer"}],
                "result":null,"error":{"code":"timeout","message":"no\u001b[2J answer"},"attempts":2,
                "accepted_at":"2026-11-20T19:00:00.1+00:00","session":null}"#
                .to_owned(),
            attempts: r#"[{"number":1,"worker":"worker-1\u009b","started_at":"2026-11-20T19:00:00.1019+00:00",
                "finished_at":"2026-11-20T19:00:01+00:00","outcome":"unknown","effect":"none","late":true,
                "worker_fenced_at":"2026-11-20T19:00:09+00:00","worker_fenced_by":"dev\u001b[2J",
                "error":{"code":"timeout","message":"no answer"}},
                {"number":2,"worker":null,"started_at":"2026-11-20T19:00:03+00:00","finished_at":null,"outcome":null,
                "effect":null,"late":false,"error":null}]"#
                .to_owned(),
            events: r#"[{"revision":0,"at":"2026-11-20T19:00:00.1+00:00","from_state":null,"to_state":"queued",
                "actor":"dispatcher","reason":"accepted","details":null},
                {"revision":3,"at":"2026-11-20T19:00:04+00:00","from_state":"running","to_state":"running",
                "actor":"caller","reason":"cancel_requested","attempt_id":null,"details":{"reason":"not wanted"}},
                {"revision":4,"at":"2026-11-20T19:00:05+00:00","from_state":"running","to_state":"in_doubt",
                "actor":"sweep","reason":"worker_lost","details":{"pause_ms":1}},
                {"revision":5,"at":"2026-11-20T19:00:06+00:00","from_state":"in_doubt","to_state":"failed","actor":"ann",
                "reason":"settled_not_applied","details":{"note":"no\u001b[2J charge","worker_fenced":false,"by_time_only":true}}]"#
                .to_owned(),
        };
        insta::assert_snapshot!(read(&story).unwrap());
    }
}
