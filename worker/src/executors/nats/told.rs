//! What a service tells while it is at work: parts of its answer, and how far it is.
//!
//! It publishes them to the subject that its request named, with the id of the attempt, which nobody else was told: what comes
//! without it, or with another, is not believed.

use std::future;

use async_nats::{Message, Subscriber};
use fleet::bus::connect::Bus;
use futures_util::{FutureExt, StreamExt};

use super::request;
use crate::executors::{AttemptContext, Progress, headers};

/// The most messages of one attempt: the server sends no more.
const MESSAGES_MAX: u64 = 100_000;

/// Hears one service. Dropping it ends the subscription.
pub(super) struct ServiceEvents {
    /// `None`: nobody hears what the service tells.
    heard: Option<Subscriber>,
    attempt: String,
    progress: Progress,
}

impl ServiceEvents {
    /// Subscribes, where anybody hears it; before the request is sent. Without a subscription the service's answer alone speaks.
    pub(super) async fn of(bus: &Bus, context: &AttemptContext) -> Self {
        Self {
            heard: subscribed(bus, context).await,
            attempt: context.attempt_id.to_string(),
            progress: context.progress.clone(),
        }
    }

    /// Waits for what the service tells, and tells it. Cancel-safe.
    pub(super) async fn relay(&mut self) {
        let told = match &mut self.heard {
            Some(heard) => heard.next().await,
            None => future::pending().await,
        };
        match told {
            Some(message) => self.tell(&message),
            None => self.heard = None,
        }
    }

    /// Tells what the service had told when it answered.
    pub(super) fn finish(&mut self) {
        while let Some(heard) = &mut self.heard
            && let Some(Some(message)) = heard.next().now_or_never()
        {
            self.tell(&message);
        }
    }

    fn tell(&self, message: &Message) {
        if is_of_attempt(message, &self.attempt) {
            self.progress.relay(&message.payload);
        }
    }
}

async fn subscribed(bus: &Bus, context: &AttemptContext) -> Option<Subscriber> {
    if !context.progress.is_heard() {
        return None;
    }
    let subject = bus.subjects.tool_event(context.call_id);
    let mut heard = bus.client.subscribe(subject).await.ok()?;
    heard.unsubscribe_after(MESSAGES_MAX).await.ok()?;
    Some(heard)
}

fn is_of_attempt(message: &Message, attempt: &str) -> bool {
    let name = headers::fact_name(request::ATTEMPT_ID);
    let named = message.headers.as_ref().and_then(|all| {
        let mut all = all.iter();
        // Some services write names otherwise.
        all.find(|(known, _)| AsRef::<str>::as_ref(known).eq_ignore_ascii_case(&name))
    });
    let value = named.and_then(|(_, values)| values.first());
    value.is_some_and(|value| value.as_str().trim() == attempt)
}
