//! The promises that hold at the end of every scenario, whatever the faults. One list.

use std::collections::{BTreeSet, HashMap};

use fleet::{call::State, ids::CallId, state};
use serde_json::Value;

use crate::{fleet::Fleet, wait::until_so, witness::Witness};

/// Checks all of it. Waits for what is only true once everything has settled.
///
/// # Panics
///
/// Something is not so; the message says which call.
pub async fn hold(fleet: &Fleet, witness: &Witness) {
    // Those that a caller was told of, and those without a told caller because their dispatcher died.
    let mut calls: BTreeSet<CallId> = fleet.accepted().into_iter().collect();
    calls.extend(fleet.calls().await);
    hold_for(fleet, witness, &calls.into_iter().collect::<Vec<_>>()).await;
}

/// The same where the ledger has lost other calls than these.
///
/// # Panics
///
/// Something is not so; the message says which call.
pub async fn hold_for(fleet: &Fleet, witness: &Witness, calls: &[CallId]) {
    for call in calls {
        each_call_has_one_place(fleet, *call).await;
        let record = Record::of(fleet, *call).await;
        attempts_are_numbered_without_gaps(*call, &record);
        every_move_is_known_and_legal(*call, &record);
    }
    what_is_done_once_is_not_done_twice(fleet, witness).await;
    what_runs_has_a_living_worker(fleet).await;
    open_calls_are_counted(fleet).await;
    nothing_points_to_nothing(fleet).await;
}

async fn each_call_has_one_place(fleet: &Fleet, call: CallId) {
    let places = fleet
        .rows(
            "SELECT (SELECT count(*) FROM toolfleet.open_calls WHERE call_id = $1) AS open, \
                    (SELECT count(*) FROM toolfleet.finished_calls WHERE call_id = $1) AS finished",
            call,
        )
        .await;
    let places = (places[0]["open"].as_i64(), places[0]["finished"].as_i64());
    assert!(
        matches!(places, (Some(1), Some(0)) | (Some(0), Some(1))),
        "call {call} is open and finished so often: {places:?}"
    );
}

/// What the ledger says of a call at one moment: it may still be moving.
struct Record {
    call: Value,
    attempts: Vec<Value>,
    events: Vec<Value>,
}

impl Record {
    async fn of(fleet: &Fleet, call: CallId) -> Self {
        // One statement sees one moment.
        let sql = "SELECT (SELECT to_json(c) FROM toolfleet.calls c WHERE call_id = $1) AS call, \
                   (SELECT json_agg(a ORDER BY number, late) FROM toolfleet.attempts a WHERE call_id = $1) AS attempts, \
                   (SELECT json_agg(e ORDER BY revision) FROM toolfleet.call_events e WHERE call_id = $1) AS events";
        let mut row = fleet.rows(sql, call).await.remove(0);
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        Self {
            attempts: list(&row["attempts"]),
            events: list(&row["events"]),
            call: row["call"].take(),
        }
    }
}

fn attempts_are_numbered_without_gaps(call: CallId, record: &Record) {
    let attempts = &record.attempts;
    let mut numbers: Vec<i64> = attempts
        .iter()
        .filter_map(|a| a["number"].as_i64())
        .collect();
    // Late evidence repeats the number of its attempt.
    numbers.dedup();
    let made = record.call["attempts"].as_i64().expect("a count");
    let expected: Vec<i64> = (1..=made).collect();
    assert_eq!(numbers, expected, "attempts of call {call}: {attempts:?}");
}

fn every_move_is_known_and_legal(call: CallId, record: &Record) {
    let events = &record.events;
    let mut before: Option<State> = None;
    for (revision, event) in events.iter().enumerate() {
        let at = format!("call {call}, revision {revision}: {events:?}");
        assert_eq!(event["revision"], revision, "{at}");
        let (from, to) = (state_of(&event["from_state"]), state_of(&event["to_state"]));
        assert_eq!(from, before, "{at}");
        let to = to.expect("a move leads somewhere");
        match from {
            None => assert!(matches!(to, State::Queued | State::AwaitingClient), "{at}"),
            // A remark leads from a state to the same one; nothing is remarked about what is over.
            Some(from) if from == to => assert!(!to.is_terminal(), "{at}"),
            Some(from) => assert!(state::is_legal(from, to), "{at}"),
        }
        before = Some(to);
    }
    let now = state_of(&record.call["state"]);
    assert_eq!(
        before, now,
        "call {call} is not where its moves led: {events:?}"
    );
}

fn state_of(word: &Value) -> Option<State> {
    let word = word.as_str()?;
    Some(word.parse().expect("the ledger knows only states"))
}

async fn what_is_done_once_is_not_done_twice(fleet: &Fleet, witness: &Witness) {
    let mut effects: HashMap<CallId, usize> = HashMap::new();
    witness.look(|seen| {
        for request in seen.requests.iter().filter(|request| request.applied) {
            let call = request.header("toolfleet-call-id");
            *effects
                .entry(call.parse().expect("a tool is told its call"))
                .or_default() += 1;
        }
    });
    for (call, times) in effects.into_iter().filter(|(_, times)| *times > 1) {
        let effect = fleet.call(call).await["effect"].clone();
        assert_ne!(effect, "once", "call {call} took place {times} times");
    }
}

async fn what_runs_has_a_living_worker(fleet: &Fleet) {
    until_so("every running call to have a living worker", async || {
        0 == fleet
            .count(
                "SELECT count(*) FROM toolfleet.open_calls o \
                 LEFT JOIN toolfleet.worker_processes w USING (worker_id) \
                 WHERE o.state = 'running' AND (w.worker_id IS NULL OR w.state NOT IN ('live', 'draining'))",
            )
            .await
    })
    .await;
}

async fn open_calls_are_counted(fleet: &Fleet) {
    assert_eq!(fleet.count(MISCOUNTED).await, 0, "tenants miscounted");
}

/// The tenants whose counts do not say how many open calls they have; one statement sees one moment.
pub const MISCOUNTED: &str = "SELECT count(*) FROM ( \
     SELECT tenant FROM (SELECT tenant, 1 AS n FROM toolfleet.open_calls \
                         UNION ALL SELECT tenant, -n FROM toolfleet.open_counts) c \
     GROUP BY tenant HAVING sum(n) <> 0) wrong";

async fn nothing_points_to_nothing(fleet: &Fleet) {
    let queued = "SELECT count(*) FROM toolfleet.open_calls WHERE state = 'queued'";
    until_so(
        "the stream to be empty when nothing is queued",
        async || fleet.count(queued).await > 0 || fleet.pointers().await == Some(0),
    )
    .await;
}
