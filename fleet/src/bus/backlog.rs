//! How many messages of a queue the stream holds: those that wait, and those that workers have and have not acknowledged.

use async_nats::jetstream::{self, context::ConsumerInfoErrorKind, stream::Stream};

use super::{BusError, connect::Bus};
use crate::{ids::QueueName, wire::subjects::Subjects};

/// What one look at a queue's consumer saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backlog {
    /// Messages that wait for a worker.
    pub waiting: u64,
    /// Messages that a worker has and has not acknowledged.
    pub unanswered: u64,
    /// Messages delivered so far, redeliveries included.
    pub delivered: u64,
    /// The stream sequence up to which everything was acknowledged.
    pub floor: u64,
}

impl Backlog {
    /// Whether the stream holds nothing of the queue.
    pub const fn is_empty(self) -> bool {
        self.waiting == 0 && self.unanswered == 0
    }
}

/// Asks for a queue's backlog; `None` while its stream or consumer is missing.
///
/// # Errors
///
/// NATS does not answer, or does not allow it.
pub async fn look(bus: &Bus, queue: &QueueName) -> Result<Option<Backlog>, BusError> {
    let doing = "look what the stream holds";
    let stream = stream(bus, doing).await?;
    match stream.consumer_info(Subjects::jobs_consumer(queue)).await {
        Ok(info) => Ok(Some(Backlog {
            waiting: info.num_pending,
            unanswered: u64::try_from(info.num_ack_pending).unwrap_or(u64::MAX),
            delivered: info.delivered.consumer_sequence,
            floor: info.ack_floor.stream_sequence,
        })),
        Err(error) => match error.kind() {
            ConsumerInfoErrorKind::NotFound | ConsumerInfoErrorKind::StreamNotFound => Ok(None),
            _ => Err(BusError::unavailable(doing, error)),
        },
    }
}

/// The stream of pointers, without asking for it.
pub(super) async fn stream(bus: &Bus, doing: &'static str) -> Result<Stream<()>, BusError> {
    let jetstream = jetstream::new(bus.client.clone());
    let stream = jetstream.get_stream_no_info(bus.subjects.jobs_stream());
    stream
        .await
        .map_err(|error| BusError::unavailable(doing, error))
}
