//! Stranded pointers: the stream refuses them as duplicates, and no worker ever gets their messages.
//!
//! The stream's answer that it has a pointer does not prove that a worker will get it. What nats-server 2.15 does was read in
//! its file store, and tried by damaging its files while it was down:
//!
//! | what happened | what it does | stranded |
//! |---|---|---|
//! | a block has a record that cannot be parsed | cuts the block off there when it reads it, and counts the messages of the block anew ("Stream state encountered internal inconsistency on write", two minutes later or when it stops); the index of subjects, by which it refuses, keeps what was cut off | that message and all behind it in the block |
//! | a record does not fit its checksum | passes over it when it delivers, goes on counting it, and may cut the block off there later | that message, then perhaps all behind it |
//! | the messages are older than the consumer | believes the consumer (see [`super::orphans`]) | those that are not orphans yet |
//!
//! The server refuses such a subject until it reads its files anew. But it can be asked: it returns no message where it lost or
//! cannot read one. A message that exists while its consumer has nothing left to deliver, or was acknowledged beyond it, is
//! never delivered either. For a moment a healthy pointer may look the same, so only what two looks see counts.
//!
//! The call then gets a new number, and with it a subject that the stream has never seen. That is always safe: Postgres decides
//! which worker runs a call, and a worker that comes with the old pointer after all finds it outdated.

use async_nats::jetstream::{stream::LastRawMessageErrorKind, stream::Stream};
use futures_util::{StreamExt, TryStreamExt};

use super::{
    BusError,
    backlog::{self, Backlog, stream},
    connect::Bus,
    publish::Numbered,
};
use crate::ids::QueueName;

/// One look at a pointer that was refused as a duplicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerLook {
    /// The sequence of its message; `None`: the stream returns none.
    pub message: Option<u64>,
    /// The backlog of its queue; `None` while the consumer is missing.
    pub queue: Option<Backlog>,
}

/// Why no worker will get a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stranded {
    /// The stream lost its message, or cannot read it.
    Unreadable,
    /// Its message exists, and the consumer counts it as acknowledged.
    PassedOver,
}

impl PointerLook {
    /// What is wrong, unless this state passes by itself.
    pub fn doubt(self) -> Option<Stranded> {
        let Some(message) = self.message else {
            return Some(Stranded::Unreadable);
        };
        let passed_over = |queue: Backlog| queue.is_empty() || message <= queue.floor;
        let passed_over = self.queue.is_some_and(passed_over);
        passed_over.then_some(Stranded::PassedOver)
    }

    /// What both this look and the one before show, of the same message or of none.
    pub fn confirms(self, before: Self) -> Option<Stranded> {
        let same = self.message == before.message;
        self.doubt().filter(|_| same && before.doubt().is_some())
    }
}

/// How many messages are requested at a time.
const AT_A_TIME: usize = 16;

/// Looks at pointers; at each queue once, before its messages.
///
/// # Errors
///
/// NATS does not answer, or does not allow it.
pub async fn look(
    bus: &Bus,
    pointers: impl IntoIterator<Item = Numbered>,
) -> Result<Vec<(Numbered, PointerLook)>, BusError> {
    let stream = stream(bus, "look for stranded pointers").await?;
    let mut queues: Vec<(QueueName, Option<Backlog>)> = Vec::new();
    let mut asked = Vec::new();
    for pointer in pointers {
        let known = queues.iter().find(|(queue, _)| *queue == pointer.queue);
        let queue = match known {
            Some((_, queue)) => *queue,
            None => {
                let queue = backlog::look(bus, &pointer.queue).await?;
                queues.push((pointer.queue.clone(), queue));
                queue
            }
        };
        asked.push((pointer, queue));
    }
    let stream = &stream;
    let looks = asked.into_iter().map(|(pointer, queue)| async move {
        let message = message(bus, stream, &pointer).await?;
        Ok((pointer, PointerLook { message, queue }))
    });
    let looks = futures_util::stream::iter(looks).buffer_unordered(AT_A_TIME);
    looks.try_collect().await
}

async fn message(
    bus: &Bus,
    stream: &Stream<()>,
    pointer: &Numbered,
) -> Result<Option<u64>, BusError> {
    let subject = pointer.subject(bus);
    match stream.get_last_raw_message_by_subject(&subject).await {
        Ok(message) => Ok(Some(message.sequence)),
        Err(error) if matches!(error.kind(), LastRawMessageErrorKind::NoMessageFound) => Ok(None),
        Err(error) => Err(BusError::unavailable("ask for a pointer's message", error)),
    }
}

/// Removes the message of a pointer that the consumer passed over. Safe to repeat.
///
/// # Errors
///
/// NATS does not answer, or does not allow it.
pub async fn clear(bus: &Bus, pointer: &Numbered) -> Result<(), BusError> {
    let doing = "purge a message that was passed over";
    let stream = stream(bus, doing).await?;
    let purged = stream.purge().filter(pointer.subject(bus)).await;
    purged
        .map(drop)
        .map_err(|error| BusError::unavailable(doing, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn queue(waiting: u64, unanswered: u64, floor: u64) -> Option<Backlog> {
        Some(Backlog {
            waiting,
            unanswered,
            delivered: 0,
            floor,
        })
    }

    const fn look(message: Option<u64>, queue: Option<Backlog>) -> PointerLook {
        PointerLook { message, queue }
    }

    #[test]
    fn a_message_that_the_stream_cannot_give_is_stranded_however_busy_the_queue_is() {
        for queue in [None, queue(0, 0, 9), queue(900, 7, 9)] {
            let missing = look(None, queue);
            assert_eq!(missing.confirms(missing), Some(Stranded::Unreadable));
        }
    }

    #[test]
    fn a_message_that_the_consumer_has_dealt_with_is_stranded() {
        let (empty, beyond) = (queue(0, 0, 0), queue(900, 7, 40));
        for dealt_with in [look(Some(40), empty), look(Some(40), beyond)] {
            assert_eq!(dealt_with.confirms(dealt_with), Some(Stranded::PassedOver));
        }
    }

    #[test]
    fn what_waits_or_passes_by_itself_is_not() {
        let waits = look(Some(41), queue(1, 0, 40));
        let delivered = look(Some(41), queue(0, 1, 40));
        let no_consumer = look(Some(41), None);
        let acknowledged = look(Some(41), queue(0, 0, 41));
        let removed = look(None, queue(0, 0, 41));
        let published_again = look(Some(42), queue(0, 0, 42));
        for fine in [waits, delivered, no_consumer] {
            assert_eq!(fine.doubt(), None);
            for before in [fine, acknowledged, removed] {
                assert_eq!(fine.confirms(before), None, "{before:?}");
            }
            for now in [acknowledged, removed] {
                assert_eq!(now.confirms(fine), None, "{now:?}");
            }
        }
        // Removal lags a little behind acknowledgement, and a different message proves nothing about this one.
        assert_eq!(removed.confirms(acknowledged), None);
        assert_eq!(published_again.confirms(acknowledged), None);
    }
}
