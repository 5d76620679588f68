//! One request to a dispatcher.

use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;

/// How long the answer to a decision may take: the ledger's own limits, and a little more.
pub const DECISION_MAX: Duration = Duration::from_secs(15);

/// A request and its subject. The typed questions are in [`crate::calls`].
#[derive(Debug, Clone)]
pub struct Question {
    /// The subject of the endpoint.
    pub subject: String,
    /// The headers; usually there are none.
    pub headers: HeaderMap,
    /// The body, byte for byte.
    pub body: Bytes,
    /// How long the answer may take, sending included.
    pub patience: Duration,
}

impl Question {
    /// A question without headers that is answered as soon as a decision is made.
    pub fn new(subject: String, body: impl Into<Bytes>) -> Self {
        Self {
            subject,
            headers: HeaderMap::new(),
            body: body.into(),
            patience: DECISION_MAX,
        }
    }
}
