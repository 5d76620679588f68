//! The functions of the ledger against `fleet::breaker::Breaker`: the same random steps are done to both, and after each both
//! have said the same and stand in the same place.
//!
//! A seed is printed; `TOOLFLEET_SEED=<seed>` repeats a run.

use std::collections::BTreeMap;

use fleet::breaker::{
    Breaker, BreakerState, BreakerTerms, Counted, PermitAnswer, PermitVerdict, ReportVerdict,
};
use fleet_tests::postgres::Database;
use serde_json::{Value, json};
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use crate::differential::{Dice, seed};

const SEQUENCES: usize = 2_000;
const STEPS: usize = 20;
const CONNECTIONS: usize = 4;
const WORKERS: usize = 3;
const WINDOW_MS: i64 = 2_000;
const TIMEOUT_MS: i64 = 700;

/// The counts of one worker in one second.
#[derive(Debug, Clone, Copy)]
struct Second {
    at: i64,
    heard_at: i64,
    counted: Counted,
}

struct World {
    connection: PgConnection,
    tool: &'static str,
    target: String,
    terms: BreakerTerms,
    workers: Vec<Uuid>,
    breaker: Breaker,
    seconds: BTreeMap<(usize, i64), Second>,
    now: i64,
    next_second: i64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ledger_and_the_pure_decision_say_the_same_of_2000_random_sequences() {
    let seed = seed();
    println!("TOOLFLEET_SEED={seed}");
    let database = Database::fresh().await;
    let mut connection = database.postgres.connect().await.unwrap();
    let plain = json!({"window": "2s", "calls": 4, "failures": "50%", "open": "1s", "open_max": "3s", "probes": 2});
    let mut slow = plain.clone();
    slow["slow"] = json!({"after": "1s", "share": "60%"});
    slow["probes"] = json!(1);
    super::apply(&mut connection, "plain", 1, &plain).await;
    super::apply(&mut connection, "slow", 1, &slow).await;
    let mut running = tokio::task::JoinSet::new();
    for lane in 0..CONNECTIONS {
        let connection = database.postgres.connect().await.unwrap();
        running.spawn(sequences(connection, seed, lane));
    }
    let mut said: BTreeMap<String, usize> = BTreeMap::new();
    while let Some(lane) = running.join_next().await {
        for (word, times) in lane.unwrap() {
            *said.entry(word).or_default() += times;
        }
    }
    println!("{SEQUENCES} sequences of {STEPS} steps: {said:?}");
    for word in [
        "opened",
        "closed",
        "local",
        "unsure",
        "stale",
        "stays",
        "granted",
        "refused",
        "given_back",
        "reopened",
    ] {
        assert!(said.contains_key(word), "{word} never came: {said:?}");
    }
}

async fn sequences(connection: PgConnection, seed: u64, lane: usize) -> BTreeMap<String, usize> {
    let mut said = BTreeMap::new();
    let mut dice = Dice(seed.wrapping_add(lane as u64));
    let mut world = World {
        connection,
        tool: "plain",
        target: String::new(),
        terms: terms(false),
        workers: (0..WORKERS).map(|_| Uuid::new_v4()).collect(),
        breaker: Breaker::default(),
        seconds: BTreeMap::new(),
        now: 0,
        next_second: 0,
    };
    for sequence in 0..SEQUENCES / CONNECTIONS {
        world.begin(format!("http://{lane}.{sequence}"), dice.roll(2) == 0);
        for step in 0..STEPS {
            let before = world.breaker;
            let did = world.step(&mut dice).await;
            let at = || {
                format!(
                    "TOOLFLEET_SEED={seed}, lane {lane}, sequence {sequence}, step {step}: {did} to {before:?}"
                )
            };
            if let Some(stands) = world.stands().await {
                assert_eq!(stands, world.breaker, "the row, {}", at());
            }
            *said.entry(did).or_insert(0) += 1;
        }
    }
    said
}

fn number(dice: &mut Dice, below: i64) -> i64 {
    let below = usize::try_from(below).unwrap();
    i64::try_from(dice.roll(below)).unwrap()
}

fn terms(slow: bool) -> BreakerTerms {
    BreakerTerms {
        calls: 4,
        failures: 50,
        slow: slow.then_some(60),
        open_ms: 1_000,
        open_max_ms: 3_000,
        probes: if slow { 1 } else { 2 },
    }
}

impl World {
    fn begin(&mut self, target: String, slow: bool) {
        self.tool = if slow { "slow" } else { "plain" };
        (self.target, self.terms) = (target, terms(slow));
        self.breaker = Breaker::default();
        self.seconds.clear();
    }

    /// Does one step to both, compares what they said, and returns a word for it.
    async fn step(&mut self, dice: &mut Dice) -> String {
        self.now += number(dice, 900);
        if dice.roll(12) == 0 {
            self.now += 11_000;
        }
        // Mostly the present generation, sometimes one before.
        let generation = self.breaker.generation - i64::from(dice.roll(6) == 0);
        match dice.roll(10) {
            0..=2 => self.permit().await.as_str().to_owned(),
            3 => self.give_back(generation).await.to_owned(),
            _report => {
                let worker = dice.roll(WORKERS);
                let calls = number(dice, 5);
                let counted = Counted {
                    calls,
                    failures: number(dice, calls + 1),
                    slow: number(dice, calls + 1),
                };
                // A repetition has the same second, and at least as much.
                let again = self.seconds.keys().rfind(|(of, _)| *of == worker).copied();
                let second = match again.filter(|_| dice.roll(4) == 0) {
                    Some((_, second)) => second,
                    None => {
                        self.next_second += 1;
                        self.next_second
                    }
                };
                let was = self.breaker.state;
                let verdict = self
                    .report(worker, second, number(dice, 300), counted, generation)
                    .await;
                if was == BreakerState::HalfOpen && verdict == ReportVerdict::Opened {
                    return "reopened".to_owned();
                }
                verdict.as_str().to_owned()
            }
        }
    }

