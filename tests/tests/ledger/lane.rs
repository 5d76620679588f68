//! Lanes when the wire or the server fails them: what was done is found out, nothing is done twice.

use std::{collections::HashSet, time::Duration};

use fleet::{
    call::State,
    ids::CallId,
    store::{
        StoreError,
        accept::NewCall,
        complete::EndingKind,
        keys::find_key,
        lane::Reply,
        ledger::{Accepting, Completing},
        read::find,
        session::Postgres,
        tools,
    },
};
use fleet_tests::{
    postgres::{Cluster, Database},
    proxy::{From, Proxy},
    wait,
};
use futures_util::future::join_all;
use sqlx::Executor;
use tokio::task::JoinSet;

use crate::support::{
    Ledger, Worker, claim_of, holding, keyed_call, new_call, new_key, run, succeeded, tenant,
    until_blocked,
};

/// A ledger, and a wire to it that can be cut.
async fn with_proxy() -> (Ledger, Proxy) {
    let ledger = Ledger::fresh().await;
    let proxy = Proxy::to(Cluster::shared().await.port()).await;
    (ledger, proxy)
}

#[tokio::test]
async fn an_accept_that_committed_without_an_answer_is_found_by_its_key() {
    let (mut ledger, proxy) = with_proxy().await;
    let postgres = ledger.database.through(proxy.port());
    let accepting = Accepting::start(&postgres, &mut ledger.lanes);
    assert!(matches!(accepting.accept(new_call()).await, Reply::Done(_)));
    let key = new_key();
    let call = keyed_call(key);
    proxy.swallow(From::Server);
    let cutting = async {
        until_stored(&ledger, call.call_id).await;
        proxy.cut();
    };
    let (reply, ()) = tokio::join!(accepting.accept(call.clone()), cutting);
    assert!(matches!(reply, Reply::Unknown), "{reply:?}");

    let repeated = accepting.accept(call.clone()).await;
    assert!(matches!(repeated, Reply::Undecided), "{repeated:?}");
    let named = find_key(&ledger.database.pool, &tenant(), &key)
        .await
        .unwrap();
    assert_eq!(named.unwrap().call_id, call.call_id, "it is this very call");
}

#[tokio::test]
async fn an_accept_that_never_arrived_left_nothing_and_may_be_repeated() {
    let (mut ledger, proxy) = with_proxy().await;
    let postgres = ledger.database.through(proxy.port());
    let accepting = Accepting::start(&postgres, &mut ledger.lanes);
    assert!(matches!(accepting.accept(new_call()).await, Reply::Done(_)));
    let call = keyed_call(new_key());
    proxy.swallow(From::Client);
    let (reply, ()) = tokio::join!(accepting.accept(call.clone()), cut_once_swallowed(&proxy));
    assert!(matches!(reply, Reply::Unknown), "{reply:?}");
    assert!(
        find(&ledger.database.pool, call.call_id)
            .await
            .unwrap()
            .is_none()
    );
    let repeated = accepting.accept(call).await;
    assert!(matches!(repeated, Reply::Done(_)), "{repeated:?}");
}

#[tokio::test]
async fn a_thousand_calls_sent_together_are_one_commit_and_are_answered_in_order() {
    let ledger = Ledger::fresh().await;
    let calls: Vec<NewCall> = (0..1_000).map(|_| keyed_call(new_key())).collect();
    // Single calls beside them, before and after, do not tear them apart.
    let one = async || ledger.accepting.accept(new_call()).await;
    let (before, replies, after) =
        tokio::join!(one(), ledger.accepting.accept_all(calls.clone()), one());
    assert!(matches!((before, after), (Reply::Done(_), Reply::Done(_))));
    assert_eq!(done(&replies), 1_000);
    let ids: Vec<uuid::Uuid> = calls.iter().map(|call| call.call_id.0).collect();
    assert_eq!(commits(&ledger, &ids).await, (1_000, 1));
    // The same keys in another order: each finds its own.
    let mut again: Vec<NewCall> = calls
        .iter()
        .rev()
        .map(|call| NewCall {
            call_id: CallId::generate(),
            ..call.clone()
        })
        .collect();
    again.push(keyed_call(new_key()));
    let replies = ledger.accepting.accept_all(again).await;
    assert!(matches!(replies.last(), Some(Reply::Done(_))));
    assert_eq!(done(&replies), 1, "a key names one call");
}

