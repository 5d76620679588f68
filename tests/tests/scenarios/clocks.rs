//! Deadlines: which clock caps which, and what a tool is told. The other half of `docs/clocks.md` is in `retry` and `sweep`.

use std::time::Duration;

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// A moment from now on Postgres's clock, as a caller writes it.
async fn in_(fleet: &Fleet, wait: Duration) -> (OffsetDateTime, String) {
    let now: OffsetDateTime = sqlx::query_scalar("SELECT date_trunc('milliseconds', now())")
        .fetch_one(&fleet.database.pool)
        .await
        .unwrap();
    (now + wait, (now + wait).format(&Rfc3339).unwrap())
}

fn moment(value: &Value) -> OffsetDateTime {
    OffsetDateTime::parse(value.as_str().unwrap(), &Rfc3339).unwrap()
}

/// How long an attempt took, and how long it might have.
fn took(attempt: &Value) -> (f64, f64) {
    let took = attempt["finished"].as_f64().unwrap() - attempt["started"].as_f64().unwrap();
    (took, attempt["timeout_ms"].as_f64().unwrap() / 1000.0)
}

#[tokio::test]
async fn a_run_deadline_caps_every_call_of_its_run() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("look", "read"),
        witness.tool("elsewhere", "once") + "queue: nobody\n",
    ];
    let mut fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("a", Reply::Hang);
    let (until, text) = in_(&fleet, Duration::from_secs(2)).await;
    let of_the_run = |tool: &str| {
        let call = fleet.submit(tool, &json!({"what": "a"})).key(tool);
        let call = call.deadline(Duration::from_secs(60));
        let call = call.header("Toolfleet-Run", "r1");
        call.header("Toolfleet-Run-Deadline", &text).wait()
    };
    let (runs, waits) = tokio::join!(of_the_run("look"), of_the_run("elsewhere"));
    assert_eq!(
        (&runs["state"], &waits["state"]),
        (&json!("failed"), &json!("expired")),
        "{} {}",
        *runs,
        *waits
    );
    for answer in [&runs, &waits] {
        assert_eq!(answer.code(), "deadline_exceeded", "{}", **answer);
        let row = fleet.call(answer.call_id()).await;
        assert_eq!(moment(&row["deadline_at"]), until);
        // An attempt's time counts from before its claim was sent, so it may be over a little earlier than the call's.
        let over = answer.call_id() == runs.call_id() || moment(&row["finished_at"]) >= until;
        assert!(over, "{row}");
    }
    let attempts = fleet.attempts(runs.call_id()).await;
    let (_, might) = took(&attempts[0]);
    assert!(might <= 2.0, "{attempts:?}");
    // A worker that pulls from that queue finds nothing to do.
    fleet.add_worker(&["--queues", "nobody"]).await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn no_attempt_is_longer_than_what_its_call_has_left() {
    let witness = Witness::start().await;
    let retry = "timeout: 30s\nretry: {strategy: fixed, max_attempts: 5, base: 300ms}\n";
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read") + retry])).await;
    witness.first("a", [Reply::Status(503), Reply::Hang]);
    let call = fleet.submit("look", &json!({"what": "a"}));
    let answer = call.deadline(Duration::from_millis(1_500)).wait().await;
    assert_eq!(answer.code(), "deadline_exceeded", "{}", *answer);
    let attempts = fleet.attempts(answer.call_id()).await;
    assert_eq!(attempts.len(), 2, "{attempts:?}");
    let (_, first_might) = took(&attempts[0]);
    let (second_took, second_might) = took(&attempts[1]);
    assert!(first_might <= 1.5, "{attempts:?}");
    assert!(second_might <= 1.2, "{attempts:?}");
    // The rest is what the busiest machine needs to notice and to say so.
    assert!(second_took < second_might + 3.0, "{attempts:?}");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_pointer_that_comes_after_the_deadline_starts_nothing() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("charge", "once")]).workers(0, &[]);
    let mut fleet = Fleet::start(spec).await;
    let call = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let call = call.deadline(Duration::from_millis(1_500));
    let call = call.asynchronous().await.call_id();
    until_so("its pointer to be in the stream", async || {
        fleet.pointers().await == Some(1)
    })
    .await;
    // No sweep runs: the claim alone has to notice.
    fleet.dispatchers.remove(0).kill().await;
    until_so("the deadline to have passed", async || {
        1 == fleet
            .count("SELECT count(*) FROM toolfleet.calls WHERE deadline_at < now()")
            .await
    })
    .await;
    fleet.add_worker(&[]).await;
    until_so("the worker to have thrown the pointer away", async || {
        fleet.pointers().await == Some(0)
    })
    .await;
    assert_eq!(fleet.call(call).await["attempts"], 0);
    fleet.add_dispatcher().await;
    fleet.until_state(call, "expired").await;
    assert_eq!(witness.asked("a"), 0);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_tool_is_told_when_it_must_have_answered() {
    let witness = Witness::start().await;
    let echo = json!({
        "name": "echo", "version": 1, "description": "Says what it was told.", "effect": "read",
        "input_schema": {"type": "object"}, "timeout": "20s",
        "executor": {"process": {"command": ["sh", "-c",
            r#"echo "{\"moment\": $TOOLFLEET_DEADLINE_MS, \"rest\": $TOOLFLEET_REMAINING_MS}""#]}},
    });
    let tools = [
        witness.tool("look", "read") + "timeout: 20s\n",
        echo.to_string(),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    for (deadline, attempt_ms) in [(60, 20_000), (5, 5_000)] {
        let deadline = Duration::from_secs(deadline);
        let look = fleet.submit("look", &json!({"what": "a"}));
        let looked = look.deadline(deadline).wait().await;
        let request = witness.look(|seen| seen.requests.last().unwrap().clone());
        let header = |name: &str| request.header(name).parse::<i64>().unwrap();
        let told_http = (
            header("toolfleet-deadline-ms"),
            header("toolfleet-remaining-ms"),
        );
        let echoed = fleet.submit("echo", &json!({}));
        let echoed = echoed.deadline(deadline).wait().await;
        let told_process = (
            echoed["result"]["moment"].as_i64().unwrap(),
            echoed["result"]["rest"].as_i64().unwrap(),
        );
        for (answer, (moment_told, rest)) in [(looked, told_http), (echoed, told_process)] {
            let attempts = fleet.attempts(answer.call_id()).await;
            let timeout_ms = attempts[0]["timeout_ms"].as_i64().unwrap();
            assert!(timeout_ms <= attempt_ms, "{attempts:?}");
            assert!((1..=timeout_ms).contains(&rest), "{rest} ms, {attempts:?}");
            let started = moment(&attempts[0]["started_at"]).unix_timestamp_nanos() / 1_000_000;
            let until = i64::try_from(started).unwrap() + timeout_ms;
            assert!((moment_told - until).abs() <= 2, "{moment_told}, {until}");
        }
    }
    invariants::hold(&fleet, &witness).await;
}
