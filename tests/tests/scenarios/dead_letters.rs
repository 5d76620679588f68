//! Dead letters and operations on many calls, by the real program: thousands of calls that failed are grouped, counted, made again
//! under one name, and given up; and what must be left alone is.

use std::{process::Stdio, time::Duration};

use fleet_tests::{
    fleet::{Fleet, Spec, built},
    wait::until_so,
    witness::Witness,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tokio::{process::Command, time::timeout};

/// Three tools with a thousand dead letters each, in the last minutes; `charge` has forty doubts beside them.
const LETTERS: &str = "INSERT INTO toolfleet.finished_calls (call_id, rev, from_state, state, outcome, source, effect_known, tenant, \
        tool, tool_version, effect, queue, priority, key_retention_ms, args, args_hash, error, language, accepted_at, deadline_at, \
        finished_at, queued_ms, run_ms, attempts, actor, reason)
    SELECT (substr(toolfleet.uuid_floor(at)::text, 1, 14) || '7' || lpad(to_hex(t), 3, '0') || '-8000-' || lpad(to_hex(g), 12, '0'))::uuid,
        3, 'running', 'failed', 'system_error', 'error', (ARRAY['none', 'none', 'not_applied'])[t]::toolfleet.effect_known, \
        'default', (ARRAY['look_here', 'look_there', 'charge'])[t], 1, (ARRAY['read', 'read', 'once'])[t]::toolfleet.effect, \
        'default', 1, 0, json_build_object('what', 'w' || g), '', \
        CASE t WHEN 1 THEN json_build_object('code', 'timeout', 'message', 'no answer after ' || g || ' ms')
               WHEN 2 THEN json_build_object('code', 'retries_exhausted', 'message', 'tried 3 times', 'details', \
                   json_build_object('last', json_build_object('code', 'unavailable', 'message', 'HTTP 503')))
               ELSE json_build_object('code', 'tool_error', 'message', 'the bank is closed') END, \
        'en', at, at + interval '1 hour', at, 0, 0, 3, 'test', 'test'
    FROM generate_series(1, 3) t, generate_series(1, 1000) g, LATERAL (SELECT now() - interval '4 min' + g * interval '10 ms' AS at) m";
const DOUBTS: &str = "INSERT INTO toolfleet.open_calls (call_id, state, tenant, tool, tool_version, effect, queue, line, priority, \
        key_retention_ms, args, args_hash, language, dispatcher_id, accepted_at, deadline_at, not_before, doubt_since, doubt_reason)
    SELECT (substr(toolfleet.uuid_floor(at)::text, 1, 14) || '7fff-8000-' || lpad(to_hex(g), 12, '0'))::uuid, 'in_doubt', 'default', \
        'charge', 1, 'once', 'default', 'default', 1, 0, '{}', '', 'en', gen_random_uuid(), at, at + interval '1 hour', at, at, 'timeout'
    FROM generate_series(1, 40) g, LATERAL (SELECT now() - interval '2 min' + g * interval '10 ms' AS at) m";

const CALLS: &str = "SELECT count(*) FROM toolfleet.calls";
/// New calls that were made of dead letters; each of one.
const NEW: &str = "SELECT count(*) FROM toolfleet.calls WHERE state = 'queued'";
const MARKED: &str = "SELECT count(DISTINCT call_id) FROM toolfleet.marks WHERE what = 'retried'";
const NEW_OF_MARKS: &str = "SELECT count(DISTINCT new_call_id) FROM toolfleet.marks JOIN toolfleet.calls c ON c.call_id = new_call_id";
const PATIENCE: Duration = Duration::from_secs(90);

async fn fleet() -> (Fleet, Witness) {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("look_here", "read"),
        witness.tool("look_there", "read"),
        witness.tool("charge", "once"),
    ];
    let fleet = Fleet::start(Spec::with(tools).workers(0, &[])).await;
    (fleet, witness)
}

fn calls(fleet: &Fleet, flags: &[&str]) -> Command {
    let mut command = Command::new(built("fleet_tests_toolfleet"));
    command
        .arg("calls")
        .args(flags)
        .env("NATS_URL", fleet.nats_url())
        .env("DATABASE_URL", &fleet.database.url);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("{}{}", self.out, self.err))
    }
}

