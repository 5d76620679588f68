//! The store's guards against the pure state machine: the same random operations are done to a model and, through the real
//! statements, to a real Postgres; after every step both must have said the same and stand in the same place.
//!
//! A seed is printed; `TOOLFLEET_SEED=<seed>` repeats a run.

mod concurrent;
mod model;

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use fleet::{
    call::{Effect, EffectKnown, State},
    ids::{AttemptId, CallId, DispatcherId, WorkerId},
    obstacle::{Lack, Obstacle},
    outcome::OutcomeWord,
    state::is_legal,
    store::{
        StoreError,
        complete::{AttemptCost, Decision, EndedAttempt, Ending, EndingKind, Guard as LedgerGuard},
        ledger::Completing,
        postpone::{Postponed, PostponedFor, postpone},
        probe::{self, Doubted, NewProbe, ProbeState, Remark},
        settle::{self, SettledAs, Settlement},
        sweep, workers,
    },
    wire::message::Message,
};
use fleet_tests::wait;
use futures_util::{StreamExt, stream};
use sqlx::Row as _;
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::support::{self, Ledger, Worker, end_in, tenant};
use model::{Clock, Finished, Guard, Model, Op, Row, Standing, Verdict};

const SEQUENCES: usize = 2_000;
const STEPS: usize = 24;
const WORKERS: usize = 6;
/// Operations under way at a time: they share batches, as in a busy fleet.
const AT_A_TIME: usize = 256;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ledger_and_the_model_say_the_same_of_2000_random_sequences() {
    let seed = seed();
    println!("TOOLFLEET_SEED={seed}");
    let mut dice = Dice(seed);
    let began = Instant::now();
    let mut world = World::new().await;
    let mut calls = world.calls(&mut dice).await;
    let mut verdicts: HashMap<String, usize> = HashMap::new();
    for step in 0..STEPS {
        world.a_worker_may_end(&mut dice).await;
        world.lost_calls_are_found(&calls).await;
        let ops: Vec<Op> = calls
            .iter()
            .map(|call| choose(&mut dice, call, &world))
            .collect();
        let said: Vec<Verdict> = stream::iter(calls.iter().zip(&ops))
            .map(|(call, op)| world.does(call, op))
            .buffered(AT_A_TIME)
            .collect()
            .await;
        let rows = world.rows().await;
        for ((call, op), said) in calls.iter_mut().zip(&ops).zip(said) {
            let before = call.clone();
            let expected = call.apply(op, |worker| world.standing[&worker]);
            let at = || format!("TOOLFLEET_SEED={seed}, step {step}: {op:?} to {before:#?}");
            assert_eq!(said, expected, "the verdict, {}", at());
            assert_eq!(rows.get(&call.id), Some(&call.row), "the row, {}", at());
            *verdicts.entry(word(&said)).or_default() += 1;
        }
    }
    let moves = world.histories_are(&calls, seed).await;
    let terminal = calls.iter().filter(|call| call.row.finished.is_some());
    println!(
        "{SEQUENCES} sequences of {STEPS} operations in {:.1} s: {moves} moves and remarks, {} calls over",
        began.elapsed().as_secs_f64(),
        terminal.count()
    );
    let mut verdicts: Vec<_> = verdicts.into_iter().collect();
    verdicts.sort();
    println!("{verdicts:?}");
    for worth_it in [
        "moved running",
        "refused",
        "nothing",
        "worker_not_fenced",
        "too_early",
        "settled",
    ] {
        let times = verdicts.iter().find(|(word, _)| word == worth_it);
        assert!(
            times.is_some_and(|(_, times)| *times >= 10),
            "{worth_it} hardly ever: {verdicts:?}"
        );
    }
}

fn word(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Moved(state) => format!("moved {state}"),
        Verdict::Nothing => "nothing".to_owned(),
        Verdict::Refused => "refused".to_owned(),
        Verdict::Said(word, _) => (*word).to_owned(),
    }
}

/// Of this run, or of the one that is to be repeated.
pub(crate) fn seed() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "a test has no command line")]
    let given = std::env::var("TOOLFLEET_SEED").ok();
    let fresh = || Uuid::new_v4().as_u64_pair().0;
    given.map_or_else(fresh, |seed| seed.parse().expect("a seed is a number"))
}

