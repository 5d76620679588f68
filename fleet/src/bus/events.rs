//! Session events: queued without waiting, published by one task, and kept for a while for followers that come late.
//!
//! Nothing depends on them. When NATS is away or slow they are dropped, and the code that reports one never notices.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_nats::jetstream::{
    self,
    stream::{Config, DiscardPolicy, RetentionPolicy, StorageType, Stream},
};
use bytes::Bytes;
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    task::JoinSet,
};

use super::{
    BusError,
    connect::Bus,
    refusal::{is_missing, is_taken},
};
use crate::{
    registry::Registry,
    wire::{
        event::{Event, SessionCall},
        part,
        subjects::Subjects,
    },
};

/// The most events that wait to be sent; further ones are dropped.
const WAITING_MAX: usize = 4_096;
/// The most bytes of them together; further ones are dropped.
const WAITING_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How long the stream keeps an event.
const AGE_MAX: Duration = Duration::from_secs(600);
/// The most bytes that the stream keeps.
const BYTES_MAX: i64 = 64 * 1024 * 1024;
/// The most events of one call that the stream keeps: all of an attempt that tells as many parts as it may, and a report for
/// every fifth of them, for as long as the stream keeps anything.
const PER_CALL_MAX: i64 = (part::A_SECOND_MAX + 10) as i64 * AGE_MAX.as_secs() as i64;
/// The same before tools told parts of their answers.
const PER_CALL_MAX_BEFORE: i64 = 1_000;

/// Takes events. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Events {
    sender: Sender<WaitingEvent>,
    /// The bytes of all that wait.
    bytes: Arc<AtomicUsize>,
    subjects: Subjects,
    /// Which tools are hidden.
    registry: Registry,
}

/// An event on its way. Dropping it frees its room.
#[derive(Debug)]
struct WaitingEvent {
    subject: String,
    body: Bytes,
    bytes: Arc<AtomicUsize>,
}

impl Drop for WaitingEvent {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.body.len(), Ordering::Relaxed);
    }
}

impl Events {
    /// Starts the task that publishes them. It ends when every clone is dropped and everything is sent.
    pub fn start(bus: &Bus, registry: &Registry, tasks: &mut JoinSet<()>) -> Self {
        let (sender, waiting) = mpsc::channel(WAITING_MAX);
        tasks.spawn(publish(bus.clone(), waiting));
        Self {
            sender,
            bytes: Arc::default(),
            subjects: bus.subjects.clone(),
            registry: registry.clone(),
        }
    }

    /// Queues the event that `event` makes, if it makes one. Never waits. For a call without a session, or one of a hidden tool, `event`
    /// is not called.
    pub fn tell<E: Into<Option<Event>>>(&self, call: SessionCall<'_>, event: impl FnOnce() -> E) {
        let Some(session) = call.session else {
            return;
        };
        if self.registry.is_hidden(call.tool, call.tool_version) {
            return;
        }
        let Some(event) = event().into() else {
            return;
        };
        let waiting = WaitingEvent {
            subject: self.subjects.event(call.tenant, session, event.call_id),
            body: event.to_bytes().into(),
            bytes: Arc::clone(&self.bytes),
        };
        let size = waiting.body.len();
        let before = self.bytes.fetch_add(size, Ordering::Relaxed);
        let fits = before.saturating_add(size) <= WAITING_BYTES_MAX;
        if !fits || self.sender.try_send(waiting).is_err() {
            tracing::debug!(call = %event.call_id, "an event was dropped: too many wait to be sent");
        }
    }
}

async fn publish(bus: Bus, mut waiting: Receiver<WaitingEvent>) {
    while let Some(mut event) = waiting.recv().await {
        // Without a connection the client would keep the event, and send it when it is stale.
        if !bus.is_connected() {
            continue;
        }
        let (subject, body) = (mem::take(&mut event.subject), event.body.clone());
        bus.tell(subject, body, "an event was not sent").await;
    }
}

/// The stream that keeps events, if it exists.
///
/// # Errors
///
/// NATS does not answer, or does not allow it.
pub async fn find(bus: &Bus) -> Result<Option<Stream>, BusError> {
    let jetstream = jetstream::new(bus.client.clone());
    match jetstream.get_stream(bus.subjects.events_stream()).await {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(BusError::unavailable(
            "look for the stream of events",
            error,
        )),
    }
}

/// Makes the stream that keeps events where it is missing. Without it only followers that listen at the moment hear them.
///
/// # Errors
///
/// NATS does not answer, or does not allow it.
pub async fn ensure(bus: &Bus) -> Result<(), BusError> {
    if find(bus).await?.is_some() {
        return Ok(());
    }
    let doing = "make the stream of events";
    let jetstream = jetstream::new(bus.client.clone());
    match jetstream.create_stream(stream_config(&bus.subjects)).await {
        Ok(_made) => Ok(()),
        // Another dispatcher made it at the same moment.
        Err(error) if is_taken(&error) => Ok(()),
        Err(error) => Err(BusError::unavailable(doing, error)),
    }
}

/// Lets a stream that an earlier release made keep as many events of a call as this one tells. A limit that a person chose stays.
///
/// # Errors
///
/// NATS does not answer, or does not allow it.
pub async fn widen(bus: &Bus) -> Result<(), BusError> {
    let Some(stream) = find(bus).await? else {
        return Ok(());
    };
    let mut config = stream.cached_info().config.clone();
    if config.max_messages_per_subject != PER_CALL_MAX_BEFORE {
        return Ok(());
    }
    config.max_messages_per_subject = PER_CALL_MAX;
    let jetstream = jetstream::new(bus.client.clone());
    let widened = jetstream.update_stream(config).await;
    widened
        .map(drop)
        .map_err(|error| BusError::unavailable("widen the stream of events", error))
}

/// The stream with our settings: in memory, for its contents are worth nothing after a restart.
pub fn stream_config(subjects: &Subjects) -> Config {
    Config {
        name: subjects.events_stream(),
        description: Some("Toolfleet: events of calls that have a session".to_owned()),
        subjects: vec![subjects.events()],
        retention: RetentionPolicy::Limits,
        storage: StorageType::Memory,
        discard: DiscardPolicy::Old,
        max_age: AGE_MAX,
        max_bytes: BYTES_MAX,
        max_messages_per_subject: PER_CALL_MAX,
        allow_direct: true,
        ..Config::default()
    }
}
