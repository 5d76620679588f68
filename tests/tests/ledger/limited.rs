//! Tools that run only so often at a time: who gets a place, who does not, and when a place is free again.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use fleet::{
    call::{Effect, State},
    hold::{Admitted, Line},
    ids::{AttemptId, CallId, ToolName},
    manifest,
    modes::InterceptMode,
    store::{
        accept::NewCall,
        claim::{ClaimRow, read_back},
        complete::Guard,
        lane::{Locks, Statement as _},
        ledger::Claiming,
        limited::{ClaimLimited, Limited, admitted},
        tools::{Applied, apply},
        workers,
    },
};
use fleet_tests::{
    postgres::Cluster,
    proxy::{From, Proxy},
    wait,
};
use futures_util::future::join_all;
use sqlx::{PgConnection, PgPool};
use tokio::{sync::mpsc, task::JoinSet};

use crate::support::{
    Ledger, Worker, again, claim_of, doubt, doubted, end_in, ending, enforced, holding, lost,
    new_call, repeated, run, succeeded, until_blocked,
};

/// A ledger with one tool and its limit, and a worker.
struct Scene {
    ledger: Ledger,
    worker: Worker,
}

/// What became of a claim.
#[derive(Debug, PartialEq, Eq)]
enum Claim {
    Ours(AttemptId),
    NoSlot,
    NotOurs,
}

impl Scene {
    async fn with(limit: u32) -> Self {
        let mut ledger = Ledger::fresh().await;
        limited(&mut ledger.database.connect().await, 1, Some(limit)).await;
        let worker = ledger.worker().await;
        Self { ledger, worker }
    }

    /// A call of the tool that was handed over.
    async fn released(&self) -> CallId {
        let call = NewCall {
            line: Line::Tool(tool()),
            ..new_call()
        };
        self.ledger.accepted(call).await
    }

    async fn claims(&self, call: CallId) -> AttemptId {
        match claim(&self.worker, call).await {
            Claim::Ours(attempt) => attempt,
            other => panic!("{other:?}"),
        }
    }

    async fn running(&self) -> (CallId, AttemptId) {
        let call = self.released().await;
        (call, self.claims(call).await)
    }

    /// Whether a place is free: the claim of a new call says it.
    async fn has_place(&self) -> bool {
        let call = self.released().await;
        match claim(&self.worker, call).await {
            Claim::Ours(attempt) => {
                self.ledger.ends(succeeded(call, attempt)).await;
                true
            }
            Claim::NoSlot => false,
            Claim::NotOurs => panic!("nobody else wants it"),
        }
    }

    async fn admitted(&self) -> (u32, u32) {
        let Admitted {
            running,
            on_its_way,
        } = admitted(&self.ledger.database.pool, &tool()).await.unwrap();
        (running, on_its_way)
    }
}

pub(crate) fn tool() -> ToolName {
    "tool".parse().unwrap()
}

/// Applies a version of the tool of these tests.
pub(crate) async fn limited(connection: &mut PgConnection, version: i32, limit: Option<u32>) {
    let limit = limit.map_or(String::new(), |limit| format!("\"concurrency\":{limit},"));
    let text = format!(
        "{{\"name\":\"tool\",\"version\":{version},\"description\":\"What it does.\",\"effect\":\"read\",{limit}\
         \"input_schema\":{{\"type\":\"object\",\"additionalProperties\":false}},\
         \"executor\":{{\"http\":{{\"method\":\"GET\",\"url\":\"http://127.0.0.1:1/\"}}}}}}"
    );
    let manifest = manifest::parse(&text).unwrap();
    let applied = apply(connection, &manifest, "test").await.unwrap();
    assert_eq!(applied, Applied::Created);
}

async fn claim(worker: &Worker, call: CallId) -> Claim {
    let row = claim_of(call);
    let attempt = row.attempt_id;
    match worker
        .claiming
        .claim_limited(row, InterceptMode::Enforce)
        .await
        .unwrap()
    {
        Some(Limited::Claimed { claimed, .. }) => {
            assert_eq!(claimed.call_id, call);
            Claim::Ours(attempt)
        }
        Some(Limited::NoSlot) => Claim::NoSlot,
        Some(
            other @ (Limited::NoStart | Limited::StartsIn(_) | Limited::Busy | Limited::Forbidden),
        ) => panic!("only places are limited: {other:?}"),
        None => Claim::NotOurs,
    }
}

