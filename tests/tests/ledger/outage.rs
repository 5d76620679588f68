//! A server that is gone, that forgets, or that is busy with something larger than a row.

use std::time::{Duration, Instant};

use fleet::{
    call::State,
    store::{StoreError, lane::Reply, sweep},
};
use fleet_tests::{postgres::Cluster, wait};

use crate::support::{Ledger, claim_of, keyed_call, new_call, new_key, run, succeeded};

/// How long a caller may wait to hear that the ledger is gone.
const HEARD_WITHIN: Duration = Duration::from_secs(2);

#[tokio::test]
async fn a_server_that_forgets_what_it_commits_is_refused() {
    let cluster = Cluster::alone(false).await;
    let ledger = Ledger::on(cluster.database().await);
    let refused = ledger.database.postgres.connect().await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::UnsafeServer(why) if why.contains("fsync")),
        "{refused}"
    );
    let reply = ledger.accepting.accept(new_call()).await;
    assert!(matches!(reply, Reply::NotSent), "{reply:?}");
}

#[tokio::test]
async fn an_outage_is_told_at_once_and_ends_with_the_server_back() {
    let mut cluster = Cluster::alone(true).await;
    let mut ledger = Ledger::on(cluster.database().await);
    let worker = ledger.worker().await;
    let (call, attempt) = ledger.running(&worker).await;
    let queued = ledger.queued().await;
    cluster.stop().await;

    // The lanes learn of it by a connection that broke; what was on it is unknown.
    let first = heard(ledger.accepting.accept(keyed_call(new_key()))).await;
    assert!(
        matches!(first, Reply::Unknown | Reply::NotSent),
        "{first:?}"
    );
    for _ in 0..8 {
        let reply = heard(ledger.accepting.accept(keyed_call(new_key()))).await;
        assert!(matches!(reply, Reply::NotSent), "{reply:?}");
    }
    assert!(
        heard(worker.claiming.claim(claim_of(queued)))
            .await
            .is_err()
    );
    assert!(
        heard(worker.claiming.claim(claim_of(queued)))
            .await
            .is_err()
    );
    assert!(sweep::lost(&ledger.database.pool, true).await.is_err());

    let ending = succeeded(call, attempt);
    let (ended, ()) = tokio::join!(
        ledger.completing.complete(&ending, wait::LONG),
        cluster.start()
    );
    assert!(ended.unwrap().is_some(), "a completion outlasts the outage");
    wait::until_so("calls to be accepted again", async || {
        matches!(
            ledger.accepting.accept(keyed_call(new_key())).await,
            Reply::Done(_)
        )
    })
    .await;
    wait::until_so("calls to be claimed again", async || {
        matches!(worker.claiming.claim(claim_of(queued)).await, Ok(Some(_)))
    })
    .await;
}

#[tokio::test]
async fn a_completion_outlasts_a_table_that_is_locked_for_a_while() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, attempt) = ledger.running(&worker).await;
    let mut holder = ledger.database.connect().await;
    run(&mut holder, "BEGIN").await;
    run(
        &mut holder,
        "LOCK TABLE toolfleet.finished_calls IN ACCESS EXCLUSIVE MODE",
    )
    .await;
    let releasing = async {
        // Longer than the lock timeout, with and without skipping.
        tokio::time::sleep(Duration::from_secs(3)).await;
        run(&mut holder, "COMMIT").await;
    };
    let ending = succeeded(call, attempt);
    let (ended, ()) = tokio::join!(ledger.completing.complete(&ending, wait::LONG), releasing);
    assert_eq!(
        ended.unwrap().map(|ended| ended.state),
        Some(State::Succeeded)
    );
}

#[tokio::test]
async fn a_table_that_is_locked_is_no_fault_of_the_call() {
    let ledger = Ledger::fresh().await;
    let mut holder = ledger.database.connect().await;
    run(&mut holder, "BEGIN").await;
    run(
        &mut holder,
        "LOCK TABLE toolfleet.open_calls IN ACCESS EXCLUSIVE MODE",
    )
    .await;
    let reply = ledger.accepting.accept(new_call()).await;
    assert!(matches!(reply, Reply::NotSent), "{reply:?}");
}

async fn heard<T>(asking: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let answer = asking.await;
    let took = began.elapsed();
    assert!(took < HEARD_WITHIN, "heard after {took:?}");
    answer
}
