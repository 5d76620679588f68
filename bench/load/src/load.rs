//! The load: one task that sends requests and reads answers.
//!
//! In a closed loop the next request is sent when one is answered. In an open loop each request has its time, whatever happens
//! to earlier ones, and its latency counts from that time. So a fleet that stalls is charged for every request that had to
//! wait, not only for those that were under way.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    time::{Duration, Instant},
};

use anyhow::Context;
use futures_util::{
    StreamExt,
    stream::{BoxStream, ReadyChunks},
};
use tokio::time::sleep_until;

use crate::{
    answer::{Answer, Told},
    figures::{Counts, Latencies, count},
    tally::Tally,
    way::{Arrival, Back, Way},
    workload::{Mode, Requests, Workload},
};

/// How long an answer may take: a caller's wait of 30 s, and a little.
const ANSWER_MAX: Duration = Duration::from_secs(40);
/// The most requests in the air in an open loop; beyond that the bench itself refuses, and reports it.
const AIR_MAX: usize = 50_000;
/// The most answers that are read at once.
const CHUNK: usize = 256;
/// How long a caller waits after a refusal that does not say, and the most that it waits.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The results of one slice of load.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// From the intended start of a request to its answer, for requests that were to start in the measured time.
    pub(crate) latencies: Latencies,
    /// Calls that were answered well within the measured time.
    pub(crate) answered: u64,
    /// Calls that were sent in the measured time.
    pub(crate) sent: u64,
    pub(crate) refused: Counts,
    pub(crate) failed: Counts,
}

/// When a slice of load begins, is measured, and sends nothing more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) begin: Instant,
    pub(crate) measure: Instant,
    pub(crate) end: Instant,
}

impl Times {
    /// From now on.
    pub(crate) fn new(warm_up: Duration, measured: Duration) -> Self {
        let begin = Instant::now();
        let measure = begin + warm_up;
        Self {
            begin,
            measure,
            end: measure + measured,
        }
    }

    fn measures(&self, at: Instant) -> bool {
        (self.measure..self.end).contains(&at)
    }
}

/// One request in the air.
#[derive(Debug, Clone, Copy)]
struct Sent {
    number: u64,
    intended: Instant,
}

struct Load<'a> {
    way: Way,
    workload: &'a Workload,
    requests: &'a Requests,
    times: Times,
    tally: &'a mut Tally,
    air: Vec<Option<Sent>>,
    free: Vec<usize>,
    /// Callers that wait before they call again.
    pausing: BinaryHeap<Reverse<(Instant, usize)>>,
    /// The next intended start of an open loop.
    due: Instant,
    started: u64,
    loaded: Loaded,
}

