//! Postgres loses writes under load: a backup promoted in its place, an old copy started again, and a mere crash.

use std::time::Duration;

use fleet::{ids::CallId, lost_writes::WalPosition};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    load::insist,
    postgres::Cluster,
    wait::until_so,
    witness::{Reply, Witness},
};
use futures_util::future::join_all;
use serde_json::json;
use sqlx::Connection;
use tokio::task::JoinSet;

/// What every test begins with: attempts that hold all slots, and calls that wait behind them.
struct Scene {
    cluster: Cluster,
    fleet: Fleet,
    witness: Witness,
    finished: CallId,
    /// Run when the copy is made, and end on the server that is lost.
    running: Vec<(String, CallId)>,
    /// Run when the copy is made, and still when it takes over.
    lasting: (String, CallId),
    /// Wait when the copy is made, and are run on the server that is lost.
    queued: Vec<CallId>,
    /// As these, but may be sent again.
    again: Vec<CallId>,
}

const SLOTS: usize = 4;

async fn scene() -> Scene {
    let cluster = Cluster::alone(true).await;
    let witness = Witness::start().await;
    let tools = [
        witness.tool("charge", "once"),
        witness.tool("put", "idempotent"),
    ];
    let spec = Spec::with(tools).dispatchers(2);
    let fleet = Fleet::start_on(
        cluster.database().await,
        spec.workers(2, &["--concurrency", "2"]),
    )
    .await;
    let finished = charged(&fleet, "finished").await;
    fleet.until_state(finished, "succeeded").await;
    let mut running = Vec::new();
    for number in 0..SLOTS {
        let what = format!("running-{number}");
        witness.always(&what, Reply::DoneWhenReleased);
        running.push((what.clone(), charged(&fleet, &what).await));
    }
    witness
        .until("every slot to be held", |seen| seen.running == SLOTS)
        .await;
    let queued = join_all((0..4).map(|number| charged(&fleet, format!("queued-{number}")))).await;
    let again = join_all((0..2).map(|number| accepted(&fleet, "put", format!("again-{number}"))));
    let again = again.await;
    let lasting = running.pop().expect("one of them");
    Scene {
        cluster,
        fleet,
        witness,
        finished,
        running,
        lasting,
        queued,
        again,
    }
}

const LONG: Duration = Duration::from_secs(600);

/// A call that must not be made twice.
async fn charged(fleet: &Fleet, what: impl AsRef<str>) -> CallId {
    accepted(fleet, "charge", what).await
}

/// A call whose key is what it does. It is sent again with that key while the fleet refuses it for now: behind a loss
/// of the ledger a dispatcher may be too far behind to take it.
async fn accepted(fleet: &Fleet, tool: &str, what: impl AsRef<str>) -> CallId {
    let what = what.as_ref();
    let submission = fleet.submit(tool, &json!({"what": what})).key(what);
    let submission = submission.deadline(LONG).header("Prefer", "respond-async");
    let (answer, _repeated) = insist(submission).await;
    answer.call_id()
}

impl Scene {
    /// Everything that the copy knows as running or queued happens now, on the server that is about to be lost.
    async fn run_on(&self) {
        for (what, _) in &self.running {
            self.witness.release(what);
        }
        let ended = self.running.iter().map(|(_, call)| call);
        for call in ended.chain(&self.queued).chain(&self.again) {
            self.fleet.until_state(*call, "succeeded").await;
        }
    }

    /// The calls of class `once` that the copy knows as open.
    fn open_once(&self) -> Vec<CallId> {
        let running = self.running.iter().chain([&self.lasting]);
        let running = running.map(|(_, call)| *call);
        running.chain(self.queued.iter().copied()).collect()
    }

    /// Every call that the copy knows.
    fn known(&self) -> Vec<CallId> {
        let mut known = self.open_once();
        known.extend([self.finished]);
        known.extend(&self.again);
        known
    }

    /// Waits until the ledger's watermark, which dispatchers also leave in NATS, has moved on.
    async fn until_watermark_moves(&self) {
        // Of three steps two are by one dispatcher, which had left its first in NATS before it made the second.
        for _ in 0..3 {
            let from = watermark(&self.fleet).await;
            until_so("the watermark to move on", async || {
                watermark(&self.fleet).await > from
            })
            .await;
        }
    }

