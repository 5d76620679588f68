//! Messages that the client of NATS cannot read: not UTF-8, or headers that are none. Any client may send them.
//!
//! Ours hands them over marked and without headers, and counts them; the published one would end the connection
//! (`docs/decisions/0032-patch-the-nats-client.md`).

use std::sync::atomic::Ordering;

use async_nats::{Client, Message, StatusCode};

use crate::telemetry::metrics;

/// Whether the subject, the reply or the headers of a message cannot be read. It has no headers then, and no reply where
/// that is what cannot be read.
pub fn is_malformed(message: &Message) -> bool {
    message.status == Some(StatusCode::MALFORMED_MESSAGE)
}

/// Shows what this connection counts, as long as the process lives.
pub(super) fn show(client: &Client) {
    let statistics = client.statistics();
    metrics().malformed_messages(move || statistics.malformed_messages.load(Ordering::Relaxed));
}
