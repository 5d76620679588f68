//! What this worker has counted of its breakers, and not yet reported.
//!
//! By second of the worker's own clock, each with all that was counted in it: a report that is repeated counts once.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use fleet::{
    breaker::{BreakerTerms, Counted},
    ids::ToolName,
    store::breakers::{CountedSecond, REPORT_MAX},
    telemetry::metrics,
};
use tokio::{sync::Notify, time::Instant};

/// How long a refused permit is not asked for again, at most: another process may have given one back.
const REFUSED_FOR: Duration = Duration::from_millis(250);

/// A tool and a target of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Circuit {
    pub(crate) tool: ToolName,
    pub(crate) target: String,
}

/// The counts of one worker. Shared by the attempts and the reporter.
#[derive(Debug)]
pub(crate) struct BreakerCounts {
    /// The worker's clock of seconds begins here.
    began: Instant,
    circuits: Mutex<HashMap<Circuit, OwnCounts>>,
    /// Permits to be given back; not more than there are attempts.
    unused: Mutex<Vec<(Circuit, i64)>>,
    /// There is something to report.
    something: Notify,
    /// It should be reported now.
    urgent: Notify,
}

/// What was counted of one breaker.
#[derive(Debug)]
struct OwnCounts {
    generation: i64,
    seconds: VecDeque<Second>,
    window: Duration,
    /// Whether it was reported at once already: what the ledger leaves undecided is told again at the usual pace.
    has_hurried: bool,
    /// Until when this worker leaves such calls to others, for it alone fails.
    bad_until: Option<Instant>,
    /// Until when no permit is asked for.
    refused_until: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Second {
    second: u64,
    counted: Counted,
    reported: Counted,
}

impl OwnCounts {
    fn new(generation: i64) -> Self {
        Self {
            generation,
            seconds: VecDeque::new(),
            window: Duration::ZERO,
            has_hurried: false,
            bad_until: None,
            refused_until: None,
        }
    }

    fn begin(&mut self, generation: i64) {
        if generation > self.generation {
            *self = Self::new(generation);
        }
    }

    /// What no report has yet, added up.
    fn unsent(&self) -> Counted {
        let seconds = self.seconds.iter();
        let unsent = seconds.map(|one| Counted {
            calls: one.counted.calls - one.reported.calls,
            failures: one.counted.failures - one.reported.failures,
            slow: one.counted.slow - one.reported.slow,
        });
        unsent.fold(Counted::default(), Counted::and)
    }

    /// Forgets what is too old to count, and, except for the present second, what is reported.
    fn forget(&mut self, second: u64) {
        let oldest = second.saturating_sub(self.window.as_secs().saturating_add(1));
        self.seconds.retain(|one| {
            one.second >= oldest && (one.second == second || one.counted != one.reported)
        });
    }

    fn is_idle(&self, now: Instant) -> bool {
        let is_over = |until: Option<Instant>| until.is_none_or(|until| until <= now);
        self.seconds.is_empty() && is_over(self.bad_until) && is_over(self.refused_until)
    }
}

impl Default for BreakerCounts {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            circuits: Mutex::default(),
            unused: Mutex::default(),
            something: Notify::new(),
            urgent: Notify::new(),
        }
    }
}

impl BreakerCounts {
    /// Counts an attempt, or as many as `one` says.
    pub(super) fn count(
        &self,
        circuit: &Circuit,
        generation: i64,
        window: Duration,
        one: Counted,
        terms: &BreakerTerms,
    ) {
        if self.add(circuit, generation, window, one, terms) {
            self.hurry();
        }
        self.something.notify_one();
    }

    /// What there is should be reported at once.
    pub(super) fn hurry(&self) {
        self.urgent.notify_one();
    }

