//! The counts of a worker's breakers, and their reporter: every count comes to the ledger once, whatever gets lost on the way.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use fleet::{
    breaker::{BreakerTerms, Counted},
    ids::WorkerId,
    store::StoreError,
};
use shuttle::{
    future::{block_on, spawn, yield_now},
    rand::{Rng as _, thread_rng},
};
use tokio_util::sync::CancellationToken;

use crate::{
    check::{finds, holds, saw},
    world::{once_in, time::sleep},
    woven::{
        counts::{BreakerCounts, Circuit},
        reporter,
    },
};

const COUNTERS: usize = 3;
const ATTEMPTS: usize = 4;
/// So few that their counts are told at once.
const TERMS: BreakerTerms = BreakerTerms {
    calls: 3,
    failures: 50,
    slow: None,
    open_ms: 1_000,
    open_max_ms: 1_000,
    probes: 1,
};
const FAILED: Counted = Counted {
    calls: 1,
    failures: 1,
    slow: 0,
};

/// As much of a worker as its reporter uses.
pub(crate) struct WorkerProcess {
    pub(crate) id: WorkerId,
    pub(crate) breakers: BreakerCounts,
    pub(crate) postgres: Postgres,
    pub(crate) registry: Registry,
    pub(crate) bus: Bus,
}

/// What the ledger has heard.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// All that was counted in a second, as it was told last.
    seconds: BTreeMap<i64, Counted>,
    /// Whether it waits for others before it decides.
    is_undecided: bool,
    given_back: usize,
    /// Nothing gets lost any more.
    is_well: bool,
    has_failed: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Postgres(Arc<Mutex<Heard>>);

#[derive(Debug)]
pub(crate) struct PgConnection {
    ledger: Postgres,
    is_broken: bool,
}

impl Postgres {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().expect("nobody yields while holding it")
    }

    fn calls(&self) -> i64 {
        self.heard().seconds.values().map(|one| one.calls).sum()
    }

    fn fails(&self) -> bool {
        let mut heard = self.heard();
        let fails = !heard.is_well && once_in(4);
        heard.has_failed |= fails;
        fails
    }
}

impl PgConnection {
    fn begin(&self) {
        assert!(!self.is_broken, "a broken connection was used again");
    }

    fn ends(&mut self) -> Result<(), StoreError> {
        self.is_broken = self.ledger.fails();
        if self.is_broken {
            let source = io::Error::from(io::ErrorKind::ConnectionReset).into();
            return Err(StoreError::Unavailable {
                doing: "report",
                source,
            });
        }
        Ok(())
    }
}

pub(crate) mod breakers {
    //! The ledger's functions: the most that was told of a second counts.

    use fleet::{
        breaker::ReportVerdict,
        ids::ToolName,
        store::breakers::{CountedSecond, ReportAnswer},
    };

    use super::*;

    pub(crate) async fn connect(postgres: &Postgres) -> Result<PgConnection, StoreError> {
        yield_now().await;
        let mut connection = PgConnection {
            ledger: postgres.clone(),
            is_broken: false,
        };
        connection.ends()?;
        Ok(connection)
    }

    pub(crate) async fn report(
        connection: &mut PgConnection,
        _worker: WorkerId,
        seconds: &[CountedSecond],
    ) -> Result<Vec<ReportAnswer>, StoreError> {
        connection.begin();
        yield_now().await;
        connection.ends()?;
        {
            let mut heard = connection.ledger.heard();
            for second in seconds {
                let told = heard.seconds.entry(second.second).or_default();
                if told.calls > 0 && told.calls < second.counted.calls {
                    saw("a second was told again with more in it");
                }
                told.calls = told.calls.max(second.counted.calls);
            }
        }
        yield_now().await;
        if let Err(silent) = connection.ends() {
            saw("a report was not answered");
            return Err(silent);
        }
        let is_undecided = {
            let mut heard = connection.ledger.heard();
            heard.is_undecided = !heard.is_well && once_in(3);
            heard.is_undecided
        };
        let unsure = seconds.first().filter(|_| is_undecided);
        Ok(unsure
            .map(|one| ReportAnswer {
                tool: one.tool.clone(),
                target: one.target.clone(),
                verdict: ReportVerdict::Unsure,
                local_for: None,
            })
            .into_iter()
            .collect())
    }

    pub(crate) async fn give_back(
        connection: &mut PgConnection,
        _tool: &ToolName,
        _target: &str,
        _generation: i64,
    ) -> Result<bool, StoreError> {
        connection.begin();
        yield_now().await;
        connection.ends()?;
        connection.ledger.heard().given_back += 1;
        yield_now().await;
        connection.ends()?;
        Ok(true)
    }
}

