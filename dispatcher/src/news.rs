//! What dispatchers publish about calls beside answers: to waiting callers elsewhere, to workers, and to followers of a
//! session. All of it is in the ledger too, so a lost message is found there.

use std::time::Duration;

use async_nats::Subscriber;
use bytes::Bytes;
use fleet::{
    bus::{connect::Bus, events::Events},
    ids::{CallId, DispatcherId},
    store::{PgPool, read},
    telemetry::report,
};
use tokio::time::timeout;

use crate::door::Door;

/// Tells the dispatcher that accepted a call, and every dispatcher that listens for it, that the call is decided. Only the bell:
/// this process did not claim the call and has no proof, so they read the row.
pub(crate) async fn tell_waiters(door: &Door, dispatcher: DispatcherId, call: CallId) {
    let subject = door.bus.subjects.done(dispatcher, call);
    ring(&door.bus, subject, Bytes::new()).await;
    tell_decided(&door.events, &door.pool, call).await;
}

/// Counts a call that the ledger itself has moved, and tells the followers of its session how it was decided, by its row.
pub(crate) async fn tell_decided(events: &Events, pool: &PgPool, call: CallId) {
    match read::find(pool, call).await {
        Ok(Some(row)) => {
            row.count();
            events.tell(row.followed(), || row.finished());
        }
        Ok(None) => {}
        Err(error) => tracing::debug!(error = report(&error), "an event was left out"),
    }
}

/// Publishes something that is also in the ledger.
pub(crate) async fn ring(bus: &Bus, subject: String, body: Bytes) {
    let lost = "a bell was not rung; what it says is found in the ledger";
    bus.tell(subject, body, lost).await;
}

/// How long the subscription may take.
const SUBSCRIBE_MAX: Duration = Duration::from_secs(1);

/// Subscribes to what workers tell any dispatcher about a call; subscribed when this returns. `None`: NATS does not answer.
pub(crate) async fn of_call(bus: &Bus, call: CallId) -> Option<Subscriber> {
    let subject = bus.subjects.done_of_call(call);
    // While its connection is down, the client queues a bounded number of messages and then blocks for ever.
    let subscribing = timeout(SUBSCRIBE_MAX, bus.client.subscribe(subject)).await;
    bus.flush().await;
    subscribing.ok()?.ok()
}