    async fn until_quarantined(&self) {
        until_so("open calls to be put in doubt", async || {
            quarantines(&self.fleet).await == Some(1)
        })
        .await;
    }

    /// What is true after the loss, whichever it was.
    async fn holds(&mut self) {
        for call in self.open_once() {
            let row = self.fleet.call(call).await;
            assert_eq!(row["state"], "in_doubt", "{row}");
        }
        let asked = json!({"tool": "charge", "idempotency_key": "queued-0"});
        let told = self.fleet.get(&asked).await;
        assert_eq!(told["state"], "in_doubt", "{}", *told);
        assert_eq!(told.code(), "in_doubt");
        assert_eq!(self.fleet.call(self.finished).await["state"], "succeeded");
        // Sent again with the same key.
        for call in &self.again {
            self.fleet.until_state(*call, "succeeded").await;
        }

        // What was still running is settled by its own late answer.
        let (what, call) = &self.lasting;
        self.witness.release(what);
        self.fleet.until_state(*call, "succeeded").await;

        // The fleet works on, old processes and new ones, and no process finds a loss again.
        self.fleet.add_dispatcher().await;
        self.fleet.add_worker(&[]).await;
        let after = charged(&self.fleet, "after").await;
        self.fleet.until_state(after, "succeeded").await;
        assert_eq!(quarantines(&self.fleet).await, Some(1));

        self.witness.look(|seen| {
            let once = seen
                .requests
                .iter()
                .filter(|one| !one.what.starts_with("again"));
            let mut done: Vec<&str> = once.map(|one| one.header("toolfleet-call-id")).collect();
            let asked = done.len();
            done.sort_unstable();
            done.dedup();
            assert_eq!(done.len(), asked, "something was asked for twice: {done:?}");
        });
        let mut known = self.known();
        known.push(after);
        invariants::hold_for(&self.fleet, &self.witness, &known).await;
    }

    /// What an operator finds, for readers of this test's output.
    #[expect(clippy::print_stdout, reason = "it is what the test shows")]
    async fn show(&self) {
        let sql = "SELECT tool, why, worker, worker_fenced, quarantined, error->>'message' AS message \
                   FROM toolfleet.in_doubt WHERE $1::uuid IS NOT NULL ORDER BY call_id";
        for row in self.fleet.rows(sql, self.finished).await {
            println!("in_doubt: {row}");
        }
        for event in self.fleet.events(self.queued[0]).await {
            println!("event: {event}");
        }
    }
}

async fn watermark(fleet: &Fleet) -> WalPosition {
    let asking = sqlx::query_scalar("SELECT wal_lsn::text FROM toolfleet.fleet");
    let watermark: String = asking.fetch_one(&fleet.database.pool).await.unwrap();
    watermark.parse().unwrap()
}

/// `None` while Postgres does not answer.
async fn quarantines(fleet: &Fleet) -> Option<i32> {
    let mut connection = sqlx::PgConnection::connect(&fleet.database.url)
        .await
        .ok()?;
    let asking = sqlx::query_scalar("SELECT quarantines FROM toolfleet.fleet");
    asking.fetch_one(&mut connection).await.ok()
}

async fn unready(fleet: &Fleet) -> bool {
    let mut processes = fleet.dispatchers.iter().chain(&fleet.workers);
    let said = join_all(processes.by_ref().map(|process| process.get("/readyz"))).await;
    let unready = |said: &Option<(u16, String)>| matches!(said, Some((503, conditions)) if conditions.contains("postgres: not ready"));
    said.iter().all(unready)
}