#[tokio::test]
async fn several_units_of_a_thousand_calls_do_not_share_their_keys_nor_lose_a_row() {
    let ledger = Ledger::fresh().await;
    let keys: Vec<_> = (0..1_000).map(|_| new_key()).collect();
    let unit = || keys.iter().map(|key| keyed_call(*key)).collect::<Vec<_>>();
    let units = join_all((0..4).map(|_| ledger.accepting.accept_all(unit()))).await;
    let accepted: usize = units.iter().map(|replies| done(replies)).sum();
    assert_eq!(accepted, 1_000);
    for replies in &units {
        let told = replies
            .iter()
            .filter(|reply| matches!(reply, Reply::Done(_) | Reply::Undecided));
        assert_eq!(told.count(), 1_000);
    }
}

#[tokio::test]
async fn a_row_that_the_server_refuses_does_not_fail_the_rest_of_its_unit() {
    let ledger = Ledger::fresh().await;
    let mut calls: Vec<NewCall> = (0..200).map(|_| keyed_call(new_key())).collect();
    calls[77].args = "{\"half\":".into();
    let replies = ledger.accepting.accept_all(calls).await;
    assert!(
        matches!(replies[77], Reply::Refused(_)),
        "{:?}",
        replies[77]
    );
    assert_eq!(done(&replies), 199);
}

#[tokio::test]
async fn a_unit_that_committed_without_an_answer_is_found_by_its_keys() {
    let (mut ledger, proxy) = with_proxy().await;
    let postgres = ledger.database.through(proxy.port());
    let accepting = Accepting::start(&postgres, &mut ledger.lanes);
    assert_eq!(done(&accepting.accept_all(vec![new_call()]).await), 1);
    let calls: Vec<NewCall> = (0..300).map(|_| keyed_call(new_key())).collect();
    proxy.swallow(From::Server);
    let cutting = async {
        until_stored(&ledger, calls[299].call_id).await;
        proxy.cut();
    };
    let (replies, ()) = tokio::join!(accepting.accept_all(calls.clone()), cutting);
    assert!(replies.iter().all(|reply| matches!(reply, Reply::Unknown)));

    let repeated = accepting.accept_all(calls.clone()).await;
    assert!(
        repeated
            .iter()
            .all(|reply| matches!(reply, Reply::Undecided))
    );
    for call in &calls {
        let key = call.key.as_ref().unwrap();
        let named = find_key(&ledger.database.pool, &tenant(), &key.hash)
            .await
            .unwrap();
        assert_eq!(named.unwrap().call_id, call.call_id, "it is this very call");
    }
}

#[tokio::test]
async fn a_unit_that_never_arrived_left_nothing_and_may_be_repeated() {
    let (mut ledger, proxy) = with_proxy().await;
    let postgres = ledger.database.through(proxy.port());
    let accepting = Accepting::start(&postgres, &mut ledger.lanes);
    assert_eq!(done(&accepting.accept_all(vec![new_call()]).await), 1);
    let calls: Vec<NewCall> = (0..300).map(|_| keyed_call(new_key())).collect();
    proxy.swallow(From::Client);
    let (replies, ()) = tokio::join!(
        accepting.accept_all(calls.clone()),
        cut_once_swallowed(&proxy)
    );
    assert!(replies.iter().all(|reply| matches!(reply, Reply::Unknown)));
    let ids: Vec<uuid::Uuid> = calls.iter().map(|call| call.call_id.0).collect();
    assert_eq!(commits(&ledger, &ids).await, (0, 0));
    assert_eq!(done(&accepting.accept_all(calls).await), 300);
}

fn done<A>(replies: &[Reply<A>]) -> usize {
    let done = replies
        .iter()
        .filter(|reply| matches!(reply, Reply::Done(_)));
    done.count()
}

