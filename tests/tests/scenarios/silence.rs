//! The ledger refuses or falls silent in the middle: nothing is run twice, and no caller is told that nothing happened.

use std::time::Duration;

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::json;
use sqlx::{Connection, PgConnection, Postgres, Transaction};

/// How often the worker has beaten.
async fn beats(fleet: &Fleet) -> i64 {
    fleet
        .count("SELECT coalesce(max(beat), 0) FROM toolfleet.worker_processes")
        .await
}

/// Nothing can be written to the history, or read from it, until this is over.
async fn lock_history(locking: &mut PgConnection) -> Transaction<'_, Postgres> {
    let mut hold = locking.begin().await.unwrap();
    sqlx::query("LOCK TABLE toolfleet.finished_calls")
        .execute(&mut *hold)
        .await
        .unwrap();
    hold
}

#[tokio::test]
async fn a_completion_that_the_ledger_refuses_for_a_while_does_not_run_a_once_tool_again() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    witness.always("a", Reply::DoneWhenReleased);
    let accepted = fleet
        .submit("charge", &json!({"what": "a"}))
        .key("k")
        .asynchronous()
        .await;
    witness.until_asked("a", 1).await;

    let mut locking = fleet.database.connect().await;
    let hold = lock_history(&mut locking).await;
    let before = beats(&fleet).await;
    witness.release("a");
    // Long enough for the completion to be refused, and for the worker to look after what it has given up.
    until_so("two beats", async || beats(&fleet).await >= before + 2).await;
    hold.rollback().await.unwrap();

    let call = fleet.until_state(accepted.call_id(), "succeeded").await;
    assert_eq!(call["attempts"], 1);
    assert_eq!((witness.asked("a"), witness.applied("a")), (1, 1));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_waits_to_be_written_takes_no_slot_until_it_is_as_much_as_there_are() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("charge", "once")]).workers(1, &["--concurrency", "2"]);
    let fleet = Fleet::start(spec).await;
    let mut locking = fleet.database.connect().await;
    let hold = lock_history(&mut locking).await;
    let mut accepted = Vec::new();
    for key in 0..8 {
        let call = fleet.submit("charge", &json!({"what": "a"}));
        let call = call.key(&key.to_string()).asynchronous().await;
        accepted.push(call.call_id());
    }
    // Two that wait to be written, and two that keep their slots for it.
    witness.until_asked("a", 4).await;
    let before = beats(&fleet).await;
    until_so("two beats", async || beats(&fleet).await >= before + 2).await;
    assert_eq!(witness.asked("a"), 4);
    hold.rollback().await.unwrap();
    for call in accepted {
        fleet.until_state(call, "succeeded").await;
    }
    assert_eq!(witness.asked("a"), 8);
    assert!(witness.look(|seen| seen.running_max) <= 2);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn whoever_submitted_a_call_is_told_its_id_even_when_it_cannot_be_read_again() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    witness.always("a", Reply::DoneWhenReleased);
    let mut locking = fleet.database.connect().await;
    // Reading a call looks at the history too; accepting one does not.
    let hold = lock_history(&mut locking).await;
    let submission = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let answer = submission.header("Prefer", "wait=0").wait().await;
    hold.rollback().await.unwrap();
    assert!(answer["call_id"].is_string(), "{}", *answer);
    assert!(answer.get("error").is_none(), "{}", *answer);
    witness.release("a");
    fleet.until_state(answer.call_id(), "succeeded").await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_an_earlier_attempt_may_have_done_is_not_forgotten_when_later_ones_do_not_start() {
    let witness = Witness::start().await;
    let mut manifest = witness.tool("put", "idempotent");
    manifest.push_str("timeout: 300ms\nnot_applied_statuses: [503]\nretry: {strategy: fixed, base: 100ms, max_attempts: 3}\n");
    let fleet = Fleet::start(Spec::with([manifest])).await;
    witness.first("a", [Reply::DoneWhenReleased]);
    witness.always("a", Reply::Status(503));
    let answer = fleet.submit("put", &json!({"what": "a"})).wait().await;
    assert_eq!(
        (&answer["state"], &answer["effect"]),
        (&json!("in_doubt"), &json!("unknown")),
        "{}",
        *answer
    );
    assert_eq!(witness.asked("a"), 3);
    witness.release("a");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_has_little_of_its_time_left_after_its_claim_is_not_started() {
    let witness = Witness::start().await;
    let manifest = format!("{}timeout: 2s\n", witness.tool("charge", "once"));
    let fleet = Fleet::start(Spec::with([manifest])).await;
    // A first claim is answered when more than half of the attempt's time is over, and less than all of it.
    let slow = "CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$ \
                BEGIN PERFORM pg_sleep(1.3); RETURN NEW; END $$; \
                CREATE TRIGGER slow BEFORE UPDATE ON toolfleet.open_calls FOR EACH ROW \
                WHEN (NEW.state = 'running' AND NEW.attempts = 1) EXECUTE FUNCTION public.slow()";
    sqlx::raw_sql(slow)
        .execute(&fleet.database.pool)
        .await
        .unwrap();
    let answer = fleet.submit("charge", &json!({"what": "a"}));
    let answer = answer.key("k").wait().await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    let events = fleet.events(answer.call_id()).await;
    let given_back = events.iter().find(|event| event["from_state"] == "running");
    let reason = given_back.map(|event| &event["reason"]);
    assert_eq!(reason, Some(&json!("started_too_late")), "{events:?}");
    assert_eq!(witness.asked("a"), 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_tool_that_has_forgotten_its_key_is_not_asked_again() {
    let witness = Witness::start().await;
    let manifest = witness.tool("put", "idempotent").replace(
        "{header: Idempotency-Key}",
        "{header: Idempotency-Key, valid_for: 1s}",
    );
    let manifest = format!(
        "{manifest}timeout: 500ms\nretry: {{strategy: fixed, base: 300ms, max_attempts: 9}}\n"
    );
    let fleet = Fleet::start(Spec::with([manifest])).await;
    witness.always("a", Reply::DoneWhenReleased);
    let answer = fleet
        .submit("put", &json!({"what": "a"}))
        .patience(Duration::from_secs(30))
        .wait()
        .await;
    assert_eq!(
        (&answer["state"], &answer["effect"]),
        (&json!("in_doubt"), &json!("unknown")),
        "{}",
        *answer
    );
    assert!(
        witness.asked("a") <= 2,
        "asked {} times",
        witness.asked("a")
    );
    witness.release("a");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn an_outcome_is_not_lost_when_somebody_holds_the_row_of_its_call_for_long() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    witness.always("a", Reply::DoneWhenReleased);
    let call = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let call = call.asynchronous().await.call_id();
    witness.until_asked("a", 1).await;
    let mut holding = fleet.database.connect().await;
    let mut hold = holding.begin().await.unwrap();
    sqlx::query("SELECT FROM toolfleet.open_calls WHERE call_id = $1 FOR UPDATE")
        .bind(call.0)
        .execute(&mut *hold)
        .await
        .unwrap();
    let before = beats(&fleet).await;
    witness.release("a");
    // Longer than a statement waits for a lock.
    until_so("two beats", async || beats(&fleet).await >= before + 2).await;
    hold.rollback().await.unwrap();
    let row = fleet.until_state(call, "succeeded").await;
    assert_eq!((&row["attempts"], witness.asked("a")), (&json!(1), 1));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn an_outcome_that_waits_for_its_row_beyond_the_deadline_is_followed_by_no_attempt() {
    let witness = Witness::start().await;
    let retry = "retry: {strategy: fixed, max_attempts: 3, base: 10ms}\n";
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read") + retry])).await;
    witness.always("a", Reply::StatusWhenReleased(503));
    let call = fleet.submit("look", &json!({"what": "a"}));
    let call = call.deadline(Duration::from_secs(6)).asynchronous().await;
    let call = call.call_id();
    witness.until_asked("a", 1).await;
    let mut holding = fleet.database.connect().await;
    let mut hold = holding.begin().await.unwrap();
    sqlx::query("SELECT FROM toolfleet.open_calls WHERE call_id = $1 FOR UPDATE")
        .bind(call.0)
        .execute(&mut *hold)
        .await
        .unwrap();
    witness.release("a");
    // So long that no statement waits any more which was sent before the deadline.
    until_so("the deadline to pass", async || {
        let passed = "SELECT count(*) FROM toolfleet.open_calls WHERE deadline_at + interval '3 seconds' < now()";
        fleet.count(passed).await == 1
    })
    .await;
    hold.rollback().await.unwrap();
    let row = fleet.until_state(call, "failed").await;
    let code = &row["error"]["code"];
    assert_eq!(
        (&row["attempts"], code),
        (&json!(1), &json!("deadline_exceeded"))
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_conflict_while_an_earlier_request_may_be_at_work_is_no_answer() {
    let witness = Witness::start().await;
    let tool = witness.tool("put", "idempotent") + "timeout: 400ms\nretry: {base: 50ms}\n";
    let fleet = Fleet::start(Spec::with([tool])).await;
    // The remote is still at it when it is asked again, and says so.
    witness.first("p", [Reply::DoneThenHang, Reply::No("in progress")]);
    let answer = fleet
        .submit("put", &json!({"what": "p"}))
        .key("p")
        .wait()
        .await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    let outcomes: Vec<_> = fleet
        .attempts(answer.call_id())
        .await
        .into_iter()
        .map(|attempt| attempt["outcome"].clone())
        .collect();
    assert_eq!(outcomes, ["unknown", "unknown", "applied"]);
    // Without such a request before it, a conflict is what the tool says.
    witness.first("q", [Reply::No("there is one already")]);
    let answer = fleet
        .submit("put", &json!({"what": "q"}))
        .key("q")
        .wait()
        .await;
    assert_eq!(
        (&answer["state"], &answer["effect"]),
        (&json!("failed"), &json!("not_applied")),
        "{}",
        *answer
    );
    invariants::hold(&fleet, &witness).await;
}