pub(crate) async fn within<T>(
    _doing: &'static str,
    _limit: Duration,
    statement: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    statement.await
}

/// No answer here makes a snapshot stale.
pub(crate) struct Registry;

impl Registry {
    pub(crate) const POLL: Duration = Duration::from_millis(30);

    pub(crate) fn has_breakers(&self) -> bool {
        let has = once_in(3);
        if has {
            saw("a tool with a breaker was there before the first report");
        }
        has
    }

    pub(crate) async fn refresh_breakers(
        &self,
        connection: &mut PgConnection,
    ) -> Result<(), StoreError> {
        connection.begin();
        yield_now().await;
        Ok(())
    }
}

pub(crate) struct Bus {
    pub(crate) subjects: Subjects,
}

pub(crate) struct Subjects;

impl Subjects {
    pub(crate) fn control_changed(&self) -> String {
        "control".to_owned()
    }
}

impl Bus {
    pub(crate) async fn tell(&self, _subject: String, _body: Bytes, _lost: &str) {
        yield_now().await;
    }
}

fn circuit() -> Circuit {
    Circuit {
        tool: "look".parse().unwrap(),
        target: "http://a".to_owned(),
    }
}

/// Counts a few attempts; returns how many permits it gave back.
async fn count(worker: Arc<WorkerProcess>) -> usize {
    let mut given_back = 0;
    for _ in 0..ATTEMPTS {
        worker.breakers.count_one(&circuit(), FAILED, &TERMS);
        if once_in(4) {
            worker.breakers.give_one_back(&circuit());
            given_back += 1;
        }
        if once_in(3) {
            sleep(Duration::from_millis(400)).await;
        }
        for _ in 0..thread_rng().gen_range(0..6) {
            yield_now().await;
        }
    }
    given_back
}

fn reporting() {
    block_on(async {
        let worker = Arc::new(WorkerProcess {
            id: WorkerId::generate(),
            breakers: BreakerCounts::default(),
            postgres: Postgres::default(),
            registry: Registry,
            bus: Bus { subjects: Subjects },
        });
        let ledger = worker.postgres.clone();
        let stop = CancellationToken::new();
        let reporting = spawn(reporter::run(Arc::clone(&worker), stop.clone()));
        let counting: Vec<_> = (0..COUNTERS)
            .map(|_| spawn(count(Arc::clone(&worker))))
            .collect();
        let (mut counted, mut given_back) = (0, 0);
        for one in counting {
            given_back += one.await.unwrap();
            counted += i64::try_from(ATTEMPTS).unwrap();
        }
        ledger.heard().is_well = true;
        let mut patience = 40;
        let is_told = || ledger.calls() == counted && !ledger.heard().is_undecided;
        while !is_told() && patience > 0 {
            sleep(Duration::from_millis(50)).await;
            patience -= 1;
        }
        assert_eq!(ledger.calls(), counted, "not told: counts");
        assert!(!ledger.heard().is_undecided, "not told: what was undecided");
        // These come when it is about to leave.
        worker.breakers.count_one(&circuit(), FAILED, &TERMS);
        worker.breakers.give_one_back(&circuit());
        stop.cancel();
        reporting.await.unwrap();
        assert_eq!(ledger.calls(), counted + 1, "the last counts were not told");
        given_back += 1;
        let heard = ledger.heard();
        assert!(heard.given_back <= given_back, "a permit came back twice");
        if heard.has_failed {
            saw("something got lost");
        } else {
            assert_eq!(heard.given_back, given_back, "a permit did not come back");
            saw("every permit came back");
        }
    });
}

#[test]
fn every_count_comes_to_the_ledger_once() {
    let sights = [
        "a second was told again with more in it",
        "a report was not answered",
        "something got lost",
        "every permit came back",
        "a tool with a breaker was there before the first report",
    ];
    holds("reports of breakers", &sights, reporting);
}

#[test]
fn mistakes_about_reports_are_found() {
    for (mistake, says) in [
        (
            "what came during a report is taken for reported",
            // Which of them depends on whether it was the last count.
            "not told",
        ),
        ("two of one second count as one", "not told: counts"),
        ("silence ends the telling", "not told: "),
        (
            "what was counted before there was a connection is forgotten",
            "not told: ",
        ),
        ("a permit is given back again", "a permit came back twice"),
        (
            "a broken connection is used again",
            "a broken connection was used again",
        ),
        (
            "what is undecided is not told again",
            "not told: what was undecided",
        ),
        ("the end tells nothing", "the last counts were not told"),
    ] {
        finds(mistake, says, reporting);
    }
}
