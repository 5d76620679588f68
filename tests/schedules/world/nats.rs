//! A NATS that hands every message to all present subscribers, at once and in order.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll},
};

pub(crate) use async_nats::{Message, StatusCode, Subject};
use bytes::Bytes;
use fleet::wire::subjects::Subjects;
use futures_util::Stream;

use super::tokio::sync::{mpsc, watch};

/// Messages that a subscription holds.
const HELD_MAX: usize = 64;

/// Nothing fails here.
#[derive(Debug, thiserror::Error)]
#[error("not reachable")]
pub(crate) struct Unreachable;

#[derive(Debug, Clone)]
pub(crate) struct Bus {
    pub(crate) client: Client,
    pub(crate) subjects: Subjects,
    connections: Arc<watch::Sender<u64>>,
}

impl Bus {
    pub(crate) const fn is_connected(&self) -> bool {
        true
    }

    pub(crate) fn epoch(&self) -> watch::Receiver<u64> {
        self.connections.subscribe()
    }

    pub(crate) async fn tell(&self, subject: String, body: Bytes, _lost: &'static str) {
        self.client
            .publish(subject, body)
            .await
            .expect("nothing fails here");
    }

    /// The connection broke and was found again: a client takes what it had asked for as forgotten.
    pub(crate) fn reconnect(&self) {
        self.connections.send_modify(|count| *count += 2);
    }
}

impl Default for Bus {
    fn default() -> Self {
        let prefix = "toolfleet".parse().expect("a prefix");
        Self {
            client: Client::default(),
            subjects: Subjects::new(prefix),
            connections: Arc::new(watch::channel(1).0),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Client(Arc<Mutex<Broker>>);

#[derive(Debug, Default)]
struct Broker {
    subscriptions: Vec<(u64, Subject, mpsc::Sender<Message>)>,
    last: u64,
}

impl Client {
    fn broker(&self) -> MutexGuard<'_, Broker> {
        self.0.lock().expect("nobody yields while holding it")
    }

    pub(crate) async fn subscribe(
        &self,
        subject: impl Into<Subject>,
    ) -> Result<Subscriber, Unreachable> {
        shuttle::future::yield_now().await;
        let (sender, messages) = mpsc::channel(HELD_MAX);
        let mut broker = self.broker();
        broker.last += 1;
        let id = broker.last;
        broker.subscriptions.push((id, subject.into(), sender));
        Ok(Subscriber {
            client: self.clone(),
            id,
            messages,
        })
    }

    pub(crate) async fn publish(
        &self,
        subject: impl Into<Subject>,
        payload: Bytes,
    ) -> Result<(), Unreachable> {
        shuttle::future::yield_now().await;
        self.hand_out(message(subject.into(), None, payload));
        Ok(())
    }

    pub(crate) async fn publish_with_reply(
        &self,
        subject: impl Into<Subject>,
        reply: impl Into<Subject>,
        payload: Bytes,
    ) -> Result<(), Unreachable> {
        shuttle::future::yield_now().await;
        self.hand_out(message(subject.into(), Some(reply.into()), payload));
        Ok(())
    }

    pub(crate) async fn flush(&self) -> Result<(), Unreachable> {
        shuttle::future::yield_now().await;
        Ok(())
    }

    pub(crate) fn new_inbox(&self) -> String {
        let mut broker = self.broker();
        broker.last += 1;
        format!("_INBOX.{}", broker.last)
    }

    /// Hands a message to all subscribers of its subject, and returns whether there were any.
    pub(crate) fn hand_out(&self, message: Message) -> bool {
        let whom: Vec<_> = self
            .broker()
            .subscriptions
            .iter()
            .filter(|(_, pattern, _)| fits(pattern, &message.subject))
            .map(|(_, _, sender)| sender.clone())
            .collect();
        let mut heard = false;
        for sender in whom {
            // Who has just gone hears nothing.
            heard |= sender.try_send(message.clone()).is_ok();
        }
        heard
    }
}

/// A message as a client gets it.
pub(crate) fn message(subject: Subject, reply: Option<Subject>, payload: Bytes) -> Message {
    Message {
        subject,
        reply,
        length: payload.len(),
        payload,
        headers: None,
        status: None,
        description: None,
    }
}

fn fits(pattern: &str, subject: &str) -> bool {
    let (mut pattern, mut subject) = (pattern.split('.'), subject.split('.'));
    loop {
        match (pattern.next(), subject.next()) {
            (None, None) => return true,
            (Some(token), Some(name)) if token == "*" || token == name => {}
            (_, _) => return false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Subscriber {
    client: Client,
    id: u64,
    messages: mpsc::Receiver<Message>,
}

impl Stream for Subscriber {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Message>> {
        self.messages.poll_recv(context)
    }
}

impl Subscriber {
    /// Nothing more comes than what is there.
    pub(crate) async fn unsubscribe(&self) -> Result<(), Unreachable> {
        shuttle::future::yield_now().await;
        self.leave();
        Ok(())
    }

    fn leave(&self) {
        let mut broker = self.client.broker();
        let place = broker
            .subscriptions
            .iter()
            .position(|(id, ..)| *id == self.id);
        let gone = place.map(|place| broker.subscriptions.swap_remove(place));
        drop(broker);
        drop(gone);
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.leave();
    }
}
