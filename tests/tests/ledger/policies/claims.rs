//! Claims of calls with a policy: who starts, by what other claims have committed until then.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use fleet::{
    call::{EffectKnown, State},
    ids::CallId,
    modes::InterceptMode,
    outcome::OutcomeWord,
    store::{
        accept::NewCall,
        claim::ClaimRow,
        lane::{Locks, Statement as _},
        limited::{ClaimLimited, Limited},
    },
};
use serde_json::{Value, json};
use sqlx::PgConnection;
use tokio::{sync::Barrier, task::JoinSet};

use super::{Came, Scene, of};
use crate::support::{Worker, claim_of, enforced, run};

/// The answer in a word.
pub(super) fn word(said: Option<&Limited>) -> &'static str {
    match said {
        Some(Limited::Claimed { .. }) => "starts",
        Some(Limited::StartsIn(_)) => "later",
        Some(Limited::NoStart) => "no_start",
        Some(Limited::NoSlot) => "no_place",
        Some(Limited::Busy) => "busy",
        Some(Limited::Forbidden) => "forbidden",
        None => "not_ours",
    }
}

async fn claim(worker: &Worker, call: CallId) -> &'static str {
    let claiming = worker
        .claiming
        .claim_limited(claim_of(call), InterceptMode::Off);
    word(claiming.await.unwrap().as_ref())
}

/// Claims all of them in one statement of this session.
pub(super) async fn together(
    session: &mut PgConnection,
    worker: &Worker,
    calls: &[CallId],
    locks: Locks,
) -> Vec<&'static str> {
    let rows: Vec<ClaimRow> = calls.iter().map(|call| claim_of(*call)).collect();
    let statement = ClaimLimited::new(worker.id);
    let said = statement.run(session, &enforced(&rows), locks).await;
    said.unwrap()
        .iter()
        .map(|said| word(said.as_ref()))
        .collect()
}

/// Calls that have come to the gate, which makes the rows that their claims lock.
async fn accepted(scene: &Scene, tool: &str, labels: &[(&str, &str)]) -> Vec<CallId> {
    let mut calls = Vec::new();
    for (run, session) in labels {
        let call = scene.ledger.accepted(of(tool, run, session)).await;
        scene.broken_by(call).await;
        calls.push(call);
    }
    calls
}

fn at_most(calls: u32, per: &str) -> Value {
    json!({"at_most": {"calls": calls, "per": per}})
}

#[tokio::test]
async fn calls_of_one_batch_share_what_may_happen_and_the_others_come_again() {
    let scene = Scene::with(at_most(3, "run")).await;
    let mut session = scene.ledger.database.connect().await;
    scene.succeeded(of("mail", "r", "")).await;
    let calls = accepted(&scene, "mail", &[("r", ""); 4]).await;
    let other = accepted(&scene, "mail", &[("r-2", "")]).await;
    let unjudged = accepted(&scene, "look", &[("r", ""), ("", "")]).await;
    let all: Vec<CallId> = [&calls[..], &other, &unjudged].concat();
    let said = together(&mut session, &scene.worker, &all, Locks::Wait).await;
    assert_eq!(
        said,
        [
            "starts", "starts", "busy", "busy", "starts", "starts", "starts"
        ]
    );
    // They were not refused as long as the two before them might not have started; now they are, whoever asks.
    let said = together(&mut session, &scene.worker, &calls[2..], Locks::Wait).await;
    assert_eq!(said, ["forbidden", "forbidden"]);
    for call in &calls[2..] {
        let row = scene.ledger.find(*call).await;
        assert_eq!((row.state(), row.rev, row.attempts), (State::Queued, 0, 0));
    }
}

#[tokio::test]
async fn a_call_that_is_refused_takes_neither_a_place_nor_a_start_time() {
    let scene = Scene::with(at_most(1, "run")).await;
    scene
        .apply(
            2,
            json!({
                "policy": at_most(1, "run"), "concurrency": 1, "rate_limit": {"calls": 1, "per": "1h"}
            }),
        )
        .await;
    scene.succeeded(of("mail", "r", "")).await;
    // The one that is refused comes first in the batch.
    let calls = accepted(&scene, "mail", &[("r", ""), ("r-2", "")]).await;
    let mut session = scene.ledger.database.connect().await;
    let said = together(&mut session, &scene.worker, &calls, Locks::Wait).await;
    assert_eq!(said, ["forbidden", "starts"]);
    assert!(!scene.ledger.is_held(calls[0]).await);
    let given = "SELECT coalesce(sum(given), 0)::bigint FROM toolfleet.rate_buckets";
    let given: i64 = sqlx::query_scalar(given)
        .fetch_one(&mut session)
        .await
        .unwrap();
    assert_eq!(given, 1);
}

/// What the gate has seen may be old by the time of the claim.
#[tokio::test]
async fn a_claim_sees_what_happened_since_the_gate() {
    let scene = Scene::with(json!({"never_after": ["secrets"]})).await;
    let calls = accepted(&scene, "mail", &[("r", ""), ("", "s"), ("r-2", "s-2")]).await;
    for call in &calls {
        assert_eq!(scene.broken_by(*call).await, None);
    }
    scene.came(of("secrets", "r", "s"), Came::Runs).await;
    let mut said = Vec::new();
    for call in &calls {
        said.push(claim(&scene.worker, *call).await);
    }
    assert_eq!(said, ["forbidden", "forbidden", "starts"]);
}

