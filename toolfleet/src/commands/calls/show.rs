//! `toolfleet calls show`.

use std::{fmt::Write, process::ExitCode};

use anyhow::{Context, bail};
use fleet::{config::StoreArgs, ids::CallId};
use fleet_history::{
    Row, instant,
    marks::{Mark, marks},
    models::{self, ModelCall},
    story::{self, Attempt, CallEvent, EventDetails, Story},
};
use serde_json::value::RawValue;
use time::OffsetDateTime;

use crate::commands::{
    connect, json,
    output::{self, table},
    plain::plain,
};

/// How many characters of a value a person gets to see: an answer may have megabytes.
const SHOWN_MAX: usize = 8_000;

/// What `calls show` is told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "As text a value of more than 8000 characters is cut, and says so; --json has all of it"
)]
pub struct ShowCall {
    /// The call's id, as every envelope has it
    call_id: CallId,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON: `{"call", "attempts", "events", "marks", "model_calls"}`, rows of the views of these names; `marks` has those of the
    /// call and those of the calls that it was made for, each with the state of the new call as `new_state`. Of more than 100
    /// attempts it has the first 20 and the last 80, of more than 500 moves the first 100 and the last 400; `attempts_in_all` and
    /// `events_in_all` say how many there are
    #[arg(long)]
    json: bool,
}