/// How many of these calls there are, and in how many commits.
async fn commits(ledger: &Ledger, calls: &[uuid::Uuid]) -> (i64, i64) {
    sqlx::query_as(
        "SELECT count(*), count(DISTINCT xmin::text) FROM toolfleet.open_calls WHERE call_id = ANY($1)",
    )
    .bind(calls)
    .fetch_one(&ledger.database.pool)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_claim_that_committed_without_an_answer_is_read_back() {
    let (mut ledger, proxy) = with_proxy().await;
    let worker = worker_behind(&mut ledger, &proxy).await;
    let call = ledger.queued().await;
    let claim = claim_of(call);
    let attempt = claim.attempt_id;
    proxy.swallow(From::Server);
    let cutting = async {
        until_running(&ledger, call).await;
        proxy.cut();
    };
    let (claimed, ()) = tokio::join!(worker.claiming.claim(claim), cutting);
    assert_eq!(claimed.unwrap().map(|claimed| claimed.call_id), Some(call));
    assert_eq!(ledger.find(call).await.attempt_id(), Some(attempt));
    ledger.ends(succeeded(call, attempt)).await;
}

#[tokio::test]
async fn a_claim_that_never_arrived_is_nobodys() {
    let (mut ledger, proxy) = with_proxy().await;
    let worker = worker_behind(&mut ledger, &proxy).await;
    let call = ledger.queued().await;
    proxy.swallow(From::Client);
    let (claimed, ()) = tokio::join!(
        worker.claiming.claim(claim_of(call)),
        cut_once_swallowed(&proxy)
    );
    // Not ours as far as can be told; it might still be on its way.
    assert!(!matches!(claimed, Ok(Some(_))), "{claimed:?}");
    assert_eq!(ledger.state(call).await, State::Queued);
    assert!(worker.tries(call).await.is_some(), "the lane works again");
}

#[tokio::test]
async fn a_claim_that_is_still_under_way_is_waited_for_when_it_is_read_back() {
    let (mut ledger, proxy) = with_proxy().await;
    let worker = worker_behind(&mut ledger, &proxy).await;
    let call = ledger.queued().await;
    let mut holder = holding(&ledger.database, call).await;
    let claim = claim_of(call);
    let attempt = claim.attempt_id;
    let meddling = async {
        until_blocked(&ledger.database, 1).await;
        proxy.cut();
        // The claim goes on without its client, and the read-back stands behind it.
        until_blocked(&ledger.database, 2).await;
        run(&mut holder, "COMMIT").await;
    };
    let (claimed, ()) = tokio::join!(worker.claiming.claim(claim), meddling);
    assert!(claimed.unwrap().is_some());
    assert_eq!(ledger.find(call).await.attempt_id(), Some(attempt));
}

#[tokio::test]
async fn a_completion_is_repeated_until_it_is_answered_and_counts_once() {
    let (mut ledger, proxy) = with_proxy().await;
    let worker = ledger.worker().await;
    let postgres = ledger.database.through(proxy.port());
    let completing = Completing::start(&postgres, &mut ledger.lanes);
    let (warm, attempt) = ledger.running(&worker).await;
    completing
        .complete(&succeeded(warm, attempt), wait::LONG)
        .await
        .unwrap()
        .unwrap();

    let (call, attempt) = ledger.running(&worker).await;
    let ending = succeeded(call, attempt);
    proxy.swallow(From::Server);
    let cutting = async {
        wait::until_so("the call to end", async || {
            ledger.state(call).await == State::Succeeded
        })
        .await;
        proxy.cut();
    };
    let (answer, ()) = tokio::join!(completing.complete(&ending, wait::LONG), cutting);
    assert!(answer.unwrap().is_none(), "the repetition moved nothing");
    assert_eq!(
        ledger.find(call).await.attempt_id(),
        Some(attempt),
        "because the first one did"
    );

    let (call, attempt) = ledger.running(&worker).await;
    let ending = succeeded(call, attempt);
    proxy.swallow(From::Client);
    let (answer, ()) = tokio::join!(
        completing.complete(&ending, wait::LONG),
        cut_once_swallowed(&proxy)
    );
    assert_eq!(
        answer.unwrap().map(|ended| ended.state),
        Some(State::Succeeded)
    );
}

#[tokio::test]
async fn a_wire_that_falls_silent_is_given_up() {
    let (mut ledger, proxy) = with_proxy().await;
    let worker = worker_behind(&mut ledger, &proxy).await;
    let postgres = ledger.database.through(proxy.port());
    let accepting = Accepting::start(&postgres, &mut ledger.lanes);
    assert!(matches!(accepting.accept(new_call()).await, Reply::Done(_)));
    let call = ledger.queued().await;
    // No end closes the connection: this is a cable that was pulled.
    proxy.swallow(From::Server);
    let patience = Postgres::STATEMENT_TIMEOUT * 5;
    let (accepted, claimed) = tokio::time::timeout(patience, async {
        tokio::join!(
            accepting.accept(new_call()),
            Box::pin(worker.claiming.claim(claim_of(call)))
        )
    })
    .await
    .expect("the lanes give up");
    assert!(matches!(accepted, Reply::Unknown), "{accepted:?}");
    assert!(claimed.is_err(), "and nothing runs: {claimed:?}");
    proxy.cut();
    assert!(matches!(accepting.accept(new_call()).await, Reply::Done(_)));
}

#[tokio::test]
async fn a_read_whose_answer_never_comes_is_given_up() {
    let (ledger, proxy) = with_proxy().await;
    let postgres = ledger.database.through(proxy.port());
    let pool = postgres.pool_for_reading(1);
    tools::since(&pool, 0).await.unwrap();
    let mut holder = ledger.database.connect().await;
    let lock = "BEGIN; LOCK TABLE toolfleet.tool_versions IN ACCESS EXCLUSIVE MODE";
    holder.execute(lock).await.unwrap();
    let silenced = async {
        until_blocked(&ledger.database, 1).await;
        proxy.swallow(From::Server);
    };
    let patience = Postgres::STATEMENT_TIMEOUT * 5;
    let reading = tokio::time::timeout(patience, tools::since(&pool, 0));
    let (read, ()) = tokio::join!(reading, silenced);
    let read = read.expect("the read gives up");
    assert!(
        matches!(read, Err(StoreError::Unavailable { .. })),
        "{read:?}"
    );
}

#[tokio::test]
async fn a_killed_backend_leaves_its_batch_unknown_and_the_lane_works_on() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, attempt) = ledger.running(&worker).await;
    let holder = holding(&ledger.database, call).await;
    let killing = async {
        until_blocked(&ledger.database, 1).await;
        kill_blocked(&ledger.database).await;
    };
    let ending = succeeded(call, attempt);
    let (reply, ()) = tokio::join!(ledger.completing.complete_once(ending.clone()), killing);
    assert!(matches!(reply, Reply::Unknown), "{reply:?}");
    drop(holder);
    ledger.ends(ending).await;
}

