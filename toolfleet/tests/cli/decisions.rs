//! Deciding about calls from the command line: taking back, settling, making again, and why one does not go on.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use fleet::{
    call::{Effect, EffectKnown, Language, Priority},
    canonical,
    ids::{AttemptId, CallId, DispatcherId, WorkerId},
    outcome::OutcomeWord,
    store::{
        accept::{Accept, NewCall},
        claim::{Claim, ClaimRow},
        complete::{Complete, Decision, EndedAttempt, Ending, EndingKind, Guard},
        lane::{Locks, Statement},
        migrate::migrate,
        workers::{self, WorkerRow},
    },
    wire::trace::TraceContext,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::support::{Ran, folder, ledger, nats, postgres, program, run};

/// A process beside the test; it ends with it, by SIGKILL.
pub(crate) struct Beside(Child);

impl Drop for Beside {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.0.kill().and_then(|()| self.0.wait()).ok();
    }
}

/// The servers' addresses, with which every command of this test runs.
pub(crate) struct Where {
    pub(crate) database: String,
    pub(crate) nats: String,
}

impl Where {
    pub(crate) fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = program(arguments);
        command.env("DATABASE_URL", &self.database);
        command.env("NATS_URL", &self.nats);
        command
    }

    pub(crate) fn calls(&self, code: i32, arguments: &[&str]) -> Ran {
        let ran = run(self.command(&[&["calls"], arguments].concat()));
        assert_eq!(ran.code, code, "{arguments:?}: {}{}", ran.out, ran.err);
        ran
    }

    pub(crate) fn reason(&self, call: &str) -> Value {
        self.calls(0, &["explain", call, "--json"]).json()
    }

    pub(crate) fn dispatcher(&self) -> Beside {
        let mut command = self.command(&["dispatcher"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let dispatcher = Beside(command.spawn().unwrap());
        let nobody = CallId::generate().to_string();
        let began = Instant::now();
        while run(self.command(&["calls", "cancel", &nobody])).code == 69 {
            assert!(began.elapsed() < Duration::from_secs(30), "no dispatcher");
        }
        dispatcher
    }

    /// A worker of this queue, with its state in this folder. It is not ready yet.
    pub(crate) fn worker(&self, name: &str, queue: &str, folder: &Path) -> Beside {
        self.worker_with(name, queue, folder, &[])
    }

    /// The same with these options too.
    pub(crate) fn worker_with(
        &self,
        name: &str,
        queue: &str,
        folder: &Path,
        options: &[&str],
    ) -> Beside {
        let mut command = self.command(&["worker", "--queues", queue, "--name", name]);
        command
            .args(options)
            .arg("--state-dir")
            .arg(folder.join(format!("state of {name}")));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Beside(command.spawn().unwrap())
    }
}

const TOOL: &str = "name: charge\nversion: 1\ndescription: Charges an account.\neffect: once\nqueue: payments\n\
    input_schema: {type: object}\nexecutor: {process: {command: [\"true\"]}}\n";

#[tokio::test]
async fn calls_are_settled_taken_back_made_again_and_explained() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let nats = nats(folder.path()).await;
    let here = Where {
        database: postgres.url(),
        nats: nats.url(),
    };
    let ledger = ledger(&here.database);
    migrate(&ledger).await.unwrap();
    let mut connection = ledger.connect().await.unwrap();
    apply(&here, folder.path());
    let dispatcher = here.dispatcher();
    let refused = run(here.command(&["call", "charge"]));
    assert!(
        refused.code == 1 && refused.out.contains("missing_idempotency_key"),
        "{}{}",
        refused.out,
        refused.err
    );
    assert!(refused.err.contains("--key"), "{}", refused.err);
    let call = in_doubt(&mut connection).await.to_string();

    let why = here.reason(&call);
    assert_eq!(
        (&why["state"], &why["reason"]),
        (&json!("in_doubt"), &json!("in_doubt_early")),
        "{why}"
    );
    let doubt = here.calls(1, &["cancel", &call, "--reason", "not wanted", "--json"]);
    assert_eq!(
        doubt.json(),
        json!({"call_id": call, "state": "in_doubt", "result": "in_doubt"})
    );
    let refused = here.calls(1, &["retry", &call, "--key", "k"]);
    assert!(refused.err.contains("in doubt"), "{}", refused.err);

    let settle = |code: i32, more: &[&str]| {
        let said = ["settle", &call, "--note", "looked it up", "--json"];
        here.calls(code, &[&said, more].concat())
    };
    for (more, code) in [
        (&["--outcome", "not_applied"][..], "worker_not_fenced"),
        (&["--outcome", "not_applied", "--by-time-only"], "conflict"),
        (&["--outcome", "applied", "--tenant", "acme"], "not_found"),
        (
            &["--outcome", "applied", "--actor", " "],
            "invalid_arguments",
        ),
    ] {
        let refused = settle(1, more).json();
        assert_eq!(refused["error"]["code"], code, "{refused}");
    }
    for wrong in [
        &["--outcome", "maybe"][..],
        &["--outcome", "applied", "--result", "charged"],
    ] {
        settle(2, wrong);
    }
    let applied = &[
        "--outcome",
        "applied",
        "--result",
        "{\"id\": 9007199254740993}",
    ];
    let settled = settle(0, applied);
    assert!(
        settled.out.contains("\"result\":{\"id\":9007199254740993}"),
        "{}",
        settled.out
    );
    let repeated = settle(0, applied);
    assert_eq!((&repeated.out, &*repeated.err), (&settled.out, ""));
    let other = ["settle", &call, "--note", "guessed", "--outcome", "applied"];
    let repeated = here.calls(0, &other).err;
    assert!(
        repeated.contains(": looked it up. That stays"),
        "{repeated}"
    );
    let conflict = settle(1, &["--outcome", "not_applied"]).json();
    assert_eq!(conflict["error"]["details"]["state"], "succeeded");
    let why = here.reason(&call);
    let because = why["because"].as_str().unwrap();
    assert_eq!(why["reason"], "settled");
    assert!(
        because.contains('@') && because.ends_with(": looked it up"),
        "{because}"
    );
    let shown = here.calls(0, &["show", &call]).out;
    assert!(shown.contains("settled_applied  looked it up"), "{shown}");

    let refused = here.calls(1, &["retry", &call, "--key", "new"]);
    assert!(
        refused.err.contains("succeeded: the call has succeeded"),
        "{}",
        refused.err
    );
    let usage = here.calls(2, &["retry", &call]);
    assert!(usage.err.contains("--key"), "{}", usage.err);
    let again = here
        .calls(
            0,
            &[
                "retry", &call, "--key", "new", "--anyway", "--async", "--json",
            ],
        )
        .json();
    let new = again["call_id"].as_str().unwrap().to_owned();
    assert_ne!(new, call);
    made_again(&here, &call, &new);
    let story = here.calls(0, &["show", &new, "--json"]).json();
    assert_eq!(
        story["call"]["args"].to_string(),
        "{\"amount\":12.50,\"to\":\"a\"}"
    );
    assert_eq!(story["call"]["session"], "s1");
    let why = here.reason(&new);
    assert_eq!(why["reason"], "no_worker", "{why}");
    let text = here.calls(0, &["explain", &new]).out;
    assert!(
        text.starts_with("queued: no live worker pulls from its queue payments\n"),
        "{text}"
    );
    // A worker of two queues has one of its two slots for each.
    let queues = ["payments", "elsewhere"];
    running(&mut connection, &queues, 2).await;
    let why = here.reason(&new);
    assert_eq!(why["reason"], "no_free_slot", "{why}");
    // What runs on one that drains takes no slot of another.
    let draining =
        "UPDATE toolfleet.worker_processes SET state = 'draining' WHERE 'payments' = ANY (queues)";
    sqlx::query(draining)
        .execute(&mut connection)
        .await
        .unwrap();
    running(&mut connection, &["payments"], 2).await;
    let why = here.reason(&new);
    assert_ne!(why["reason"], "no_free_slot", "{why}");
    assert_ne!(why["reason"], "no_worker", "{why}");
    let open = here.calls(1, &["retry", &new, "--key", "other"]);
    assert!(open.err.contains("it is not over"), "{}", open.err);
    here.calls(0, &["cancel", &new, "--reason", "changed my mind"]);
    // It is over now, so nothing is taken back any more.
    here.calls(1, &["cancel", &new]);
    let shown = here.calls(0, &["show", &new]).out;
    assert!(shown.contains("cancelled  changed my mind"), "{shown}");
    // It was taken back, which is no reason against a new call; the key is one.
    let same = here.calls(1, &["retry", &new, "--key", "new"]);
    assert!(same.err.contains("never used"), "{}", same.err);
    let mistyped = here.calls(2, &["dead", "--tool", "chrage"]);
    assert!(
        mistyped.err.contains("there is no tool chrage"),
        "{}",
        mistyped.err
    );
    let unknown = here
        .calls(1, &["cancel", &CallId::generate().to_string(), "--json"])
        .json();
    assert_eq!(unknown["error"]["code"], "not_found");

    tail(&here, &mut connection).await;
    drop(dispatcher);
    nats.stop().await;
    postgres.stop().await;
}

