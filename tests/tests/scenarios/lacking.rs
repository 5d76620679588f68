//! What a worker lacks to run a call: told while the call waits, when it expires, and before it is ever made.

use std::{fs, time::Duration};

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};
use serde_json::json;

/// How many calls lack this, as far as a worker has said so.
const LACKING: &str =
    "SELECT count(*) FROM toolfleet.calls WHERE obstacle->>'lack' = 'program_slot'";

#[tokio::test]
async fn a_missing_secret_is_told_by_name_until_the_call_expires() {
    let witness = Witness::start().await;
    let tool = witness.tool("sealed", "read").replace(
        "method: POST",
        "method: POST, headers: {x-seal: \"secret://NOWHERE\"}",
    );
    let fleet = Fleet::start(Spec::with([tool, witness.tool("look", "read")])).await;
    let call = fleet.submit("sealed", &json!({"what": "s"}));
    let call = call.deadline(Duration::from_secs(8)).asynchronous().await;
    let call = call.call_id();
    // Put back more than once, and told of once.
    let put_back = "SELECT count(*) FROM toolfleet.open_calls WHERE publish_n > 2";
    until_so("the call to be put back again", async || {
        fleet.count(put_back).await == 1
    })
    .await;
    let waiting = fleet.call(call).await;
    let why = "secret NOWHERE is neither in the secrets folder nor in the environment";
    let obstacle = &waiting["obstacle"];
    assert_eq!(
        (&obstacle["lack"], &obstacle["secret"], &obstacle["worker"]),
        (&json!("secret"), &json!("NOWHERE"), &json!("worker-1"))
    );
    assert_eq!(obstacle["why"], why);
    let row = fleet.until_state(call, "expired").await;
    let message = row["error"]["message"].as_str().unwrap_or_default();
    let begins = format!(
        "No worker could run the call before its deadline; worker worker-1: {why}. Nothing was changed."
    );
    assert!(message.starts_with(&begins), "{message}");
    assert_eq!(
        (&row["attempts"], &row["obstacle"]),
        (&json!(0), &json!(null))
    );
    let events = fleet.events(call).await;
    let told: Vec<_> = events
        .iter()
        .filter(|event| event["reason"] == "cannot_run")
        .map(|event| (&event["details"]["why"], &event["details"]["worker"]))
        .collect();
    assert_eq!(told, [(&json!(why), &json!("worker-1"))]);
    // The worker reports it too, before any call comes; of the other tool it reports nothing.
    let unable = "SELECT cannot_run FROM toolfleet.workers WHERE $1::uuid IS NOT NULL";
    let unable = fleet.rows(unable, call).await.remove(0);
    let tools = unable["cannot_run"].as_array().expect("a list").clone();
    let [sealed] = tools.as_slice() else {
        panic!("{tools:?}");
    };
    assert_eq!(
        (&sealed["tool"], &sealed["secret"]),
        (&json!("sealed"), &json!("NOWHERE"))
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn programs_wait_for_a_slot_without_an_attempt_and_hold_up_nothing_else() {
    const PROGRAMS: i64 = 12;
    let witness = Witness::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let go = folder.path().join("go");
    let program = json!({
        "name": "program", "version": 1, "description": "Ends when it may.", "effect": "once",
        "input_schema": {"type": "object"},
        "timeout": "50s",
        "retry": {"strategy": "none"},
        "executor": {"process": {"command": ["sh", "-c",
            format!("while ! test -e {}; do sleep 0.05; done; echo 1", go.display())]}},
    });
    let tools = [program.to_string(), witness.tool("look", "read")];
    // Two run, two wait for them here, and of the eight slots four are left.
    let spec = Spec::with(tools).workers(1, &["--programs", "2", "--concurrency", "8"]);
    let fleet = Fleet::start(spec).await;
    let mut calls = Vec::new();
    for n in 0..PROGRAMS {
        let call = fleet
            .submit("program", &json!({"n": n}))
            .key(&n.to_string());
        calls.push(call.asynchronous().await.call_id());
    }
    until_so("the others to be put back", async || {
        fleet.count(LACKING).await == PROGRAMS - 2
    })
    .await;
    let attempts = "SELECT count(*) FROM toolfleet.attempts";
    assert_eq!(fleet.count(attempts).await, 2);
    let answer = fleet.submit("look", &json!({"what": "l"})).wait().await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    fs::write(&go, "").expect("let the programs end");
    for call in calls {
        let row = fleet.until_state(call, "succeeded").await;
        assert_eq!(row["attempts"], 1, "{row}");
        let events = fleet.events(call).await;
        let reasons: Vec<_> = events.iter().map(|event| &event["reason"]).collect();
        assert_eq!(reasons, ["accepted", "claimed", "applied"]);
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_slot_for_a_program_goes_to_a_tenant_that_has_none() {
    const GREEDY: i64 = 12;
    const ROUNDS: usize = 4;
    /// A call waits at the worker for three of every three and a half seconds: on a busy machine it may just be away.
    const FIRST_AT_LEAST: usize = 3;
    let witness = Witness::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let program = |name: &str, script: &str| {
        json!({
            "name": name, "version": 1, "description": "A program.", "effect": "read",
            "input_schema": {"type": "object"},
            "timeout": "50s",
            "executor": {"process": {"command": ["sh", "-c", script]}},
        })
        .to_string()
    };
    // Each of these ends when it has taken a file away.
    let long = format!(
        "while :; do for one in {}/*; do rm $one 2>/dev/null && echo 1 && exit 0; done; sleep 0.05; done",
        folder.path().display()
    );
    let tools = [
        program("long", &long),
        program("short", "echo 1"),
        witness.tool("look", "read"),
    ];
    // Two run and two wait at the worker.
    let spec = Spec::with(tools).workers(1, &["--programs", "2", "--concurrency", "8"]);
    let fleet = Fleet::start(spec).await;
    for n in 0..GREEDY {
        let call = fleet.submit("long", &json!({"n": n})).tenant("greedy");
        call.asynchronous().await;
    }
    until_so("the others to be put back", async || {
        fleet.count(LACKING).await == GREEDY - 2
    })
    .await;
    let starts = "SELECT count(*) FROM toolfleet.attempts a JOIN toolfleet.calls c USING (call_id) WHERE c.tool = 'long'";
    let mut first = 0;
    for round in 0..ROUNDS {
        let before = fleet.count(starts).await;
        let modest = fleet.submit("short", &json!({}));
        let modest = modest.tenant(&format!("modest{round}"));
        let modest = modest.asynchronous().await.call_id();
        // What was submitted after it has been at the worker.
        let answer = fleet.submit("look", &json!({"what": "l"})).wait().await;
        assert_eq!(answer["state"], "succeeded", "{}", *answer);
        fs::write(folder.path().join(round.to_string()), "").expect("let one program end");
        until_so("another long program to start", async || {
            fleet.count(starts).await > before
        })
        .await;
        let ahead = "SELECT count(*) FROM toolfleet.attempts m WHERE m.call_id = $1 AND m.started_at <
             (SELECT max(a.started_at) FROM toolfleet.attempts a JOIN toolfleet.calls c USING (call_id) WHERE c.tool = 'long')";
        first += fleet.rows(ahead, modest).await[0]["count"]
            .as_u64()
            .map_or(0, |n| usize::from(n > 0));
        fleet.until_state(modest, "succeeded").await;
    }
    for n in ROUNDS..ROUNDS + usize::try_from(GREEDY).expect("a few") {
        fs::write(folder.path().join(n.to_string()), "").expect("let the others end");
    }
    assert!(
        first >= FIRST_AT_LEAST,
        "a tenant without a program had the slot that came free in {first} of {ROUNDS} rounds"
    );
}

#[tokio::test]
async fn a_lack_is_logged_once_however_many_calls_are_put_back_for_it() {
    const CALLS: usize = 30;
    let witness = Witness::start().await;
    let sealed = witness.tool("sealed", "read").replace(
        "method: POST",
        "method: POST, headers: {x-seal: \"secret://NOWHERE\"}",
    );
    let fleet = Fleet::start(Spec::with([sealed]).workers(0, &[])).await;
    let secrets = tempfile::tempdir().expect("a folder");
    let folder = secrets.path().to_str().expect("a path in UTF-8");
    let mut worker = fleet.real_worker("lacking", &["--secrets", folder], None);
    worker.ready().await;
    let mut calls = Vec::new();
    for n in 0..CALLS {
        let call = fleet.submit("sealed", &json!({"what": n.to_string()}));
        calls.push(call.asynchronous().await.call_id());
    }
    let put_back = r#"toolfleet_postponed_calls_total{reason="secret",tool="sealed"}"#;
    until_so("all calls to be put back", async || {
        worker.counter(put_back).await >= CALLS as u64
    })
    .await;
    let said = |words: &str| {
        let log = worker.log();
        let lines = log.lines().filter(|line| line.contains(words));
        lines.map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let [lack] = said("cannot run").try_into().expect("one line");
    for part in ["WARN", "tool=sealed", "version=1", "secret NOWHERE"] {
        assert!(lack.contains(part), "{lack}");
    }
    fs::write(secrets.path().join("NOWHERE"), "seal").expect("write the secret");
    for call in calls {
        fleet.until_state(call, "succeeded").await;
    }
    until_so("the worker to say that it is over", async || {
        said("does not put back").len() == 1
    })
    .await;
    assert_eq!(said("cannot run").len(), 1);
    invariants::hold(&fleet, &witness).await;
}
