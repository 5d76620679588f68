//! A batch is what arrived while the last one was in flight: no timer, and no delay when nothing else waits.

use async_nats::{Message, Subscriber};
use futures_util::{FutureExt, StreamExt};

/// The most messages in a batch.
pub const ROWS_MAX: usize = 500;
/// The most bytes in a batch, unless a single message is larger.
const BYTES_MAX: usize = 1024 * 1024;

/// Waits for a message and takes what else is there. `None`: the subscription is over.
pub async fn next(subscription: &mut Subscriber) -> Option<Vec<Message>> {
    let first = subscription.next().await?;
    let mut bytes = first.payload.len();
    let mut batch = vec![first];
    while batch.len() < ROWS_MAX && bytes < BYTES_MAX {
        // Without `unconstrained` the runtime would pause the task after about a hundred messages.
        let waiting = tokio::task::unconstrained(subscription.next()).now_or_never();
        let Some(Some(message)) = waiting else { break };
        bytes += message.payload.len();
        batch.push(message);
    }
    Some(batch)
}