#[tokio::test]
async fn a_completion_outlives_a_killed_backend() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, attempt) = ledger.running(&worker).await;
    let mut holder = holding(&ledger.database, call).await;
    let killing = async {
        until_blocked(&ledger.database, 1).await;
        kill_blocked(&ledger.database).await;
        run(&mut holder, "COMMIT").await;
    };
    let ending = succeeded(call, attempt);
    let (answer, ()) = tokio::join!(ledger.completing.complete(&ending, wait::LONG), killing);
    assert!(answer.unwrap().is_some());
}

/// Ends every session of this database but the one that says so.
async fn kill_all(database: &Database) {
    let killed: i64 = sqlx::query_scalar(
        "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    .fetch_one(&database.pool)
    .await
    .unwrap();
    assert!(killed >= 2);
}

#[tokio::test]
async fn the_first_row_after_a_quiet_time_does_not_meet_a_broken_connection() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, attempt) = ledger.running(&worker).await;
    let queued = ledger.queued().await;
    kill_all(&ledger.database).await;
    // Unused for longer than a connection is believed.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    // Without a key, its outcome could not be found out.
    let reply = ledger.accepting.accept(new_call()).await;
    assert!(matches!(reply, Reply::Done(_)), "{reply:?}");
    let claimed = worker.claiming.claim(claim_of(queued)).await;
    assert!(matches!(claimed, Ok(Some(_))), "{claimed:?}");
    let reply = ledger.completing.complete_once(succeeded(call, attempt));
    let reply = reply.await;
    assert!(matches!(reply, Reply::Done(_)), "{reply:?}");
}