/// A call that was made again says so, to whoever asks why, looks at it, or would make it again; and the new one whose it is.
fn made_again(here: &Where, call: &str, new: &str) {
    let why = here.reason(call);
    let because = why["because"].as_str().unwrap();
    assert!(
        because.contains("it was made again at")
            && because.contains(&format!("as call {new}, which is queued")),
        "{because}"
    );
    assert_eq!(
        why["next"],
        format!("nothing: toolfleet calls explain {new} says what became of that one")
    );
    let shown = here.calls(0, &["show", call]).out;
    assert!(
        shown.contains(&format!("made again as call {new}, queued")),
        "{shown}"
    );
    let shown = here.calls(0, &["show", new]).out;
    assert!(shown.contains(&format!("made for call {call}")), "{shown}");
    let refused = here.calls(1, &["retry", call, "--key", "newer"]);
    assert!(refused.err.contains("retried_before"), "{}", refused.err);
}

/// Events that happen while the command runs are printed, a line each, and Ctrl-C is an orderly end.
async fn tail(here: &Where, connection: &mut PgConnection) {
    let mut command = here.command(&["calls", "tail", "--json", "--tool", "charge"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tail = command.spawn().unwrap();
    let mut said = String::new();
    let mut problems = BufReader::new(tail.stderr.take().unwrap());
    problems.read_line(&mut said).unwrap();
    assert!(said.contains("following"), "{said}");
    let call = in_doubt(connection).await;
    let lines = BufReader::new(tail.stdout.take().unwrap()).lines().take(3);
    let events: Vec<Value> = lines
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    for (event, to) in events.iter().zip(["queued", "running", "in_doubt"]) {
        assert_eq!(
            (&event["call_id"], &event["to_state"]),
            (&json!(call), &json!(to)),
            "{events:?}"
        );
    }
    let pid = Pid::from_raw(tail.id().try_into().unwrap());
    kill(pid, Signal::SIGINT).unwrap();
    assert!(tail.wait().unwrap().success());
}

pub(crate) fn apply(here: &Where, folder: &Path) {
    let manifest = folder.join("charge.yaml");
    std::fs::write(&manifest, TOOL).unwrap();
    let applied = run(here.command(&["tools", "apply", manifest.to_str().unwrap()]));
    assert_eq!(applied.code, 0, "{}", applied.err);
}

/// A call of the queue payments that waits; it has a session and arguments.
pub(crate) async fn queued(connection: &mut PgConnection) -> CallId {
    let args = "{\"amount\":12.50,\"to\":\"a\"}";
    let call = NewCall {
        call_id: CallId::generate(),
        tenant: "default".parse().unwrap(),
        tool: "charge".parse().unwrap(),
        tool_version: 1,
        effect: Effect::Once,
        queue: "payments".parse().unwrap(),
        priority: Priority::Normal,
        waits: None,
        line: "payments".parse().unwrap(),
        rate_key: None,
        held: false,
        key: None,
        key_retention_ms: 0,
        args: args.to_owned(),
        kept_args: None,
        original_args: None,
        files: Vec::new(),
        no_store: false,
        coercions: Vec::new(),
        args_hash: canonical::hash_text(args),
        session: Some("s1".parse().unwrap()),
        run: None,
        meta: None,
        language: Language::En,
        trace: TraceContext::default(),
        dispatcher: DispatcherId::generate(),
        done_secret: fleet::wire::proof::DoneSecret::generate(),
        deadline_ms: 600_000,
        run_deadline: None,
        queue_wait_ms: None,
    };
    let call_id = call.call_id;
    let accepted = Accept.run(connection, &[Arc::new(call)], Locks::Wait).await;
    assert!(accepted.unwrap()[0].is_some());
    call_id
}

/// A call that runs on a worker of its own, which has these queues and slots.
pub(crate) async fn running(
    connection: &mut PgConnection,
    queues: &[&str],
    concurrency: i32,
) -> (CallId, AttemptId) {
    let call_id = queued(connection).await;
    claim(connection, call_id, queues, concurrency).await
}

/// The call, claimed by a worker of its own, which has these queues and slots.
pub(crate) async fn claim(
    connection: &mut PgConnection,
    call_id: CallId,
    queues: &[&str],
    concurrency: i32,
) -> (CallId, AttemptId) {
    let worker = WorkerRow {
        worker_id: WorkerId::generate(),
        name: "worker-1".into(),
        host: "host".into(),
        pid: 1,
        queues: queues.iter().map(|queue| queue.parse().unwrap()).collect(),
        concurrency,
        sandbox: serde_json::json!({}),
        interceptors: Vec::new(),
    };
    workers::register(connection, &worker).await.unwrap();
    let attempt_id = AttemptId::generate();
    let row = ClaimRow {
        call_id,
        attempt_id,
        timeout_ms: 300_000,
    };
    let claimed = Claim::new(worker.worker_id)
        .run(connection, &[row], Locks::Wait)
        .await;
    assert!(claimed.unwrap()[0].is_some());
    (call_id, attempt_id)
}

/// A call in doubt whose worker is not proven gone, and whose time is not over.
async fn in_doubt(connection: &mut PgConnection) -> CallId {
    let (call_id, attempt_id) = running(connection, &["elsewhere"], 1).await;
    let ending = Ending {
        call_id,
        guard: Guard::Attempt(attempt_id),
        kind: EndingKind::Doubt(Decision::doubt(Some(
            json!({"code": "in_doubt", "message": "m", "retryable": false, "retry_after_ms": null,
                "suggestion": "do_not_repeat"})
            .to_string(),
        ))),
        attempt: Some(EndedAttempt {
            outcome: OutcomeWord::Unknown,
            effect: EffectKnown::Unknown,
            error: None,
            has_stopped: false,
        }),
        actor: "sweep".into(),
        reason: "worker_lost".into(),
    };
    let ended = Complete.run(connection, &[ending], Locks::Wait).await;
    assert!(ended.unwrap()[0].is_some());
    call_id
}
