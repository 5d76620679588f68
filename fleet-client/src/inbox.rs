//! Where the answers to one client's requests come: one subscription; the last token of a reply subject names the request.
//!
//! A subscription for each request would be two more messages to the server. The library's own `request` keeps an entry for
//! every request that is never answered, as long as the connection lives.

use std::fmt;

use async_nats::{Client, Message, StatusCode, Subscriber};
use uuid::Uuid;

use crate::error::AskError;

/// An inbox.
#[derive(Debug)]
pub struct Inbox {
    prefix: String,
}

impl Inbox {
    /// Opens an inbox with an unguessable name, under the connection's prefix for inboxes. Answers come from the subscription,
    /// which buffers them up to the connection's own bound.
    ///
    /// # Errors
    ///
    /// [`AskError::Closed`].
    pub async fn open(client: &Client) -> Result<(Self, Subscriber), AskError> {
        // The library numbers its inboxes: a client that has seen one knows the next.
        let prefix = format!("{}.{}", client.new_inbox(), Uuid::new_v4().simple());
        let subscribing = client.subscribe(format!("{prefix}.*")).await;
        let answers = subscribing.map_err(|_gone| AskError::Closed)?;
        Ok((Self { prefix }, answers))
    }

    /// The reply subject of the request with this token. A token contains no dot.
    pub fn address(&self, token: impl fmt::Display) -> String {
        format!("{}.{token}", self.prefix)
    }

    /// The token in a reply subject.
    pub fn token<'a>(&self, subject: &'a str) -> Option<&'a str> {
        subject
            .strip_prefix(self.prefix.as_str())?
            .strip_prefix('.')
    }

    /// Whether the server's message is about this inbox.
    pub(crate) fn is_meant(&self, said: &str) -> bool {
        said.contains(self.prefix.as_str())
    }
}

/// Whether the server says that nothing is subscribed where the request went.
pub fn is_no_responders(message: &Message) -> bool {
    message.status == Some(StatusCode::NO_RESPONDERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_token_and_another_inbox_none() {
        let inbox = Inbox {
            prefix: "_INBOX.a.b".to_owned(),
        };
        let address = inbox.address(7);
        assert_eq!(inbox.token(&address), Some("7"));
        assert_eq!(inbox.token("_INBOX.a.bc.7"), None);
        assert_eq!(inbox.token("_INBOX.a.c.7"), None);
        assert!(inbox.is_meant("subscription to \"_INBOX.a.b.*\""));
        assert!(!inbox.is_meant("publish to \"toolfleet.v1.default.get\""));
    }
}
