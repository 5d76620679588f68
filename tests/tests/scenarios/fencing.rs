//! Workers that are dead, fenced, both by mistake, or have left: what is known of them, and what they still have to say.

use std::{fs, path::Path};

use fleet::{
    fencing::StateDir,
    ids::{CallId, WorkerId},
    lease::LEASE,
    store::workers::{self, Evidence, Fence, Fenced},
};
use fleet_tests::{
    fleet::{Fleet, Spec, counter},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

const DECLARE_DEAD: &str = "UPDATE toolfleet.worker_processes \
    SET state = 'dead', ended_at = now(), ended_by = 'test' WHERE name = 'worker-1'";
const FENCED: &str = "toolfleet_fenced_attempts_total";

#[tokio::test]
async fn a_late_answer_of_the_same_attempt_settles_the_doubt() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    witness.always("a", Reply::DoneWhenReleased);
    let call = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let (answer, ()) = tokio::join!(call.clone().wait(), async {
        witness.until_asked("a", 1).await;
        fleet.sql(DECLARE_DEAD).await;
    });
    assert_eq!(
        (&answer["state"], answer.code()),
        (&json!("in_doubt"), "in_doubt")
    );
    witness.release("a");
    let row = fleet.until_state(answer.call_id(), "succeeded").await;
    assert_eq!(
        (&row["result"], &row["attempts"]),
        (&json!({"done": "a"}), &json!(1))
    );
    let replay = call.wait().await;
    assert_eq!(
        (&replay["state"], &replay["effect"]),
        (&json!("succeeded"), &json!("applied"))
    );
    fleet.workers[0].until_left().await;
    invariants::hold(&fleet, &witness).await;
}

/// A `once` call whose worker is declared dead while its tool holds back this answer.
async fn in_doubt(fleet: &Fleet, witness: &Witness, what: &str, reply: Reply) -> CallId {
    witness.always(what, reply);
    let call = fleet.submit("charge", &json!({"what": what})).key(what);
    let call = call.asynchronous().await.call_id();
    witness.until_asked(what, 1).await;
    fleet.sql(DECLARE_DEAD).await;
    fleet.until_state(call, "in_doubt").await;
    call
}

#[tokio::test]
async fn late_proof_that_nothing_happened_settles_the_doubt() {
    for (status, code) in [(429, "unavailable"), (409, "tool_error")] {
        let witness = Witness::start().await;
        let tool = witness.tool("charge", "once") + "not_applied_statuses: [429]\n";
        let mut fleet = Fleet::start(Spec::with([tool])).await;
        let call = in_doubt(&fleet, &witness, "a", Reply::StatusWhenReleased(status)).await;
        witness.release("a");
        fleet.until_state(call, "failed").await;
        let answer = fleet.get(&json!({"call_id": call})).await;
        assert_eq!(
            (&answer["effect"], answer.code()),
            (&json!("not_applied"), code),
            "{}",
            *answer
        );
        fleet.workers[0].until_left().await;
        assert_eq!(witness.asked("a"), 1);
        invariants::hold(&fleet, &witness).await;
    }
}

