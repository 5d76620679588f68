//! The views tell each life whole: revisions and attempts without gaps, every move legal.

use fleet::{
    call::State,
    ids::CallId,
    state::is_legal,
    store::complete::{EndingKind, Guard},
};
use sqlx::PgPool;

use crate::support::{Ledger, Worker, again, doubt, doubted, end_in, ending, repeated, succeeded};

#[tokio::test]
async fn three_attempts_are_numbered_one_to_three() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let call = ledger.queued().await;
    for _ in 0..2 {
        let attempt = worker.claims(call).await;
        ledger.ends(repeated(call, attempt)).await;
    }
    assert_eq!(attempts(&ledger.database.pool, call).await, [1, 2]);
    let attempt = worker.claims(call).await;
    assert_eq!(
        attempts(&ledger.database.pool, call).await,
        [1, 2, 3],
        "while it runs"
    );
    ledger.ends(succeeded(call, attempt)).await;
    assert_eq!(attempts(&ledger.database.pool, call).await, [1, 2, 3]);
    assert_eq!(
        moves(&ledger.database.pool, call).await,
        "queued running queued running queued running succeeded"
    );
}

#[tokio::test]
async fn a_life_through_doubt_is_told_whole() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let call = ledger.queued().await;
    let attempt = worker.claims(call).await;
    ledger.ends(doubted(call, attempt)).await;
    assert_eq!(
        moves(&ledger.database.pool, call).await,
        "queued running in_doubt"
    );
    ledger.ends(succeeded(call, attempt)).await;
    assert_eq!(
        moves(&ledger.database.pool, call).await,
        "queued running in_doubt succeeded"
    );
    assert_eq!(attempts(&ledger.database.pool, call).await, [1]);
}

#[tokio::test]
async fn a_call_that_never_ran_has_no_attempts() {
    let ledger = Ledger::fresh().await;
    let call = ledger.queued().await;
    ledger
        .ends(ending(call, Guard::Queued(0), end_in(State::Expired)))
        .await;
    assert_eq!(moves(&ledger.database.pool, call).await, "queued expired");
    assert!(attempts(&ledger.database.pool, call).await.is_empty());
}

#[tokio::test]
async fn whatever_happens_to_a_call_its_life_is_told_whole() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let mut dice = Dice(20_261_120);
    for _ in 0..60 {
        let call = ledger.queued().await;
        for _ in 0..6 {
            if !step(&ledger, &worker, call, &mut dice).await {
                break;
            }
            moves(&ledger.database.pool, call).await;
            let (told, counted) = (
                attempts(&ledger.database.pool, call).await,
                ledger.find(call).await,
            );
            let counted: Vec<i32> = (1..=counted.attempts).collect();
            assert_eq!(told, counted);
        }
    }
}

/// One legal move, drawn by lot. False: the call is over.
async fn step(ledger: &Ledger, worker: &Worker, call: CallId, dice: &mut Dice) -> bool {
    let row = ledger.find(call).await;
    let legal: Vec<State> = State::ALL
        .iter()
        .copied()
        .filter(|to| is_legal(row.state(), *to))
        .collect();
    if legal.is_empty() {
        return false;
    }
    let to = legal[dice.roll(legal.len())];
    let guard = row
        .attempt_id()
        .map_or(Guard::Queued(row.rev), Guard::Attempt);
    match to {
        State::Running => {
            worker.claims(call).await;
        }
        State::Queued => ledger.ends(ending(call, guard, again())).await,
        State::InDoubt => ledger.ends(ending(call, guard, doubt())).await,
        over => {
            // Settling a doubt that no attempt caused has a guard of its own.
            if row.state() == State::InDoubt && row.attempt_id().is_none() {
                return false;
            }
            let kind: EndingKind = end_in(over);
            ledger.ends(ending(call, guard, kind)).await;
        }
    }
    assert_eq!(ledger.state(call).await, to);
    true
}

/// The states of a call in the order of its revisions, which have no gaps and of which each continues the one before.
async fn moves(pool: &PgPool, call: CallId) -> String {
    type Event = (i32, Option<String>, String);
    let events: Vec<Event> = sqlx::query_as(
        "SELECT revision, from_state, to_state FROM toolfleet.call_events WHERE call_id = $1 ORDER BY revision",
    )
    .bind(call.0)
    .fetch_all(pool)
    .await
    .unwrap();
    let mut stands: Option<State> = None;
    for (index, (revision, from, to)) in events.iter().enumerate() {
        assert_eq!(usize::try_from(*revision).unwrap(), index, "{events:?}");
        assert_eq!(from.as_deref(), stands.map(State::as_str), "{events:?}");
        let to: State = to.parse().unwrap();
        assert!(stands.is_none_or(|from| is_legal(from, to)), "{events:?}");
        stands = Some(to);
    }
    let (state, rev): (String, i64) = sqlx::query_as(
        "SELECT c.state, (SELECT max(rev) FROM (SELECT rev FROM toolfleet.open_calls WHERE call_id = $1 \
         UNION ALL SELECT rev FROM toolfleet.finished_calls WHERE call_id = $1) r)::bigint \
         FROM toolfleet.calls c WHERE call_id = $1",
    )
    .bind(call.0)
    .fetch_one(pool)
    .await
    .unwrap();
    assert_eq!(stands.map(State::as_str), Some(state.as_str()));
    assert_eq!(rev + 1, i64::try_from(events.len()).unwrap(), "{events:?}");
    let states: Vec<String> = events.into_iter().map(|(_, _, to)| to).collect();
    states.join(" ")
}

async fn attempts(pool: &PgPool, call: CallId) -> Vec<i32> {
    sqlx::query_scalar(
        "SELECT number FROM toolfleet.attempts WHERE call_id = $1 ORDER BY number, late",
    )
    .bind(call.0)
    .fetch_all(pool)
    .await
    .unwrap()
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}
