//! A process ends between two steps, at each of the places that have a name, and the fleet goes on from there.
//!
//! The process is a real one and is killed by the kernel: nothing of it is flushed or said goodbye. Which places there are
//! says [`Checkpoint::ALL`]. What is checked is the same for all of them; only whether a `once` call may be in doubt
//! afterwards depends on the place, and that is a property of the checkpoint.

mod approval;
mod brakes;
mod cache;
mod client;
mod fallback;
mod later;

use std::{panic::AssertUnwindSafe, time::Duration};

use fleet::checkpoint::{Checkpoint, Role};
use fleet_tests::{
    caller::{Answer, Submission},
    fleet::{Fleet, Spec},
    invariants,
    real::Armed,
    wait::{until_so, until_within},
    witness::{Reply, Witness},
};
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::json;

/// Places tried at a time: most of what they do is wait.
const AT_A_TIME: usize = 4;
/// How long a caller waits before the same call is sent again.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is sent again: for longer than a silent worker's lease.
const INSISTS_FOR: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_may_stop_between_any_two_steps() {
    stop_everywhere(Role::Dispatcher).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_may_stop_between_any_two_steps() {
    stop_everywhere(Role::Worker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_may_stop_between_any_two_steps() {
    stop_everywhere(Role::Sweep).await;
}

async fn stop_everywhere(role: Role) {
    let points = Checkpoint::ALL.iter().filter(|point| point.role() == role);
    let stops = points.map(|point| async {
        let stopped = AssertUnwindSafe(Box::pin(stop_at(*point))).catch_unwind();
        stopped.await.is_err().then_some(*point)
    });
    let failed: Vec<Option<Checkpoint>> = stream::iter(stops)
        .buffer_unordered(AT_A_TIME)
        .collect()
        .await;
    let failed: Vec<Checkpoint> = failed.into_iter().flatten().collect();
    assert!(failed.is_empty(), "see above what went wrong at {failed:?}");
}

async fn stop_at(point: Checkpoint) {
    match point.role() {
        Role::Dispatcher if point == Checkpoint::OutputTaken => client::stops_at(point).await,
        Role::Dispatcher if point == Checkpoint::Ruled => approval::stops_at(point).await,
        Role::Dispatcher if point == Checkpoint::InputTaken => {
            later::a_dispatcher_stops_at(point).await;
        }
        Role::Dispatcher => a_dispatcher_stops_at(point).await,
        Role::Worker if point == Checkpoint::Looked => cache::a_worker_stops_at(point).await,
        Role::Worker if point == Checkpoint::Parked => later::a_worker_stops_at(point).await,
        Role::Worker if point == Checkpoint::FellBack => fallback::a_worker_stops_at(point).await,
        Role::Worker if point.is_rare() => brakes::a_worker_stops_at(point).await,
        Role::Worker => workers_stop_at(point).await,
        Role::Sweep => a_sweep_stops_at(point).await,
    }
}

/// One dispatcher, which dies while callers of every kind wait for it; then another.
async fn a_dispatcher_stops_at(point: Checkpoint) {
    let world = World::start(Spec::with([]).dispatchers(0)).await;
    let World { mut fleet, witness } = world;
    let mut dispatcher = fleet.real_dispatcher("armed", &[], Some(second_time(point)));
    dispatcher.ready().await;
    // The first time it gets there.
    insist(&call(&fleet, "look", "first")).await;

    witness.first("put", [Reply::Status(503)]);
    let keyed = [
        call(&fleet, "charge", "charge"),
        call(&fleet, "put", "put"),
        call(&fleet, "look", "look"),
        call(&fleet, "charge", "later").header("Prefer", "respond-async"),
    ];
    let without_a_key = fleet.submit("look", &json!({"what": "no key"}));
    let (answers, _heard, ()) = tokio::join!(
        stream::iter(&keyed)
            .map(insist)
            .buffered(keyed.len())
            .collect::<Vec<Answer>>(),
        without_a_key.patience(PATIENCE).try_wait(),
        async {
            dispatcher.until_stopped_at(point).await;
            fleet.add_dispatcher().await;
        }
    );
    until_all_are_decided(&fleet).await;
    for (call, answer) in keyed.into_iter().zip(answers) {
        assert_eq!(insist(&call).await.call_id(), answer.call_id(), "{point}");
    }
    for what in ["first", "charge", "put", "look", "later"] {
        assert_eq!(states(&fleet, what).await, ["succeeded"], "{what}, {point}");
    }
    // It cannot be sent again; it is there or it is not.
    let unheard = states(&fleet, "no key").await;
    assert!(
        unheard.is_empty() || unheard == ["succeeded"],
        "{unheard:?}, {point}"
    );
    for once in ["charge", "later"] {
        assert_eq!(witness.applied(once), 1, "{once}, {point}");
    }
    invariants::hold(&fleet, &witness).await;
}

/// Three workers, one after the other, each of which dies with a call of another effect class; then one that lives.
///
/// They run one call at a time, so that there is only one to be in doubt about.
async fn workers_stop_at(point: Checkpoint) {
    let world = World::start(Spec::with([]).workers(0, &[])).await;
    let World { mut fleet, witness } = world;
    witness.first("fails first", [Reply::Status(503)]);
    let calls = [
        ("look", "before charge"),
        ("charge", "charge"),
        ("look", "before put"),
        ("put", "put"),
        ("look", "before look"),
        ("look", "look"),
        ("put", "fails first"),
        // A worker without the secret puts it off, again and again.
        ("sealed", "sealed"),
    ];
    let mut accepted = Vec::new();
    for (tool, what) in calls {
        let call = call(&fleet, tool, what);
        let later = call.clone().header("Prefer", "respond-async");
        let id = insist(&later).await.call_id();
        accepted.push((call, what, id));
    }
    let secrets = tempfile::tempdir().unwrap();
    std::fs::write(secrets.path().join("SEAL"), "wax").unwrap();
    let flags = ["--secrets", secrets.path().to_str().unwrap()];
    let waiting = accepted.iter().map(|(call, _, _)| insist(call));
    let (answers, ()) = tokio::join!(
        stream::iter(waiting)
            .buffered(calls.len())
            .collect::<Vec<Answer>>(),
        async {
            for name in ["armed-1", "armed-2", "armed-3"] {
                let flags = ["--concurrency", "1"];
                let mut worker = fleet.real_worker(name, &flags, Some(second_time(point)));
                worker.until_stopped_at(point).await;
                fleet.report_death(&mut worker).await;
            }
            fleet.add_worker(&flags).await;
            until_all_are_decided(&fleet).await;
        }
    );
    if point.leaves_an_attempt() == Some(true) {
        // Each of the three died with another one.
        for (what, attempts) in [("charge", 1), ("put", 2), ("look", 2)] {
            let found = accepted.iter().find(|(_, name, _)| *name == what);
            let row = fleet.call(found.unwrap().2).await;
            assert_eq!(row["attempts"], attempts, "{what}, {point}");
        }
    }
    for ((_, what, id), answer) in accepted.iter().zip(&answers) {
        let states = states(&fleet, what).await;
        let may_be: &[&str] = match (*what, point.leaves_an_attempt()) {
            ("charge", Some(true)) => &["in_doubt"],
            ("charge", None) => &["in_doubt", "succeeded"],
            // Two of the three may have died with the same call, which is then set aside.
            (_, None) => &["succeeded", "failed", "in_doubt"],
            (_, Some(_)) => &["succeeded"],
        };
        assert!(
            states.len() == 1 && may_be.contains(&states[0].as_str()),
            "{what} is {states:?}, {point}"
        );
        assert_eq!(
            (answer.call_id(), &answer["state"]),
            (*id, &json!(states[0])),
            "{what}, {point}"
        );
        if *what != "charge" && states[0] != "succeeded" {
            let last = fleet.events(*id).await.pop().unwrap();
            assert_eq!(last["reason"], "poison", "{what}, {point}: {last}");
            continue;
        }
        let happened = states[0] == "succeeded" || point >= Checkpoint::Executed;
        let times = witness.applied(what);
        match *what {
            "charge" => assert_eq!(times, usize::from(happened), "{what}, {point}"),
            _ => assert!(times >= 1, "{what}, {point}"),
        }
    }
    invariants::hold(&fleet, &witness).await;
}

/// One dispatcher, whose sweep finds all there is to find: a pause before an attempt that is over, held calls, a lost pointer, a
/// deadline that has passed, a silent worker and what that one ran. It dies; then another.
async fn a_sweep_stops_at(point: Checkpoint) {
    let world = World::start(Spec::with([]).dispatchers(0)).await;
    let World { mut fleet, witness } = world;
    fleet.add_worker(&["--queues", "doomed"]).await;
    let armed = Armed {
        at: point,
        times: 1,
    };
    let mut dispatcher = fleet.real_dispatcher("armed", &[], Some(armed));
    dispatcher.ready().await;

    witness.always("doomed charge", Reply::DoneThenHang);
    witness.first("doomed look", [Reply::Hang]);
    witness.first("put", [Reply::Status(503)]);
    // The report that it was done is lost, and its probe finds out.
    witness.always("asked", Reply::DoneThenHang);
    witness.always("was asked", Reply::Body(json!({"found": true}).to_string()));
    let doomed = [
        call(&fleet, "doomed_charge", "doomed charge"),
        call(&fleet, "doomed_look", "doomed look"),
    ];
    let others = [
        call(&fleet, "put", "put"),
        call(&fleet, "charge", "charge"),
        call(&fleet, "nobody", "nobody").deadline(Duration::from_secs(6)),
        call(&fleet, "asked", "asked"),
    ];
    let doomed_too = fleet.workers.remove(1);
    for what in ["late", "aside", "behind"] {
        let late = call(&fleet, what, what).header("Prefer", "respond-async");
        insist(&late).await;
    }
    let ledger = fleet.database.pool.clone();
    let ((), answers, later, ()) = tokio::join!(
        async {
            witness.until_asked("doomed charge", 1).await;
            witness.until_asked("doomed look", 1).await;
            sqlx::query(LATE_IS_HELD).execute(&ledger).await.unwrap();
            doomed_too.kill().await;
        },
        stream::iter(&doomed)
            .map(insist)
            .buffered(doomed.len())
            .collect::<Vec<Answer>>(),
        async {
            // Not before the worker is doomed with its calls.
            witness.until_asked("doomed charge", 1).await;
            witness.until_asked("doomed look", 1).await;
            stream::iter(&others)
                .map(insist)
                .buffered(others.len())
                .collect::<Vec<Answer>>()
                .await
        },
        async {
            dispatcher.until_stopped_at(point).await;
            fleet.add_dispatcher().await;
            fleet.sql(DOOMED_IS_DEAD).await;
            fleet.add_worker(&["--queues", "doomed,late"]).await;
            until_all_are_decided(&fleet).await;
            // Takes the pointer away that no worker had pulled.
            fleet.add_worker(&["--queues", "nobody"]).await;
        }
    );
    let expected = [
        ("doomed charge", "in_doubt"),
        ("doomed look", "succeeded"),
        ("put", "succeeded"),
        ("charge", "succeeded"),
        ("nobody", "expired"),
    ];
    for ((what, state), answer) in expected.into_iter().zip(answers.iter().chain(&later)) {
        assert_eq!(states(&fleet, what).await, [state], "{what}, {point}");
        assert_eq!(answer["state"], state, "{what}, {point}");
    }
    for what in ["late", "aside", "behind"] {
        assert_eq!(states(&fleet, what).await, ["succeeded"], "{what}, {point}");
    }
    until_so("the probe to settle its call", async || {
        states(&fleet, "asked").await == ["succeeded"]
    })
    .await;
    for (what, times) in [
        ("doomed charge", 1),
        ("charge", 1),
        ("nobody", 0),
        ("late", 1),
        ("aside", 1),
        ("behind", 1),
        ("asked", 1),
    ] {
        assert_eq!(witness.asked(what), times, "{what}, {point}");
    }
    invariants::hold(&fleet, &witness).await;
}

const DOOMED_IS_DEAD: &str = "UPDATE toolfleet.worker_processes \
    SET state = 'dead', ended_at = now(), ended_by = 'test' WHERE name = 'worker-2' AND state = 'live'";

/// One for lack of room, one by a pause that is over, and one behind a call that is gone.
const LATE_IS_HELD: &str = "UPDATE toolfleet.open_calls \
    SET held = true, line = CASE tool WHEN 'aside' THEN 'pause/99' \
        WHEN 'behind' THEN 'after/01960000-0000-7000-8000-000000000000' ELSE line END \
    WHERE tool IN ('late', 'aside', 'behind') AND state = 'queued'";

/// A fleet, and the world outside.
struct World {
    fleet: Fleet,
    witness: Witness,
}

impl World {
    async fn start(spec: Spec) -> Self {
        let witness = Witness::start().await;
        let sealed = witness.tool("sealed", "read");
        let tools = vec![
            witness.tool("charge", "once"),
            witness.tool("put", "idempotent") + "retry: {base: 100ms}\n",
            // A fleet without a cache looks for no followers.
            witness.tool("kept", "read") + "cache: {ttl: 1m}\n",
            witness.tool("look", "read"),
            sealed.replace(
                "method: POST",
                "method: POST, headers: {x-seal: \"secret://SEAL\"}",
            ),
            witness.tool("doomed_charge", "once") + "queue: doomed\n",
            witness.tool("doomed_look", "read") + "queue: doomed\n",
            witness.tool("nobody", "once") + "queue: nobody\n",
            witness.tool("late", "once") + "queue: late\n",
            witness.tool("aside", "once") + "queue: late\n",
            witness.tool("behind", "once") + "queue: late\n",
            witness.tool("asked", "once")
                + "timeout: 1s\nprobe: {tool: look, args: {what: \"was {{ args.what }}\"}, applied_when: result.found}\n",
        ];
        let fleet = Fleet::start(Spec { tools, ..spec }).await;
        Self { fleet, witness }
    }
}

/// The second time, because the first statement of a connection has to be prepared: it does nothing yet while it is
/// on its way.
fn second_time(at: Checkpoint) -> Armed {
    Armed { at, times: 2 }
}

/// A call for an effect, which is its key, too.
fn call(fleet: &Fleet, tool: &str, what: &str) -> Submission {
    let key = what.replace(' ', "-");
    fleet.submit(tool, &json!({"what": what})).key(&key)
}

/// What a careful caller does: sends the same call with the same key again until there is an answer.
async fn insist(call: &Submission) -> Answer {
    let what = "an answer, however often it takes";
    until_within(INSISTS_FOR, what, async || {
        let answer = call.clone().patience(PATIENCE).try_wait().await;
        answer.filter(|answer| answer["call_id"].is_string())
    })
    .await
}

async fn until_all_are_decided(fleet: &Fleet) {
    let undecided = "SELECT count(*) FROM toolfleet.open_calls WHERE state <> 'in_doubt'";
    until_so("every call to be decided", async || {
        fleet.count(undecided).await == 0
    })
    .await;
}

/// The states of the calls for this effect: one each.
async fn states(fleet: &Fleet, what: &str) -> Vec<String> {
    let found =
        sqlx::query_scalar("SELECT state::text FROM toolfleet.calls WHERE args ->> 'what' = $1");
    let states = found.bind(what).fetch_all(&fleet.database.pool).await;
    states.unwrap()
}
