//! The events of a session, as they come. They are news, not the record: some may be missing, and the call's row is right.

use async_nats::Subscriber;
use fleet::{ids::Label, wire::event::Event};
use futures_util::StreamExt;

use crate::{client::FleetClient, error::AskError};

/// Receives the events of a session. Dropping it ends the subscription.
///
/// Events that are not taken are buffered up to the connection's own bound; beyond it they are lost.
#[derive(Debug)]
pub struct Follow(Subscriber);

impl FleetClient {
    /// Follows the calls of a session from now on.
    ///
    /// # Errors
    ///
    /// [`AskError::Closed`].
    pub async fn follow(&self, tenant: &Label, session: &Label) -> Result<Follow, AskError> {
        let subject = self.subjects().events_of_session(tenant, session);
        let subscribing = self.connection().subscribe(subject).await;
        let heard = subscribing.map_err(|_gone| AskError::Closed)?;
        // After this, no event is missed.
        let flushed = self.connection().flush().await;
        flushed.map_err(|_gone| AskError::Closed)?;
        Ok(Follow(heard))
    }
}

impl Follow {
    /// The next event; `None` when the connection is closed. Kinds that this release does not know are skipped. Cancel-safe.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let message = self.0.next().await?;
            if let Ok(event) = Event::read(&message.payload) {
                return Some(event);
            }
        }
    }
}
