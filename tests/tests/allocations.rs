//! What a batch of 500 may allocate on its way through the ledger: each statement by itself, and through its lane.
//!
//! `cargo test -p fleet-tests --test allocations -- --nocapture` prints what each allocates. What needs no server is in
//! `fleet/tests/allocations.rs`.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

#[path = "../../fleet/tests/counting/mod.rs"]
mod counting;

use std::sync::Arc;

use fleet::{
    call::{CallOutcome, Effect, EffectKnown, Language, Priority, Source, State},
    ids::{AttemptId, CallId, DispatcherId, WorkerId},
    outcome::OutcomeWord,
    store::{
        accept::{Accept, NewCall, NewKey},
        claim::{Claim, ClaimRow},
        complete::{Complete, Decision, EndedAttempt, Ending, EndingKind, Guard},
        lane::{BATCH_ROWS_MAX, Locks, Reply, Statement},
        ledger::{Accepting, Claiming, Completing},
        workers::{self, WorkerRow},
    },
    wire::trace::TraceContext,
};
use fleet_tests::postgres::Database;
use futures_util::future::join_all;
use sqlx::PgConnection;
use tokio::task::{JoinSet, unconstrained};

use self::counting::{Count, Counter, Stored, TIMES, judge};

/// What a batch allocated when it was last looked at. The limit is a tenth above.
const STORED: [Stored; 7] = [
    Stored::new("accept, 500 rows", 1074, 1_421_100),
    Stored::new("claim, 500 rows", 3076, 1_052_200),
    Stored::new("complete, 500 rows", 2068, 922_500),
    Stored::new("accept, 500 callers in a lane", 2128, 1_650_300),
    Stored::new("accept, 500 rows of one caller", 1604, 1_595_300),
    Stored::new("claim, 500 attempts in a lane", 4131, 1_710_100),
    Stored::new("complete, 500 attempts in a lane", 3123, 1_543_300),
];

/// How often a batch is counted at most, where it is over its limit.
///
/// The buffer that an answer is read into grows by what the server has sent of it at each read. A loaded machine cuts a claim's
/// answer of 200 KB into other pieces than an idle one, in several rounds after another, and a tenth more is allocated.
const ROUNDS_MAX: usize = 40;

#[tokio::test]
async fn a_batch_through_the_ledger_allocates_no_more_than_is_stored() {
    // First of all: nothing of the other test is counted here.
    let counter = Counter::start();
    let database = Database::fresh().await;
    let worker = worker_on(&database).await;
    let [accept, claim, complete] = statements(&database, worker, &counter).await;
    let [one_by_one, together, claims, completions] = lanes(&database, worker, &counter).await;
    let counted = [
        accept,
        claim,
        complete,
        one_by_one,
        together,
        claims,
        completions,
    ];
    let named: Vec<_> = STORED
        .iter()
        .map(|stored| stored.what)
        .zip(counted)
        .collect();
    judge(&STORED, &named);
}

#[tokio::test]
async fn a_statement_that_copies_its_rows_exceeds_its_limit() {
    let counter = Counter::start();
    let database = Database::fresh().await;
    let mut connection = database.postgres.connect().await.unwrap();
    let stored = &STORED[0];
    assert_eq!(stored.what, "accept, 500 rows");
    let mut least: Option<Count> = None;
    for _ in 0..=TIMES {
        let calls = new_calls();
        let before = counter.now();
        let copies: Vec<Arc<NewCall>> = calls
            .iter()
            .map(|call| Arc::new((**call).clone()))
            .collect();
        run(&Accept, &mut connection, &copies).await;
        let count = counter.since(before);
        least = Some(least.map_or(count, |least| least.least(count)));
    }
    let verdict = stored.verdict(least.unwrap()).unwrap();
    assert!(
        verdict.contains("Find out what allocates more"),
        "{verdict}"
    );
}

/// What each statement allocates, on a connection that has run it before.
async fn statements(database: &Database, worker: WorkerId, counter: &Counter) -> [Count; 3] {
    let mut connection = database.postgres.connect().await.unwrap();
    let (claim, complete) = (Claim::new(worker), Complete);
    let mut least: Option<[Count; 3]> = None;
    for time in 0..=ROUNDS_MAX {
        let calls = new_calls();
        let attempts = attempts_at(&calls);
        let endings = endings_of(&attempts);
        let counts = [
            counted(counter, run(&Accept, &mut connection, &calls)).await,
            counted(counter, run(&claim, &mut connection, &attempts)).await,
            counted(counter, run(&complete, &mut connection, &endings)).await,
        ];
        // The first time it is prepared.
        least = (time > 0).then(|| each_least(least, counts));
        if time >= TIMES && least.is_some_and(|least| are_as_stored(&STORED[..3], least)) {
            break;
        }
    }
    least.unwrap()
}

