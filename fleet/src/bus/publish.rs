//! Publishes pointers, pipelined: no call waits for the stream's answer, and a missing answer loses nothing.
//!
//! Answers come back on one inbox and are only counted; the subject of each contains when its call was committed. Under load
//! only some publications ask for an answer: a stream that refuses pointers refuses the sample too. A pointer that the stream
//! refused as a duplicate (10077) is a success. Whether that is true of a pointer that has waited long is checked elsewhere
//! ([`super::stranded`]).

use std::{
    error::Error as _,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_nats::{
    Client, Subscriber,
    jetstream::{self, context::PublishError},
};
use bytes::Bytes;
use futures_util::StreamExt;
use serde::Deserialize;

use super::{BusError, connect::Bus};
use crate::{
    ids::{CallId, QueueName},
    telemetry::metrics,
    wire::{pointer::Pointer, subjects::Subjects},
};

/// Publishes pointers.
#[derive(Debug, Clone)]
pub struct Publisher {
    client: Client,
    subjects: Subjects,
    inbox: String,
    /// When an answer was last requested.
    asked: Arc<AtomicU64>,
    /// In how many further looks all pointers may be lost.
    suspect: Arc<AtomicU8>,
}

impl Publisher {
    const SEND_TIMEOUT: Duration = Duration::from_secs(2);
    const ASKED_EVERY: Duration = Duration::from_millis(1);
    /// A look goes beside the statement that commits late, so one alone may pass it by.
    const LATE_LOOKS: u8 = 3;

    /// Makes a publisher, and the future that counts its answers until the client ends. The caller runs that future.
    ///
    /// # Errors
    ///
    /// NATS does not accept the subscription.
    pub async fn new(
        bus: &Bus,
    ) -> Result<(Self, impl Future<Output = ()> + Send + use<>), BusError> {
        let inbox = bus.client.new_inbox();
        let doing = "subscribe to publication answers";
        let answers = bus
            .client
            .subscribe(format!("{inbox}.*"))
            .await
            .map_err(|e| BusError::unavailable(doing, e))?;
        let publisher = Self {
            client: bus.client.clone(),
            subjects: bus.subjects.clone(),
            inbox,
            asked: Arc::default(),
            suspect: Arc::default(),
        };
        let counting = count_answers(answers, Arc::clone(&publisher.suspect));
        Ok((publisher, counting))
    }

    /// Remembers that pointers may have been lost.
    pub fn suspect(&self) {
        self.suspect.fetch_max(1, Ordering::Relaxed);
    }

    /// Remembers that a call may still be committed which nobody will publish then: Postgres has not said whether it stored it. By its
    /// moment of acceptance it is as old then as the statement, so no look that goes by the age of calls would find it.
    pub fn suspect_late(&self) {
        self.suspect.fetch_max(Self::LATE_LOOKS, Ordering::Relaxed);
    }

    /// Whether pointers may have been lost; asked once in each look.
    pub fn take_suspicion(&self) -> bool {
        let one_less = |looks: u8| looks.checked_sub(1);
        let taken = self
            .suspect
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        taken.is_ok()
    }

    /// Gives one pointer to the connection. False when it could not: the sweep publishes it later.
    ///
    /// Cancel-safe.
    pub async fn publish(&self, queue: &QueueName, n: i32, pointer: &Pointer) -> bool {
        let subject = self.subjects.job(queue, pointer.call_id, n);
        let body = Bytes::from(pointer.to_bytes());
        let reply = self.asks_now().map(|now| format!("{}.{now}", self.inbox));
        let sending = async {
            match reply {
                Some(reply) => self.client.publish_with_reply(subject, reply, body).await,
                None => self.client.publish(subject, body).await,
            }
        };
        // While its connection is down, the client queues a bounded number of messages and then blocks for ever.
        let sending = tokio::time::timeout(Self::SEND_TIMEOUT, sending).await;
        let sent = matches!(sending, Ok(Ok(())));
        if !sent {
            self.suspect();
            tracing::debug!("pointer was not sent; the sweep will publish it");
        }
        sent
    }
}

impl Publisher {
    /// The time, if this publication asks for an answer: one does in [`Self::ASKED_EVERY`].
    fn asks_now(&self) -> Option<u64> {
        let (now, last) = (unix_micros(), self.asked.load(Ordering::Relaxed));
        // A clock that was set back asks again too.
        let asks = now.abs_diff(last) >= Self::ASKED_EVERY.as_micros() as u64;
        if asks {
            self.asked.store(now, Ordering::Relaxed);
        }
        asks.then_some(now)
    }
}

/// A pointer, by its subject.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Numbered {
    /// The queue, whose consumer gets it.
    pub queue: QueueName,
    /// The call.
    pub call: CallId,
    /// Its publication number.
    pub n: i32,
}