#[tokio::test]
async fn a_backup_promoted_in_place_of_the_primary_runs_no_once_call_twice() {
    let mut scene = scene().await;
    scene.cluster.back_up().await;
    scene.run_on().await;
    let unknown = charged(&scene.fleet, "unknown").await;
    scene.fleet.until_state(unknown, "succeeded").await;
    // A tool of the lost time, which is applied again afterwards, as something else under the same version.
    scene.fleet.apply(&scene.witness.tool("late", "once")).await;
    let load = load(&scene.fleet);

    scene.cluster.kill().await;
    scene.cluster.put_copy_in_place_as_standby();
    scene.cluster.start().await;
    // A standby takes no writes, and reports that.
    until_so("every process to be unready", async || {
        unready(&scene.fleet).await
    })
    .await;
    scene.cluster.promote().await;
    scene.until_quarantined().await;
    drop(load);
    for process in scene
        .fleet
        .dispatchers
        .iter_mut()
        .chain(&mut scene.fleet.workers)
    {
        process.ready().await;
    }

    scene.show().await;
    // What the copy never heard of is gone, and with it its key: it cannot be known that it was done.
    let told = scene
        .fleet
        .get(&json!({"call_id": unknown.to_string()}))
        .await;
    assert_eq!(told.code(), "not_found", "{}", *told);
    until_so("the lost tool to be unknown", async || {
        let late = scene.fleet.submit("late", &json!({"what": "late"}));
        late.wait().await.code() == "unknown_tool"
    })
    .await;
    scene.fleet.apply(&scene.witness.tool("late", "read")).await;
    until_so("the tool that was applied again", async || {
        let late = scene.fleet.submit("late", &json!({"what": "late"}));
        late.wait().await["state"] == "succeeded"
    })
    .await;
    scene.holds().await;
}

/// Callers who go on and do not care. They end when it is dropped.
fn load(fleet: &Fleet) -> JoinSet<()> {
    let mut callers = JoinSet::new();
    for caller in 0..4 {
        let template = fleet.submit("charge", &json!({"what": format!("load-{caller}")}));
        callers.spawn(async move {
            for number in 0.. {
                let key = format!("load-{caller}-{number}");
                let submission = template.clone().key(&key).patience(Duration::from_secs(2));
                drop(submission.try_wait().await);
            }
        });
    }
    callers
}

#[tokio::test]
async fn an_old_copy_started_again_is_noticed_by_those_who_remember() {
    let mut scene = scene().await;
    scene.cluster.stop().await;
    scene.cluster.copy_cold();
    scene.cluster.start().await;
    scene.run_on().await;
    scene.until_watermark_moves().await;
    scene.cluster.kill().await;
    scene.cluster.put_copy_in_place();
    scene.cluster.start().await;
    scene.until_quarantined().await;
    scene.holds().await;
}

#[tokio::test]
async fn an_old_copy_started_again_is_noticed_by_those_who_start_later() {
    let mut scene = scene().await;
    scene.cluster.stop().await;
    scene.cluster.copy_cold();
    scene.cluster.start().await;
    scene.run_on().await;
    scene.until_watermark_moves().await;
    // Only NATS remembers now.
    let (what, _) = &scene.lasting;
    scene.witness.release(what);
    scene.fleet.until_state(scene.lasting.1, "succeeded").await;
    for process in scene.fleet.dispatchers.drain(..) {
        process.kill().await;
    }
    for process in scene.fleet.workers.drain(..) {
        process.kill().await;
    }
    scene.cluster.kill().await;
    scene.cluster.put_copy_in_place();
    scene.cluster.start().await;
    scene.fleet.add_dispatcher().await;
    scene.fleet.add_worker(&[]).await;
    assert_eq!(quarantines(&scene.fleet).await, Some(1));
    for call in scene.open_once() {
        let row = scene.fleet.call(call).await;
        assert_eq!(row["state"], "in_doubt", "{row}");
    }
    for call in &scene.again {
        scene.fleet.until_state(*call, "succeeded").await;
    }
    invariants::hold_for(&scene.fleet, &scene.witness, &scene.known()).await;
}

#[tokio::test]
async fn a_server_that_crashes_and_recovers_has_lost_nothing() {
    let mut scene = scene().await;
    let load = load(&scene.fleet);
    for _ in 0..3 {
        scene.until_watermark_moves().await;
        scene.cluster.kill().await;
        scene.cluster.start().await;
    }
    drop(load);
    scene.run_on().await;
    let (what, call) = &scene.lasting;
    scene.witness.release(what);
    scene.fleet.until_state(*call, "succeeded").await;
    assert_eq!(quarantines(&scene.fleet).await, Some(0));
    invariants::hold_for(&scene.fleet, &scene.witness, &scene.known()).await;
}
