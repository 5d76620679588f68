//! A backup takes over that knows calls as waiting which have got their yes since, and have run.

use fleet_tests::{postgres::Cluster, wait::until_so};
use futures_util::future::join_all;
use sqlx::Connection as _;

use super::*;

const CALLS: usize = 100;

async fn all_wait(fleet: &Fleet, tool: &str, calls: usize) -> Vec<Waiting> {
    join_all((0..calls).map(async |n| waiting(fleet, tool, &format!("{tool}-{n}")).await)).await
}

async fn quarantines(fleet: &Fleet) -> Option<i32> {
    let mut connection = sqlx::PgConnection::connect(&fleet.database.url)
        .await
        .ok()?;
    let asking = sqlx::query_scalar("SELECT quarantines FROM toolfleet.fleet");
    asking.fetch_one(&mut connection).await.ok()
}

#[tokio::test]
async fn a_yes_that_was_lost_is_not_given_again_to_a_once_call() {
    let mut cluster = Cluster::alone(true).await;
    let witness = Witness::start().await;
    let tools = [
        guarded(&witness, "charge", "once", "{}"),
        guarded(&witness, "put", "idempotent", "{}"),
    ];
    let spec = Spec::with(tools).dispatchers(2).workers(2, &[]);
    let mut fleet = Fleet::start_on(cluster.database().await, spec).await;
    let charges = all_wait(&fleet, "charge", CALLS).await;
    let puts = all_wait(&fleet, "put", 20).await;

    cluster.back_up().await;
    for waits in charges[..CALLS / 2].iter().chain(&puts[..10]) {
        waits.says(&fleet, "approve", "ann").await;
    }
    for waits in charges[..CALLS / 2].iter().chain(&puts[..10]) {
        fleet.until_state(waits.call, "succeeded").await;
    }
    cluster.kill().await;
    cluster.put_copy_in_place_as_standby();
    cluster.start().await;
    cluster.promote().await;
    until_so("calls to be put in doubt", async || {
        quarantines(&fleet).await == Some(1)
    })
    .await;
    for process in fleet.dispatchers.iter_mut().chain(&mut fleet.workers) {
        process.ready().await;
    }

    let mut refused = 0;
    for waits in &charges {
        let row = fleet.call(waits.call).await;
        assert_eq!(row["state"], "in_doubt", "{row}");
        let again = waits.says(&fleet, "approve", "ann").await;
        assert_eq!(again.code(), "conflict", "{}", *again);
        refused += 1;
    }
    // What recognises its key waits on, and runs by a new yes, or is in doubt without one.
    for waits in &puts {
        let told = waits.says(&fleet, "approve", "ann").await;
        assert_eq!(told["call_id"], json!(waits.call), "{}", *told);
        fleet.until_state(waits.call, "succeeded").await;
    }
    let times = |tool: &str, calls: usize| -> Vec<usize> {
        (0..calls)
            .map(|n| witness.applied(&format!("{tool}-{n}")))
            .collect()
    };
    let (charged, put) = (times("charge", CALLS), times("put", puts.len()));
    assert!(charged.iter().all(|times| *times <= 1), "{charged:?}");
    assert_eq!(put[..10], [2; 10], "each with the key of its call");
    assert_eq!(put[10..], [1; 10]);
    println!(
        "{CALLS} charges waited at the backup, {} had run when it took over: {} in doubt, {refused} second yeses refused, most runs of one: {}",
        CALLS / 2,
        fleet.count("SELECT count(*) FROM toolfleet.in_doubt").await,
        charged.iter().max().unwrap()
    );
}