/// The generator `SplitMix64`.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % sides as u64).expect("less than the sides")
    }

    pub(crate) fn one_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }

    pub(crate) fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.roll(choices.len())].clone()
    }
}

/// What may be done to this call now: mostly what its state allows, often what it does not.
fn choose(dice: &mut Dice, call: &Model, world: &World) -> Op {
    let row = &call.row;
    let right = match row.attempt {
        Some(attempt) if row.state != State::Queued => Guard::Attempt(attempt),
        _ => Guard::Queued(row.rev),
    };
    let guard = match dice.roll(10) {
        0 => Guard::Queued(row.rev - 1),
        1 if !call.attempts.is_empty() => Guard::Attempt(dice.of(&call.attempts)),
        2 => Guard::Queued(row.rev),
        3 => Guard::Attempt(AttemptId::generate()),
        _ => right,
    };
    let rev = if dice.one_in(5) { row.rev - 1 } else { row.rev };
    let weights: [usize; 10] = match row.state {
        // claim, end, again, doubt, postpone, cancel, settle, probe, remark, pass
        State::Queued if call.waits_for_its_time() => [8, 3, 5, 2, 6, 2, 2, 2, 2, 60],
        State::Queued => [60, 3, 5, 2, 6, 2, 2, 2, 2, 2],
        State::Running => [6, 6, 55, 10, 4, 5, 3, 2, 2, 1],
        State::InDoubt => [8, 6, 8, 8, 4, 6, 10, 20, 20, 1],
        _ => [10, 20, 10, 10, 5, 10, 25, 5, 5, 1],
    };
    let mut rolled = dice.roll(weights.iter().sum());
    let which = weights.iter().position(|weight| {
        let here = rolled < *weight;
        rolled = rolled.wrapping_sub(*weight);
        here
    });
    let effects = [
        EffectKnown::None,
        EffectKnown::Applied,
        EffectKnown::NotApplied,
    ];
    match which.expect("one of them") {
        0 => {
            let slot = dice.roll(WORKERS + 1);
            let (worker, alive) = match world.workers.get(slot) {
                Some(worker) => (worker.id, true),
                None => (world.ended.id, false),
            };
            Op::Claim {
                worker,
                alive,
                attempt: AttemptId::generate(),
                far: dice.one_in(2),
            }
        }
        1 => Op::End {
            guard,
            state: dice.of(&[
                State::Succeeded,
                State::Failed,
                State::Expired,
                State::Cancelled,
            ]),
            effect: dice.of(&effects),
        },
        2 => Op::Again {
            guard,
            cost: dice.of(&[AttemptCost::Spent, AttemptCost::Unspent, AttemptCost::Lost]),
            outcome: dice.of(OutcomeWord::ALL),
            over: dice.one_in(2),
            long: dice.one_in(4),
        },
        3 => Op::Doubt {
            guard,
            over: dice.one_in(2),
        },
        4 => Op::Postpone {
            rev,
            long: dice.one_in(3),
        },
        5 => Op::Cancel,
        6 => Op::Settle {
            finding: dice.of(SettledAs::ALL),
            by_time_only: dice.one_in(4),
        },
        7 => Op::Probe {
            rev,
            probe: CallId::generate(),
        },
        8 => Op::Remark {
            rev,
            state: dice.of(&[
                ProbeState::Inconclusive,
                ProbeState::NotYetApplied,
                ProbeState::Conflict,
            ]),
            last: dice.one_in(4),
        },
        _ => Op::Pass(match dice.roll(12) {
            0 => Clock::Deadline,
            1 => Clock::QueueWait,
            _ => Clock::Pause,
        }),
    }
}

/// The real ledger, and its workers.
struct World {
    ledger: Ledger,
    workers: Vec<Worker>,
    /// One that may claim nothing any more, and still has its lane.
    ended: Worker,
    standing: HashMap<WorkerId, Standing>,
    /// For endings that share their batch with no other.
    alone: Mutex<Completing>,
}

