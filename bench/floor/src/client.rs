//! The callers: each asks, waits for its answer, and asks again. One task plays all of them.

use std::time::Duration;

use anyhow::{Context, ensure};
use async_nats::{Client, Message, Subject, Subscriber};
use bytes::Bytes;
use hdrhistogram::Histogram;
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::{batch, bus};

/// How long answers may still come after the measurement.
const LATE_MAX: Duration = Duration::from_secs(10);

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Load {
    /// Callers.
    pub in_flight: usize,
    /// Bytes of a call's arguments.
    pub bytes: usize,
    /// The time before the measurement.
    pub warm_up: Duration,
    /// The time that is measured.
    pub measured: Duration,
}

/// What was measured.
#[derive(Debug)]
pub struct Measured {
    /// Microseconds from question to answer.
    pub latencies: Histogram<u64>,
    /// The CPU time of this process meanwhile.
    pub cpu: Duration,
    /// Calls without an answer, those of the warm-up included.
    pub lost: usize,
}

/// The callers and their connection.
#[derive(Debug)]
pub struct Callers {
    client: Client,
    answers: Subscriber,
    calls: Subject,
    args: String,
    /// When each of them asked.
    asked: Vec<Instant>,
    /// The inbox of each of them.
    inboxes: Vec<Subject>,
}

#[derive(Deserialize)]
struct Answer<'a> {
    state: &'a str,
}

impl Callers {
    /// Opens one inbox for all of them.
    ///
    /// # Errors
    ///
    /// NATS does not take the subscription.
    pub async fn new(client: Client, load: &Load) -> anyhow::Result<Self> {
        let inbox = client.new_inbox();
        let answers = client.subscribe(format!("{inbox}.*")).await?;
        let inboxes = 0..load.in_flight;
        Ok(Self {
            client,
            answers,
            calls: Subject::from_static(bus::CALLS),
            args: arguments(load.bytes),
            asked: vec![Instant::now(); load.in_flight],
            inboxes: inboxes.map(|n| format!("{inbox}.{n}").into()).collect(),
        })
    }

    /// Asks until the time is over, and waits for the last answers.
    ///
    /// # Errors
    ///
    /// NATS fails, or an answer is not a success.
    pub async fn run(mut self, load: &Load) -> anyhow::Result<Measured> {
        let mut latencies = Histogram::new_with_bounds(1, 600_000_000, 3)?;
        let from = Instant::now() + load.warm_up;
        let until = from + load.measured;
        let (mut cpu_from, mut cpu_until) = (None, None);
        for caller in 0..load.in_flight {
            self.ask(caller).await?;
        }
        let mut unanswered = load.in_flight;
        while unanswered > 0 {
            let waiting = timeout_at(until + LATE_MAX, batch::next(&mut self.answers));
            let Ok(answers) = waiting.await else { break };
            let answers = answers.context("the subscription to answers ended")?;
            let now = Instant::now();
            if now >= from && cpu_from.is_none() {
                cpu_from = Some(cpu_so_far()?);
            }
            if now >= until && cpu_until.is_none() {
                cpu_until = Some(cpu_so_far()?);
            }
            for answer in answers {
                let caller = self.read(&answer)?;
                if now >= from && now < until {
                    let waited = now.duration_since(self.asked[caller]).as_micros();
                    latencies.saturating_record(u64::try_from(waited).unwrap_or(u64::MAX));
                }
                if now < until {
                    self.ask(caller).await?;
                } else {
                    unanswered -= 1;
                }
            }
        }
        let cpu = cpu_until
            .unwrap_or_default()
            .saturating_sub(cpu_from.unwrap_or_default());
        Ok(Measured {
            latencies,
            cpu,
            lost: unanswered,
        })
    }

    async fn ask(&mut self, caller: usize) -> anyhow::Result<()> {
        let key = Uuid::new_v4();
        let args = &self.args;
        let question =
            format!(r#"{{"tenant":"default","tool":"noop","key":"{key}","args":{args}}}"#);
        let inbox = self.inboxes[caller].clone();
        self.asked[caller] = Instant::now();
        let asking =
            self.client
                .publish_with_reply(self.calls.clone(), inbox, Bytes::from(question));
        asking.await.context("send a call")
    }

    /// The caller of this answer.
    fn read(&self, answer: &Message) -> anyhow::Result<usize> {
        ensure!(answer.status.is_none(), "no dispatcher takes calls");
        let read: Answer<'_> = serde_json::from_slice(&answer.payload).context("read an answer")?;
        ensure!(read.state == "succeeded", "a call ended as {}", read.state);
        let caller = answer
            .subject
            .rsplit('.')
            .next()
            .and_then(|n| n.parse().ok());
        let caller = caller.filter(|caller| *caller < self.asked.len());
        caller.context("an answer belongs to no caller")
    }
}

/// An object of about as many bytes of JSON.
pub fn arguments(bytes: usize) -> String {
    let frame = r#"{"text":""}"#.len();
    format!(
        r#"{{"text":"{}"}}"#,
        "x".repeat(bytes.saturating_sub(frame))
    )
}

/// The CPU time of this process so far.
fn cpu_so_far() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).context("ask for this process's time")?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(u64::try_from(micros)?))
}
