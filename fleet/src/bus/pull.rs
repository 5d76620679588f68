//! Pulls exactly as many messages as there are free slots; the permit of a slot travels with its message.
//!
//! Raw pulls with idle heartbeats on one inbox. The client's own `fetch` and `batch` lose a wake-up after a heartbeat, and
//! `messages()` prefetches hundreds, whose acknowledgement time then runs out in our memory (async-nats 0.51).

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_nats::{Client, Message, StatusCode, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{BusError, connect::Bus};
use crate::{ids::QueueName, wire::subjects::Subjects};

/// A message, and the slot for its attempt. Dropping it frees the slot.
#[derive(Debug)]
pub struct Delivered {
    /// The message's body.
    pub body: Bytes,
    /// Acknowledges it.
    pub acker: Acker,
    /// The slot.
    pub permit: OwnedSemaphorePermit,
}

/// Tells NATS what becomes of a message.
#[derive(Debug, Clone)]
pub struct Acker {
    client: Client,
    reply: Option<async_nats::Subject>,
}

impl Acker {
    /// The message is done with. If the acknowledgement is lost, the message comes again.
    pub async fn ack(&self) {
        self.say("+ACK".into()).await;
    }

    /// Deliver the message again after a pause.
    pub async fn again_after(&self, pause: Duration) {
        self.say(format!("-NAK {{\"delay\": {}}}", pause.as_nanos()).into())
            .await;
    }

    /// The message is not one of ours.
    pub async fn throw_away(&self) {
        self.say("+TERM not a pointer".into()).await;
    }

    async fn say(&self, word: Bytes) {
        let Some(reply) = self.reply.clone() else {
            return;
        };
        // While its connection is down, the client queues a bounded number of messages and then blocks for ever.
        let saying =
            tokio::time::timeout(Duration::from_secs(2), self.client.publish(reply, word)).await;
        if !matches!(saying, Ok(Ok(()))) {
            tracing::debug!("message was not acknowledged; it will come again");
        }
    }
}

/// Pulls one queue's messages.
#[derive(Debug)]
pub struct Puller {
    client: Client,
    inbox: String,
    subject: String,
    slots: Arc<Semaphore>,
    /// How many slots there are.
    all: usize,
    /// The permits of free slots.
    permits: Vec<OwnedSemaphorePermit>,
    /// Messages that were requested and not yet delivered.
    asked: usize,
    /// The pulls that may be open. Any other pull was forgotten with a lost connection, and its status is ignored.
    pulls: HashMap<u64, Instant>,
    last_pull: u64,
    heard: Instant,
}

impl Puller {
    const EXPIRES: Duration = Duration::from_secs(15);
    const HEARTBEAT: Duration = Duration::from_secs(5);
    /// Two and a half heartbeats: the pull is gone.
    const SILENCE_MAX: Duration = Duration::from_millis(12_500);
    /// The pause after an error status, so that a missing stream is not asked thousands of times a second.
    const PAUSE: Duration = Duration::from_millis(200);

    /// A puller with so many slots, at least one.
    pub fn new(bus: &Bus, queue: &QueueName, slots: usize) -> Self {
        let slots = slots.max(1);
        let stream = bus.subjects.jobs_stream();
        Self {
            client: bus.client.clone(),
            inbox: bus.client.new_inbox(),
            subject: format!(
                "$JS.API.CONSUMER.MSG.NEXT.{stream}.{}",
                Subjects::jobs_consumer(queue)
            ),
            slots: Arc::new(Semaphore::new(slots)),
            all: slots,
            permits: Vec::new(),
            asked: 0,
            pulls: HashMap::new(),
            last_pull: 0,
            heard: Instant::now(),
        }
    }

    /// Delivers until `intake` is cancelled. Messages that were requested and arrive after that are given back at once.
    ///
    /// # Errors
    ///
    /// NATS does not accept the subscription.
    pub async fn run(
        mut self,
        bus: &Bus,
        deliver: mpsc::Sender<Delivered>,
        intake: CancellationToken,
    ) -> Result<(), BusError> {
        let doing = "subscribe to pulled messages";
        let subscription = self.client.subscribe(format!("{}.*", self.inbox)).await;
        let mut subscription = subscription.map_err(|error| BusError::unavailable(doing, error))?;
        let mut epoch = bus.epoch();
        loop {
            if bus.is_connected() {
                // While disconnected the client would keep every pull and send all of them at once.
                self.ask().await;
            }
            tokio::select! {
                () = intake.cancelled() => break,
                message = subscription.next() => match message {
                    Some(message) => self.hear(message, &deliver).await,
                    None => break,
                },
                permit = Arc::clone(&self.slots).acquire_owned() => {
                    self.permits.extend(permit);
                }
                () = sleep_until(self.heard + Self::SILENCE_MAX), if self.asked > 0 => self.forget(),
                // A new connection: the server has forgotten our pulls.
                changed = epoch.changed() => match changed {
                    Ok(()) => self.forget(),
                    Err(_client_is_gone) => break,
                },
                // No other event wakes this loop when the client is connected again before it says so.
                () = tokio::time::sleep(Self::PAUSE), if !bus.is_connected() => {}
            }
        }
        self.hand_back(&mut subscription).await;
        Ok(())
    }

    /// Requests as many messages as slots are free, in portions that are worth a request.
    async fn ask(&mut self) {
        while let Ok(permit) = Arc::clone(&self.slots).try_acquire_owned() {
            self.permits.push(permit);
        }
        let free = self.permits.len().saturating_sub(self.asked);
        if free == 0 || (self.asked > 0 && free < (self.all / 4).max(1)) {
            return;
        }
        let request = format!(
            "{{\"batch\":{free},\"expires\":{},\"idle_heartbeat\":{}}}",
            Self::EXPIRES.as_nanos(),
            Self::HEARTBEAT.as_nanos()
        );
        self.last_pull += 1;
        let inbox = format!("{}.{}", self.inbox, self.last_pull);
        let asking = self
            .client
            .publish_with_reply(self.subject.clone(), inbox, request.into());
        // While its connection is down, the client queues a bounded number of messages and then blocks for ever.
        if matches!(
            tokio::time::timeout(Duration::from_secs(2), asking).await,
            Ok(Ok(()))
        ) {
            self.asked = self.permits.len();
            if self.last_pull.is_multiple_of(256) {
                // A pull that was filled ends without a status.
                self.pulls
                    .retain(|_, sent| sent.elapsed() < 2 * Self::EXPIRES);
            }
            self.pulls.insert(self.last_pull, Instant::now());
        }
        self.heard = Instant::now();
    }

    /// The server has no pull of ours any more.
    fn forget(&mut self) {
        self.asked = 0;
        self.pulls.clear();
        self.heard = Instant::now();
    }

    async fn hear(&mut self, message: Message, deliver: &mpsc::Sender<Delivered>) {
        self.heard = Instant::now();
        match message.status.unwrap_or(StatusCode::OK) {
            // What a pointer says stands in its body, whatever its headers are.
            StatusCode::OK | StatusCode::MALFORMED_MESSAGE => {
                let acker = Acker {
                    client: self.client.clone(),
                    reply: message.reply,
                };
                self.asked = self.asked.saturating_sub(1);
                match self.permits.pop() {
                    Some(permit) => {
                        let delivered = Delivered {
                            body: message.payload,
                            acker,
                            permit,
                        };
                        if let Err(refused) = deliver.send(delivered).await {
                            refused.0.acker.again_after(Duration::ZERO).await;
                        }
                    }
                    // An older pull was still open at the server, so more messages came than there are slots.
                    None => acker.again_after(Self::PAUSE).await,
                }
            }
            StatusCode::IDLE_HEARTBEAT => {}
            status => {
                let pull = message
                    .subject
                    .rsplit('.')
                    .next()
                    .and_then(|pull| pull.parse().ok());
                let ours = pull.and_then(|pull| self.pulls.remove(&pull));
                if ours.is_none() {
                    return;
                }
                let headers = message.headers.as_ref();
                let pending = headers.and_then(|headers| headers.get("Nats-Pending-Messages"));
                match pending.and_then(|count| count.as_str().parse::<usize>().ok()) {
                    Some(unused) => self.asked = self.asked.saturating_sub(unused),
                    None => self.forget(),
                }
                if status != StatusCode::TIMEOUT {
                    tracing::debug!(%status, "pull ended");
                    tokio::time::sleep(Self::PAUSE).await;
                }
            }
        }
    }

    /// Gives back messages that arrive for pulls that are still open, until the server has none of them in flight.
    async fn hand_back(&self, subscription: &mut Subscriber) {
        let giving_back = async {
            let unsubscribed =
                subscription.unsubscribe().await.is_ok() && self.client.flush().await.is_ok();
            while unsubscribed && let Some(message) = subscription.next().await {
                let is_a_pointer = matches!(
                    message.status,
                    None | Some(StatusCode::OK | StatusCode::MALFORMED_MESSAGE)
                );
                if is_a_pointer {
                    let acker = Acker {
                        client: self.client.clone(),
                        reply: message.reply,
                    };
                    acker.again_after(Duration::ZERO).await;
                }
            }
        };
        // Without NATS nothing can be given back, and the acknowledgement time runs out instead.
        if tokio::time::timeout(Duration::from_secs(2), giving_back)
            .await
            .is_err()
        {
            tracing::debug!("messages were not given back; they will come again");
        }
    }
}
