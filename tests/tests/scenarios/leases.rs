//! Silence that is no death: of Postgres, of nats-server, and of a worker that only cannot be heard.

use std::{fs, time::Duration};

use fleet::lease::{LEASE, OBSERVATION_GAP_MAX};
use fleet_tests::{
    fleet::{Fleet, Spec, counter},
    invariants,
    postgres::Cluster,
    wait::until_so,
    witness::{Reply, Witness},
};
use futures_util::future::join_all;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;

/// Processes of a server that stand still. Dropping it lets them go on.
struct Paused(Vec<Pid>);

impl Paused {
    /// Stops this process.
    fn process(pid: u32) -> Self {
        let mut stopped = Self(Vec::new());
        stopped.stop(i32::try_from(pid).unwrap());
        stopped
    }

    /// Stops the server that this process belongs to, with all it has started. The parent first: then there are no more.
    fn server_of(backend: i32) -> Self {
        let parent = parent(backend).unwrap();
        let mut stopped = Self(Vec::new());
        stopped.stop(parent);
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let pid = entry.file_name().to_string_lossy().parse();
            if let Ok(pid) = pid
                && self::parent(pid) == Some(parent)
            {
                stopped.stop(pid);
            }
        }
        stopped
    }

    fn stop(&mut self, pid: i32) {
        let pid = Pid::from_raw(pid);
        // One that has just ended needs no stopping.
        if kill(pid, Signal::SIGSTOP).is_ok() {
            self.0.push(pid);
        }
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        for pid in &self.0 {
            // As above.
            kill(*pid, Signal::SIGCONT).ok();
        }
    }
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_ascii_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

/// What every process of the fleet says of being ready.
async fn readiness(fleet: &Fleet) -> Vec<(u16, String)> {
    let processes = fleet.dispatchers.iter().chain(&fleet.workers);
    let said = processes.map(async |process| process.get("/readyz").await.unwrap());
    join_all(said).await
}

#[tokio::test]
async fn while_nats_server_stands_still_no_process_says_that_it_is_ready() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    // The connections stand all the while.
    let paused = Paused::process(fleet.nats_pid());
    until_so(
        "every process to say that NATS does not answer",
        async || {
            let said = readiness(&fleet).await;
            let silent =
                |(status, body): &(u16, String)| *status == 503 && body.contains("nats: not ready");
            said.iter().all(silent)
        },
    )
    .await;
    drop(paused);
    until_so("every process to be ready again", async || {
        readiness(&fleet)
            .await
            .iter()
            .all(|(status, _)| *status == 200)
    })
    .await;
    let answer = fleet.submit("look", &json!({"what": "a"})).wait().await;
    assert_eq!(answer["state"], "succeeded");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