impl World {
    async fn new() -> Self {
        let mut ledger = Ledger::fresh().await;
        let alone = Completing::start(&ledger.database.postgres, &mut ledger.lanes);
        let mut workers = Vec::new();
        for _ in 0..=WORKERS {
            workers.push(ledger.worker().await);
        }
        let standing = workers
            .iter()
            .map(|worker| (worker.id, Standing::Alive))
            .collect();
        let ended = workers.remove(0);
        let mut world = Self {
            alone: Mutex::new(alone),
            ledger,
            workers,
            ended,
            standing,
        };
        world.is_declared_dead(world.ended.id).await;
        world
    }

    async fn calls(&self, dice: &mut Dice) -> Vec<Model> {
        let effects = [Effect::Read, Effect::Idempotent, Effect::Once];
        let calls: Vec<(CallId, Effect)> = (0..SEQUENCES)
            .map(|_| (CallId::generate(), dice.of(&effects)))
            .collect();
        let accepting = calls.iter().map(|(call_id, effect)| {
            let call = support::new_call();
            self.ledger.accepted(fleet::store::accept::NewCall {
                call_id: *call_id,
                effect: *effect,
                queue_wait_ms: Some(3_600_000),
                ..call
            })
        });
        futures_util::future::join_all(accepting).await;
        calls
            .into_iter()
            .map(|(id, effect)| Model::queued(id, effect))
            .collect()
    }

    /// Now and then a worker is declared dead, leaves, or is proven gone, and another takes its place.
    async fn a_worker_may_end(&mut self, dice: &mut Dice) {
        if dice.one_in(2) {
            return;
        }
        let new = self.ledger.worker().await;
        self.standing.insert(new.id, Standing::Alive);
        let slot = dice.roll(WORKERS);
        let old = std::mem::replace(&mut self.workers[slot], new);
        if dice.one_in(4) {
            self.is_gone(old.id, "UPDATE toolfleet.worker_processes SET state = 'left', ended_at = now(), ended_by = 'itself' \
                                  WHERE worker_id = $1 AND state = 'live'").await;
        } else {
            self.is_declared_dead(old.id).await;
        }
        // The one that ended before it is proven gone later than it died, if at all.
        let before = std::mem::replace(&mut self.ended, old);
        if self.standing[&before.id] == Standing::Dead && dice.one_in(2) {
            self.is_gone(before.id, "UPDATE toolfleet.worker_processes SET state = 'fenced', fenced_at = now(), fenced_by = 'test' \
                                     WHERE worker_id = $1 AND state = 'dead'").await;
        }
    }

    async fn is_declared_dead(&mut self, worker: WorkerId) {
        let pool = &self.ledger.database.pool;
        assert!(
            !workers::declare_dead(pool, worker, 7).await.unwrap(),
            "it has another beat"
        );
        assert!(workers::declare_dead(pool, worker, 0).await.unwrap());
        assert!(
            !workers::declare_dead(pool, worker, 0).await.unwrap(),
            "it is dead already"
        );
        self.standing.insert(worker, Standing::Dead);
    }

    async fn is_gone(&mut self, worker: WorkerId, sql: &'static str) {
        let done = sqlx::query(sql)
            .bind(worker.0)
            .execute(&self.ledger.database.pool)
            .await;
        assert_eq!(done.unwrap().rows_affected(), 1);
        self.standing.insert(worker, Standing::Gone);
    }

    async fn lost_calls_are_found(&self, calls: &[Model]) {
        let found = sweep::lost(&self.ledger.database.pool, false)
            .await
            .unwrap();
        let found: HashSet<(CallId, AttemptId)> = found
            .iter()
            .map(|lost| (lost.call_id, lost.attempt_id))
            .collect();
        let lost = calls.iter().filter(|call| {
            let ended = |worker| self.standing[&worker] != Standing::Alive;
            call.row.state == State::Running && call.row.worker.is_some_and(ended)
        });
        let lost: HashSet<_> = lost
            .map(|call| (call.id, call.row.attempt.expect("it runs")))
            .collect();
        assert_eq!(found, lost);
    }

