//! One workload, from its first request to the comparison of its answers with the effects.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use fleet::{bus::connect::Bus, call::Effect};
use futures_util::stream::BoxStream;
use tokio::time::sleep;

use crate::{
    answer::Told,
    effects,
    figures::{self, Latencies},
    ledger::Ledger,
    load::{self, Loaded, Times},
    processes::{Sampler, Watched},
    progress::Progress,
    report::{CURVE, Measured},
    tally::{Tally, Verdict},
    way::{Arrival, GatewayPlace, Way},
    workload::{Mode, Requests, Workload},
};

/// How often to look whether all calls are over: when they nearly are, and at least.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOK_RARELY: Duration = Duration::from_secs(1);
/// More than any fleet ends in a second.
const CALLS_PER_S_MAX: f64 = 40_000.0;
/// How long calls may take to end after the last request.
const OVER_MAX: Duration = Duration::from_secs(900);

/// How long it may take to send calls without callers that wait.
const PARK_MAX: Duration = Duration::from_secs(600);
/// The numbers of workloads that are not measured begin here.
pub(crate) const BESIDE: u32 = 1 << 31;

/// The environment of every workload.
pub(crate) struct Bench<'a> {
    /// Calls of another tenant in the same queue, which run meanwhile.
    pub(crate) backlog: u64,
    /// The processes whose CPU and memory count.
    pub(crate) watched: &'a [Watched],
    /// The folder of the ledger of effects.
    pub(crate) effects: &'a Path,
    pub(crate) bus: &'a Bus,
    /// For what goes over HTTP.
    pub(crate) gateway: Option<&'a GatewayPlace>,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) progress: &'a mut Progress,
    pub(crate) warm_up: Duration,
    pub(crate) seconds: Duration,
}