#[tokio::test]
async fn an_idle_lane_whose_backend_was_killed_works_on() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, attempt) = ledger.running(&worker).await;
    kill_all(&ledger.database).await;
    // The outcome of a statement on a dead connection is unknown, so it is not simply sent again.
    let ending = succeeded(call, attempt);
    let answer = ledger.completing.complete(&ending, wait::LONG).await;
    assert!(answer.unwrap().is_some());
}

#[tokio::test]
async fn however_often_the_wire_is_cut_a_key_names_one_call_and_it_is_there() {
    let (mut ledger, proxy) = with_proxy().await;
    let postgres = ledger.database.through(proxy.port());
    let accepting = Accepting::start(&postgres, &mut ledger.lanes);
    let calls: Vec<_> = (0..300).map(|_| keyed_call(new_key())).collect();
    let accepted = async {
        join_all(calls.iter().map(async |call| {
            loop {
                match accepting.accept(call.clone()).await {
                    Reply::Done(_) => return,
                    Reply::Undecided => {
                        let key = &call.key.as_ref().unwrap().hash;
                        let named = find_key(&ledger.database.pool, &tenant(), key)
                            .await
                            .unwrap();
                        return assert_eq!(named.unwrap().call_id, call.call_id);
                    }
                    Reply::Unknown | Reply::NotSent => {}
                    Reply::Refused(error) => panic!("{error}"),
                }
            }
        }))
        .await;
    };
    under_cuts(&proxy, accepted).await;
    for call in &calls {
        assert_eq!(ledger.find(call.call_id).await.rev, 0);
    }
}

#[tokio::test]
async fn however_often_the_wire_is_cut_a_call_runs_for_one_attempt_at_a_time() {
    let (mut ledger, proxy) = with_proxy().await;
    let one = worker_behind(&mut ledger, &proxy).await;
    let other = worker_behind(&mut ledger, &proxy).await;
    let postgres = ledger.database.through(proxy.port());
    let completing = Completing::start(&postgres, &mut ledger.lanes);
    let calls = ledger.many_queued(300).await;
    let work = async |worker: &Worker, call: CallId| -> Option<CallId> {
        let claim = claim_of(call);
        let attempt = claim.attempt_id;
        worker.claiming.claim(claim).await.ok().flatten()?;
        // None: this completion was repeated after one whose answer was lost.
        let ended = completing
            .complete(&succeeded(call, attempt), wait::LONG)
            .await
            .unwrap();
        let row = ledger.find(call).await;
        assert_eq!(
            (row.state(), row.attempt_id()),
            (State::Succeeded, Some(attempt)),
            "{ended:?}"
        );
        Some(call)
    };
    let (by_one, by_other) = under_cuts(&proxy, async {
        tokio::join!(
            join_all(calls.iter().map(|call| work(&one, *call))),
            join_all(calls.iter().rev().map(|call| work(&other, *call))),
        )
    })
    .await;
    let finished: Vec<CallId> = by_one.into_iter().chain(by_other).flatten().collect();
    let distinct: HashSet<CallId> = finished.iter().copied().collect();
    assert_eq!(finished.len(), distinct.len(), "a call was run twice");
    // A claim that was given up and committed later is found among its worker's own.
    let mut owned = HashSet::new();
    for worker in [&one, &other] {
        let running: Vec<uuid::Uuid> = sqlx::query_scalar(
            "SELECT call_id FROM toolfleet.open_calls WHERE worker_id = $1 AND state = 'running'",
        )
        .bind(worker.id.0)
        .fetch_all(&ledger.database.pool)
        .await
        .unwrap();
        owned.extend(running.into_iter().map(CallId));
    }
    for call in calls {
        match ledger.state(call).await {
            State::Succeeded => assert!(distinct.contains(&call)),
            State::Running => assert!(owned.contains(&call)),
            state => assert_eq!(state, State::Queued),
        }
    }
}