/// Sends until the time is over, then waits for what is in the air. `open` opens the way for so many requests at a time; `tell`
/// gets the number of answered calls so far.
pub(crate) async fn run(
    open: impl AsyncFnOnce(usize) -> anyhow::Result<(Way, BoxStream<'static, Arrival>)>,
    workload: &Workload,
    requests: &Requests,
    times: Times,
    tally: &mut Tally,
    tell: impl Fn(u64),
) -> anyhow::Result<Loaded> {
    let slots = match workload.rate {
        Some(_open) => AIR_MAX,
        None => workload.in_flight.div_ceil(workload.calls_per_request()),
    };
    let (way, answers) = open(slots).await?;
    let mut load = Load {
        way,
        workload,
        requests,
        times,
        tally,
        air: vec![None; slots],
        free: (0..slots).rev().collect(),
        pausing: BinaryHeap::new(),
        due: times.begin,
        started: 0,
        loaded: Loaded::default(),
    };
    load.drive(answers.ready_chunks(CHUNK), tell).await?;
    Ok(load.loaded)
}

impl Load<'_> {
    async fn drive(
        &mut self,
        mut answers: ReadyChunks<BoxStream<'static, Arrival>>,
        tell: impl Fn(u64),
    ) -> anyhow::Result<()> {
        let mut answered = 0;
        loop {
            let now = Instant::now();
            let sends = now < self.times.end && !self.is_enough();
            if sends {
                self.start(now).await?;
            } else if self.free.len() + self.pausing.len() == self.air.len() {
                return Ok(());
            }
            let wake = self.wake(now);
            let chunk = tokio::select! {
                biased;
                chunk = answers.next() => chunk.context("the connection was closed")?,
                () = sleep_until(wake.into()) => {
                    if wake >= self.times.end + ANSWER_MAX {
                        self.give_up();
                        return Ok(());
                    }
                    Vec::new()
                }
            };
            let now = Instant::now();
            for arrival in chunk {
                answered += self.take(arrival, now);
            }
            tell(answered);
            // The connection sends what it was given before more is read.
            tokio::task::yield_now().await;
        }
    }

    /// Whether all requested calls were accepted.
    fn is_enough(&self) -> bool {
        let refused: u64 = self.loaded.refused.values().sum();
        let limit = self.workload.limit;
        limit.is_some_and(|limit| self.tally.len().saturating_sub(refused) >= limit)
    }

    /// Sends what may be sent now.
    async fn start(&mut self, now: Instant) -> anyhow::Result<()> {
        match self.workload.rate {
            None => {
                while let Some(Reverse((at, slot))) = self.pausing.peek().copied() {
                    if at > now {
                        break;
                    }
                    self.pausing.pop();
                    self.free.push(slot);
                }
                while !self.is_enough()
                    && let Some(slot) = self.free.pop()
                {
                    self.send(slot, Instant::now()).await?;
                }
            }
            Some(rate) => {
                while self.due <= now {
                    let intended = self.due;
                    self.started += 1;
                    self.due = self.times.begin + nth(self.started, rate, self.workload);
                    match self.free.pop() {
                        Some(slot) => self.send(slot, intended).await?,
                        None => {
                            let calls = self.workload.calls_per_request() as u64;
                            count(&mut self.loaded.refused, "too_many_in_the_air", calls);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    async fn send(&mut self, slot: usize, intended: Instant) -> anyhow::Result<()> {
        let calls = self.workload.calls_per_request();
        let number = self.tally.sent(calls);
        if self.times.measures(intended) {
            self.loaded.sent += calls as u64;
        }
        let request = self.requests.make(number);
        self.air[slot] = Some(Sent { number, intended });
        self.way.send(slot, number, request).await
    }

    /// When to look again if no answer comes.
    fn wake(&self, now: Instant) -> Instant {
        if now >= self.times.end {
            return self.times.end + ANSWER_MAX;
        }
        let next = match (self.workload.rate, self.pausing.peek()) {
            (Some(_open), _) => self.due,
            (None, Some(Reverse((at, _)))) => *at,
            (None, None) => self.times.end,
        };
        next.min(self.times.end)
    }

    /// Takes an answer; returns for how many calls it was.
    fn take(&mut self, arrival: Arrival, now: Instant) -> u64 {
        let Some(sent) = self.sent(&arrival) else {
            return 0;
        };
        let slot = arrival.slot;
        self.air[slot] = None;
        let calls = self.workload.calls_per_request();
        let mut pause = None;
        let mut note = |load: &mut Self, place: usize, answer: Answer| {
            load.tally.told(sent.number + place as u64, answer.told);
            if answer.told == Told::Refused {
                pause = pause.max(Some(
                    answer.retry_after_ms.map_or(PAUSE, Duration::from_millis),
                ));
            }
            load.note(answer, now);
        };
        match &arrival.answer {
            Back::Answer(body) if self.workload.mode == Mode::Batch => {
                let answers = Answer::of_batch(body, calls);
                for (place, answer) in answers.into_iter().enumerate() {
                    note(self, place, answer);
                }
            }
            Back::Answer(body) => note(self, 0, Answer::of(body)),
            Back::NobodyThere => {
                for place in 0..calls {
                    note(self, place, Answer::no_dispatcher());
                }
            }
            Back::Broken => {
                for place in 0..calls {
                    note(self, place, Answer::broken());
                }
            }
        }
        if self.times.measures(sent.intended) && pause.is_none() {
            self.loaded.latencies.record(now - sent.intended);
        }
        match (pause, self.workload.rate) {
            (Some(pause), None) => {
                self.pausing
                    .push(Reverse((now + pause.min(PAUSE_MAX), slot)));
            }
            _ => self.free.push(slot),
        }
        calls as u64
    }

    /// The request of an answer; `None` if it was answered before.
    fn sent(&self, arrival: &Arrival) -> Option<Sent> {
        let sent = (*self.air.get(arrival.slot)?)?;
        (sent.number == arrival.number).then_some(sent)
    }

    fn note(&mut self, answer: Answer, now: Instant) {
        let measured = self.times.measures(now);
        let expects = match self.workload.mode {
            Mode::Sync => Told::Succeeded,
            Mode::Async | Mode::Batch => Told::Open,
        };
        match answer.told {
            told if told == expects || told == Told::Succeeded => {
                self.loaded.answered += u64::from(measured);
            }
            Told::Refused => {
                let code = answer.code.unwrap_or_default();
                count(&mut self.loaded.refused, &code, 1);
            }
            Told::Nothing | Told::Failed | Told::Open | Told::Succeeded => {
                // A tool's no is an answer like any other: the fleet did all of its work.
                let code = answer.code.unwrap_or_else(|| "not_over_in_time".to_owned());
                self.loaded.answered += u64::from(measured && answer.told == Told::Failed);
                count(&mut self.loaded.failed, &code, 1);
            }
        }
    }

    fn give_up(&mut self) {
        let calls = self.workload.calls_per_request() as u64;
        let silent = self.air.iter().flatten().count() as u64 * calls;
        count(&mut self.loaded.failed, "no_answer", silent);
    }
}

/// When the request with this number is to start, from the beginning.
fn nth(number: u64, rate: u32, workload: &Workload) -> Duration {
    let calls = u128::from(number) * workload.calls_per_request() as u128;
    let nanos = calls * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use fleet::call::Effect;

    use super::*;
    use crate::workload::sample as workload;

    #[test]
    fn an_open_loop_does_not_drift() {
        let single = workload(Effect::Read, Mode::Sync);
        assert_eq!(nth(15_000, 5_000, &single), Duration::from_secs(3));
        assert_eq!(nth(1, 3, &single), Duration::from_nanos(333_333_333));
        assert_eq!(
            nth(3_000_000_000, 3, &single),
            Duration::from_secs(1_000_000_000)
        );
        let batch = workload(Effect::Read, Mode::Batch);
        assert_eq!(nth(5, 15, &batch), Duration::from_secs(1));
    }

    #[test]
    fn only_the_time_after_the_warm_up_is_measured() {
        let times = Times::new(Duration::from_secs(1), Duration::from_secs(2));
        let at = |millis| times.begin + Duration::from_millis(millis);
        assert!(!times.measures(at(999)) && !times.measures(at(3_000)));
        assert!(times.measures(at(1_000)) && times.measures(at(2_999)));
    }
}
