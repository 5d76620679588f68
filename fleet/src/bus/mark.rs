//! Where the ledger was last seen, kept outside Postgres: a process that starts after a failover remembers it from here.
//!
//! One message in a small stream of its own, replaced every second. Losing it loses only that memory: processes that run
//! still have theirs, and a promotion is seen from the ledger's own row.

use std::time::Duration;

use async_nats::jetstream::{
    self,
    stream::{Config, LastRawMessageErrorKind, RetentionPolicy, StorageType},
};

use super::{BusError, connect::Bus, topology};
use crate::{standing::Mark, wire::subjects::Subjects};

/// How long leaving it may hold up who does; the next second leaves it again.
const SEND_MAX: Duration = Duration::from_secs(1);

/// What the fleet remembers. `None`: nothing, as in a new fleet.
///
/// # Errors
///
/// NATS does not answer, or does not allow it.
pub async fn recall(bus: &Bus) -> Result<Option<Mark>, BusError> {
    let doing = "recall where the ledger was last seen";
    let jetstream = jetstream::new(bus.client.clone());
    let stream = match jetstream.get_stream(bus.subjects.ground_stream()).await {
        Ok(stream) => stream,
        Err(error) if topology::is_missing(&error) => return Ok(None),
        Err(error) => return Err(bus.failed(doing, error)),
    };
    let subject = bus.subjects.ground();
    match stream.get_last_raw_message_by_subject(&subject).await {
        Ok(message) => match serde_json::from_slice(&message.payload) {
            Ok(mark) => Ok(Some(mark)),
            Err(error) => {
                tracing::error!(%error, "what NATS keeps of the ledger's place cannot be read; going on without it");
                Ok(None)
            }
        },
        Err(error) if matches!(error.kind(), LastRawMessageErrorKind::NoMessageFound) => Ok(None),
        Err(error) => Err(bus.failed(doing, error)),
    }
}

/// Leaves a mark for those who start later. Not acknowledged; cancel-safe.
pub async fn leave(bus: &Bus, mark: &Mark) {
    let payload = serde_json::to_vec(mark).expect("a mark has only string keys");
    let sending = bus.client.publish(bus.subjects.ground(), payload.into());
    if !matches!(tokio::time::timeout(SEND_MAX, sending).await, Ok(Ok(()))) {
        tracing::debug!("the ledger's mark was not left in NATS; the next one is");
    }
}

/// Makes the stream that keeps it where it is missing.
pub(super) async fn ensure(bus: &Bus) -> Result<(), BusError> {
    let doing = "make the stream that keeps the ledger's mark";
    let jetstream = jetstream::new(bus.client.clone());
    match jetstream.get_stream(bus.subjects.ground_stream()).await {
        Ok(_there) => return Ok(()),
        Err(error) if topology::is_missing(&error) => {}
        Err(error) => return Err(bus.failed(doing, error)),
    }
    match jetstream.create_stream(stream_config(&bus.subjects)).await {
        Ok(_made) => Ok(()),
        // Another dispatcher made it at the same moment.
        Err(error) if topology::is_taken(&error) => Ok(()),
        Err(error) => Err(bus.failed(doing, error)),
    }
}

fn stream_config(subjects: &Subjects) -> Config {
    Config {
        name: subjects.ground_stream(),
        description: Some("Toolfleet: where the ledger was last seen".to_owned()),
        subjects: vec![subjects.ground()],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        max_messages_per_subject: 1,
        ..Config::default()
    }
}
