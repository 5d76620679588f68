//! Places and held calls against the model's rules: random operations, done to a real Postgres and, by the rules of
//! `tests/model/held/places.rs`, to plain data; after every step both must have said the same and stand in the same place.
//!
//! A seed is printed; `TOOLFLEET_SEED=<seed>` repeats a run.

#[path = "../../model/held/places.rs"]
mod rules;

use fleet::{
    call::State,
    hold::{Admitted, Line},
    ids::{AttemptId, CallId},
    modes::InterceptMode,
    store::{
        accept::NewCall,
        complete::{AttemptCost, EndingKind, Guard},
        limited::{Limited, admitted},
        read::CallState,
        release, sweep,
    },
};
use sqlx::PgConnection;

use crate::{
    differential::{Dice, seed},
    limited::{limited, tool},
    support::{Ledger, Worker, claim_of, doubted, ending, new_call, succeeded, tenant},
};

const STEPS: usize = 1_500;
/// Calls that are open at a time.
const OPEN: usize = 6;
/// A pause that does not end by itself while the test runs: a pointer may claim what has waited long enough.
const LONG_MS: i64 = 600_000;
/// The largest limit.
const LIMIT: usize = 3;

/// What the rules say of an open call.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Expected {
    call: CallId,
    state: State,
    held: bool,
    waits: bool,
    attempt: Option<AttemptId>,
    time_is_over: bool,
}

/// The ledger, and what the rules say of it.
struct World {
    ledger: Ledger,
    worker: Worker,
    connection: PgConnection,
    open: Vec<Expected>,
    /// The attempt that each place names.
    places: Vec<Option<AttemptId>>,
    /// The limit of the newest version, if it has one.
    limit: Option<usize>,
    versions: i32,
    /// How often each answer came.
    said: [usize; 3],
}

fn line() -> Line {
    Line::Tool(tool())
}

impl World {
    async fn new() -> Self {
        let mut ledger = Ledger::fresh().await;
        let worker = ledger.worker().await;
        let connection = release::connect(&ledger.database.postgres).await.unwrap();
        let mut world = Self {
            ledger,
            worker,
            connection,
            open: Vec::new(),
            places: Vec::new(),
            limit: None,
            versions: 0,
            said: [0; 3],
        };
        world.has_limit(Some(1)).await;
        world
    }

    /// A new version of the tool.
    async fn has_limit(&mut self, limit: Option<usize>) {
        self.versions += 1;
        let connection = &mut self.ledger.database.connect().await;
        let number = limit.map(|limit| u32::try_from(limit).unwrap());
        limited(connection, self.versions, number).await;
        self.limit = limit;
        let places = limit.unwrap_or(0).max(self.places.len());
        self.places.resize(places, None);
    }

    async fn comes(&mut self, held: bool) {
        let call = NewCall {
            line: line(),
            held,
            ..new_call()
        };
        let call = self.ledger.accepted(call).await;
        self.open.push(Expected {
            call,
            state: State::Queued,
            held,
            waits: false,
            attempt: None,
            time_is_over: false,
        });
    }

    fn live(&self) -> Vec<bool> {
        let is_live = |attempt: &Option<AttemptId>| {
            let of = |one: &&Expected| attempt.is_some() && one.attempt == *attempt;
            let one = self.open.iter().find(of);
            one.is_some_and(|one| rules::is_live(one.state, one.time_is_over))
        };
        self.places.iter().map(is_live).collect()
    }

    async fn is_claimed(&mut self, at: usize) {
        let row = claim_of(self.open[at].call);
        let attempt = row.attempt_id;
        let said = self
            .worker
            .claiming
            .claim_limited(row, InterceptMode::Enforce)
            .await
            .unwrap();
        let live = self.live();
        let one = &mut self.open[at];
        if !rules::may_claim(one.state, one.held, one.waits, false) {
            assert!(said.is_none(), "{one:?}: {said:?}");
            self.said[0] += 1;
            return;
        }
        let place = self.limit.map(|limit| rules::free(&live, limit).next());
        if place == Some(None) {
            assert!(matches!(said, Some(Limited::NoSlot)), "{live:?}: {said:?}");
            one.held = true;
            self.said[1] += 1;
            return;
        }
        assert!(
            matches!(said, Some(Limited::Claimed { .. })),
            "{live:?}: {said:?}"
        );
        (one.state, one.attempt) = (State::Running, Some(attempt));
        if let Some(place) = place.flatten() {
            self.places[place] = Some(attempt);
        }
        self.said[2] += 1;
    }

    /// Its attempt ends, as far as there is one.
    async fn ends(&mut self, at: usize, dice: &mut Dice) {
        let one = &mut self.open[at];
        let Some(attempt) = one.attempt else { return };
        let call = one.call;
        match (one.state, dice.roll(3)) {
            (State::Running, 0) => {
                let again = EndingKind::Again {
                    pause_ms: LONG_MS,
                    cost: AttemptCost::Spent,
                };
                self.ledger
                    .ends(ending(call, Guard::Attempt(attempt), again))
                    .await;
                (one.state, one.attempt, one.waits) = (State::Queued, None, true);
            }
            (State::Running, 1) => {
                self.ledger.ends(doubted(call, attempt)).await;
                one.state = State::InDoubt;
            }
            (State::InDoubt, 0) => {
                let over =
                    "UPDATE toolfleet.open_calls SET attempt_until = now() WHERE call_id = $1";
                self.ledger.meddle(call, over).await;
                one.time_is_over = true;
            }
            _ => {
                self.ledger.ends(succeeded(call, attempt)).await;
                self.open.remove(at);
            }
        }
    }