    async fn report(
        &mut self,
        worker: usize,
        second: i64,
        age: i64,
        counted: Counted,
        generation: i64,
    ) -> ReportVerdict {
        let before = self.breaker.generation;
        if self.breaker.state != BreakerState::Open && generation == before {
            let at = self.now - age;
            let place = self.seconds.entry((worker, second)).or_insert(Second {
                at,
                heard_at: self.now,
                counted,
            });
            place.counted = Counted {
                calls: place.counted.calls.max(counted.calls),
                failures: place.counted.failures.max(counted.failures),
                slow: place.counted.slow.max(counted.slow),
            };
        }
        if self.breaker.state == BreakerState::Closed {
            let since = self.now - WINDOW_MS;
            self.seconds.retain(|_, second| second.at > since);
        }
        let mut by_worker: BTreeMap<usize, Counted> = BTreeMap::new();
        for ((of, _), second) in &self.seconds {
            let sum = by_worker.entry(*of).or_default();
            *sum = sum.and(second.counted);
        }
        let heard_at = self.seconds.values().map(|second| second.heard_at).min();
        let heard_for_ms = heard_at.map_or(0, |heard_at| self.now - heard_at);
        let own = by_worker.get(&worker).copied().unwrap_or_default();
        let all: Vec<Counted> = by_worker.into_values().collect();
        let mut expected = self
            .breaker
            .judge(own, &all, heard_for_ms, self.now, &self.terms);
        if expected == ReportVerdict::Stays && generation != before {
            expected = ReportVerdict::Stale;
        }
        if self.breaker.generation != before {
            self.seconds.clear();
        }
        let one = |n: i64| vec![i32::try_from(n).unwrap()];
        let row = sqlx::query(
            "SELECT verdict, for_ms FROM toolfleet.breaker_report_at( \
                 'epoch'::timestamptz + $1 * interval '1 millisecond', $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        )
        .bind(self.now)
        .bind(self.workers[worker])
        .bind(vec![self.tool])
        .bind(vec![self.target.clone()])
        .bind(vec![generation])
        .bind(vec![second])
        .bind(vec![age])
        .bind(one(counted.calls))
        .bind(one(counted.failures))
        .bind(one(counted.slow))
        .fetch_optional(&mut self.connection)
        .await
        .unwrap();
        let said = row.map_or("stays".to_owned(), |row| row.get("verdict"));
        assert_eq!(
            said,
            expected.as_str(),
            "{:?} {:?}",
            self.breaker,
            self.seconds
        );
        expected
    }

    async fn permit(&mut self) -> PermitVerdict {
        let before = self.breaker.generation;
        let expected = self.breaker.permit(self.now, TIMEOUT_MS, &self.terms);
        if self.breaker.generation != before {
            self.seconds.clear();
        }
        let row = sqlx::query(
            "SELECT verdict, generation, left_ms FROM toolfleet.breaker_permit_at( \
                 'epoch'::timestamptz + $1 * interval '1 millisecond', $2, $3, $4)",
        )
        .bind(self.now)
        .bind(self.tool)
        .bind(&self.target)
        .bind(TIMEOUT_MS)
        .fetch_one(&mut self.connection)
        .await
        .unwrap();
        let said = PermitAnswer {
            verdict: row.get::<&str, _>("verdict").parse().unwrap(),
            generation: row.get("generation"),
            left_ms: row.get("left_ms"),
        };
        assert_eq!(said, expected);
        expected.verdict
    }

    async fn give_back(&mut self, generation: i64) -> &'static str {
        let expected = self.breaker.give_back(generation);
        let said: bool = sqlx::query_scalar("SELECT toolfleet.breaker_give_back($1, $2, $3)")
            .bind(self.tool)
            .bind(&self.target)
            .bind(generation)
            .fetch_one(&mut self.connection)
            .await
            .unwrap();
        assert_eq!(said, expected);
        if said { "given_back" } else { "not_out" }
    }

    /// The breaker as the ledger has it; `None`: nobody has asked about it yet.
    async fn stands(&mut self) -> Option<Breaker> {
        let row: Option<Value> = sqlx::query_scalar(
            "SELECT json_build_object('state', state, 'generation', generation, \
                 'open_until', (extract(epoch FROM open_until) * 1000)::bigint, 'open_ms', open_ms, 'probes_out', probes_out, \
                 'probes_ok', probes_ok, 'round_until', (extract(epoch FROM round_until) * 1000)::bigint) \
             FROM toolfleet.breaker_states WHERE tool = $1 AND target = $2",
        )
        .bind(self.tool)
        .bind(&self.target)
        .fetch_optional(&mut self.connection)
        .await
        .unwrap();
        let row = row?;
        let small = |name: &str| i32::try_from(row[name].as_i64().unwrap()).unwrap();
        Some(Breaker {
            state: row["state"].as_str().unwrap().parse().unwrap(),
            generation: row["generation"].as_i64().unwrap(),
            open_until: row["open_until"].as_i64(),
            open_ms: row["open_ms"].as_i64().unwrap(),
            probes_out: small("probes_out"),
            probes_ok: small("probes_ok"),
            round_until: row["round_until"].as_i64(),
        })
    }
}