#[ignore = "slow: Postgres stands still for longer than a lease"]
async fn a_postgres_that_stands_still_kills_nobody_and_doubles_nothing() {
    let witness = Witness::start().await;
    let cluster = Cluster::alone(true).await;
    let tools = [witness.tool("charge", "once"), witness.tool("look", "read")];
    let spec = Spec::with(tools).dispatchers(2).workers(2, &[]);
    let fleet = Fleet::start_on(cluster.database().await, spec).await;
    let mut calls = Vec::new();
    for key in ["1", "2", "3", "4"] {
        for tool in ["charge", "look"] {
            let what = format!("{tool} {key}");
            witness.always(&what, Reply::DoneWhenReleased);
            let call = fleet.submit(tool, &json!({"what": what}));
            calls.push((
                call.key(&format!("{tool}{key}"))
                    .asynchronous()
                    .await
                    .call_id(),
                what,
            ));
        }
    }
    for (_, what) in &calls {
        witness.until_asked(what, 1).await;
    }
    let backend = sqlx::query_scalar("SELECT pg_backend_pid()")
        .fetch_one(&fleet.database.pool)
        .await;
    let paused = Paused::server_of(backend.unwrap());
    // Half of the answers come while they cannot be recorded.
    for (_, what) in calls.iter().step_by(2) {
        witness.release(what);
    }
    // The one place where time itself is the fact.
    tokio::time::sleep(LEASE + OBSERVATION_GAP_MAX).await;
    drop(paused);
    let lost = counter("toolfleet_lost_leases_total");
    assert!(
        (lost - 2.0).abs() < 0.5,
        "each of two workers lost one lease: {lost}"
    );
    for (_, what) in &calls {
        witness.release(what);
    }
    for (call, what) in &calls {
        let row = fleet.until_state(*call, "succeeded").await;
        assert_eq!(
            (&row["attempts"], witness.asked(what)),
            (&json!(1), 1),
            "{what}"
        );
    }
    // Every worker is observed for another lease, and beats.
    let alive = "SELECT count(*) FROM toolfleet.workers WHERE state = 'live' AND beat_at > now() - interval '4 seconds'";
    tokio::time::sleep(LEASE + Duration::from_secs(2)).await;
    until_so("both workers to beat", async || {
        fleet.count(alive).await == 2
    })
    .await;
    let answer = fleet
        .submit("charge", &json!({"what": "after"}))
        .key("after")
        .wait()
        .await;
    assert_eq!(answer["state"], "succeeded");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
#[ignore = "slow: Postgres is down for two leases"]
async fn a_postgres_that_is_down_for_two_leases_leaves_no_call_in_doubt() {
    down_under_running_calls(200, 2 * LEASE).await;
}

#[tokio::test]
async fn a_postgres_that_is_down_for_a_moment_leaves_no_call_in_doubt() {
    down_under_running_calls(50, Duration::from_secs(4)).await;
}

/// Stops Postgres for this long under so many running `once` calls. A third of them ends before it is down, a third while
/// it is, and a third once it is back.
async fn down_under_running_calls(calls: usize, down: Duration) {
    let witness = Witness::start().await;
    let mut cluster = Cluster::alone(true).await;
    let tool = witness.tool("charge", "once") + "timeout: 4m\n";
    let concurrency = calls.to_string();
    let flags = ["--concurrency", concurrency.as_str()];
    let spec = Spec::with([tool]).dispatchers(2).workers(1, &flags);
    let fleet = Fleet::start_on(cluster.database().await, spec).await;
    let names: Vec<String> = (0..calls).map(|call| call.to_string()).collect();
    let mut ids = Vec::new();
    for what in &names {
        witness.always(what, Reply::DoneWhenReleased);
        let call = fleet.submit("charge", &json!({"what": what})).key(what);
        ids.push(call.asynchronous().await.call_id());
    }
    witness
        .until("all of them to run", |seen| seen.running == calls)
        .await;
    let thirds: Vec<&[String]> = names.chunks(calls.div_ceil(3)).collect();
    let release = |third: &[String]| third.iter().for_each(|what| witness.release(what));

    release(thirds[0]);
    cluster.stop().await;
    release(thirds[1]);
    // The one place where time itself is the fact.
    tokio::time::sleep(down).await;
    cluster.start().await;
    release(thirds[2]);

    for (call, what) in ids.iter().zip(&names) {
        let row = fleet.until_state(*call, "succeeded").await;
        assert_eq!(
            (&row["attempts"], witness.asked(what)),
            (&json!(1), 1),
            "{what}"
        );
        let events = fleet.events(*call).await;
        let states: Vec<_> = events.iter().map(|event| &event["to_state"]).collect();
        assert_eq!(states, ["queued", "running", "succeeded"], "never in doubt");
    }
    let alive = "SELECT count(*) FROM toolfleet.workers WHERE state = 'live'";
    assert_eq!(fleet.count(alive).await, 1, "an outage kills nobody");
    #[expect(
        clippy::print_stdout,
        reason = "the figure is what somebody runs it for"
    )]
    {
        println!("{calls} running once calls, Postgres down for {down:?}: 0 in doubt");
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
#[ignore = "slow: a worker is silent for a whole lease"]
async fn a_worker_that_is_killed_is_found_dead_after_its_lease() {
    let witness = Witness::start().await;
    let tools = [witness.tool("charge", "once"), witness.tool("look", "read")];
    let mut fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("once", Reply::DoneThenHang);
    witness.first("read", [Reply::Hang]);
    let once = fleet
        .submit("charge", &json!({"what": "once"}))
        .key("k")
        .asynchronous()
        .await;
    let read = fleet
        .submit("look", &json!({"what": "read"}))
        .asynchronous()
        .await;
    witness.until_asked("once", 1).await;
    witness.until_asked("read", 1).await;
    fleet.workers.remove(0).kill().await;
    fleet.add_worker(&[]).await;
    let row = fleet.until_state(once.call_id(), "in_doubt").await;
    assert_eq!(row["attempts"], 1);
    let row = fleet.until_state(read.call_id(), "succeeded").await;
    assert_eq!(row["attempts"], 2);
    assert_eq!(witness.asked("once"), 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
#[ignore = "slow: a worker is silent for more than a lease"]
async fn a_broken_session_makes_an_observer_count_anew() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    fleet.workers.remove(0).kill().await;
    let nearly =
        "SELECT count(*) FROM toolfleet.workers WHERE beat_at < now() - interval '11 seconds'";
    until_so("most of a lease to pass", async || {
        fleet.count(nearly).await == 1
    })
    .await;
    let broken: i64 = sqlx::query_scalar(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
         WHERE datname = current_database() AND application_name LIKE 'toolfleet dispatcher%'",
    )
    .fetch_one(&fleet.database.pool)
    .await
    .unwrap();
    assert!(broken > 0);
    let at: time::OffsetDateTime = sqlx::query_scalar("SELECT now()")
        .fetch_one(&fleet.database.pool)
        .await
        .unwrap();
    until_so("the worker to be declared dead", async || {
        fleet
            .count("SELECT count(*) FROM toolfleet.workers WHERE state = 'dead'")
            .await
            == 1
    })
    .await;
    let ended: time::OffsetDateTime = sqlx::query_scalar("SELECT ended_at FROM toolfleet.workers")
        .fetch_one(&fleet.database.pool)
        .await
        .unwrap();
    // A little less on Postgres's clock than on the observer's, for the answers' way.
    let counted = ended - at;
    assert!(counted >= LEASE - Duration::from_millis(500), "{counted}");
}