    /// Adds one attempt. Whether what is not reported would open the breaker by itself, for the first time since a report.
    fn add(
        &self,
        circuit: &Circuit,
        generation: i64,
        window: Duration,
        one: Counted,
        terms: &BreakerTerms,
    ) -> bool {
        let second = self.second();
        let mut circuits = self.circuits();
        let own = match circuits.get_mut(circuit) {
            Some(own) => own,
            None => {
                metrics().breaker_is_watched(&circuit.tool);
                circuits
                    .entry(circuit.clone())
                    .or_insert_with(|| OwnCounts::new(generation))
            }
        };
        own.begin(generation);
        if own.generation != generation {
            return false;
        }
        own.window = window;
        own.forget(second);
        match own.seconds.back_mut().filter(|last| last.second == second) {
            Some(last) => last.counted = last.counted.and(one),
            None => own.seconds.push_back(Second {
                second,
                counted: one,
                reported: Counted::default(),
            }),
        }
        let hurries = !own.has_hurried && own.unsent().is_over(terms);
        own.has_hurried |= hurries;
        hurries
    }

    /// Takes a permit to be given back.
    pub(super) fn give_back(&self, circuit: Circuit, generation: i64) {
        self.unused
            .lock()
            .expect("no thread panics while holding the permits")
            .push((circuit, generation));
        self.hurry();
        self.something.notify_one();
    }

    /// The permits to be given back.
    pub(super) fn take_unused(&self) -> Vec<(Circuit, i64)> {
        let mut unused = self
            .unused
            .lock()
            .expect("no thread panics while holding the permits");
        std::mem::take(&mut *unused)
    }

    /// What is to be reported now, at most [`REPORT_MAX`] seconds.
    pub(super) fn unreported(&self) -> Vec<CountedSecond> {
        let (present, elapsed) = (self.second(), self.began.elapsed());
        let mut circuits = self.circuits();
        for own in circuits.values_mut() {
            own.forget(present);
        }
        let all = circuits.iter().flat_map(|(circuit, own)| {
            let seconds = own.seconds.iter();
            let new = seconds.filter(|one| one.counted != one.reported);
            new.map(move |one| CountedSecond {
                tool: circuit.tool.clone(),
                target: circuit.target.clone(),
                generation: own.generation,
                second: i64::try_from(one.second).unwrap_or(i64::MAX),
                age: elapsed.saturating_sub(Duration::from_secs(one.second)),
                counted: one.counted,
            })
        });
        all.take(REPORT_MAX).collect()
    }

    /// These are in the ledger.
    pub(super) fn reported(&self, seconds: &[CountedSecond]) {
        let (present, now) = (self.second(), Instant::now());
        let mut circuits = self.circuits();
        for sent in seconds {
            let circuit = Circuit {
                tool: sent.tool.clone(),
                target: sent.target.clone(),
            };
            let own = circuits.get_mut(&circuit);
            let Some(own) = own.filter(|own| own.generation == sent.generation) else {
                continue;
            };
            let is_it = |one: &&mut Second| i64::try_from(one.second) == Ok(sent.second);
            if let Some(one) = own.seconds.iter_mut().find(is_it) {
                one.reported = sent.counted;
            }
            own.has_hurried = false;
            own.forget(present);
        }
        circuits.retain(|_, own| !own.is_idle(now));
    }

    /// This worker alone fails: it leaves such calls to others for so long.
    pub(super) fn is_bad_for(&self, circuit: &Circuit, time: Duration) {
        if let Some(own) = self.circuits().get_mut(circuit) {
            own.bad_until = Some(Instant::now() + time);
        }
    }

    /// Whether this worker leaves such calls to others now.
    pub(super) fn is_bad_here(&self, circuit: &Circuit, generation: i64, now: Instant) -> bool {
        let circuits = self.circuits();
        let own = circuits.get(circuit);
        let own = own.filter(|own| own.generation == generation);
        own.is_some_and(|own| own.bad_until.is_some_and(|until| until > now))
    }

    /// The ledger has refused a permit: it is not asked again for a moment.
    pub(super) fn refused(&self, circuit: &Circuit, until: Option<Instant>) {
        let soon = Instant::now() + REFUSED_FOR;
        let until = until.map_or(soon, |until| until.min(soon));
        let mut circuits = self.circuits();
        let own = circuits
            .entry(circuit.clone())
            .or_insert_with(|| OwnCounts::new(0));
        own.refused_until = Some(until);
    }

