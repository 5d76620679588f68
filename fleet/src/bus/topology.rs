//! The streams and their consumers, as code. Dispatchers make them, and make them again when they are gone.

use std::time::Duration;

use async_nats::jetstream::{
    self, ErrorCode,
    consumer::{AckPolicy, pull},
    context::{CreateStreamErrorKind, GetStreamErrorKind},
    stream::{Config, DiscardPolicy, RetentionPolicy, StorageType},
};

use super::{BusError, connect::Bus, mark};
use crate::{ids::QueueName, wire::subjects::Subjects};

/// A message that was not acknowledged for this long is delivered again; the claim refuses what is claimed already.
pub const ACK_WAIT: Duration = Duration::from_secs(10);

/// Makes the streams and the consumers of these queues where they are missing; changes nothing that is there.
///
/// The stream of pointers is a set: one message a subject, and publishing again while it is there is refused.
///
/// # Errors
///
/// NATS does not answer, or does not allow it.
pub async fn ensure(bus: &Bus, queues: &[QueueName]) -> Result<(), BusError> {
    let doing = "make the stream of pointers";
    let jetstream = jetstream::new(bus.client.clone());
    let name = bus.subjects.jobs_stream();
    ensure_stream(doing, &jetstream, stream_config(&bus.subjects)).await?;
    let keeping = "make the stream that keeps the ledger's mark";
    ensure_stream(keeping, &jetstream, mark::stream_config(&bus.subjects)).await?;
    let stream = jetstream
        .get_stream(&name)
        .await
        .map_err(|error| BusError::unavailable(doing, error))?;
    for queue in queues {
        let consumer = consumer_config(&bus.subjects, queue);
        let made = stream.create_consumer_strict(consumer).await;
        if let Err(error) = made
            && !error.to_string().contains("already exists")
        {
            return Err(BusError::unavailable("make a queue's consumer", error));
        }
    }
    Ok(())
}

async fn ensure_stream(
    doing: &'static str,
    jetstream: &jetstream::Context,
    config: Config,
) -> Result<(), BusError> {
    match jetstream.get_stream(&config.name).await {
        Ok(_) => return Ok(()),
        Err(error) if is_missing(&error) => {}
        Err(error) => return Err(BusError::unavailable(doing, error)),
    }
    match jetstream.create_stream(config).await {
        Ok(_) => Ok(()),
        // Another dispatcher made it at the same moment.
        Err(error) if is_taken(&error) => Ok(()),
        Err(error) => Err(BusError::unavailable(doing, error)),
    }
}

pub(super) fn is_missing(error: &jetstream::context::GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

fn is_taken(error: &jetstream::context::CreateStreamError) -> bool {
    matches!(error.kind(), CreateStreamErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NAME_EXIST)
}

fn stream_config(subjects: &Subjects) -> Config {
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

fn consumer_config(subjects: &Subjects, queue: &QueueName) -> pull::Config {
    pull::Config {
        durable_name: Some(Subjects::jobs_consumer(queue)),
        filter_subject: subjects.jobs_of_queue(queue),
        ack_policy: AckPolicy::Explicit,
        ack_wait: ACK_WAIT,
        max_deliver: -1,
        max_ack_pending: 20_000,
        // Cannot be changed later, and the default of 512 makes a large fleet's pulls fail.
        max_waiting: 8192,
        ..pull::Config::default()
    }
}
