//! The stream and its consumers, as code. Dispatchers make them, and make them again when they are gone.

use std::time::Duration;

use async_nats::jetstream::{
    self,
    consumer::{AckPolicy, pull},
    stream::{Config, DiscardPolicy, RetentionPolicy, StorageType, Stream},
};

use super::{
    BusError,
    connect::Bus,
    refusal::{is_gone, is_missing, is_taken},
    watermark,
};
use crate::{ids::QueueName, wire::subjects::Subjects};

/// A message that was not acknowledged for this long is delivered again; the claim refuses what is claimed already.
pub const ACK_WAIT: Duration = Duration::from_secs(10);

/// Makes the streams and the consumers of these queues where they are missing; changes nothing that exists.
///
/// The stream of pointers is a set: one message for each subject; a duplicate is refused. Returns whether the stream was
/// missing: then it is empty.
///
/// # Errors
///
/// NATS does not answer, or does not allow it.
pub async fn ensure(bus: &Bus, queues: &[QueueName]) -> Result<bool, BusError> {
    watermark::ensure(bus).await?;
    let doing = "make the stream of pointers";
    let jetstream = jetstream::new(bus.client.clone());
    let name = bus.subjects.jobs_stream();
    let mut missing = false;
    let stream = match jetstream.get_stream(&name).await {
        Ok(stream) => stream,
        Err(error) if is_missing(&error) => {
            missing = true;
            match jetstream.create_stream(stream_config(&bus.subjects)).await {
                Ok(_) => {
                    tracing::info!(
                        stream = name,
                        "the stream of pointers was missing and is made"
                    );
                    jetstream
                        .get_stream(&name)
                        .await
                        .map_err(|error| bus.failed(doing, error))?
                }
                // Another dispatcher made it at the same moment.
                Err(error) if is_taken(&error) => jetstream
                    .get_stream(&name)
                    .await
                    .map_err(|error| bus.failed(doing, error))?,
                Err(error) => return Err(bus.failed(doing, error)),
            }
        }
        Err(error) => return Err(bus.failed(doing, error)),
    };
    for queue in queues {
        let consumer = consumer_config(&bus.subjects, queue);
        let made = stream.create_consumer_strict(consumer).await;
        if let Err(error) = made
            && !error.to_string().contains("already exists")
        {
            return Err(bus.failed("make a queue's consumer", error));
        }
    }
    Ok(missing)
}

/// The stream of pointers, if it exists.
///
/// # Errors
///
/// NATS does not answer, or does not allow it.
pub async fn find(bus: &Bus) -> Result<Option<Stream>, BusError> {
    let jetstream = jetstream::new(bus.client.clone());
    match jetstream.get_stream(bus.subjects.jobs_stream()).await {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(bus.failed("look for the stream", error)),
    }
}

/// Deletes the stream with its consumers and makes them again: its messages are lost. Safe to repeat.
///
/// A pointer that is published meanwhile finds no stream; the sweep publishes it again.
///
/// # Errors
///
/// NATS does not answer, or does not allow it.
pub async fn rebuild(bus: &Bus, queues: &[QueueName]) -> Result<(), BusError> {
    let jetstream = jetstream::new(bus.client.clone());
    match jetstream.delete_stream(bus.subjects.jobs_stream()).await {
        Ok(_deleted) => {}
        Err(error) if is_gone(&error) => {}
        Err(error) => return Err(bus.failed("delete the stream", error)),
    }
    ensure(bus, queues).await.map(drop)
}

/// Deletes a queue's consumer and makes it again: every message of the queue is delivered again. Safe to repeat.
///
/// # Errors
///
/// NATS does not answer, or does not allow it.
pub async fn remake_consumer(bus: &Bus, queue: &QueueName) -> Result<(), BusError> {
    let doing = "delete a queue's consumer";
    let jetstream = jetstream::new(bus.client.clone());
    let stream = jetstream.get_stream_no_info(bus.subjects.jobs_stream());
    let stream = stream.await.map_err(|error| bus.failed(doing, error))?;
    let consumer = Subjects::jobs_consumer(queue);
    let deleted = stream.delete_consumer(&consumer).await;
    deleted.map_err(|error| bus.failed(doing, error))?;
    ensure(bus, std::slice::from_ref(queue)).await.map(drop)
}

/// The stream with our settings.
pub fn stream_config(subjects: &Subjects) -> Config {
    Config {
        name: subjects.jobs_stream(),
        description: Some("Toolfleet: pointers to calls that may run now".to_owned()),
        subjects: vec![subjects.jobs()],
        retention: RetentionPolicy::WorkQueue,
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        discard_new_per_subject: true,
        max_messages_per_subject: 1,
        allow_direct: true,
        duplicate_window: Duration::from_secs(2),
        ..Config::default()
    }
}

/// The consumer of a queue with our settings.
pub fn consumer_config(subjects: &Subjects, queue: &QueueName) -> pull::Config {
    pull::Config {
        durable_name: Some(Subjects::jobs_consumer(queue)),
        filter_subject: subjects.jobs_of_queue(queue),
        ack_policy: AckPolicy::Explicit,
        ack_wait: ACK_WAIT,
        max_deliver: -1,
        max_ack_pending: 20_000,
        // It cannot be changed later, and the default of 512 makes the pulls of a large fleet fail.
        max_waiting: 8192,
        ..pull::Config::default()
    }
}