#[tokio::test]
async fn a_late_answer_that_proves_nothing_leaves_the_doubt_and_is_kept() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let call = in_doubt(&fleet, &witness, "a", Reply::StatusWhenReleased(500)).await;
    let doubt = async || {
        let doubt = "SELECT * FROM toolfleet.in_doubt WHERE call_id = $1";
        fleet.rows(doubt, call).await.remove(0)
    };
    assert_eq!(doubt().await["worker_fenced"], false);
    witness.release("a");
    until_so("the evidence to be kept", async || {
        fleet.attempts(call).await.iter().any(|a| a["late"] == true)
    })
    .await;
    let doubt = doubt().await;
    // Its worker has seen it end: nothing of it can act any more.
    assert_eq!(
        (&doubt["why"], &doubt["worker_fenced"]),
        (&json!("worker_lost"), &json!(true))
    );
    fleet.workers[0].until_left().await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn an_effect_that_shows_after_the_call_was_settled_as_not_applied_raises_the_alarm() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let call = in_doubt(&fleet, &witness, "a", Reply::DoneWhenReleased).await;
    let over = "UPDATE toolfleet.open_calls SET attempt_until = now() WHERE state = 'in_doubt'";
    fleet.sql(over).await;
    let settle =
        "SELECT * FROM toolfleet.settle($1, 'not_applied', 'a test', 'a guess', NULL, true)";
    let settled = fleet.rows(settle, call).await;
    assert_eq!(settled[0]["verdict"], "settled", "{settled:?}");
    let alarms = counter("toolfleet_integrity_alarms_total");
    let before = fleet.get(&json!({"call_id": call})).await.bytes;
    witness.release("a");
    fleet.workers[0].until_left().await;
    assert!(counter("toolfleet_integrity_alarms_total") > alarms);
    let attempts = fleet.attempts(call).await;
    let late: Vec<_> = attempts.iter().filter(|a| a["late"] == true).collect();
    assert_eq!(
        (late.len(), &late[0]["outcome"], &late[0]["effect"]),
        (1, &json!("applied"), &json!("applied"))
    );
    // The answer that was given stands.
    assert_eq!(fleet.get(&json!({"call_id": call})).await.bytes, before);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn late_completion_is_fenced() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    witness.first("a", [Reply::DoneWhenReleased]);
    witness.always("a", Reply::Body("\"second\"".to_owned()));
    let fenced = counter(FENCED);
    let accepted = fleet
        .submit("look", &json!({"what": "a"}))
        .asynchronous()
        .await;
    witness.until_asked("a", 1).await;
    fleet.add_worker(&[]).await;
    fleet.sql(DECLARE_DEAD).await;
    let row = fleet.until_state(accepted.call_id(), "succeeded").await;
    assert_eq!(
        (&row["worker"], &row["attempts"]),
        (&json!("worker-2"), &json!(2))
    );
    witness.release("a");
    fleet.workers[0].until_left().await;
    until_so("the late completion to be counted", async || {
        counter(FENCED) > fenced
    })
    .await;
    let row = fleet.call(accepted.call_id()).await;
    assert_eq!(row["result"], json!("second"));
    // What it said is kept beside what was assumed of it.
    let attempts = fleet.attempts(accepted.call_id()).await;
    let told: Vec<_> = attempts
        .iter()
        .map(|a| {
            (
                a["number"].as_i64(),
                a["outcome"].as_str(),
                a["late"] == true,
            )
        })
        .collect();
    let expected = [
        (Some(1), Some("unknown"), false),
        (Some(1), Some("applied"), true),
        (Some(2), Some("applied"), false),
    ];
    assert_eq!(told, expected);
    assert_eq!(attempts[0]["started_at"], attempts[1]["started_at"]);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_worker_that_was_declared_dead_starts_nothing_and_leaves() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    fleet.sql(DECLARE_DEAD).await;
    let accepted = fleet
        .submit("charge", &json!({"what": "a"}))
        .key("k")
        .asynchronous()
        .await;
    fleet.workers[0].until_left().await;
    let row = fleet.call(accepted.call_id()).await;
    assert_eq!(
        (&row["state"], &row["attempts"]),
        (&json!("queued"), &json!(0))
    );
    fleet.add_worker(&[]).await;
    fleet.until_state(accepted.call_id(), "succeeded").await;
    assert_eq!(witness.asked("a"), 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_worker_that_was_fenced_by_mistake_starts_nothing_reports_late_and_leaves() {
    let witness = Witness::start().await;
    let tools = [witness.tool("charge", "once"), witness.tool("look", "read")];
    let mut fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("write", Reply::DoneWhenReleased);
    witness.first("read", [Reply::DoneWhenReleased]);
    witness.always("read", Reply::Body("\"second\"".to_owned()));
    let late = counter(FENCED);
    let write = fleet
        .submit("charge", &json!({"what": "write"}))
        .key("k")
        .asynchronous()
        .await;
    let read = fleet
        .submit("look", &json!({"what": "read"}))
        .asynchronous()
        .await;
    witness.until_asked("write", 1).await;
    witness.until_asked("read", 1).await;
    fleet.add_worker(&[]).await;
    let mistaken = worker_named(&fleet, "worker-1").await;
    let fence = Fence {
        worker: mistaken,
        by: "anna",
        note: "wrongly",
        evidence: Evidence::Lock,
    };
    let fenced = workers::fence(&fleet.database.pool, fence).await.unwrap();
    assert_eq!(fenced, Fenced::Now);
    // What it ran is taken from it, and what it has not started runs elsewhere.
    fleet.until_state(write.call_id(), "in_doubt").await;
    let row = fleet.until_state(read.call_id(), "succeeded").await;
    assert_eq!(
        (&row["result"], &row["worker"]),
        (&json!("second"), &json!("worker-2"))
    );
    for release in ["write", "read"] {
        witness.release(release);
    }
    fleet.workers[0].until_left().await;
    let row = fleet.until_state(write.call_id(), "succeeded").await;
    assert_eq!(row["result"], json!({"done": "write"}), "proof settles it");
    until_so("the late completion to be counted", async || {
        counter(FENCED) > late
    })
    .await;
    assert_eq!(state_of(&fleet, mistaken).await["fenced_by"], "anna");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_worker_fences_those_of_its_machine_that_are_gone_without_waiting_for_their_lease() {
    let witness = Witness::start().await;
    let state = tempfile::tempdir().unwrap();
    let flags = ["--state-dir", state.path().to_str().unwrap()];
    let spec = Spec::with([witness.tool("charge", "once")]).workers(2, &flags);
    let mut fleet = Fleet::start(spec).await;
    witness.always("a", Reply::DoneThenHang);
    let gone = worker_named(&fleet, "worker-1").await;
    let other = worker_named(&fleet, "worker-2").await;
    let accepted = fleet
        .submit("charge", &json!({"what": "a"}))
        .key("k")
        .asynchronous()
        .await;
    witness.until_asked("a", 1).await;
    let row = fleet.call(accepted.call_id()).await;
    let (killed, gone, by) = if row["worker"] == "worker-1" {
        (0, gone, other)
    } else {
        (1, other, gone)
    };
    fleet.workers.remove(killed).kill().await;
    let row = until_in(&fleet, gone, "fenced").await;
    assert_eq!(
        (&row["fenced_by"], &row["fence_note"]),
        (&json!(format!("worker {by}")), &json!("lock released"))
    );
    let silent = "SELECT (extract(epoch FROM fenced_at - beat_at) * 1000)::bigint FROM toolfleet.workers WHERE state = 'fenced'";
    let silent = u128::try_from(fleet.count(silent).await).unwrap();
    assert!(silent < LEASE.as_millis(), "{silent} ms");
    fleet.until_state(accepted.call_id(), "in_doubt").await;
    let fenced = "SELECT count(*) FROM toolfleet.in_doubt WHERE worker_fenced";
    assert_eq!(fleet.count(fenced).await, 1);
    // The lock has done its duty.
    let locks = StateDir::open(state.path()).unwrap();
    until_so("the lock to be cleared away", async || {
        locks.workers().unwrap() == [by]
    })
    .await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_worker_that_leaves_in_order_leaves_no_lock() {
    let witness = Witness::start().await;
    let state = tempfile::tempdir().unwrap();
    let flags = ["--state-dir", state.path().to_str().unwrap()];
    let tool = process("sleeps", "import time; time.sleep(0.2); print('[]')");
    let mut fleet = Fleet::start(Spec::with([tool]).workers(1, &flags)).await;
    let id = worker_named(&fleet, "worker-1").await;
    let locks = StateDir::open(state.path()).unwrap();
    assert_eq!(locks.workers().unwrap(), [id]);
    let answer = fleet.submit("sleeps", &json!({})).key("k").wait().await;
    assert_eq!(answer["state"], "succeeded");
    fleet.workers[0].drain().await;
    assert_eq!(state_of(&fleet, id).await["state"], "left");
    assert!(fs::read_dir(state.path()).unwrap().next().is_none());
    invariants::hold(&fleet, &witness).await;
}

/// Detached twice, in a session of its own, with nothing of the attempt in its environment.
const DETACHES: &str = "
import os, sys, time
def note(name):
    with open(name + '.tmp', 'w') as file:
        file.write(str(os.getpid()))
    os.rename(name + '.tmp', name)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        note('detached')
        os.execvpe('sleep', ['sleep', '120'], {'PATH': os.environ['PATH']})
    os._exit(0)
while not os.path.exists('detached'):
    time.sleep(0.01)
note('main')
time.sleep(120)
";

#[tokio::test]
async fn a_worker_has_not_left_and_is_not_fenced_while_something_it_started_lives() {
    let witness = Witness::start().await;
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let flags = ["--state-dir", state.to_str().unwrap()];
    let source = format!(
        "import os; os.chdir({:?}){DETACHES}",
        folder.path().to_str().unwrap()
    );
    let mut fleet =
        Fleet::start(Spec::with([process("detaches", &source)]).workers(1, &flags)).await;
    let id = worker_named(&fleet, "worker-1").await;
    let accepted = fleet
        .submit("detaches", &json!({}))
        .key("k")
        .asynchronous()
        .await;
    let main = pid_in(&folder.path().join("main")).await;
    let detached = Ended(pid_in(&folder.path().join("detached")).await);
    // Without its guard it cannot be known here what the tool had started.
    kill(parent(main), Signal::SIGKILL).unwrap();
    fleet.until_state(accepted.call_id(), "in_doubt").await;
    let fenced = "SELECT count(*) FROM toolfleet.in_doubt WHERE worker_fenced";
    assert_eq!(fleet.count(fenced).await, 0);
    fleet.workers[0].drain().await;
    let row = state_of(&fleet, id).await;
    assert_eq!(
        (&row["state"], &row["ended_by"]),
        (
            &json!("dead"),
            &json!("itself: something that it started may live")
        )
    );
    fleet.add_worker(&flags).await;
    assert_eq!(fleet.count(fenced).await, 0);
    assert_eq!(state_of(&fleet, id).await["state"], "dead");
    drop(detached);
    // Without its guard a tool may have let go of the lock, so the lock proves nothing, and a person has to look.
    let fence = Fence {
        worker: id,
        by: "anna",
        note: "there is no process of it any more",
        evidence: Evidence::Word,
    };
    let said = workers::fence(&fleet.database.pool, fence).await.unwrap();
    assert_eq!(said, Fenced::Now);
    // What was said, and what Postgres knows.
    let by = format!("anna ({})", fleet.database.user());
    assert_eq!(state_of(&fleet, id).await["fenced_by"], by);
    assert_eq!(fleet.count(fenced).await, 1);
    invariants::hold(&fleet, &witness).await;
}

/// A process that must not outlive its test.
struct Ended(Pid);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        kill(self.0, Signal::SIGKILL).ok();
    }
}

fn process(name: &str, source: &str) -> String {
    let command = json!(["python3", "-c", source]);
    format!(
        "name: {name}\nversion: 1\ndescription: Runs a program.\neffect: once\ntimeout: 60s\n\
         input_schema: {{type: object}}\nexecutor: {{process: {{command: {command}}}}}\n"
    )
}

async fn worker_named(fleet: &Fleet, name: &str) -> WorkerId {
    let id: uuid::Uuid =
        sqlx::query_scalar("SELECT worker_id FROM toolfleet.workers WHERE name = $1")
            .bind(name)
            .fetch_one(&fleet.database.pool)
            .await
            .unwrap();
    WorkerId(id)
}

async fn state_of(fleet: &Fleet, worker: WorkerId) -> Value {
    let row: String = sqlx::query_scalar(
        "SELECT row_to_json(w)::text FROM toolfleet.workers w WHERE worker_id = $1",
    )
    .bind(worker.0)
    .fetch_one(&fleet.database.pool)
    .await
    .unwrap();
    serde_json::from_str(&row).unwrap()
}

async fn until_in(fleet: &Fleet, worker: WorkerId, state: &str) -> Value {
    until_so(&format!("worker {worker} to be {state}"), async || {
        state_of(fleet, worker).await["state"] == state
    })
    .await;
    state_of(fleet, worker).await
}

async fn pid_in(file: &Path) -> Pid {
    let read = |file: &Path| fs::read_to_string(file).ok()?.parse().ok();
    until_so("a process to say its id", async || read(file).is_some()).await;
    Pid::from_raw(read(file).unwrap())
}

fn parent(pid: Pid) -> Pid {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1;
    let parent = fields.split_ascii_whitespace().nth(1).unwrap();
    Pid::from_raw(parent.parse().unwrap())
}