/// Calls of all tenants are claimed by one statement.
#[tokio::test]
async fn a_claim_waits_for_no_other_of_its_run_and_sees_what_that_committed() {
    let mut scene = Scene::with(at_most(1, "run")).await;
    let other = scene.ledger.worker().await;
    let calls = accepted(&scene, "mail", &[("r", ""), ("r", ""), ("r-2", "")]).await;
    let mut first = scene.ledger.database.connect().await;
    run(&mut first, "BEGIN").await;
    let said = together(&mut first, &scene.worker, &calls[..1], Locks::Wait).await;
    assert_eq!(said, ["starts"]);
    // Those of other runs, and of other tenants, start meanwhile, in the same statement.
    let of_another = NewCall {
        tenant: "other".parse().unwrap(),
        ..of("mail", "r", "")
    };
    let of_another = scene.ledger.accepted(of_another).await;
    assert_eq!(scene.broken_by(of_another).await, None);
    let mut second = scene.ledger.database.connect().await;
    run(&mut second, "SET lock_timeout = '100ms'").await;
    for (locks, calls, expected) in [
        (Locks::Skip, vec![calls[1]], vec!["busy"]),
        (
            Locks::Wait,
            vec![calls[1], calls[2], of_another],
            vec!["busy", "starts", "starts"],
        ),
    ] {
        let said = together(&mut second, &other, &calls, locks).await;
        assert_eq!(said, expected);
    }
    run(&mut first, "COMMIT").await;
    assert_eq!(claim(&scene.worker, calls[1]).await, "forbidden");
}

/// As with a rule that was applied after the gate's look: a row that the claim made would let others wait for it.
#[tokio::test]
async fn a_claim_whose_row_the_gate_has_not_made_comes_again() {
    let scene = Scene::with(at_most(1, "session")).await;
    let mut calls = Vec::new();
    for _ in 0..2 {
        calls.push(scene.ledger.accepted(of("mail", "", "s")).await);
    }
    assert_eq!(claim(&scene.worker, calls[0]).await, "busy");
    assert_eq!(scene.broken_by(calls[0]).await, None);
    assert_eq!(claim(&scene.worker, calls[0]).await, "starts");
    assert_eq!(claim(&scene.worker, calls[1]).await, "forbidden");
}

#[tokio::test]
async fn of_a_hundred_claims_of_three_workers_at_once_exactly_five_start() {
    const CALLS: usize = 100;
    let mut scene = Scene::with(at_most(5, "run")).await;
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(scene.ledger.worker().await.claiming);
    }
    let calls = accepted(&scene, "mail", &[("r", ""); CALLS]).await;
    let started = Arc::new(AtomicUsize::new(0));
    let together = Arc::new(Barrier::new(CALLS));
    let mut claims = JoinSet::new();
    for (n, call) in calls.into_iter().enumerate() {
        let (claiming, started) = (workers[n % 3].clone(), Arc::clone(&started));
        let together = Arc::clone(&together);
        claims.spawn(async move {
            together.wait().await;
            loop {
                let claim = claiming.claim_limited(claim_of(call), InterceptMode::Enforce);
                match word(claim.await.unwrap().as_ref()) {
                    "starts" => {
                        started.fetch_add(1, Ordering::SeqCst);
                        break;
                    }
                    "forbidden" => break,
                    "busy" => tokio::task::yield_now().await,
                    other => panic!("{other}"),
                }
            }
        });
    }
    while let Some(done) = claims.join_next().await {
        done.unwrap();
    }
    assert_eq!(started.load(Ordering::SeqCst), 5);
}

/// What provably did not happen gives its place to another call; what may have happened keeps it.
#[tokio::test]
async fn of_calls_that_fail_and_come_again_never_more_than_five_have_happened() {
    const CALLS: usize = 60;
    let scene = Scene::with(at_most(5, "run")).await;
    let scene = Arc::new(scene);
    let calls = accepted(&scene, "mail", &[("r", ""); CALLS]).await;
    // How many run, or have happened.
    let counted = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let mut claims = JoinSet::new();
    for (n, call) in calls.into_iter().enumerate() {
        let scene = Arc::clone(&scene);
        let (counted, most) = (Arc::clone(&counted), Arc::clone(&most));
        claims.spawn(async move {
            let mut attempts = 0;
            loop {
                let row = claim_of(call);
                let attempt = row.attempt_id;
                let claim = scene
                    .worker
                    .claiming
                    .claim_limited(row, InterceptMode::Enforce);
                match word(claim.await.unwrap().as_ref()) {
                    "starts" => {}
                    "forbidden" => return,
                    "busy" => {
                        tokio::task::yield_now().await;
                        continue;
                    }
                    other => panic!("{other}"),
                }
                most.fetch_max(1 + counted.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
                attempts += 1;
                // Not counted any more before the ledger can know.
                let came = match (n + attempts) % 4 {
                    0 => Came::Ended(State::Succeeded, EffectKnown::Applied),
                    1 => Came::InDoubt,
                    2 => Came::Ended(State::Failed, EffectKnown::NotApplied),
                    _ => Came::Again(OutcomeWord::NotStarted),
                };
                if matches!(came, Came::Ended(State::Failed, _) | Came::Again(_)) {
                    counted.fetch_sub(1, Ordering::SeqCst);
                }
                scene.ends_as(call, attempt, came).await;
                if !matches!(came, Came::Again(_)) {
                    return;
                }
            }
        });
    }
    while let Some(done) = claims.join_next().await {
        done.unwrap();
    }
    let most = most.load(Ordering::SeqCst);
    assert!((1..=5).contains(&most), "{most}");
    // Fewer than five, where the last ones were refused before one of the five was known not to have happened.
    let noted: i64 =
        sqlx::query_scalar("SELECT count(*) FROM toolfleet.happenings WHERE what = 'own'")
            .fetch_one(&scene.ledger.database.pool)
            .await
            .unwrap();
    assert_eq!(noted, counted.load(Ordering::SeqCst) as i64);
}