async fn run(fleet: &Fleet, flags: &[&str]) -> Ran {
    let ending = timeout(PATIENCE, calls(fleet, flags).output());
    let output = ending.await.expect("it ends").unwrap();
    Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

async fn text(fleet: &Fleet, sql: &'static str) -> String {
    let found = sqlx::query_scalar(sql).fetch_one(&fleet.database.pool);
    found.await.unwrap()
}

/// The retry of all of them under this name.
fn retry<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    retry_at("10000", name, more)
}

fn retry_at<'a>(per_second: &'a str, name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let all = [
        "retry",
        "--since",
        "1h",
        "--name",
        name,
        "--per-second",
        per_second,
        "--json",
    ];
    [&all[..], more].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_grouped_counted_and_made_again_once() {
    let (fleet, _witness) = fleet().await;
    fleet.sql(LETTERS).await;
    fleet.sql(DOUBTS).await;

    let groups = run(&fleet, &["dead", "--json"]).await.json();
    let told: Vec<(&str, &str, &str, i64)> = groups
        .as_array()
        .unwrap()
        .iter()
        .map(|group| {
            let word = |field: &str| group[field].as_str().unwrap();
            (
                word("tool"),
                word("last_code"),
                word("last_error"),
                group["calls"].as_i64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("charge", "tool_error", "the bank is closed", 1000),
            ("look_here", "timeout", "no answer after # ms", 1000),
            ("look_there", "unavailable", "HTTP #", 1000),
        ]
    );

    let inside = ["--last-code", "unavailable", "--dry-run"];
    let plan = run(&fleet, &retry("sunday", &inside)).await.json();
    assert_eq!(plan["to_do"], 1000, "{plan}");
    // Of a doubt its cause and its word.
    for (code, found) in [("timeout", 40), ("completion_silent", 0)] {
        let of_doubts = [
            "--tool",
            "charge",
            "--state",
            "in_doubt",
            "--last-code",
            code,
            "--json",
        ];
        let settle = ["settle", "--outcome", "applied", "--note", "x", "--dry-run"];
        let plan = run(&fleet, &[&settle[..], &of_doubts].concat()).await;
        assert_eq!(plan.code, Some(0), "{}", plan.err);
        assert_eq!(plan.json()["to_do"], found, "{code}: {}", plan.out);
    }
    let failed = run(&fleet, &["dead", "--state", "failed", "--json"]).await;
    assert_eq!(failed.code, Some(0), "{}", failed.err);
    let printed = run(&fleet, &["dead"]).await.out;
    assert!(
        printed.contains("retries_exhausted: unavailable") && printed.contains("HTTP 503"),
        "{printed}"
    );

    let counted = run(&fleet, &retry("monday", &["--dry-run"])).await;
    assert_eq!(counted.code, Some(0), "{}", counted.err);
    let plan = counted.json();
    assert_eq!(
        (&plan["to_do"], &plan["left_alone"]),
        (&json!(3000), &json!({"in_doubt": 40}))
    );
    let hesitating = run(&fleet, &retry("monday", &[])).await;
    assert_eq!(hesitating.code, Some(2), "{}", hesitating.err);
    assert!(hesitating.err.contains("--yes"), "{}", hesitating.err);
    assert_eq!(fleet.count(CALLS).await, 3_040, "nothing was done");

    let first = run(&fleet, &retry("monday", &["--yes"])).await;
    assert_eq!(first.code, Some(0), "{}{}", first.out, first.err);
    assert_eq!(first.json()["done"]["done"], json!({"made": 3000}));
    let again = run(&fleet, &retry("monday", &["--yes"])).await;
    let plan = again.json();
    assert_eq!(
        (&plan["to_do"], &plan["left_alone"]),
        (&json!(0), &json!({"in_doubt": 40, "retried_before": 3000}))
    );
    assert_eq!(
        (fleet.count(NEW).await, fleet.count(CALLS).await),
        (3_000, 6_040)
    );
    assert_eq!(
        (fleet.count(MARKED).await, fleet.count(NEW_OF_MARKS).await),
        (3_000, 3_000)
    );
    assert_eq!(run(&fleet, &["dead", "--json"]).await.json(), json!([]));

    // What failed since is not in it, and that is said.
    fleet
        .sql(
            "INSERT INTO toolfleet.finished_calls
             SELECT (jsonb_populate_record(f, jsonb_build_object('call_id', uuidv, 'accepted_at', now(), 'finished_at', now()))).*
             FROM toolfleet.finished_calls f,
                 LATERAL (SELECT (substr(toolfleet.uuid_floor(now())::text, 1, 14) || '7eee-8000-000000000001')::uuid AS uuidv) u
             WHERE f.call_id = (SELECT min(call_id::text)::uuid FROM toolfleet.finished_calls WHERE tool = 'charge')",
        )
        .await;
    let plan = run(&fleet, &retry("monday", &["--yes"])).await.json();
    let told = plan["remarks"][0].as_str().unwrap();
    assert!(
        told.starts_with("monday began at")
            && told.contains("; 1 newer call fits and is not in it: use another --name"),
        "{plan}"
    );

    // The same name for other calls.
    for other in [&["--tool", "charge"][..], &["--business"]] {
        let refused = run(&fleet, &retry("monday", &[&["--yes"], other].concat())).await;
        assert_eq!(refused.code, Some(2), "{}", refused.err);
        assert!(refused.err.contains("another --name"), "{}", refused.err);
    }
    assert_eq!(fleet.count(NEW).await, 3_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_retry_twice_doubles_nothing() {
    let (fleet, _witness) = fleet().await;
    fleet.sql(LETTERS).await;
    fleet.sql(DOUBTS).await;
    let mut command = calls(&fleet, &retry_at("1000", "tuesday", &["--yes"]));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut interrupted = command.spawn().unwrap();
    until_so("some to be made again", async || {
        fleet.count(NEW).await >= 300
    })
    .await;
    let pid = i32::try_from(interrupted.id().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    interrupted.wait().await.unwrap();
    let before = fleet.count(NEW).await;
    assert!(before < 3_000, "it was in the middle");

    // A mark that is not there is what a death between a batch and its marks leaves. The keys know.
    fleet
        .sql("ALTER TABLE toolfleet.call_marks DISABLE TRIGGER insert_only")
        .await;
    let unmarked = fleet
        .sql("DELETE FROM toolfleet.call_marks WHERE call_id IN (SELECT call_id FROM toolfleet.call_marks ORDER BY call_id LIMIT 150)")
        .await;
    let (one, other) = (retry("tuesday", &["--yes"]), retry("tuesday", &["--yes"]));
    let (one, other) = tokio::join!(run(&fleet, &one), run(&fleet, &other));
    for ran in [&one, &other] {
        assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    }
    let done = |ran: &Ran, word: &str| {
        ran.json()["done"]["done"][word]
            .as_i64()
            .unwrap_or_default()
    };
    let made = done(&one, "made") + done(&other, "made");
    let known = done(&one, "there_already") + done(&other, "there_already");
    println!(
        "{before} made before it was killed; {unmarked} marks lost; then {made} made and {known} known"
    );
    assert_eq!(made, 3_000 - before);
    assert!(known >= 150, "{known}");
    assert_eq!(
        (fleet.count(NEW).await, fleet.count(CALLS).await),
        (3_000, 6_040)
    );
    assert_eq!(
        (fleet.count(MARKED).await, fleet.count(NEW_OF_MARKS).await),
        (3_000, 3_000)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_names_at_once_make_each_call_once() {
    let (fleet, _witness) = fleet().await;
    fleet.sql(LETTERS).await;
    let (one, other) = (retry("monday", &["--yes"]), retry("tuesday", &["--yes"]));
    let (one, other) = tokio::join!(run(&fleet, &one), run(&fleet, &other));
    println!("{}{}{}{}", one.out, one.err, other.out, other.err);
    assert_eq!(
        (fleet.count(NEW).await, fleet.count(MARKED).await),
        (3_000, 3_000)
    );
    let again = run(&fleet, &retry("monday", &["--yes"])).await;
    assert_eq!(again.code, Some(0), "{}{}", again.out, again.err);
    assert_eq!(fleet.count(NEW).await, 3_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_name_may_have_sent_is_left_to_it_and_then_to_a_person() {
    let (fleet, _witness) = fleet().await;
    fleet.sql(LETTERS).await;
    let charges = ["--tool", "charge", "--yes"];
    let first = run(&fleet, &retry("monday", &charges)).await;
    assert_eq!(first.code, Some(0), "{}{}", first.out, first.err);
    // It was killed between a batch and its marks.
    fleet
        .sql("ALTER TABLE toolfleet.call_marks DISABLE TRIGGER insert_only")
        .await;
    fleet
        .sql("DELETE FROM toolfleet.call_marks WHERE call_id IN (SELECT call_id FROM toolfleet.call_marks ORDER BY call_id LIMIT 50)")
        .await;

    // Another name is told before, and by whom.
    let plan = run(
        &fleet,
        &retry("monday2", &["--tool", "charge", "--dry-run"]),
    )
    .await
    .json();
    assert_eq!(
        (&plan["to_do"], &plan["left_alone"]["under_way"]),
        (&json!(0), &json!(50)),
        "{plan}"
    );
    assert!(
        plan["remarks"][0]
            .as_str()
            .unwrap()
            .contains("50 are with the retry monday,"),
        "{plan}"
    );
    let own = run(&fleet, &retry("monday", &["--tool", "charge", "--dry-run"]))
        .await
        .json();
    assert_eq!(own["to_do"], 50, "{own}");

    // What it may have sent is neither made again under another name nor given up.
    let refused = async |flags: &[&str]| {
        let ran = run(&fleet, flags).await;
        assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
        ran.json()["done"]["refused"].clone()
    };
    let told = refused(&retry("monday2", &charges)).await;
    assert_eq!(fleet.count(NEW).await, 1_000);
    assert_eq!(told, json!({"under_way": 50}));
    let discard = ["discard", "--note", "too late", "--json"];
    let told = refused(&[&discard[..], &charges].concat()).await;
    assert_eq!(told, json!({"under_way": 50}));
    let one = text(
        &fleet,
        "SELECT min(call_id::text) FROM toolfleet.dead_letters WHERE tool = 'charge'",
    )
    .await;
    let single = run(&fleet, &["retry", &one, "--key", "k", "--async"]).await;
    assert_eq!(single.code, Some(1), "{}{}", single.out, single.err);
    assert!(single.err.contains("monday"), "{}", single.err);

    // A day later the keys of what it made say nothing any more.
    fleet
        .sql("DELETE FROM toolfleet.idempotency_keys WHERE call_id IN (SELECT call_id FROM toolfleet.open_calls)")
        .await;
    fleet
        .sql("UPDATE toolfleet.retry_reservations SET at = at - interval '23 h 1 min'")
        .await;
    for name in ["monday", "monday2"] {
        let told = refused(&retry(name, &charges)).await;
        assert_eq!(fleet.count(NEW).await, 1_000);
        assert_eq!(told, json!({"unsure": 50}), "{name}");
    }
    // A person has looked, and decides.
    let again = ["retry", &one, "--key", "k", "--async"];
    let single = run(&fleet, &again).await;
    assert_eq!(single.code, Some(1), "{}{}", single.out, single.err);
    assert!(single.err.contains("unsure"), "{}", single.err);
    let single = run(&fleet, &[&again[..], &["--anyway"]].concat()).await;
    assert_eq!(single.code, Some(0), "{}{}", single.out, single.err);
    let done = run(&fleet, &[&discard[..], &charges].concat()).await;
    assert_eq!(done.json()["done"]["done"], json!({"discarded": 49}));
}

/// A command that makes one call again marks it when it has the answer: until then nobody else makes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_another_command_makes_again_is_not_made_by_a_second_one() {
    let (fleet, _witness) = fleet().await;
    fleet.sql(LETTERS).await;
    let one = text(
        &fleet,
        "SELECT min(call_id::text) FROM toolfleet.dead_letters WHERE tool = 'charge'",
    )
    .await;
    let first = format!(
        "SELECT toolfleet.reserve_retries(ARRAY['{one}']::uuid[], NULL, gen_random_uuid(), gen_random_uuid())"
    );
    sqlx::query(sqlx::AssertSqlSafe(first))
        .execute(&fleet.database.pool)
        .await
        .unwrap();
    let second = ["retry", &one, "--key", "k", "--async"];
    let refused = run(&fleet, &second).await;
    assert_eq!(refused.code, Some(1), "{}{}", refused.out, refused.err);
    assert!(refused.err.contains("under_way"), "{}", refused.err);
    assert_eq!(fleet.count(NEW).await, 0);
    for told in ["", "made already"] {
        let anyway = run(&fleet, &[&second[..], &["--anyway"]].concat()).await;
        assert_eq!(anyway.code, Some(0), "{}{}", anyway.out, anyway.err);
        assert!(anyway.err.contains(told), "{}", anyway.err);
        assert_eq!(fleet.count(NEW).await, 1);
    }
    let marks = format!("SELECT count(*) FROM toolfleet.marks WHERE call_id = '{one}'");
    let marks: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(marks))
        .fetch_one(&fleet.database.pool)
        .await
        .unwrap();
    assert!(marks >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_proven_late_to_have_happened_is_no_dead_letter_and_never_made_again() {
    let (fleet, _witness) = fleet().await;
    fleet.sql(LETTERS).await;
    fleet
        .sql(
            "INSERT INTO toolfleet.ended_attempts (call_id, attempt_id, number, worker_id, started_at, timeout_ms, outcome, effect_known, over, late)
             SELECT call_id, gen_random_uuid(), 1, gen_random_uuid(), now(), 1000, 'applied', 'applied', true, true
             FROM toolfleet.finished_calls WHERE tool = 'charge' ORDER BY call_id LIMIT 10",
        )
        .await;
    let plan = run(&fleet, &retry("friday", &["--tool", "charge", "--dry-run"]))
        .await
        .json();
    assert_eq!(
        (&plan["to_do"], &plan["left_alone"]),
        (&json!(990), &json!({"effect_happened": 10}))
    );
    assert_eq!(
        fleet
            .count("SELECT count(*) FROM toolfleet.dead_letters")
            .await,
        2_990
    );
    let one = text(
        &fleet,
        "SELECT min(call_id::text) FROM toolfleet.ended_attempts",
    )
    .await;
    let single = run(&fleet, &["retry", &one, "--key", "k", "--async"]).await;
    assert_eq!(single.code, Some(1), "{}{}", single.out, single.err);
    assert!(single.err.contains("late"), "{}", single.err);
    assert_eq!(fleet.count(NEW).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bulk_cancel_that_is_interrupted_goes_on() {
    let (fleet, _witness) = fleet().await;
    for n in 0..600 {
        let tool = if n % 3 == 0 { "look_here" } else { "charge" };
        let submission = fleet.submit(tool, &json!({"what": format!("w{}", n % 2)}));
        submission.key(&format!("k{n}")).asynchronous().await;
    }
    fleet.sql(DOUBTS).await;
    let which = [
        "cancel",
        "--tool",
        "charge",
        "--arg",
        "/what=w1",
        "--per-second",
        "50",
        "--json",
        "--yes",
    ];
    let mut command = calls(&fleet, &which);
    command.stdout(Stdio::piped());
    let interrupted = command.spawn().unwrap();
    let cancelled = "SELECT count(*) FROM toolfleet.calls WHERE state = 'cancelled'";
    until_so("a step to be taken back", async || {
        fleet.count(cancelled).await >= 100
    })
    .await;
    let pid = i32::try_from(interrupted.id().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGINT).unwrap();
    let ended = timeout(PATIENCE, interrupted.wait_with_output())
        .await
        .unwrap()
        .unwrap();
    let told: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(
        (ended.status.code(), &told["done"]["interrupted"]),
        (Some(1), &json!(true)),
        "{told}"
    );
    // The next step may have begun before it was interrupted.
    let before = fleet.count(cancelled).await;
    assert!((100..200).contains(&before), "{before}");
    let again = run(&fleet, &which).await;
    assert_eq!(again.code, Some(0), "{}{}", again.out, again.err);
    let told = again.json();
    assert_eq!(told["done"]["done"], json!({"cancelled": 200 - before}));
    assert_eq!(told["plan"]["left_alone"], json!({"over": before}));
    assert_eq!(
        (fleet.count(cancelled).await, fleet.count(NEW).await),
        (200, 400)
    );
    assert_eq!(
        fleet.count("SELECT count(*) FROM toolfleet.in_doubt").await,
        40
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_discarded_is_no_dead_letter_and_stays_in_the_history() {
    let (fleet, _witness) = fleet().await;
    fleet.sql(LETTERS).await;
    fleet.sql(DOUBTS).await;
    let which = [
        "discard",
        "--tool",
        "charge",
        "--note",
        "too late now",
        "--per-second",
        "10000",
        "--json",
    ];
    let done = run(&fleet, &[&which[..], &["--yes"]].concat()).await;
    assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
    let told = done.json();
    assert_eq!(told["done"]["done"], json!({"discarded": 1000}));
    assert_eq!(told["plan"]["left_alone"], json!({"in_doubt": 40}));
    let again = run(&fleet, &[&which[..], &["--yes"]].concat()).await.json();
    assert_eq!(
        again["left_alone"],
        json!({"in_doubt": 40, "discarded_before": 1000})
    );
    // What was given up is not made again with the rest.
    let plan = run(&fleet, &retry("wednesday", &["--dry-run"]))
        .await
        .json();
    assert_eq!(
        (&plan["to_do"], &plan["left_alone"]),
        (
            &json!(2000),
            &json!({"in_doubt": 40, "discarded_before": 1000})
        )
    );
    assert_eq!(
        fleet
            .count("SELECT count(*) FROM toolfleet.dead_letters")
            .await,
        2_000
    );
    assert_eq!(fleet.count("SELECT count(*) FROM toolfleet.calls WHERE marked = 'discarded' AND state = 'failed'").await, 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doubts_settled_in_bulk_obey_their_fences() {
    let (fleet, _witness) = fleet().await;
    fleet.sql(DOUBTS).await;
    // Ten of them have an attempt of which nobody knows whether it is over.
    fleet
        .sql(
            "INSERT INTO toolfleet.ended_attempts (call_id, attempt_id, number, worker_id, started_at, timeout_ms, outcome, effect_known, over)
             SELECT call_id, gen_random_uuid(), 1, gen_random_uuid(), now(), 1000, 'unknown', 'unknown', false
             FROM toolfleet.open_calls ORDER BY call_id LIMIT 10",
        )
        .await;
    let which = [
        "settle",
        "--tool",
        "charge",
        "--outcome",
        "not_applied",
        "--note",
        "the bank says no",
        "--json",
        "--yes",
    ];
    let ran = run(&fleet, &which).await;
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    let done = &ran.json()["done"];
    assert_eq!(
        (&done["done"], &done["refused"]),
        (
            &json!({"settled_as_not_applied": 30}),
            &json!({"worker_not_fenced": 10})
        )
    );
    let why = &done["examples"][0];
    assert_eq!(why["code"], "worker_not_fenced", "{done}");
    assert!(
        why["message"].as_str().unwrap().contains("may still act"),
        "{done}"
    );
    assert_eq!(
        fleet.count("SELECT count(*) FROM toolfleet.in_doubt").await,
        10
    );
    let by_people =
        "SELECT count(*) FROM toolfleet.calls WHERE source = 'settled' AND settled_by = 'person'";
    assert_eq!(fleet.count(by_people).await, 30);
}

/// A call of the history, with its tool, version, words and arguments.
const ONE: &str = "INSERT INTO toolfleet.finished_calls (call_id, rev, from_state, state, outcome, source, effect_known, tenant, tool, \
        tool_version, effect, queue, priority, key_retention_ms, args, args_hash, error, language, accepted_at, deadline_at, finished_at, \
        queued_ms, run_ms, attempts, probe_of, actor, reason)
    SELECT (substr(toolfleet.uuid_floor(at)::text, 1, 14) || '7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 3, 'running', \
        w[1]::toolfleet.call_state, w[2]::toolfleet.call_outcome, 'live', w[3]::toolfleet.effect_known, 'default', w[4], 1, 'read', \
        'default', 1, 0, '{\"what\": \"4111\"}', '', '{\"code\": \"timeout\"}', 'en', at, at + interval '1 hour', at, 0, 0, 1, \
        CASE w[5] WHEN 'probe' THEN gen_random_uuid() END, 'test', 'test'
    FROM (VALUES (1, '{succeeded,success,none,look_here,-}'::text[]), (2, '{failed,business_error,none,look_here,-}'),
                 (3, '{failed,system_error,none,look_here,-}'), (4, '{failed,system_error,none,look_here,probe}'),
                 (5, '{failed,system_error,none,masked,-}'), (6, '{failed,system_error,none,retired,-}'),
                 (7, '{failed,system_error,unknown,look_here,-}'), (8, '{cancelled,system_error,none,look_here,-}'),
                 (9, '{expired,system_error,none,look_here,-}')) v (n, w),
        LATERAL (SELECT now() - interval '1 min' AS at) m";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_alone_is_counted_with_its_reason_and_what_is_masked_is_not_found() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("look_here", "read"),
        witness.tool("masked", "read") + "sensitive: {pointers: [/what], mode: mask}\n",
        witness.tool("retired", "read"),
    ];
    let fleet = Fleet::start(Spec::with(tools).workers(0, &[])).await;
    fleet.retire("retired").await;
    fleet.sql(ONE).await;
    let reasons = json!({
        "succeeded": 1, "business_error": 1, "probe": 1, "sensitive": 1, "version_retired": 1, "effect_unknown": 1,
        "cancelled": 1, "expired": 1
    });
    let plan = run(&fleet, &retry("thursday", &["--dry-run"])).await.json();
    assert_eq!((&plan["to_do"], &plan["left_alone"]), (&json!(1), &reasons));
    let plan = run(&fleet, &retry("thursday", &["--dry-run", "--business"]))
        .await
        .json();
    assert_eq!(plan["to_do"], 2);
    // What was taken back or expired is made again where that was asked for.
    for state in ["cancelled", "expired"] {
        let flags = ["--tool", "look_here", "--state", state, "--dry-run"];
        let plan = run(&fleet, &retry("thursday", &flags)).await.json();
        assert_eq!(
            (&plan["to_do"], &plan["left_alone"]),
            (&json!(1), &json!({})),
            "{state}"
        );
    }

    // A new call goes to the newest version, whichever the old one had.
    fleet
        .sql(
            "INSERT INTO toolfleet.tool_versions (tool, version, rev, manifest, manifest_hash, schema_hash, applied_by)
             SELECT tool, 2, rev + 1000, manifest, manifest_hash, schema_hash, applied_by FROM toolfleet.tool_versions WHERE tool = 'retired'",
        )
        .await;
    let plan = run(&fleet, &retry("thursday", &["--dry-run"])).await.json();
    assert_eq!(plan["to_do"], 2);
    assert!(
        plan["left_alone"].get("version_retired").is_none(),
        "{plan}"
    );

    // Eight of the nine have this argument in sight; of the one whose tool masks it, the mask is there to be found.
    let found = async |value: &str| {
        let listed = run(&fleet, &["list", "--json", "--arg", value])
            .await
            .json();
        listed.as_array().unwrap().len()
    };
    assert_eq!(found("/what=\"4111\"").await, 8);
    assert_eq!(found("/what=4111").await, 0, "it is text");
    assert_eq!(found("/what=[masked]").await, 1);
    assert_eq!(found("/when=[masked]").await, 0);
    let listed = run(
        &fleet,
        &[
            "list",
            "--json",
            "--outcome",
            "business_error",
            "--queue",
            "default",
        ],
    )
    .await
    .json();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(
        run(&fleet, &["list", "--json", "--queue", "payments"])
            .await
            .json(),
        json!([])
    );
}