    /// Does it to the real call.
    async fn does(&self, call: &Model, op: &Op) -> Verdict {
        let (pool, id) = (&self.ledger.database.pool, call.id);
        let moved = |yes: bool| {
            if yes {
                Verdict::Moved(call.row.state)
            } else {
                Verdict::Nothing
            }
        };
        match op {
            Op::Claim {
                worker,
                attempt,
                far,
                ..
            } => {
                let mut workers = self.workers.iter().chain([&self.ended]);
                let worker = workers
                    .find(|one| one.id == *worker)
                    .expect("it is one of them");
                let mut claim = support::claim_of(id);
                claim.attempt_id = *attempt;
                claim.timeout_ms = if *far { 3_600_000 } else { 1 };
                let claimed = worker.claiming.claim(claim).await.unwrap();
                claimed.map_or(Verdict::Nothing, |claimed| {
                    assert_eq!(claimed.effect_unknown, call.row.effect_unknown, "{call:?}");
                    assert_eq!(
                        i64::from(claimed.attempt),
                        i64::from(call.row.attempts) + 1,
                        "{call:?}"
                    );
                    Verdict::Moved(State::Running)
                })
            }
            Op::End { .. } | Op::Again { .. } | Op::Doubt { .. } => {
                let ending = ending(id, op);
                let mut told = self.ledger.completing.complete(&ending, wait::LONG).await;
                // What the server refuses is not told in a batch in which others have ended. All else was true at once.
                if matches!(told, Ok(None)) {
                    let again = self.alone.lock().await.complete(&ending, wait::LONG).await;
                    assert!(!matches!(again, Ok(Some(_))), "{ending:?} moved at last");
                    told = again;
                }
                match told {
                    Ok(Some(ended)) => Verdict::Moved(ended.state),
                    Ok(None) => Verdict::Nothing,
                    Err(StoreError::Refused { source, .. }) if is_check(&source) => {
                        Verdict::Refused
                    }
                    Err(error) => panic!("{error:?}"),
                }
            }
            Op::Postpone { rev, long } => {
                let pause =
                    PostponedFor::Exactly(Duration::from_secs(if *long { 3600 } else { 0 }));
                let obstacle = Obstacle::new(Lack::ProgramSlot, &Message::fixed("x", "x"), "test");
                let postponed = Postponed {
                    call: id,
                    rev: *rev,
                    pause,
                    obstacle: &obstacle,
                    actor: "test",
                };
                moved(postpone(pool, postponed).await.unwrap())
            }
            Op::Cancel => {
                let answer = sqlx::query("SELECT verdict, state FROM toolfleet.cancel($1, 'test')")
                    .bind(id.0)
                    .fetch_one(pool)
                    .await
                    .unwrap();
                let verdicts = [
                    "cancelled",
                    "cancel_requested",
                    "in_doubt",
                    "already_terminal",
                ];
                let verdict: String = answer.get("verdict");
                let verdict = verdicts.into_iter().find(|one| *one == verdict);
                Verdict::Said(
                    verdict.expect("a verdict"),
                    Some(state_of(&answer, "state")),
                )
            }
            Op::Settle {
                finding,
                by_time_only,
            } => {
                let settlement = Settlement {
                    call: id,
                    tenant: None,
                    finding: *finding,
                    actor: "test",
                    note: "seen",
                    result: None,
                    by_time_only: *by_time_only,
                };
                match settle::settle(pool, &settlement).await.unwrap() {
                    settle::Verdict::Settled { state, .. } => Verdict::Said("settled", Some(state)),
                    settle::Verdict::Conflict { state, .. } => {
                        Verdict::Said("conflict", Some(state))
                    }
                    settle::Verdict::WorkerNotFenced => Verdict::Said("worker_not_fenced", None),
                    settle::Verdict::TooEarly { .. } => Verdict::Said("too_early", None),
                    settle::Verdict::NotFound => Verdict::Nothing,
                }
            }
            Op::Probe { rev, probe } => {
                let probe = NewProbe {
                    call_id: *probe,
                    tool: "look".parse().unwrap(),
                    tool_version: 1,
                    queue: "default".parse().unwrap(),
                    args: "{}".to_owned(),
                    kept_args: None,
                    original_args: None,
                    coercions: Vec::new(),
                    args_hash: [1; 32],
                    rate_key: None,
                    deadline: Duration::from_secs(600),
                    dispatcher: DispatcherId::generate(),
                };
                moved(probe::start(pool, id, *rev, probe).await.unwrap().is_some())
            }
            Op::Remark { rev, state, last } => {
                let remark = Remark {
                    state: *state,
                    actor: "test".to_owned(),
                    why: "seen".to_owned(),
                    again_after: (!last).then_some(Duration::from_secs(60)),
                };
                let doubted = doubted(call, *rev);
                moved(probe::remark(pool, &doubted, &remark).await.unwrap())
            }
            Op::Pass(clock) => {
                let sql = match clock {
                    Clock::Pause => {
                        "UPDATE toolfleet.open_calls SET not_before = least(not_before, now()), \
                             due_at = CASE WHEN state <> 'queued' THEN due_at END WHERE call_id = $1"
                    }
                    Clock::Deadline => {
                        "UPDATE toolfleet.open_calls SET deadline_at = now() - interval '1 second' WHERE call_id = $1"
                    }
                    Clock::QueueWait => {
                        "UPDATE toolfleet.open_calls SET queue_until = now() - interval '1 second' WHERE call_id = $1"
                    }
                };
                let done = sqlx::query(sql).bind(id.0).execute(pool).await.unwrap();
                moved(done.rows_affected() == 1)
            }
        }
    }

