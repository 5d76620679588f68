//! The new events of a session, in order: what a consumer delivers, as long as nothing is left out.

use async_nats::{Client, Message, StatusCode, Subject, Subscriber};
use bytes::Bytes;
use fleet::bus::kept::{DeliveredEvent, HEARTBEAT, delivered};
use futures_util::StreamExt;
use tokio::time::timeout;

use super::{
    keeper::{Consumer, Keeper, SessionOf},
    unheard::Unheard,
};

/// Where a heartbeat says that the server waits for room.
const STALLED: &str = "Nats-Consumer-Stalled";
/// Where a heartbeat says how many events were delivered.
const LAST: &str = "Nats-Last-Consumer";
/// How many heartbeats may be missing.
const MISSED_MAX: u32 = 2;

/// What one consumer delivers.
#[derive(Debug)]
pub(crate) struct Live {
    client: Client,
    heard: Subscriber,
    /// Taken away with this.
    _consumer: Consumer,
    /// How many events it has delivered.
    places: u64,
}

/// What was heard of a consumer.
#[derive(Debug)]
pub(crate) enum Heard {
    /// An event, and where it stands.
    Event(Box<Message>, DeliveredEvent),
    /// Everything that there is was delivered.
    Idle,
}

impl Live {
    /// The events of a session from this sequence on, as they come. Dropping what is returned, or the future, ends it: the server takes the
    /// consumer away.
    ///
    /// # Errors
    ///
    /// Nothing is heard of the stream.
    pub(super) async fn listen(
        keeper: &Keeper,
        of: &SessionOf,
        from: u64,
    ) -> Result<Self, Unheard> {
        let (heard, consumer) = keeper.consumer(of, from).await?;
        Ok(Self {
            client: keeper.client(),
            heard,
            _consumer: consumer,
            places: 0,
        })
    }

    /// What is heard next. Cancel-safe.
    ///
    /// # Errors
    ///
    /// The consumer is gone, or has left something out: whoever wants to go on listens anew, behind the last event.
    pub(crate) async fn next(&mut self) -> Result<Heard, Unheard> {
        loop {
            let message = timeout(HEARTBEAT * (MISSED_MAX + 1), self.heard.next()).await;
            let message = message.map_err(|_silence| Unheard::Broken("no heartbeat"))?;
            let message = message.ok_or(Unheard::Away)?;
            match message.status {
                None => {
                    let reply = message.reply.as_ref();
                    let at = reply.and_then(|reply| delivered(reply.as_str()));
                    // Nobody but the server knows the inbox; what is no event all the same is none.
                    let Some(at) = at else { continue };
                    if at.place != self.places + 1 {
                        return Err(Unheard::Broken("an event was left out"));
                    }
                    self.places = at.place;
                    return Ok(Heard::Event(Box::new(message), at));
                }
                Some(StatusCode::IDLE_HEARTBEAT) => {
                    if let Some(room) = wants_room(&message) {
                        self.has_room(room).await;
                    } else if self.is_behind(&message) {
                        return Err(Unheard::Broken("events were left out"));
                    } else {
                        return Ok(Heard::Idle);
                    }
                }
                Some(_ended) => return Err(Unheard::Broken("the server has ended it")),
            }
        }
    }

    /// Says that what was sent so far was taken. Where this is lost, a heartbeat asks again.
    async fn has_room(&self, room: Subject) {
        if self.client.publish(room, Bytes::new()).await.is_err() {
            tracing::debug!("a consumer of events was not told that there is room");
        }
    }

    fn is_behind(&self, heartbeat: &Message) -> bool {
        let headers = heartbeat.headers.as_ref();
        let last = headers.and_then(|headers| headers.get(LAST));
        let last = last.and_then(|last| last.as_str().parse::<u64>().ok());
        last.is_some_and(|last| last != self.places)
    }
}

/// Where the server wants to hear that there is room: in a message of its own, or in a heartbeat where that was lost.
fn wants_room(message: &Message) -> Option<Subject> {
    let stalled = message.headers.as_ref().and_then(|it| it.get(STALLED));
    let stalled = stalled.map(|subject| Subject::from(subject.as_str()));
    message.reply.clone().or(stalled)
}