impl ShowCall {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let Some(story) = story::story(&pool, self.call_id).await? else {
            bail!(
                "there is no call {}; its history may have been dropped",
                self.call_id
            );
        };
        let marks = marks(&pool, self.call_id).await?;
        let asked = models::of_call(&pool, self.call_id).await?;
        if self.json {
            let whole = format!(
                r#"{{"call":{},"attempts":{},"events":{},"marks":{},"model_calls":{},"attempts_in_all":{},"events_in_all":{}}}"#,
                story.call.json(),
                story.attempts.json(),
                story.events.json(),
                marks.json(),
                Row::json_of_all(&asked),
                story.attempts_in_all,
                story.events_in_all
            );
            output::print(&json::compact(&whole))?;
        } else {
            let marks = marks.read().context("read the marks of a call")?;
            let asked = Row::read_all(&asked).context("read the requests of a call")?;
            let text = read(&story, &lines_of(self.call_id, &marks), asked);
            output::print(&text.context("read the views of a call")?)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The columns that are shown, in this order; a column without a value is left out.
const COLUMNS: [(&str, &str); 35] = [
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
    ("waits for", "awaiting"),
    ("cancel asked", "cancel_requested"),
    ("outcome", "outcome"),
    ("source", "source"),
    ("degraded", "degraded"),
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
    ("files", "files"),
    ("result", "result"),
    ("shortened", "shortened"),
    ("error", "error"),
];

/// The marks of a call, and of those that it was made for, a line each.
fn lines_of(call: CallId, marks: &[Mark]) -> String {
    marks.iter().map(|mark| line_of(call, mark)).collect()
}

fn line_of(call: CallId, mark: &Mark) -> String {
    let name = mark.bulk_name.as_ref();
    let name = name.map_or_else(String::new, |name| format!(" ({} {name})", mark.what));
    let note = mark.note.as_ref();
    let note = note.map_or_else(String::new, |note| format!(": {note}"));
    let what = match mark.new_call_id {
        Some(new) if new == call => format!("made for call {}", mark.call_id),
        Some(new) => {
            let state = mark
                .new_state
                .as_deref()
                .unwrap_or("not in the history any more");
            format!("made again as call {new}, {state}")
        }
        None => mark.what.clone(),
    };
    let text = format!(
        "{what}, at {} by {}{name}{note}",
        instant(mark.at),
        mark.actor
    );
    format!("{:<14}{}\n", "mark", plain(&text))
}

/// The story as text for a person; `marks` are lines of it, and `asked` what models were asked for it.
fn read(story: &Story, marks: &str, asked: Vec<ModelCall>) -> serde_json::Result<String> {
    let call = story.call.read()?;
    let attempts = story.attempts.read()?;
    let events = story.events.read()?;

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
    text.push_str(marks);
    if !attempts.is_empty() {
        let headings = [
            "ATTEMPT", "WORKER", "STARTED", "FINISHED", "OUTCOME", "EFFECT", "ERROR",
        ];
        let fenced: String = attempts.iter().filter_map(fenced).collect();
        let rows: Vec<_> = attempts.into_iter().map(cells_of_attempt).collect();
        text = text + "\n" + &table(&headings, &rows) + &fenced;
    }
    if !asked.is_empty() {
        let headings = [
            "ATTEMPT",
            "ROUTE",
            "MODEL",
            "STARTED",
            "MS",
            "TOKENS IN",
            "TOKENS OUT",
            "COST",
            "CAME TO",
        ];
        let rows: Vec<_> = asked.into_iter().map(cells_of_request).collect();
        text = text + "\n" + &table(&headings, &rows);
    }
    let rows: Vec<_> = events.into_iter().map(cells_of_event).collect();
    let shown = i64::try_from(rows.len()).unwrap_or(i64::MAX);
    text = text + "\n" + &table(&["MOVE", "AT", "FROM", "TO", "BY", "WHY", "NOTE"], &rows);
    if story.events_in_all > shown {
        let left_out = story.events_in_all - shown;
        writeln!(text, "Between the first and the last moves {left_out} are left out: toolfleet.call_events has them.")
            .expect("a String takes everything");
    }
    Ok(text)
}

/// Whether a value is left out: none, or that the call is not held.
fn is_nothing(value: &RawValue) -> bool {
    matches!(value.get(), "null" | "false")
}

/// A column's value, as far as a person can read it.
fn shown(value: &RawValue) -> String {
    let text = whole(value);
    let Some((end, _)) = text.char_indices().nth(SHOWN_MAX) else {
        return text;
    };
    let more = text.len() - end;
    format!(
        "{}\n{:14}... and {more} bytes more: --json has all of it",
        &text[..end],
        ""
    )
}

/// Text as it is, an instant shortened, everything else as JSON.
fn whole(value: &RawValue) -> String {
    match serde_json::from_str::<String>(value.get()) {
        Ok(text) => {
            let at = OffsetDateTime::parse(&text, &time::format_description::well_known::Rfc3339);
            at.map_or_else(|_no_instant| plain(&text), instant)
        }
        Err(_no_text) => json::indented(value.get(), 14),
    }
}

/// A line about the attempt's worker, if it was fenced.
fn fenced(attempt: &Attempt) -> Option<String> {
    let (at, by) = (
        attempt.worker_fenced_at?,
        attempt.worker_fenced_by.as_deref()?,
    );
    Some(format!(
        "the worker of attempt {} was fenced at {} by {}\n",
        attempt.number,
        instant(at),
        plain(by)
    ))
}

fn cells_of_attempt(attempt: Attempt) -> Vec<String> {
    let late = if attempt.late { " (too late)" } else { "" };
    vec![
        format!("{}{late}", attempt.number),
        or_none(attempt.worker),
        or_none(attempt.started_at.map(instant)),
        or_none(attempt.finished_at.map(instant)),
        or_none(attempt.outcome),
        or_none(attempt.effect),
        or_none(attempt.error.and_then(|error| error.code)),
    ]
}

fn cells_of_request(request: ModelCall) -> Vec<String> {
    let about = if request.estimated == Some(true) {
        "~"
    } else {
        ""
    };
    let tokens = |count: Option<i64>| or_none(count.map(|count| format!("{about}{count}")));
    let cost = request.amount.zip(request.currency);
    vec![
        request.attempt.to_string(),
        request.route,
        request.model_asked,
        instant(request.started_at),
        or_none(request.run_ms.map(|ms| ms.to_string())),
        tokens(request.input_tokens),
        tokens(request.output_tokens),
        or_none(cost.map(|(amount, currency)| format!("{about}{amount} {currency}"))),
        or_none(request.code.or(request.finish)),
    ]
}

fn cells_of_event(event: CallEvent) -> Vec<String> {
    vec![
        or_none(event.revision.map(|revision| revision.to_string())),
        or_none(event.at.map(instant)),
        or_none(event.from_state),
        event.to_state,
        event.actor,
        event.reason,
        event.details.map(said).unwrap_or_default(),
    ]
}

fn said(details: EventDetails) -> String {
    let answer = details.from.map(|call| format!("the answer of {call}"));
    let said = details.note.or(details.reason).or(details.why).or(answer);
    let said = said.unwrap_or_default();
    if details.by_time_only {
        format!("by time only: {said}")
    } else {
        said
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
                .to_owned()
                .into(),
            attempts: r#"[{"number":1,"worker":"worker-1\u009b","started_at":"2026-11-20T19:00:00.1019+00:00",
                "finished_at":"2026-11-20T19:00:01+00:00","outcome":"unknown","effect":"none","late":true,
                "worker_fenced_at":"2026-11-20T19:00:09+00:00","worker_fenced_by":"dev\u001b[2J",
                "error":{"code":"timeout","message":"no answer"}},
                {"number":2,"worker":null,"started_at":"2026-11-20T19:00:03+00:00","finished_at":null,"outcome":null,
                "effect":null,"late":false,"error":null}]"#
                .to_owned()
                .into(),
            events: r#"[{"revision":0,"at":"2026-11-20T19:00:00.1+00:00","from_state":null,"to_state":"queued",
                "actor":"dispatcher","reason":"accepted","details":null},
                {"revision":3,"at":"2026-11-20T19:00:04+00:00","from_state":"running","to_state":"running",
                "actor":"caller","reason":"cancel_requested","attempt_id":null,"details":{"reason":"not wanted"}},
                {"revision":4,"at":"2026-11-20T19:00:05+00:00","from_state":"running","to_state":"in_doubt",
                "actor":"sweep","reason":"worker_lost","details":{"pause_ms":1}},
                {"revision":5,"at":"2026-11-20T19:00:06+00:00","from_state":"in_doubt","to_state":"failed","actor":"ann",
                "reason":"settled_not_applied","details":{"note":"no\u001b[2J charge","worker_fenced":false,"by_time_only":true}},
                {"revision":6,"at":"2026-11-20T19:00:07+00:00","from_state":"queued","to_state":"succeeded","actor":"worker 7",
                "reason":"answered_from_the_cache","details":{"from":"01936c2e-0000-7000-8000-00000000000a\u001b[2J"}}]"#
                .to_owned()
                .into(),
            attempts_max: Some(3),
            attempts_in_all: 2,
            events_in_all: 7,
        };
        let mark = |call: u128, new: u128| {
            serde_json::from_value(serde_json::json!({
                "call_id": uuid::Uuid::from_u128(call), "what": "retried", "at": "2026-11-20T19:01:00Z", "actor": "ann\u{1b}[2J",
                "note": null, "bulk_name": (new == 9).then_some("monday"), "new_call_id": uuid::Uuid::from_u128(new),
                "new_state": "succeeded",
            }))
            .unwrap()
        };
        let this = CallId(uuid::Uuid::from_u128(1));
        let marks = lines_of(this, &[mark(7, 1), mark(1, 9)]);
        let request = |attempt: i32, more: serde_json::Value| -> ModelCall {
            let mut request = serde_json::json!({
                "attempt": attempt, "tool": "look", "route": "main", "model_asked": "large\u{1b}[2J",
                "started_at": "2026-11-20T19:00:00.5Z", "first_token_ms": null, "run_ms": null, "input_tokens": null,
                "output_tokens": null, "estimated": null, "amount": null, "currency": null, "finish": null, "code": "unknown",
            });
            for (name, value) in more.as_object().unwrap() {
                request[name] = value.clone();
            }
            serde_json::from_value(request).unwrap()
        };
        let answered = serde_json::json!({"run_ms": 1234, "input_tokens": 10, "output_tokens": 3, "estimated": true,
            "amount": "0.0001", "currency": "USD", "finish": "stop", "code": null});
        let asked = vec![request(1, serde_json::json!({})), request(2, answered)];
        insta::assert_snapshot!(read(&story, &marks, asked).unwrap());
    }

    #[test]
    fn a_large_value_is_cut_for_people() {
        let value = serde_json::value::to_raw_value(&"ä".repeat(SHOWN_MAX + 10)).unwrap();
        let text = shown(&value);
        assert!(
            text.ends_with("... and 20 bytes more: --json has all of it"),
            "{text}"
        );
        let value = serde_json::value::to_raw_value(&"ä".repeat(SHOWN_MAX)).unwrap();
        assert_eq!(shown(&value).chars().count(), SHOWN_MAX);
    }
}