    /// Every call of the sequences as the tables have it.
    async fn rows(&self) -> HashMap<CallId, Row> {
        let rows = sqlx::query(
            "SELECT call_id, state::text, rev, attempts, lost_attempts, unspent_attempts, publish_n, attempt_id, worker_id, \
                 cancel_requested, effect_unknown, probe_id, probes, NULL AS from_state, NULL AS source, NULL AS effect_known \
             FROM toolfleet.open_calls WHERE probe_of IS NULL \
             UNION ALL \
             SELECT call_id, state::text, rev, attempts, 0, 0, 0, attempt_id, worker_id, false, false, NULL, 0, \
                 from_state::text, source::text, effect_known::text \
             FROM toolfleet.finished_calls WHERE probe_of IS NULL",
        )
        .fetch_all(&self.ledger.database.pool)
        .await
        .unwrap();
        let mut found = HashMap::new();
        for row in &rows {
            let finished = row
                .get::<Option<String>, _>("from_state")
                .map(|from| Finished {
                    from: from.parse().unwrap(),
                    source: row.get::<String, _>("source").parse().unwrap(),
                    effect: row.get::<String, _>("effect_known").parse().unwrap(),
                });
            let call = CallId(row.get("call_id"));
            let is = Row {
                state: state_of(row, "state"),
                rev: row.get("rev"),
                attempts: row.get("attempts"),
                lost: row.get("lost_attempts"),
                unspent: row.get("unspent_attempts"),
                publish_n: row.get("publish_n"),
                attempt: row.get::<Option<Uuid>, _>("attempt_id").map(AttemptId),
                worker: row.get::<Option<Uuid>, _>("worker_id").map(WorkerId),
                cancel_requested: row.get("cancel_requested"),
                effect_unknown: row.get("effect_unknown"),
                probe: row.get::<Option<Uuid>, _>("probe_id").map(CallId),
                probes: row.get("probes"),
                finished,
            };
            assert!(
                found.insert(call, is).is_none(),
                "call {call} is in two places"
            );
        }
        found
    }

    /// Compares what the views tell with what was done; returns how many moves and remarks there were.
    async fn histories_are(&self, calls: &[Model], seed: u64) -> usize {
        let told = histories(&self.ledger.database.pool).await;
        let attempts: HashMap<Uuid, i64> = sqlx::query_as(
            "SELECT call_id, count(*) FROM toolfleet.ended_attempts GROUP BY call_id",
        )
        .fetch_all(&self.ledger.database.pool)
        .await
        .map(|rows: Vec<(Uuid, i64)>| rows.into_iter().collect())
        .unwrap();
        let mut moves = 0;
        for call in calls {
            let at = format!("TOOLFLEET_SEED={seed}, {call:#?}");
            assert_eq!(told[&call.id], call.history, "{at}");
            assert_eq!(
                attempts.get(&call.id.0).copied().unwrap_or(0),
                call.ended_attempts,
                "{at}"
            );
            moves += call.history.len();
        }
        moves
    }
}