    /// Until when the ledger is not asked for a permit.
    pub(super) fn refused_until(&self, circuit: &Circuit, now: Instant) -> Option<Instant> {
        let circuits = self.circuits();
        let until = circuits.get(circuit)?.refused_until?;
        (until > now).then_some(until)
    }

    /// There is still something to report.
    pub(super) fn again(&self) {
        self.something.notify_one();
    }

    /// Waits until there is something to report. Cancel-safe.
    pub(super) async fn something(&self) {
        self.something.notified().await;
    }

    /// Waits until something should be reported at once. Cancel-safe.
    pub(super) async fn urgent(&self) {
        self.urgent.notified().await;
    }

    fn second(&self) -> u64 {
        self.began.elapsed().as_secs()
    }

    fn circuits(&self) -> MutexGuard<'_, HashMap<Circuit, OwnCounts>> {
        self.circuits
            .lock()
            .expect("no thread panics while holding the counts")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: BreakerTerms = BreakerTerms {
        calls: 3,
        failures: 50,
        slow: None,
        open_ms: 1_000,
        open_max_ms: 1_000,
        probes: 1,
    };
    const WINDOW: Duration = Duration::from_secs(10);
    const FAILED: Counted = Counted {
        calls: 1,
        failures: 1,
        slow: 0,
    };

    fn circuit() -> Circuit {
        Circuit {
            tool: "look".parse().unwrap(),
            target: "http://a".to_owned(),
        }
    }

    fn add(counts: &BreakerCounts, generation: i64) -> bool {
        counts.add(&circuit(), generation, WINDOW, FAILED, &TERMS)
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_is_reported_with_all_that_was_counted_in_it() {
        let counts = BreakerCounts::default();
        assert!(!add(&counts, 0));
        let first = counts.unreported();
        assert_eq!(first[0].counted, FAILED);
        // One more comes while the report is on its way.
        assert!(!add(&counts, 0));
        counts.reported(&first);
        let second = counts.unreported();
        assert_eq!((second.len(), second[0].counted), (1, FAILED.and(FAILED)));
        counts.reported(&second);
        assert!(counts.unreported().is_empty());
        // What is reported opens nothing by itself.
        assert!(!add(&counts, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_ledger_did_not_hear_is_told_later_unless_it_is_too_old() {
        let counts = BreakerCounts::default();
        add(&counts, 0);
        tokio::time::advance(Duration::from_secs(8)).await;
        add(&counts, 0);
        let ages: Vec<_> = counts.unreported().iter().map(|one| one.age).collect();
        assert_eq!(ages, [Duration::from_secs(8), Duration::ZERO]);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(counts.unreported().len(), 1);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(counts.unreported().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn enough_for_opening_is_told_at_once_and_older_generations_are_forgotten() {
        let counts = BreakerCounts::default();
        assert!(!add(&counts, 3) && !add(&counts, 3));
        assert!(add(&counts, 3));
        assert!(!add(&counts, 4));
        assert!(!add(&counts, 3));
        let told = counts.unreported();
        assert_eq!((told.len(), told[0].generation), (1, 4));
        assert_eq!(told[0].counted, FAILED);
    }

    #[tokio::test(start_paused = true)]
    async fn a_bad_worker_tries_again_after_its_time_or_in_the_next_generation() {
        let counts = BreakerCounts::default();
        add(&counts, 0);
        counts.is_bad_for(&circuit(), Duration::from_secs(5));
        let bad = |generation| counts.is_bad_here(&circuit(), generation, Instant::now());
        assert!(bad(0) && !bad(1));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(!bad(0));
        counts.refused(&circuit(), None);
        assert!(counts.refused_until(&circuit(), Instant::now()).is_some());
        tokio::time::advance(REFUSED_FOR).await;
        assert_eq!(counts.refused_until(&circuit(), Instant::now()), None);
    }
}
