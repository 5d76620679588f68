//! Follows one session: fills its log with what the stream of events gets, as long as somebody reads that.
//!
//! NATS may be away meanwhile, and come back with another stream: then what is missing is told before what comes next.

use std::{convert::Infallible, sync::Arc, time::Duration};

use fleet::{delay::Reconnect, store::PgPool, telemetry::report};

use super::{
    begin::{Beginning, Missing, begin_again},
    gap,
    keeper::{Keeper, SessionOf},
    live::{Heard, Live},
    log::SessionLog,
    place::EventId,
    told::{SessionEvent, Told},
    unheard::Unheard,
};

/// The longest pause before NATS is asked again.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What follows a session.
pub(super) struct Follower {
    pub(super) of: SessionOf,
    pub(super) keeper: Keeper,
    pub(super) views: PgPool,
    pub(super) log: Arc<SessionLog>,
}

impl Follower {
    /// Follows until the future is dropped.
    pub(super) async fn run(self) {
        let mut pauses = Reconnect::up_to(PAUSE_MAX);
        // Up to where it is known that nothing is missing.
        let mut known = self.log.newest();
        loop {
            match self.listen(&mut known, &mut pauses).await {
                Ok(never) => match never {},
                Err(unheard) => {
                    tracing::debug!(error = report(&unheard), "a session is not heard of");
                }
            }
            pauses.pause().await;
        }
    }

    /// Listens until nothing is heard any more.
    async fn listen(
        &self,
        known: &mut EventId,
        pauses: &mut Reconnect,
    ) -> Result<Infallible, Unheard> {
        let mut connection = self.keeper.connection();
        let stream = self.keeper.stands().await?;
        let missing = begin_again(*known, &stream);
        if missing != Missing::Nothing {
            let behind = EventId {
                epoch: stream.epoch,
                sequence: stream.first - 1,
            };
            let beginning = Beginning { behind, missing };
            if let Some(gap) = gap::look(&self.views, &self.of, beginning).await {
                self.log.push(Told::Gap(gap));
            }
            *known = behind;
        }
        let epoch = stream.epoch;
        let last = self.log.newest();
        let from = last.sequence.max(known.sequence) + 1;
        let mut live = Live::listen(&self.keeper, &self.of, from).await?;
        pauses.reached();
        loop {
            let heard = tokio::select! {
                heard = live.next() => heard?,
                // What was delivered in between is lost, or the server is another one.
                changed = connection.changed() => {
                    changed.map_err(|_closed| Unheard::Away)?;
                    return Err(Unheard::Reconnected);
                }
            };
            let up_to = match heard {
                Heard::Event(message, at) => {
                    let id = EventId {
                        epoch,
                        sequence: at.sequence,
                    };
                    let event = SessionEvent::new(id, at.at, message.payload);
                    self.log.push(Told::Event(event));
                    (at.pending == 0).then_some(at.sequence)
                }
                Heard::Idle => Some(0),
            };
            if let Some(sequence) = up_to {
                // All was delivered that the stream had when the consumer was made.
                let sequence = sequence.max(stream.last);
                *known = EventId { epoch, sequence };
            }
        }
    }
}