/// As a dispatcher releases it.
async fn release(pool: &PgPool, call: CallId) {
    let released = sqlx::query(
        "UPDATE toolfleet.open_calls SET held = false, publish_n = publish_n + 1 \
         WHERE call_id = $1 AND held AND line = 'tool/tool'",
    );
    let done = released.bind(call.0).execute(pool).await.unwrap();
    assert_eq!(done.rows_affected(), 1, "it is held in its tool's line");
}

async fn slots(pool: &PgPool) -> Vec<i32> {
    sqlx::query_scalar("SELECT slot FROM toolfleet.slots WHERE tool = 'tool' ORDER BY slot")
        .fetch_all(pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_call_without_a_place_waits_in_its_tools_line() {
    let scene = Scene::with(2).await;
    let pool = &scene.ledger.database.pool;
    let (first, attempt) = scene.running().await;
    scene.running().await;
    let third = scene.released().await;
    assert_eq!(scene.admitted().await, (2, 1));
    assert_eq!(claim(&scene.worker, third).await, Claim::NoSlot);
    assert_eq!(slots(pool).await, [1, 2]);
    assert_eq!(scene.admitted().await, (2, 0));
    let row = scene.ledger.find(third).await;
    assert_eq!((row.rev, row.attempts), (0, 0));
    assert!(
        scene.ledger.is_held(third).await,
        "nobody claims it until it is released"
    );
    assert_eq!(claim(&scene.worker, third).await, Claim::NotOurs);

    scene.ledger.ends(succeeded(first, attempt)).await;
    assert_eq!(claim(&scene.worker, third).await, Claim::NotOurs);
    release(pool, third).await;
    scene.claims(third).await;
    assert_eq!(slots(pool).await, [1, 2]);
}

#[tokio::test]
async fn calls_of_one_batch_get_a_place_each_as_long_as_there_are_some() {
    let mut scene = Scene::with(3).await;
    let pool = scene.ledger.database.pool.clone();
    let mut calls = Vec::new();
    for _ in 0..5 {
        calls.push(scene.released().await);
    }
    // Of a tool without a limit, on the same lane: a worker may not know yet that the limit is gone.
    let other = NewCall {
        tool: "other".parse().unwrap(),
        ..new_call()
    };
    calls.push(scene.ledger.accepted(other).await);
    let rows: Vec<ClaimRow> = calls.iter().map(|call| claim_of(*call)).collect();
    let statement = ClaimLimited::new(scene.worker.id);
    let mut connection = scene.ledger.database.connect().await;
    let decided = statement
        .run(&mut connection, &enforced(&rows), Locks::Wait)
        .await;
    let ours = |answer: &Option<Limited>| matches!(answer, Some(Limited::Claimed { .. }));
    let decided: Vec<bool> = decided.unwrap().iter().map(ours).collect();
    assert_eq!(decided, [true, true, true, false, false, true]);
    assert_eq!(slots(&pool).await, [1, 2, 3]);
    scene.ledger.lanes.shutdown().await;
}

/// What a statement sees of the places is as old as its start. A place that was free then and is taken since must not be
/// given away again, although the attempt that has it cannot be seen.
#[tokio::test]
async fn a_place_that_was_taken_since_a_claim_began_is_not_given_away_again() {
    let mut scene = Scene::with(1).await;
    let other = scene.ledger.worker().await;
    // Used before: the place names an attempt that is over.
    assert!(scene.has_place().await);
    let (slow, fast) = (scene.released().await, scene.released().await);
    let mut holder = holding(&scene.ledger.database, slow).await;
    let meanwhile = async {
        // The slow claim has begun, and waits for its call's row.
        until_blocked(&scene.ledger.database, 1).await;
        let fast = claim(&other, fast).await;
        run(&mut holder, "COMMIT").await;
        fast
    };
    let (slow_claim, fast_claim) = tokio::join!(claim(&scene.worker, slow), meanwhile);
    assert!(matches!(fast_claim, Claim::Ours(_)), "{fast_claim:?}");
    assert_eq!(slow_claim, Claim::NoSlot);
    assert_eq!(slots(&scene.ledger.database.pool).await, [1]);
    assert!(scene.ledger.is_held(slow).await);
}

#[tokio::test]
async fn a_place_that_a_claim_is_about_to_take_is_left_to_it() {
    let mut scene = Scene::with(2).await;
    let other = scene.ledger.worker().await;
    let mut taking = scene.ledger.database.connect().await;
    let rows = [claim_of(scene.released().await)];
    run(&mut taking, "BEGIN").await;
    let statement = ClaimLimited::new(other.id);
    let taken = statement
        .run(&mut taking, &enforced(&rows), Locks::Wait)
        .await
        .unwrap();
    assert!(matches!(taken[0], Some(Limited::Claimed { .. })));
    // Neither waited for nor taken.
    scene.running().await;
    assert_eq!(
        claim(&scene.worker, scene.released().await).await,
        Claim::NoSlot
    );
    run(&mut taking, "ROLLBACK").await;
    assert!(
        scene.has_place().await,
        "what was not committed took nothing"
    );
}

#[tokio::test]
async fn every_end_of_an_attempt_frees_its_place() {
    let scene = Scene::with(1).await;
    let ledger = &scene.ledger;
    for state in [State::Succeeded, State::Failed, State::Cancelled] {
        let (call, attempt) = scene.running().await;
        assert!(!scene.has_place().await);
        ledger
            .ends(ending(call, Guard::Attempt(attempt), end_in(state)))
            .await;
        assert!(scene.has_place().await, "{state}");
    }

    // Another attempt takes a place as the first one did.
    let (call, attempt) = scene.running().await;
    ledger
        .ends(ending(call, Guard::Attempt(attempt), again()))
        .await;
    assert!(scene.has_place().await, "a retry that waits has none");
    let attempt = scene.claims(call).await;
    assert!(!scene.has_place().await);

    // In doubt it may still act, until its time is over; settled before that, it is over.
    ledger
        .ends(ending(call, Guard::Attempt(attempt), doubt()))
        .await;
    assert!(!scene.has_place().await);
    let over = "UPDATE toolfleet.open_calls SET attempt_until = now() WHERE call_id = $1";
    ledger.meddle(call, over).await;
    assert!(scene.has_place().await, "its time is over");
    let (call, attempt) = scene.running().await;
    ledger.ends(doubted(call, attempt)).await;
    assert!(!scene.has_place().await);
    ledger.ends(succeeded(call, attempt)).await;
    assert!(scene.has_place().await, "it was found out");
}

#[tokio::test]
async fn a_worker_that_is_gone_keeps_its_places_until_its_calls_are_moved() {
    for fenced in [false, true] {
        let mut scene = Scene::with(1).await;
        let (call, attempt) = scene.running().await;
        let pool = scene.ledger.database.pool.clone();
        if fenced {
            let mut connection = scene.ledger.database.connect().await;
            crate::support::proven_gone(&mut connection, scene.worker.id).await;
        } else {
            let declared = workers::declare_dead(&pool, scene.worker.id, 0).await;
            assert!(declared.unwrap());
        }
        scene.worker = scene.ledger.worker().await;
        assert!(!scene.has_place().await, "nobody has said what it did");
        // As the sweep moves it.
        let again = fleet::store::complete::Ending {
            attempt: lost(call, attempt).attempt,
            ..repeated(call, attempt)
        };
        scene.ledger.ends(again).await;
        assert!(scene.has_place().await);
    }
}

#[tokio::test]
async fn lost_writes_leave_a_place_to_what_may_still_act() {
    let scene = Scene::with(2).await;
    let (pool, ledger) = (&scene.ledger.database.pool, &scene.ledger);
    let once = scene.running().await;
    let read = NewCall {
        effect: Effect::Idempotent,
        line: Line::Tool(tool()),
        ..new_call()
    };
    let idempotent = ledger.accepted(read).await;
    scene.claims(idempotent).await;
    sqlx::query("SELECT * FROM toolfleet.quarantine(0, 1, 'system', 1, 'behind', '{\"en\": {}}')")
        .execute(pool)
        .await
        .unwrap();
    // The one is in doubt until its call's deadline, the other is queued again.
    assert_eq!(slots(pool).await, [1]);
    let over = "UPDATE toolfleet.open_calls SET attempt_until = now() WHERE call_id = $1";
    ledger.meddle(once.0, over).await;
    assert!(slots(pool).await.is_empty());
}

#[tokio::test]
async fn a_lowered_limit_waits_for_the_places_above_it() {
    let scene = Scene::with(4).await;
    let mut connection = scene.ledger.database.connect().await;
    let pool = &scene.ledger.database.pool;
    let mut running = Vec::new();
    for _ in 0..4 {
        running.push(scene.running().await);
    }
    limited(&mut connection, 2, Some(2)).await;
    // Those with the lowest places end first; the other two are as many as may run.
    for (call, attempt) in running.iter().copied().take(2) {
        scene.ledger.ends(succeeded(call, attempt)).await;
        assert!(!scene.has_place().await);
    }
    assert_eq!(slots(pool).await, [3, 4]);
    scene
        .ledger
        .ends(succeeded(running[3].0, running[3].1))
        .await;
    let (call, attempt) = scene.running().await;
    assert_eq!(slots(pool).await, [1, 3]);
    assert!(!scene.has_place().await);
    scene
        .ledger
        .ends(succeeded(running[2].0, running[2].1))
        .await;
    scene.running().await;
    assert_eq!(slots(pool).await, [1, 2]);
    scene.ledger.ends(succeeded(call, attempt)).await;

    limited(&mut connection, 3, Some(3)).await;
    scene.running().await;
    scene.running().await;
    assert_eq!(slots(pool).await, [1, 2, 3], "a raised one holds at once");
    assert!(!scene.has_place().await);
    // And without one nothing is counted any more.
    limited(&mut connection, 4, None).await;
    let free = scene.running().await;
    assert_eq!(slots(pool).await, [1, 2, 3]);
    assert_eq!(scene.ledger.state(free.0).await, State::Running);
}

#[tokio::test]
async fn a_claim_without_an_answer_has_its_place_or_took_none() {
    let mut scene = Scene::with(1).await;
    let proxy = Proxy::to(Cluster::shared().await.port()).await;
    let postgres = scene.ledger.database.through(proxy.port());
    let far = scene.ledger.worker_through(&postgres).await;
    let pool = scene.ledger.database.pool.clone();
    // Its lane is connected.
    let call = scene.released().await;
    let Claim::Ours(attempt) = claim(&far, call).await else {
        panic!("nobody else wants it")
    };
    scene.ledger.ends(succeeded(call, attempt)).await;

    // Committed, and its answer is lost: read back, it is ours and has its place.
    let call = scene.released().await;
    proxy.swallow(From::Server);
    let cutting = async {
        wait::until_so("the claim to be committed", async || {
            slots(&pool).await == [1]
        })
        .await;
        proxy.cut();
    };
    let (claimed, ()) = tokio::join!(claim(&far, call), cutting);
    let Claim::Ours(attempt) = claimed else {
        panic!("{claimed:?}")
    };
    assert!(!scene.has_place().await);
    scene.ledger.ends(succeeded(call, attempt)).await;

    // Committed, and given up by a worker that never learns of it: found among its rows and given back.
    let row = claim_of(scene.released().await);
    let statement = ClaimLimited::new(scene.worker.id);
    let mut connection = scene.ledger.database.connect().await;
    let rows = [row.clone()];
    statement
        .run(&mut connection, &enforced(&rows), Locks::Wait)
        .await
        .unwrap();
    assert!(!scene.has_place().await);
    let own = workers::own_rows(&pool, &[(row.call_id, row.attempt_id)]).await;
    assert_eq!(own.unwrap().len(), 1);
    scene
        .ledger
        .ends(repeated(row.call_id, row.attempt_id))
        .await;
    assert!(scene.has_place().await);

    // Refused a place, and the answer is lost: read back it is not ours, and it is held like any other.
    let (_, attempt) = scene.running().await;
    let refused = scene.released().await;
    assert_eq!(claim(&scene.worker, refused).await, Claim::NoSlot);
    let read = read_back(&mut connection, refused, AttemptId::generate()).await;
    assert!(read.unwrap().is_none());
    assert!(scene.ledger.is_held(refused).await);
    assert_ne!(attempt, AttemptId::generate());
}

#[tokio::test]
async fn a_claim_of_a_tool_without_a_limit_stays_on_its_page_and_has_no_entry() {
    let mut scene = Scene::with(1).await;
    let calls = scene.ledger.many_queued(300).await;
    let claimed = join_all(calls.iter().map(|call| scene.worker.tries(*call))).await;
    assert_eq!(claimed.iter().flatten().count(), 300);
    scene.running().await;
    scene.ledger.lanes.shutdown().await;
    let (updates, hot): (i64, i64) = wait::until("the counts of the claims", async || {
        let counts: (i64, i64) = sqlx::query_as(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'toolfleet.open_calls'::regclass",
        )
        .fetch_one(&scene.ledger.database.pool)
        .await
        .unwrap();
        (counts.0 > 300).then_some(counts)
    })
    .await;
    assert_eq!((updates, hot), (301, 301), "with a place or without");
    let mut connection = scene.ledger.database.connect().await;
    run(&mut connection, "ANALYZE toolfleet.open_calls").await;
    let entries: f32 = sqlx::query_scalar(
        "SELECT reltuples FROM pg_class WHERE oid = 'toolfleet.open_calls_admitted'::regclass",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert!((entries - 1.0).abs() < f32::EPSILON, "{entries}");
}

const RUNNERS: usize = 24;
const CALLS: usize = 1_500;
const LIMIT: usize = 7;

/// Many claim at once on two workers; who is refused waits until a release hands it over again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn however_many_claim_at_once_no_more_run_than_may() {
    let mut scene = Scene::with(u32::try_from(LIMIT).unwrap()).await;
    let second = scene.ledger.worker().await;
    let pool = scene.ledger.database.pool.clone();
    let accepting = (0..CALLS).map(|_| scene.released());
    let calls = join_all(accepting).await;

    let (give, take) = mpsc::unbounded_channel();
    for call in &calls {
        give.send(*call).unwrap();
    }
    let take = Arc::new(tokio::sync::Mutex::new(take));
    let (inside, most, done, refused) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicUsize::new(0)),
    );
    let mut runners = JoinSet::new();
    for index in 0..RUNNERS {
        let claiming: Claiming = [&scene.worker, &second][index % 2].claiming.clone();
        let completing = scene.ledger.completing.clone();
        let (take, give, pool) = (Arc::clone(&take), give.clone(), pool.clone());
        let (inside, most, done, refused) = (
            Arc::clone(&inside),
            Arc::clone(&most),
            Arc::clone(&done),
            Arc::clone(&refused),
        );
        runners.spawn(async move {
            while done.load(Ordering::SeqCst) < CALLS {
                let Ok(call) = take.lock().await.try_recv() else {
                    tokio::task::yield_now().await;
                    continue;
                };
                let row = claim_of(call);
                let attempt = row.attempt_id;
                match claiming
                    .claim_limited(row, InterceptMode::Enforce)
                    .await
                    .unwrap()
                {
                    Some(Limited::Claimed { .. }) => {
                        // The tool's own count, not the ledger's.
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        tokio::task::yield_now().await;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        let ending = succeeded(call, attempt);
                        completing.complete(&ending, wait::LONG).await.unwrap();
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                    Some(Limited::NoSlot) => {
                        refused.fetch_add(1, Ordering::SeqCst);
                        release(&pool, call).await;
                        give.send(call).unwrap();
                    }
                    other => panic!("every call has one runner at a time: {other:?}"),
                }
            }
        });
    }
    let mut samples = Vec::new();
    while done.load(Ordering::SeqCst) < CALLS {
        let (running, taken): (i64, i64) = sqlx::query_as(
            "SELECT (SELECT count(*) FROM toolfleet.open_calls WHERE state = 'running'), \
                    (SELECT count(*) FROM toolfleet.slots)",
        )
        .fetch_one(&pool)
        .await
        .unwrap();
        assert_eq!(
            running, taken,
            "every running attempt has a place of its own"
        );
        samples.push(usize::try_from(running).unwrap());
        while let Some(ended) = runners.try_join_next() {
            ended.unwrap();
        }
    }
    while let Some(ended) = runners.join_next().await {
        ended.unwrap();
    }
    let seen: HashSet<usize> = samples.iter().copied().collect();
    let most = most.load(Ordering::SeqCst);
    println!(
        "{CALLS} calls, {LIMIT} at a time: {} claims refused; {most} at most at once in the tool, {:?} in {} looks at the ledger",
        refused.load(Ordering::SeqCst),
        seen,
        samples.len()
    );
    assert!(seen.iter().all(|running| *running <= LIMIT), "{seen:?}");
    assert!(most <= LIMIT, "{most} ran at once");
    assert!(
        seen.contains(&LIMIT) || most == LIMIT,
        "the limit was never reached"
    );
    assert!(
        refused.load(Ordering::SeqCst) > 0,
        "nobody was ever refused"
    );
    assert!(slots(&pool).await.is_empty());
}
