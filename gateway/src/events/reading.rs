//! What one follower still has to get: first what the stream has and the log has not any more, then the log.

use std::{sync::Arc, time::Duration};

use fleet::{delay::Reconnect, telemetry::report};
use tokio::{sync::watch, time::timeout};

use super::{
    begin::{BeginAt, Beginning, NotYet, begin},
    gap,
    keeper::SessionOf,
    log::{Entry, Taken},
    place::EventId,
    sessions::{Reader, Sessions},
    told::{SessionEvent, Told},
    unheard::Unheard,
};

/// How long a follower waits until the log of its session knows the stream that it has read.
const UNKNOWN_MAX: Duration = Duration::from_secs(30);
/// The longest pause before NATS is asked again.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What one follower still has to get.
#[derive(Debug)]
pub(crate) struct Reading {
    reader: Reader,
    /// What is told before all else.
    first: Option<Arc<Told>>,
    stand: Stand,
    /// What it was told last; at first, where it began.
    told: EventId,
    /// What the stream had when it began. Up to there a follower may take its time: it gets what the stream has.
    behind_until: EventId,
    changes: watch::Receiver<()>,
    /// The connection over which the stream is read.
    connection: watch::Receiver<u64>,
    pauses: Reconnect,
}

/// Where a follower is.
#[derive(Debug, Clone, Copy)]
enum Stand {
    /// In the stream, behind this place.
    Stream(EventId),
    /// In the log, as this follower.
    Log(u64),
}

/// Why a follower is told nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadingEnd {
    /// It is too far behind.
    Lagging,
    /// The stream that it has read is not the one that is followed.
    Lost,
}

/// Why somebody cannot follow.
#[derive(Debug)]
pub(crate) enum NoReading {
    /// It names an event that never was.
    NotYet,
    /// Nothing is heard of the stream.
    Unheard(Unheard),
}

impl Reading {
    /// Begins there.
    ///
    /// # Errors
    ///
    /// It cannot.
    pub(crate) async fn open(
        sessions: &Sessions,
        of: &SessionOf,
        at: BeginAt,
    ) -> Result<Self, NoReading> {
        let connection = sessions.keeper().connection();
        let stream = sessions.keeper().stands().await;
        let stream = stream.map_err(NoReading::Unheard)?;
        let beginning = begin(at, &stream).map_err(|NotYet| NoReading::NotYet)?;
        let Beginning { behind, .. } = beginning;
        // Before the rows are read: what comes meanwhile is in the log.
        let reader = sessions.read(of, behind);
        let gap = gap::look(sessions.views(), of, beginning).await;
        Ok(Self {
            changes: reader.log.changes(),
            reader,
            first: gap.map(|gap| Arc::new(Told::Gap(gap))),
            stand: Stand::Stream(behind),
            told: behind,
            behind_until: EventId {
                epoch: stream.epoch,
                sequence: stream.last,
            },
            connection,
            pauses: Reconnect::up_to(PAUSE_MAX),
        })
    }

    /// What is told next; waits for it. Cancel-safe, but that a question to the stream is asked again.
    ///
    /// # Errors
    ///
    /// Nothing more is told.
    pub(crate) async fn next(&mut self) -> Result<Arc<Told>, ReadingEnd> {
        loop {
            if let Some(first) = self.first.take() {
                return Ok(first);
            }
            match self.stand {
                Stand::Log(follower) => {
                    // Before the look: what comes behind it is a change.
                    self.changes.mark_unchanged();
                    match self.reader.log.take(follower) {
                        Taken::Told(told) => {
                            self.told = told.place();
                            return Ok(told);
                        }
                        Taken::Lagging if self.is_catching_up() => {
                            self.reader.log.leave(follower);
                            self.stand = Stand::Stream(self.told);
                        }
                        Taken::Lagging => return Err(ReadingEnd::Lagging),
                        Taken::Nothing => self.changed().await?,
                    }
                }
                Stand::Stream(place) => {
                    if let Some(told) = self.kept_at(place).await? {
                        return Ok(told);
                    }
                }
            }
        }
    }

    /// What can be told at once, if there is something.
    pub(crate) fn ready(&mut self) -> Option<Arc<Told>> {
        let Stand::Log(follower) = self.stand else {
            return None;
        };
        match self.reader.log.take(follower) {
            Taken::Told(told) => {
                self.told = told.place();
                Some(told)
            }
            // Said by the next look.
            Taken::Nothing | Taken::Lagging => None,
        }
    }

    /// Goes on from the stream; `None`: look again.
    async fn kept_at(&mut self, place: EventId) -> Result<Option<Arc<Told>>, ReadingEnd> {
        self.changes.mark_unchanged();
        match self.reader.log.enter(place) {
            Entry::Here(follower) => {
                self.stand = Stand::Log(follower);
                return Ok(None);
            }
            Entry::Unknown => {
                let changed = timeout(UNKNOWN_MAX, self.changed()).await;
                changed.map_err(|_elapsed| ReadingEnd::Lost)??;
                return Ok(None);
            }
            Entry::Older => {}
        }
        // Behind another connection there may be another stream, whose events have the same numbers.
        if self.connection.has_changed().unwrap_or(true) {
            return Err(ReadingEnd::Lost);
        }
        let from = place.sequence + 1;
        let kept = self.reader.keeper().next(&self.reader.of, from).await;
        match kept {
            Ok(Some(kept)) => {
                self.pauses.reached();
                let id = EventId {
                    sequence: kept.sequence,
                    ..place
                };
                self.stand = Stand::Stream(id);
                self.told = id;
                let event = SessionEvent::new(id, kept.at, kept.payload.into());
                Ok(Some(Arc::new(Told::Event(event))))
            }
            // What the log has dropped the stream has dropped, too.
            Ok(None) => {
                self.told = self.reader.log.oldest();
                self.stand = Stand::Stream(self.told);
                Ok(None)
            }
            Err(unheard) => {
                tracing::debug!(
                    error = report(&unheard),
                    "the stream of events is not heard of"
                );
                self.pauses.pause().await;
                Ok(None)
            }
        }
    }

    /// Whether it has not been told yet what there was when it began.
    fn is_catching_up(&self) -> bool {
        self.told.epoch == self.behind_until.epoch
            && self.told.sequence < self.behind_until.sequence
    }

    async fn changed(&mut self) -> Result<(), ReadingEnd> {
        let changed = self.changes.changed().await;
        changed.map_err(|_log_is_gone| ReadingEnd::Lost)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Stand::Log(follower) = self.stand {
            self.reader.log.leave(follower);
        }
    }
}