impl Bench<'_> {
    /// Measures a workload.
    pub(crate) async fn measure(&mut self, workload: &Workload) -> anyhow::Result<Measured> {
        let requests = Requests::new(workload, &self.bus.subjects)?;
        let since = self.ledger.mark().await?;
        let mut tally = Tally::default();
        if self.backlog > 0 {
            // Numbered separately: their effects do not count here.
            let number = workload.number + BESIDE;
            self.park(&workload.beside(number, self.backlog, false))
                .await?;
        }
        let mut measured = match workload.mode {
            Mode::Sync => self.waited_for(workload, &requests, &mut tally).await?,
            Mode::Async | Mode::Batch => self.left_alone(workload, &requests, &mut tally).await?,
        };
        if self.backlog > 0 {
            self.over().await?;
        }
        let unclear = tally.count(Told::Nothing) + tally.count(Told::Open);
        if unclear > 0 {
            self.ledger
                .tell(&mut tally, since, (workload.run, workload.number))
                .await
                .context("read what became of the calls")?;
        }
        self.compare(workload, &tally, &mut measured).await?;
        measured.sizes = self.ledger.sizes().await?;
        Ok(measured)
    }

    /// Sends calls without callers that wait.
    pub(crate) async fn park(&mut self, workload: &Workload) -> anyhow::Result<()> {
        let calls = workload.limit.unwrap_or_default();
        let ticker = self
            .progress
            .timed(&format!("{calls} calls of {}", workload.tenant), PARK_MAX);
        let requests = Requests::new(workload, &self.bus.subjects)?;
        let times = Times::new(Duration::ZERO, PARK_MAX);
        let (mut tally, tell) = (Tally::default(), |calls| ticker.answered(calls));
        load::run(
            self.way(workload),
            workload,
            &requests,
            times,
            &mut tally,
            tell,
        )
        .await?;
        self.progress.end();
        let taken = tally.count(Told::Open);
        if taken < calls {
            bail!(
                "only {taken} of {calls} calls of {} were accepted",
                workload.tenant
            );
        }
        Ok(())
    }

    /// Every caller waits for the result.
    async fn waited_for(
        &mut self,
        workload: &Workload,
        requests: &Requests,
        tally: &mut Tally,
    ) -> anyhow::Result<Measured> {
        let ticker = self
            .progress
            .timed(&workload.name(), self.warm_up + self.seconds);
        let sampler = Sampler::start(self.watched.to_vec(), self.warm_up, Some(self.seconds));
        let times = Times::new(self.warm_up, self.seconds);
        let tell = |calls| ticker.answered(calls);
        let loaded = load::run(self.way(workload), workload, requests, times, tally, tell).await?;
        self.progress.end();
        let mut measured = of(workload, &loaded, self.seconds, loaded.answered);
        measured.used(sampler.finish().await);
        Ok(measured)
    }

    /// Callers wait until their calls are accepted; the time ends when all of them are over.
    async fn left_alone(
        &mut self,
        workload: &Workload,
        requests: &Requests,
        tally: &mut Tally,
    ) -> anyhow::Result<Measured> {
        let name = workload.name();
        if !self.warm_up.is_zero() {
            let ticker = self
                .progress
                .timed(&format!("{name}, warm-up"), self.warm_up);
            let times = Times::new(Duration::ZERO, self.warm_up);
            let tell = |calls| ticker.answered(calls);
            load::run(self.way(workload), workload, requests, times, tally, tell).await?;
            self.over().await?;
        }
        let ticker = self.progress.timed(&name, self.seconds);
        let sampler = Sampler::start(self.watched.to_vec(), Duration::ZERO, None);
        let times = Times::new(Duration::ZERO, self.seconds);
        let tell = |calls| ticker.answered(calls);
        let loaded = load::run(self.way(workload), workload, requests, times, tally, tell).await?;
        self.progress
            .step(&format!("{name}: waiting until all calls are over"));
        self.over().await?;
        let took = times.begin.elapsed();
        let accepted = loaded.sent.saturating_sub(loaded.refused.values().sum());
        let mut measured = of(workload, &loaded, took, accepted);
        measured.accepted_per_s = Some(figures::per_second(loaded.answered, self.seconds));
        measured.used(sampler.finish().await);
        Ok(measured)
    }

    /// Opens the way of a workload.
    fn way(
        &self,
        workload: &Workload,
    ) -> impl AsyncFnOnce(usize) -> anyhow::Result<(Way, BoxStream<'static, Arrival>)> + use<> {
        let client = self.bus.client.clone();
        let gateway = self.gateway.cloned().zip(workload.via.spoken());
        async move |slots| match gateway {
            Some((place, spoken)) => Ok(Way::http(&place, spoken, slots)),
            None => Way::nats(&client).await,
        }
    }

    /// Waits until no call of the bench is open.
    async fn over(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + OVER_MAX;
        loop {
            let open = self.ledger.open_calls().await?;
            if open == 0 {
                return Ok(());
            }
            if Instant::now() > until {
                bail!("{open} calls are not over after {} s", OVER_MAX.as_secs());
            }
            // Counting many calls takes CPU time from what is measured. No fleet ends this many in this time.
            let least = Duration::from_secs_f64(open as f64 / CALLS_PER_S_MAX);
            sleep(least.clamp(LOOK_EVERY, LOOK_RARELY)).await;
        }
    }

    async fn compare(
        &mut self,
        workload: &Workload,
        tally: &Tally,
        measured: &mut Measured,
    ) -> anyhow::Result<()> {
        let happened = if workload.effect == Effect::Transaction {
            self.ledger.effects(workload.run, workload.number).await?
        } else {
            effects::read(self.effects, workload.run, workload.number)
                .context("read the ledger of effects")?
        };
        let question = |number| workload.question(number);
        measured.verdict = tally.compare(workload.effect, &happened, question);
        measured.sent = tally.len();
        measured.runs = happened.len() as u64;
        Ok(())
    }
}

fn of(workload: &Workload, loaded: &Loaded, took: Duration, calls: u64) -> Measured {
    let closed = workload.rate.is_none();
    let latencies: &Latencies = &loaded.latencies;
    Measured {
        name: workload.name(),
        effect: workload.effect.to_string(),
        mode: workload.mode.as_str().to_owned(),
        calls,
        calls_per_s: rounded(figures::per_second(calls, took)),
        floor_calls_per_s: None,
        ratio: None,
        p50_ms: latencies.percentile(50.0),
        p95_ms: latencies.percentile(95.0),
        p99_ms: latencies.percentile(99.0),
        max_ms: latencies.max(),
        verdict: Verdict::default(),
        with: workload.kind.suffix(),
        via: workload.via.as_str(),
        hits: (workload.hits > 0).then_some(workload.hits),
        sent: 0,
        runs: 0,
        memory_mib: Default::default(),
        cpu_s: Default::default(),
        seconds: took.as_secs_f64(),
        accepted_per_s: None,
        refused: loaded.refused.clone(),
        failed: loaded.failed.clone(),
        in_flight: closed.then_some(workload.in_flight),
        rate: workload.rate,
        bytes: workload.bytes,
        result_bytes: workload.result_bytes,
        batch: (workload.mode == Mode::Batch).then_some(workload.batch),
        tools: workload.copies,
        tenants: workload.tenants,
        sizes: Default::default(),
        curve: CURVE
            .iter()
            .filter_map(|percent| latencies.percentile(*percent))
            .collect(),
    }
}

fn rounded(per_second: f64) -> f64 {
    (per_second * 10.0).round() / 10.0
}