impl Numbered {
    pub(super) fn subject(&self, bus: &Bus) -> String {
        bus.subjects.job(&self.queue, self.call, self.n)
    }
}

/// The stream's answers to pointers that were published one by one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Published {
    /// How many it stored.
    pub taken: usize,
    /// Those that it says it had already.
    pub there: Vec<Numbered>,
}

/// Publishes pointers and waits for the stream's answer to each, with a window of them under way at a time.
///
/// # Errors
///
/// The stream does not answer, or refuses one. Those before it are published; publishing them again is safe.
pub async fn publish_all(
    bus: &Bus,
    pointers: impl IntoIterator<Item = (QueueName, i32, Pointer)>,
) -> Result<Published, BusError> {
    let doing = "publish pointers";
    let jetstream = jetstream::new(bus.client.clone());
    let publishing = pointers.into_iter().map(|(queue, n, pointer)| {
        let call = pointer.call_id;
        let numbered = Numbered { queue, call, n };
        let subject = numbered.subject(bus);
        let jetstream = &jetstream;
        async move {
            let publishing = jetstream.publish(subject, pointer.to_bytes().into()).await;
            let answer = async { publishing?.await }.await;
            (numbered, answer)
        }
    });
    let mut publishing = futures_util::stream::iter(publishing).buffer_unordered(WINDOW);
    let mut published = Published::default();
    while let Some((numbered, answer)) = publishing.next().await {
        match answer {
            Ok(_taken) => published.taken += 1,
            Err(refused) if is_there(&refused) => published.there.push(numbered),
            Err(error) => return Err(BusError::unavailable(doing, error)),
        }
    }
    Ok(published)
}

/// Far below 5,000, where the client itself begins to wait for answers that no task reads.
const WINDOW: usize = 256;

fn is_there(refused: &PublishError) -> bool {
    let source = refused.source().and_then(|source| source.downcast_ref());
    source.is_some_and(|answer: &jetstream::Error| answer.error_code().0 == PER_SUBJECT_LIMIT)
}

#[derive(Deserialize)]
struct Answer {
    error: Option<AnswerError>,
}

#[derive(Deserialize)]
struct AnswerError {
    err_code: u64,
    description: String,
}

/// The stream holds this subject already.
const PER_SUBJECT_LIMIT: u64 = 10077;

async fn count_answers(mut answers: Subscriber, suspect: Arc<AtomicU8>) {
    while let Some(message) = answers.next().await {
        let sent = message
            .subject
            .rsplit('.')
            .next()
            .and_then(|micros| micros.parse::<u64>().ok());
        let lag = Duration::from_micros(unix_micros().saturating_sub(sent.unwrap_or(u64::MAX)));
        match serde_json::from_slice::<Answer>(&message.payload) {
            Ok(Answer { error: None }) => {
                metrics().published(lag);
            }
            Ok(Answer { error: Some(error) }) if error.err_code == PER_SUBJECT_LIMIT => {
                metrics().published(lag);
            }
            Ok(Answer { error: Some(error) }) => {
                suspect.fetch_max(1, Ordering::Relaxed);
                tracing::warn!(
                    code = error.err_code,
                    reason = error.description,
                    "stream refused a pointer"
                );
            }
            // No stream answers: "no responders" has a status and no body.
            Err(_not_an_answer) => {
                suspect.fetch_max(1, Ordering::Relaxed);
                tracing::debug!("no stream took a pointer; the sweep will publish it");
            }
        }
    }
}

/// The process's clock, for measuring a lag within one process. Stored times are Postgres's.
#[expect(
    clippy::disallowed_methods,
    reason = "measures a lag within one process, decides nothing"
)]
fn unix_micros() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
