//! Orphans: messages in the stream that no worker will ever get.
//!
//! The stream is a set, so a pointer that is in it cannot be published again: an orphan would keep its call waiting for ever.
//! What nats-server 2.15 does was tried by restoring older copies of its files while it was down:
//!
//! | what is older | what it does | orphans |
//! |---|---|---|
//! | the whole store | goes on from there: what was done since is delivered again, what is missing can be published | none |
//! | the consumer only, or it is gone | delivers again what is still there | none |
//! | the messages only | believes the consumer, cut off at the stream's last message | everything that the copy brought back and the consumer had acknowledged |
//!
//! In a work queue an acknowledged message is removed. So a message at or below the consumer's acknowledgement floor that still
//! exists is an orphan, however busy the queue is. Removal lags a little behind acknowledgement, so only what two looks see
//! counts.
//!
//! A message above that floor that is never delivered, and a message that the stream counts and cannot read, are found by their
//! call's age, not here: see [`super::stranded`].
//!
//! Purging costs time and nothing else: Postgres has every call, and the sweep publishes those that are still queued.

use async_nats::jetstream::{context::ConsumerInfoErrorKind, stream::LastRawMessageErrorKind};

use super::{BusError, backlog::stream, connect::Bus, topology};
use crate::{ids::QueueName, wire::subjects::Subjects};

/// One look at a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The sequence of the queue's oldest message.
    pub oldest: Option<u64>,
    /// The sequence up to which everything was acknowledged.
    pub floor: u64,
    /// The sequence up to which everything was delivered.
    pub delivered: u64,
    /// The last sequence in the stream.
    pub last: u64,
}

/// What must be repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// The queue's messages below this sequence are orphans.
    Purge {
        /// The first sequence that stays.
        below: u64,
    },
    /// The consumer is ahead of the stream: it would pass over what is published next.
    Remake,
}

impl Look {
    /// What both this look and the one before show. A state that passes by itself is not the same twice.
    pub fn repair(self, before: Self) -> Option<Repair> {
        let ahead = |look: Self| look.delivered > look.last;
        if ahead(self) && ahead(before) {
            return Some(Repair::Remake);
        }
        let orphan = |look: Self| look.oldest.filter(|oldest| *oldest <= look.floor);
        let (now, then) = (orphan(self)?, orphan(before)?);
        (now == then).then_some(Repair::Purge {
            below: before.floor.min(self.floor) + 1,
        })
    }
}

/// Looks at a queue; `None` while its stream or consumer is missing.
///
/// # Errors
///
/// NATS does not answer, or does not allow it.
pub async fn look(bus: &Bus, queue: &QueueName) -> Result<Option<Look>, BusError> {
    let doing = "look for orphaned messages";
    let stream = stream(bus, doing).await?;
    let consumer = match stream.consumer_info(Subjects::jobs_consumer(queue)).await {
        Ok(consumer) => consumer,
        Err(error) if is_missing(&error.kind()) => return Ok(None),
        Err(error) => return Err(BusError::unavailable(doing, error)),
    };
    // After the consumer: what it has delivered is in the stream by now.
    let oldest = stream.get_next_raw_message_by_subject(bus.subjects.jobs_of_queue(queue));
    let oldest = match oldest.await {
        Ok(message) => Some(message.sequence),
        Err(error) if matches!(error.kind(), LastRawMessageErrorKind::NoMessageFound) => None,
        Err(error) => return Err(BusError::unavailable(doing, error)),
    };
    let info = stream.get_info().await;
    let info = info.map_err(|error| BusError::unavailable(doing, error))?;
    Ok(Some(Look {
        oldest,
        floor: consumer.ack_floor.stream_sequence,
        delivered: consumer.delivered.stream_sequence,
        last: info.state.last_sequence,
    }))
}

/// Repairs it; returns how many messages were purged. Safe to repeat, and for several at once.
///
/// # Errors
///
/// NATS does not answer, or does not allow it.
pub async fn repair(bus: &Bus, queue: &QueueName, repair: Repair) -> Result<u64, BusError> {
    let doing = "purge orphaned messages";
    match repair {
        Repair::Purge { below } => {
            let stream = stream(bus, doing).await?;
            let purging = stream.purge().filter(bus.subjects.jobs_of_queue(queue));
            let purged = purging.sequence(below).await;
            purged
                .map(|purged| purged.purged)
                .map_err(|error| BusError::unavailable(doing, error))
        }
        Repair::Remake => {
            topology::remake_consumer(bus, queue).await?;
            Ok(0)
        }
    }
}

fn is_missing(kind: &ConsumerInfoErrorKind) -> bool {
    matches!(
        kind,
        ConsumerInfoErrorKind::NotFound | ConsumerInfoErrorKind::StreamNotFound
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn look(oldest: Option<u64>, floor: u64) -> Look {
        Look {
            oldest,
            floor,
            delivered: floor,
            last: 1000,
        }
    }

    #[test]
    fn what_was_acknowledged_and_stays_is_an_orphan_however_busy_the_queue_is() {
        let before = look(Some(401), 900);
        assert_eq!(before.repair(before), Some(Repair::Purge { below: 901 }));
        let busier = look(Some(401), 980);
        assert_eq!(busier.repair(before), Some(Repair::Purge { below: 901 }));
    }

    #[test]
    fn what_waits_or_is_being_removed_is_none() {
        let (empty, waits) = (look(None, 900), look(Some(901), 900));
        let (lags, lags_later) = (look(Some(880), 900), look(Some(890), 950));
        for (before, now) in [
            (empty, empty),
            (waits, waits),
            (waits, lags),
            (lags, waits),
            (lags, lags_later),
            (lags, empty),
        ] {
            assert_eq!(now.repair(before), None, "{before:?} {now:?}");
        }
    }

    #[test]
    fn a_consumer_that_stays_ahead_of_its_stream_is_remade() {
        let ahead = Look {
            delivered: 1001,
            ..look(None, 900)
        };
        let caught_up = Look {
            last: 1001,
            ..ahead
        };
        assert_eq!(ahead.repair(ahead), Some(Repair::Remake));
        assert_eq!(caught_up.repair(ahead), None);
        assert_eq!(ahead.repair(caught_up), None);
    }
}
