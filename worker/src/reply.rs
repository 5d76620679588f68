//! Reply: tells the dispatcher that accepted the call. Replies to one dispatcher that are ready together share a message.

use std::collections::HashMap;

use bytes::Bytes;
use fleet::{
    bus::connect::Bus,
    ids::{CallId, DispatcherId},
    wire::words,
};
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    task::JoinSet,
};

/// The most replies that wait; further senders wait.
const WAITING_MAX: usize = 1_024;
/// The most replies in one message.
const TOGETHER_MAX: usize = 256;
/// The most bytes in one message, unless a single reply has more.
const BYTES_MAX: usize = 512 * 1024;

/// The reply for one call.
struct Word {
    dispatcher: DispatcherId,
    call: CallId,
    /// The envelope with its proof. Empty: it only rings the bell, and the dispatcher reads the row.
    envelope: Bytes,
}

/// Takes replies to send. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Replies(Sender<Word>);

impl Replies {
    /// Starts the task that sends them. It ends when every clone is dropped and everything is sent.
    pub(crate) fn start(bus: &Bus, tasks: &mut JoinSet<()>) -> Self {
        let (sender, waiting) = mpsc::channel(WAITING_MAX);
        tasks.spawn(say(bus.clone(), waiting));
        Self(sender)
    }

    /// Tells the dispatcher that accepted the call. If the message is lost, the dispatcher finds the end by reading the row.
    pub(crate) async fn tell(&self, dispatcher: DispatcherId, call: CallId, envelope: Bytes) {
        let word = Word {
            dispatcher,
            call,
            envelope,
        };
        if self.0.send(word).await.is_err() {
            tracing::debug!("waiters were not told; they find out by themselves");
        }
    }
}

async fn say(bus: Bus, mut waiting: Receiver<Word>) {
    let mut arrived = Vec::with_capacity(TOGETHER_MAX);
    while waiting.recv_many(&mut arrived, TOGETHER_MAX).await > 0 {
        // Yields once before sending, so that replies that are ready together share the message.
        tokio::task::yield_now().await;
        while arrived.len() < TOGETHER_MAX
            && let Ok(word) = waiting.try_recv()
        {
            arrived.push(word);
        }
        let mut together: HashMap<DispatcherId, Vec<(CallId, Bytes)>> = HashMap::new();
        for word in arrived.drain(..) {
            let words = together.entry(word.dispatcher).or_default();
            words.push((word.call, word.envelope));
        }
        for (dispatcher, words) in together {
            say_to(&bus, dispatcher, words).await;
        }
    }
}

async fn say_to(bus: &Bus, dispatcher: DispatcherId, words: Vec<(CallId, Bytes)>) {
    let limit = BYTES_MAX.min(bus.payload_max());
    let (mut first, mut envelopes, mut bytes) = (None, Vec::new(), 0);
    for (call, envelope) in words {
        let weight = words::weight(&envelope);
        if envelope.is_empty() || weight > limit {
            publish(bus, bus.subjects.done(dispatcher, call), envelope).await;
            continue;
        }
        if bytes + weight > limit {
            say_together(bus, dispatcher, first, &mut envelopes).await;
            bytes = 0;
        }
        if envelopes.is_empty() {
            first = Some(call);
        }
        bytes += weight;
        envelopes.push(envelope);
    }
    say_together(bus, dispatcher, first, &mut envelopes).await;
}

/// `first`: the call of the first envelope.
async fn say_together(
    bus: &Bus,
    dispatcher: DispatcherId,
    first: Option<CallId>,
    envelopes: &mut Vec<Bytes>,
) {
    match (first, envelopes.len()) {
        (Some(call), 1) => {
            let envelope = envelopes.remove(0);
            publish(bus, bus.subjects.done(dispatcher, call), envelope).await;
        }
        (Some(_), 2..) => {
            let joined = words::join(envelopes);
            envelopes.clear();
            publish(bus, bus.subjects.done_together(dispatcher), joined).await;
        }
        (_, _) => {}
    }
}

async fn publish(bus: &Bus, subject: String, body: Bytes) {
    let lost = "waiters were not told; they find out by themselves";
    bus.tell(subject, body, lost).await;
}
