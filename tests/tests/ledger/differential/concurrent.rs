//! The same operations by many at once, who know only what they have read a moment ago: no model can foretell who wins, but
//! whatever happened must be a history that the state machine allows.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use fleet::{
    call::{Effect, State},
    ids::{AttemptId, CallId, WorkerId},
    store::{
        claim::ClaimRow,
        complete::{Ending, Guard},
        lane::Reply,
        ledger::{Accepting, Claiming, Completing},
        read,
        settle::{self, SettledAs, Settlement},
        workers,
    },
};
use fleet_tests::{postgres::Database, wait};
use tokio::task::JoinSet;

use super::{Dice, histories, seed};
use crate::support::{self, again, doubt, end_in, ending};

const TASKS: usize = 8;
const TRANSITIONS: usize = 500;
const CALLS: usize = 20;

/// What the tasks share: the calls that are open, and a count of what they were told.
struct Shared {
    calls: Mutex<Vec<CallId>>,
    moved: AtomicUsize,
    claimed: AtomicUsize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_eight_at_once_do_to_20_calls_is_a_history_that_the_state_machine_allows() {
    let seed = seed();
    println!("TOOLFLEET_SEED={seed}");
    let began = Instant::now();
    let database = Arc::new(Database::fresh().await);
    let mut lanes = JoinSet::new();
    let accepting = Accepting::start(&database.postgres, &mut lanes);
    let mut first = Vec::new();
    for _ in 0..CALLS {
        first.push(accept(&accepting).await);
    }
    let shared = Arc::new(Shared {
        calls: Mutex::new(first),
        moved: AtomicUsize::new(0),
        claimed: AtomicUsize::new(0),
    });
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (database, shared, accepting) = (
            Arc::clone(&database),
            Arc::clone(&shared),
            accepting.clone(),
        );
        let dice = Dice(seed.wrapping_add(task as u64 * 7919));
        tasks.spawn(async move {
            // Lanes of its own, or the others' rows would stand in line with its own.
            let mut lanes = JoinSet::new();
            let row = support::worker_row();
            workers::register(&mut database.connect().await, &row)
                .await
                .unwrap();
            let hand = Hand {
                worker: row.worker_id,
                claiming: Claiming::start(row.worker_id, &database.postgres, &mut lanes),
                completing: Completing::start(&database.postgres, &mut lanes),
                accepting,
                database,
                shared,
            };
            hand.works(dice).await;
        });
    }
    tasks.join_all().await;

    let histories = histories(&database.pool).await;
    let claims = histories
        .values()
        .flatten()
        .filter(|(_, to)| *to == State::Running);
    let claims = claims.filter(|(from, _)| *from == State::Queued).count();
    assert_eq!(
        claims,
        shared.claimed.load(Ordering::Relaxed),
        "claims told and claims recorded"
    );
    let moves: usize = histories.values().map(Vec::len).sum();
    assert_eq!(
        moves,
        shared.moved.load(Ordering::Relaxed),
        "moves told and moves recorded"
    );
    for (call, history) in &histories {
        let is = read::find(&database.pool, *call).await.unwrap().unwrap();
        assert_eq!(
            history.last().map_or(State::Queued, |(_, to)| *to),
            is.state()
        );
        assert_eq!(
            usize::try_from(is.rev).unwrap(),
            history.len(),
            "{call}: {history:?}"
        );
    }
    let twice: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM toolfleet.open_calls JOIN toolfleet.finished_calls USING (call_id)",
    )
    .fetch_one(&database.pool)
    .await
    .unwrap();
    assert_eq!(twice, 0, "calls that are open and finished");
    let over = histories
        .values()
        .filter(|history| history.last().is_some_and(|(_, to)| to.is_terminal()));
    println!(
        "{TASKS} tasks with {TRANSITIONS} operations each on {CALLS} calls at a time, in {:.1} s: {moves} moves, {claims} claims, \
         {} calls, {} over",
        began.elapsed().as_secs_f64(),
        histories.len(),
        over.count()
    );
    assert!(claims > TRANSITIONS / 2, "they hardly met: {claims} claims");
}