    /// The pause of all that wait is over: their line is not named, so it has no room.
    async fn pauses_end(&mut self) {
        for one in self.open.iter().filter(|one| one.waits) {
            let over = "UPDATE toolfleet.open_calls SET not_before = now(), due_at = now() WHERE call_id = $1";
            self.ledger.meddle(one.call, over).await;
        }
        let waited = self.open.iter().filter(|one| one.waits).count();
        let due = sweep::take_due(&self.ledger.database.pool, &[]).await;
        let due = due.unwrap();
        assert_eq!((due.publish.len(), due.held), (0, waited as u64));
        for one in self.open.iter_mut().filter(|one| one.waits) {
            (one.waits, one.held) = (false, true);
        }
    }

    /// One call of the line is released: of those that are held, the one that came first.
    async fn one_is_released(&mut self) {
        let turn = [(tenant(), 1)];
        let released = release::release(&mut self.connection, &line(), &turn).await;
        let released: Vec<CallId> = released
            .unwrap()
            .iter()
            .map(|one| one.call.pointer.call_id)
            .collect();
        let first = self.open.iter_mut().find(|one| one.held);
        let expected: Vec<CallId> = first.iter().map(|one| one.call).collect();
        assert_eq!(released, expected);
        first.into_iter().for_each(|one| one.held = false);
    }

    async fn stands_as_expected(&self) {
        let pool = &self.ledger.database.pool;
        let slots: Vec<i32> = sqlx::query_scalar(
            "SELECT slot FROM toolfleet.slots WHERE tool = 'tool' ORDER BY slot",
        )
        .fetch_all(pool)
        .await
        .unwrap();
        let live = self.live();
        let taken = (1..).zip(&live).filter(|(_, live)| **live);
        assert_eq!(slots, taken.map(|(slot, _)| slot).collect::<Vec<i32>>());
        let on_its_way = |one: &&Expected| one.state == State::Queued && !one.held && !one.waits;
        let expected = Admitted {
            running: u32::try_from(slots.len()).unwrap(),
            on_its_way: u32::try_from(self.open.iter().filter(on_its_way).count()).unwrap(),
        };
        // However slow the machine is: they were released just now.
        let mut fresh = pool.begin().await.unwrap();
        sqlx::query(
            "UPDATE toolfleet.open_calls SET not_before = clock_timestamp() + interval '1 hour' WHERE state = 'queued'",
        )
        .execute(&mut *fresh)
        .await
        .unwrap();
        let found = admitted(&mut *fresh, &tool()).await.unwrap();
        fresh.rollback().await.unwrap();
        assert_eq!(found, expected);
        for one in &self.open {
            let row = self.ledger.find(one.call).await;
            let held = matches!(row.state, CallState::Queued { held: true, .. });
            assert_eq!((row.state(), held), (one.state, one.held), "{one:?}");
        }
    }
}

#[tokio::test]
async fn places_and_the_model_say_the_same_of_random_histories() {
    let seed = seed();
    println!("TOOLFLEET_SEED={seed}");
    let mut dice = Dice(seed);
    let mut world = World::new().await;
    for _ in 0..STEPS {
        if world.open.len() < OPEN && dice.one_in(2) {
            world.comes(dice.one_in(3)).await;
        }
        let at = dice.roll(OPEN);
        match dice.roll(12) {
            0..=4 if at < world.open.len() => world.is_claimed(at).await,
            5..=7 if at < world.open.len() => world.ends(at, &mut dice).await,
            8..=9 => world.one_is_released().await,
            10 => world.pauses_end().await,
            11 if dice.one_in(4) => {
                let limit = dice.of(&[None, Some(1), Some(2), Some(LIMIT)]);
                world.has_limit(limit).await;
            }
            _ => {}
        }
        world.stands_as_expected().await;
    }
    let [not_ours, no_place, ours] = world.said;
    println!(
        "{STEPS} steps: {ours} claims took a call, {no_place} found no place, {not_ours} found no call"
    );
    assert!(world.said.iter().all(|times| *times > STEPS / 100));
    world.ledger.lanes.shutdown().await;
}

/// As many places are free as the limit leaves beside the live ones, whichever they are.
#[test]
fn a_limit_is_used_up_and_never_exceeded() {
    for places in 1..=6_usize {
        for mask in 0..1_usize << places {
            let live: Vec<bool> = (0..places).map(|place| mask >> place & 1 == 1).collect();
            let taken = live.iter().filter(|live| **live).count();
            for limit in 1..=places {
                // As the statement says it: of the places behind this one, those that are taken count.
                let behind = |place: usize| live[place + 1..].iter().filter(|live| **live).count();
                let said = (0..places).filter(|at| !live[*at] && at + 1 + behind(*at) <= limit);
                let said: Vec<usize> = said.collect();
                assert_eq!(rules::free(&live, limit).collect::<Vec<_>>(), said);
                assert_eq!(said.len(), limit.saturating_sub(taken));
            }
        }
    }
}