/// Cuts the wire every few milliseconds until the work is done, at most forty times.
async fn under_cuts<T>(proxy: &Proxy, work: impl Future<Output = T>) -> T {
    let cutting = async {
        for round in 0..40_u64 {
            tokio::time::sleep(Duration::from_millis(3 + round % 7 * 4)).await;
            if round % 3 == 0 {
                proxy.swallow(From::Server);
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            proxy.cut();
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        done = work => done,
        () = cutting => unreachable!("it waits for the work"),
    }
}

async fn worker_behind(ledger: &mut Ledger, proxy: &Proxy) -> Worker {
    let postgres = ledger.database.through(proxy.port());
    let worker = Box::pin(ledger.worker_through(&postgres)).await;
    // The lane is connected and its statement prepared: the next bytes are a claim.
    let call = Box::pin(ledger.queued()).await;
    Box::pin(worker.claims(call)).await;
    worker
}

async fn until_stored(ledger: &Ledger, call: CallId) {
    wait::until_so("the call to be stored", async || {
        find(&ledger.database.pool, call).await.unwrap().is_some()
    })
    .await;
}

async fn until_running(ledger: &Ledger, call: CallId) {
    wait::until_so("the call to run", async || {
        ledger.state(call).await == State::Running
    })
    .await;
}

async fn cut_once_swallowed(proxy: &Proxy) {
    wait::until_so("the statement to be swallowed", async || {
        proxy.swallowed(From::Client) > 0
    })
    .await;
    proxy.cut();
}

async fn kill_blocked(database: &Database) {
    let killed: Vec<bool> = sqlx::query_scalar(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND wait_event_type = 'Lock'",
    )
    .fetch_all(&database.pool)
    .await
    .unwrap();
    assert_eq!(killed, [true]);
}

#[tokio::test]
async fn a_large_result_that_waits_holds_up_no_small_one() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (first, first_attempt) = ledger.running(&worker).await;
    // From here on the lane of small ones is connected.
    ledger.ends(succeeded(first, first_attempt)).await;
    let (small, small_attempt) = ledger.running(&worker).await;
    let (large, large_attempt) = ledger.running(&worker).await;
    let mut ending = succeeded(large, large_attempt);
    if let EndingKind::End(end) = &mut ending.kind {
        end.result = Some(format!("\"{}\"", "x".repeat(64 * 1024)));
    }
    let mut holding = holding(&ledger.database, large).await;
    let completing = ledger.completing.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { completing.complete_once(ending).await });
    until_blocked(&ledger.database, 1).await;

    ledger.ends(succeeded(small, small_attempt)).await;
    assert!(tasks.try_join_next().is_none(), "the large one still waits");
    run(&mut holding, "ROLLBACK").await;
    let reply = tasks.join_next().await.unwrap().unwrap();
    assert!(matches!(reply, Reply::Done(_)), "{reply:?}");
}

#[tokio::test]
async fn large_arguments_that_wait_hold_up_no_small_ones() {
    let ledger = Ledger::fresh().await;
    ledger.queued().await;
    let key = new_key();
    // Another session takes the same key and does not commit.
    let mut rival = ledger.database.connect().await;
    run(&mut rival, "BEGIN").await;
    sqlx::query(
        "INSERT INTO toolfleet.idempotency_keys (tenant, key_hash, call_id, tool, tool_version, args_hash, original_hash) \
         VALUES ($1, $2, $3, 'tool', 1, $2, $2)",
    )
    .bind(tenant().as_str())
    .bind(&key[..])
    .bind(CallId::generate().0)
    .execute(&mut rival)
    .await
    .unwrap();
    let large = NewCall {
        args: format!("{{\"text\":\"{}\"}}", "x".repeat(64 * 1024)),
        ..keyed_call(key)
    };
    let accepting = ledger.accepting.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { accepting.accept(large).await });
    until_blocked(&ledger.database, 1).await;

    ledger.queued().await;
    assert!(tasks.try_join_next().is_none(), "the large one still waits");
    run(&mut rival, "ROLLBACK").await;
    let reply = tasks.join_next().await.unwrap().unwrap();
    assert!(matches!(reply, Reply::Done(_)), "{reply:?}");
}