async fn accept(accepting: &Accepting) -> CallId {
    let call = fleet::store::accept::NewCall {
        effect: Effect::Idempotent,
        ..support::new_call()
    };
    let id = call.call_id;
    assert!(matches!(accepting.accept(call).await, Reply::Done(_)));
    id
}

/// One of the actors.
struct Hand {
    worker: WorkerId,
    claiming: Claiming,
    completing: Completing,
    accepting: Accepting,
    database: Arc<Database>,
    shared: Arc<Shared>,
}

impl Hand {
    async fn works(self, mut dice: Dice) {
        let mut seen: HashMap<CallId, AttemptId> = HashMap::new();
        for _ in 0..TRANSITIONS {
            let slot = dice.roll(CALLS);
            let call = self.shared.calls.lock().unwrap()[slot];
            let row = read::find(&self.database.pool, call)
                .await
                .unwrap()
                .unwrap();
            if row.state().is_terminal() && !dice.one_in(3) {
                let fresh = accept(&self.accepting).await;
                let mut calls = self.shared.calls.lock().unwrap();
                if calls[slot] == call {
                    calls[slot] = fresh;
                }
                continue;
            }
            // What it believes: the row of a moment ago, or an attempt that it has seen some time before.
            let old = seen.get(&call).copied();
            let attempt = row.attempt_id().filter(|_| !dice.one_in(6)).or(old);
            seen.extend(row.attempt_id().map(|attempt| (call, attempt)));
            let guard = attempt.map_or(Guard::Queued(row.rev), Guard::Attempt);
            let moved = match dice.roll(40) {
                0..18 => self.claims(call).await,
                18..34 => self.ends(ending(call, guard, again())).await,
                34..36 => self.ends(ending(call, guard, doubt())).await,
                36 => {
                    let states = [State::Succeeded, State::Failed];
                    self.ends(ending(call, guard, end_in(dice.of(&states))))
                        .await
                }
                37 => {
                    self.ends(ending(call, Guard::Queued(row.rev), end_in(State::Expired)))
                        .await
                }
                38 => self.cancels(call).await,
                _ => self.settles(call, dice.of(SettledAs::ALL)).await,
            };
            self.shared
                .moved
                .fetch_add(usize::from(moved), Ordering::Relaxed);
        }
    }

    async fn claims(&self, call: CallId) -> bool {
        let row = ClaimRow {
            timeout_ms: 1,
            ..support::claim_of(call)
        };
        let claimed = self.claiming.claim(row).await.unwrap();
        if let Some(claimed) = &claimed {
            assert_eq!(claimed.call_id, call, "worker {}", self.worker);
            self.shared.claimed.fetch_add(1, Ordering::Relaxed);
        }
        claimed.is_some()
    }

    async fn ends(&self, ending: Ending) -> bool {
        self.completing
            .complete(&ending, wait::LONG)
            .await
            .unwrap()
            .is_some()
    }

    /// Whether the call moved, or took a remark that it had not: only the first to ask leaves one.
    async fn cancels(&self, call: CallId) -> bool {
        let actor = format!("test {}", AttemptId::generate());
        sqlx::query("SELECT FROM toolfleet.cancel($1, $2)")
            .bind(call.0)
            .bind(&actor)
            .execute(&self.database.pool)
            .await
            .unwrap();
        self.left_a_trace(call, &actor).await
    }

    async fn settles(&self, call: CallId, finding: SettledAs) -> bool {
        let actor = format!("test {}", AttemptId::generate());
        let settlement = Settlement {
            call,
            tenant: None,
            finding,
            actor: &actor,
            note: "seen",
            result: None,
            by_time_only: false,
        };
        settle::settle(&self.database.pool, &settlement)
            .await
            .unwrap();
        self.left_a_trace(call, &actor).await
    }

    /// Whether this actor has moved the call or remarked on it.
    async fn left_a_trace(&self, call: CallId, actor: &str) -> bool {
        let sql = "SELECT count(*) FROM toolfleet.call_events WHERE call_id = $1 AND actor = $2";
        let traces: i64 = sqlx::query_scalar(sql)
            .bind(call.0)
            .bind(actor)
            .fetch_one(&self.database.pool)
            .await
            .unwrap();
        traces == 1
    }
}