/// What 500 rows allocate on their way through a lane and back to their senders.
async fn lanes(database: &Database, worker: WorkerId, counter: &Counter) -> [Count; 4] {
    let mut tasks = JoinSet::new();
    let accepting = Accepting::start(&database.postgres, &mut tasks);
    let claiming = Claiming::start(worker, &database.postgres, &mut tasks);
    let completing = Completing::start(&database.postgres, &mut tasks);
    let mut least: Option<[Count; 4]> = None;
    for time in 0..=ROUNDS_MAX {
        let (calls, together) = (new_calls(), new_calls());
        let attempts = attempts_at(&calls);
        let endings = endings_of(&attempts);
        // All are sent before the lane looks: what is counted is one batch.
        let accepts = join_all(calls.iter().map(|call| accepting.accept(Arc::clone(call))));
        let claims = join_all(attempts.iter().map(|row| claiming.claim(row.clone())));
        let completions = join_all(
            endings
                .iter()
                .cloned()
                .map(|row| completing.complete_once(row)),
        );
        let counts = [
            counted(counter, async {
                let replies = unconstrained(accepts).await;
                assert!(replies.iter().all(|reply| matches!(reply, Reply::Done(_))));
            })
            .await,
            counted(counter, async {
                let replies = accepting.accept_all(together).await;
                assert!(replies.iter().all(|reply| matches!(reply, Reply::Done(_))));
            })
            .await,
            counted(counter, async {
                let claimed = unconstrained(claims).await;
                assert!(claimed.iter().all(|claimed| matches!(claimed, Ok(Some(_)))));
            })
            .await,
            counted(counter, async {
                let replies = unconstrained(completions).await;
                assert!(replies.iter().all(|reply| matches!(reply, Reply::Done(_))));
            })
            .await,
        ];
        // The first time its connection is made.
        least = (time > 0).then(|| each_least(least, counts));
        if time >= TIMES && least.is_some_and(|least| are_as_stored(&STORED[3..], least)) {
            break;
        }
    }
    least.unwrap()
}

async fn run<S: Statement>(statement: &S, connection: &mut PgConnection, rows: &[S::Row]) {
    let answers = statement.run(connection, rows, Locks::Wait).await.unwrap();
    assert_eq!(answers.iter().flatten().count(), BATCH_ROWS_MAX);
}

async fn counted(counter: &Counter, work: impl Future<Output = ()>) -> Count {
    let before = counter.now();
    work.await;
    counter.since(before)
}

fn each_least<const N: usize>(least: Option<[Count; N]>, counts: [Count; N]) -> [Count; N] {
    least.map_or(counts, |least| {
        std::array::from_fn(|at| least[at].least(counts[at]))
    })
}

fn are_as_stored<const N: usize>(stored: &[Stored], counts: [Count; N]) -> bool {
    assert_eq!(stored.len(), N);
    let mut each = stored.iter().zip(counts);
    each.all(|(stored, count)| stored.verdict(count).is_none())
}

async fn worker_on(database: &Database) -> WorkerId {
    let row = WorkerRow {
        worker_id: WorkerId::generate(),
        name: "worker".into(),
        host: "host".into(),
        pid: 1,
        queues: vec!["default".parse().unwrap()],
        concurrency: 4,
        sandbox: serde_json::json!({}),
        interceptors: Vec::new(),
    };
    workers::register(&mut database.connect().await, &row)
        .await
        .unwrap();
    row.worker_id
}

fn new_calls() -> Vec<Arc<NewCall>> {
    let call = |_| Arc::new(new_call());
    (0..BATCH_ROWS_MAX).map(call).collect()
}

/// As a dispatcher makes them: with a key, a session and a trace.
fn new_call() -> NewCall {
    let call_id = CallId::generate();
    let mut hash = [7; 32];
    hash[..16].copy_from_slice(call_id.0.as_bytes());
    NewCall {
        call_id,
        tenant: "acme".parse().unwrap(),
        tool: "place_order".parse().unwrap(),
        tool_version: 1,
        effect: Effect::Once,
        queue: "default".parse().unwrap(),
        priority: Priority::Normal,
        waits: None,
        line: "default".parse().unwrap(),
        rate_key: None,
        held: false,
        key: Some(NewKey {
            hash,
            original_hash: [2; 32],
            replaces: None,
        }),
        key_retention_ms: 24 * 3_600_000,
        args: format!("{{\"note\":\"{}\"}}", "x".repeat(200)),
        kept_args: None,
        original_args: None,
        files: Vec::new(),
        no_store: false,
        coercions: Vec::new(),
        args_hash: [1; 32],
        session: Some("session-17".parse().unwrap()),
        run: None,
        meta: None,
        language: Language::En,
        trace: TraceContext {
            traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into()),
            ..TraceContext::default()
        },
        dispatcher: DispatcherId::generate(),
        done_secret: fleet::wire::proof::DoneSecret::generate(),
        deadline_ms: 600_000,
        run_deadline: None,
        queue_wait_ms: None,
    }
}

fn attempts_at(calls: &[Arc<NewCall>]) -> Vec<ClaimRow> {
    let attempt = |call: &Arc<NewCall>| ClaimRow {
        call_id: call.call_id,
        attempt_id: AttemptId::generate(),
        timeout_ms: 60_000,
    };
    calls.iter().map(attempt).collect()
}

fn endings_of(attempts: &[ClaimRow]) -> Vec<Ending> {
    let ending = |attempt: &ClaimRow| Ending {
        call_id: attempt.call_id,
        guard: Guard::Attempt(attempt.attempt_id),
        kind: EndingKind::End(Decision {
            state: State::Succeeded,
            outcome: CallOutcome::Success,
            source: Source::Live,
            effect: EffectKnown::Applied,
            result: Some("{\"done\":true}".to_owned()),
            error: None,
            preview: None,
            degraded: None,
        }),
        attempt: Some(EndedAttempt {
            outcome: OutcomeWord::Applied,
            effect: EffectKnown::Applied,
            error: None,
            has_stopped: true,
        }),
        actor: "worker".into(),
        reason: "answered".into(),
    };
    attempts.iter().map(ending).collect()
}
