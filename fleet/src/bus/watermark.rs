//! The watermark in NATS: where the ledger was last, and which ledger it is, kept outside Postgres.
//!
//! A process that starts after a failover compares the ledger with it. A process of another ledger learns from it which ledger
//! has the prefix ([`super::prefix`]).
//!
//! One message in a small stream of its own, replaced every second. If it is lost, running processes still remember theirs, and
//! the ledger's own row still shows a promotion.

use async_nats::jetstream::{
    self, ErrorCode,
    context::PublishErrorKind,
    message::PublishMessage,
    stream::{Config, LastRawMessageErrorKind, RetentionPolicy, StorageType},
};

use super::{
    BusError,
    connect::Bus,
    refusal::{is_missing, is_taken},
};
use crate::{owner::LeftWatermark, wire::subjects::Subjects};

/// What NATS keeps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recalled {
    /// The watermark; `None` in a new fleet.
    pub left: Option<LeftWatermark>,
    /// The sequence of its message in the stream; 0: there is none.
    pub sequence: u64,
}

/// Reads the watermark.
///
/// # Errors
///
/// NATS does not answer, or does not allow it; or the message is no watermark that this program can read, and then it is
/// unknown which ledger has the prefix.
pub async fn recall(bus: &Bus) -> Result<Recalled, BusError> {
    let doing = "recall where the ledger was last seen";
    let jetstream = jetstream::new(bus.client.clone());
    let stream = jetstream.get_stream_no_info(bus.subjects.watermark_stream());
    let stream = stream.await.map_err(|error| bus.failed(doing, error))?;
    let subject = bus.subjects.watermark();
    match stream.get_last_raw_message_by_subject(&subject).await {
        Ok(message) => {
            let left = serde_json::from_slice(&message.payload);
            let left = left.map_err(|source| BusError::UnreadableWatermark {
                stream: bus.subjects.watermark_stream(),
                source,
            })?;
            Ok(Recalled {
                left: Some(left),
                sequence: message.sequence,
            })
        }
        Err(error) if is_nothing(&error.kind()) => Ok(Recalled::default()),
        Err(error) => Err(bus.failed(doing, error)),
    }
}

/// Whether there is no message, or not even a stream.
fn is_nothing(kind: &LastRawMessageErrorKind) -> bool {
    match kind {
        LastRawMessageErrorKind::NoMessageFound => true,
        LastRawMessageErrorKind::JetStream(answer) => {
            answer.error_code() == ErrorCode::STREAM_NOT_FOUND
        }
        LastRawMessageErrorKind::InvalidSubject | LastRawMessageErrorKind::Other => false,
    }
}

/// Replaces the message that was recalled by this watermark. False: there is another message by now, and it stays.
///
/// Cancel-safe: it is replaced or it is not, and the next look finds out.
///
/// # Errors
///
/// NATS does not answer, does not allow it, or has no stream for it.
pub(super) async fn replace(
    bus: &Bus,
    watermark: &LeftWatermark,
    sequence: u64,
) -> Result<bool, BusError> {
    let doing = "leave the ledger's watermark";
    let payload = serde_json::to_vec(watermark).expect("a watermark has only string keys");
    let message = PublishMessage::build()
        .payload(payload.into())
        .expected_last_subject_sequence(sequence);
    let jetstream = jetstream::new(bus.client.clone());
    let sent = jetstream
        .send_publish(bus.subjects.watermark(), message)
        .await;
    let sent = sent.map_err(|error| bus.failed(doing, error))?;
    match sent.await {
        Ok(_left) => Ok(true),
        Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => Ok(false),
        Err(error) => Err(bus.failed(doing, error)),
    }
}

/// Whether there is a stream that keeps it.
pub(super) async fn is_kept(bus: &Bus) -> Result<bool, BusError> {
    let jetstream = jetstream::new(bus.client.clone());
    match jetstream.get_stream(bus.subjects.watermark_stream()).await {
        Ok(_there) => Ok(true),
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(bus.failed("look for the stream of watermarks", error)),
    }
}

/// Makes the stream that keeps it where it is missing.
pub(super) async fn ensure(bus: &Bus) -> Result<(), BusError> {
    let doing = "make the stream that keeps the ledger's watermark";
    if is_kept(bus).await? {
        return Ok(());
    }
    let jetstream = jetstream::new(bus.client.clone());
    match jetstream.create_stream(stream_config(&bus.subjects)).await {
        Ok(_made) => Ok(()),
        // Another dispatcher made it at the same moment.
        Err(error) if is_taken(&error) => Ok(()),
        Err(error) => Err(bus.failed(doing, error)),
    }
}

fn stream_config(subjects: &Subjects) -> Config {
    Config {
        name: subjects.watermark_stream(),
        description: Some("Toolfleet: where the ledger was last seen".to_owned()),
        subjects: vec![subjects.watermark()],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        max_messages_per_subject: 1,
        ..Config::default()
    }
}