/// What the view tells of every call but probes: where each revision led from and to. Each of them legal or a remark, none
/// twice, none missing.
pub(crate) async fn histories(pool: &sqlx::PgPool) -> HashMap<CallId, Vec<(State, State)>> {
    let events = sqlx::query(
        "SELECT e.call_id, e.revision, e.from_state, e.to_state FROM toolfleet.call_events e \
         JOIN toolfleet.calls c USING (call_id) WHERE c.probe_of IS NULL ORDER BY e.call_id, e.revision",
    )
    .fetch_all(pool)
    .await
    .unwrap();
    let mut told: HashMap<CallId, Vec<(State, State)>> = HashMap::new();
    for event in &events {
        let call = CallId(event.get("call_id"));
        let (revision, to): (i32, State) = (event.get("revision"), state_of(event, "to_state"));
        let Some(from) = event.get::<Option<String>, _>("from_state") else {
            assert_eq!((revision, to), (0, State::Queued), "call {call}");
            assert!(
                told.insert(call, Vec::new()).is_none(),
                "call {call} was accepted twice"
            );
            continue;
        };
        let from: State = from.parse().unwrap();
        let moves = told.get_mut(&call).expect("it begins with its acceptance");
        let at = format!("call {call}, revision {revision}, {from} to {to}, after {moves:?}");
        assert_eq!(usize::try_from(revision).unwrap(), moves.len() + 1, "{at}");
        let stood = moves.last().map_or(State::Queued, |(_, to)| *to);
        assert_eq!(from, stood, "{at}");
        assert!(
            from == to && !to.is_terminal() || is_legal(from, to),
            "{at}"
        );
        moves.push((from, to));
    }
    told
}

fn state_of(row: &sqlx::postgres::PgRow, column: &str) -> State {
    row.get::<String, _>(column).parse().unwrap()
}

fn is_check(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(refusal) if refusal.code().as_deref() == Some("23514"))
}

/// The ending that a worker or the sweep would send.
fn ending(call: CallId, op: &Op) -> Ending {
    let ended = |outcome, has_stopped| EndedAttempt {
        outcome,
        effect: EffectKnown::Unknown,
        error: None,
        has_stopped,
    };
    let (guard, kind, attempt) = match op {
        Op::End {
            guard,
            state,
            effect,
        } => {
            let EndingKind::End(end) = end_in(*state) else {
                unreachable!("it ends");
            };
            let effect = *effect;
            let kind = EndingKind::End(Decision { effect, ..end });
            (guard, kind, ended(OutcomeWord::Applied, true))
        }
        Op::Again {
            guard,
            cost,
            outcome,
            over,
            long,
        } => {
            let pause_ms = if *long { 3_600_000 } else { 0 };
            (
                guard,
                EndingKind::Again {
                    pause_ms,
                    cost: *cost,
                },
                ended(*outcome, *over),
            )
        }
        Op::Doubt { guard, over } => (guard, support::doubt(), ended(OutcomeWord::Unknown, *over)),
        other => unreachable!("{other:?} is no ending"),
    };
    let (guard, attempt) = match guard {
        Guard::Attempt(id) => (LedgerGuard::Attempt(*id), Some(attempt)),
        Guard::Queued(rev) => (LedgerGuard::Queued(*rev), None),
    };
    Ending {
        call_id: call,
        guard,
        kind,
        attempt,
        actor: "test".into(),
        reason: "because".into(),
    }
}

/// What the pass knows of a call that it looks into.
fn doubted(call: &Model, rev: i32) -> Doubted {
    Doubted {
        call_id: call.id,
        rev,
        tenant: tenant(),
        tool: "tool".parse().unwrap(),
        tool_version: 1,
        args: "{}".to_owned(),
        probes: u32::try_from(call.row.probes).unwrap(),
        probe: call.row.probe,
        fenced_since: None,
        state: call.probe_state(),
    }
}
