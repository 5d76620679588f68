//! A wire to NATS.
//!
//! Messages are told apart by their subjects. An answer comes to an inbox that says nothing: it is known by the question, which
//! named that inbox. Greetings, subscriptions and pings are never struck; only silence takes them too.
//!
//! ```text
//! words  the bytes of both ends, cut into messages and the rest
//! kinds  the kind of each message
//! noise  faults that strike at random
//! carry  one direction: messages are recognised, and spoilt on their way
//! ```

mod carry;
mod kinds;
mod noise;
mod words;

use serde::{Deserialize, Serialize};

use super::{
    ends::Ends,
    line::{self, Line, Protocol},
};
use carry::Carrier;
use kinds::Kinds;
use noise::Noise;

/// A wire to NATS, for messages.
pub type Wire = line::Wire<Nats>;

/// A message that a fault can strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// A pointer on its way to the stream.
    Publish,
    /// The stream's word that it has one.
    PubAck,
    /// A pointer on its way to a worker.
    Deliver,
    /// A worker's word that it has one.
    Ack,
    /// A caller's question on its way to a dispatcher.
    Request,
    /// A dispatcher's answer, or a worker's word to a dispatcher.
    Reply,
    /// A question to a tool, or its answer.
    Tool,
    /// Anything else.
    Other,
}

/// What happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// It never arrives.
    Drop,
    /// It arrives twice.
    Duplicate,
    /// It arrives so many milliseconds later; others pass it.
    Delay(u32),
    /// It arrives behind the next one.
    Reorder,
    /// It arrives, and so does the last one of its kind once more.
    RepeatLast,
    /// The connection breaks in its middle.
    Cut,
}

/// The client protocol of NATS.
#[derive(Debug, Default)]
pub struct Nats {
    kinds: Kinds,
    noise: Noise,
}

impl Protocol for Nats {
    type Kind = Message;
    type Fault = Fault;

    async fn converse(line: &Line<Self>, ends: Ends<'_>) {
        tokio::select! {
            () = Carrier::new(line, ends.to_server).carry(ends.from_client) => {}
            () = Carrier::new(line, ends.to_client).carry(ends.from_server) => {}
        }
    }

    fn heal(&self) {
        self.noise.set(0, 0);
    }
}

impl Wire {
    /// From now on so many of a thousand messages are struck, besides those that are armed for: dropped, doubled, delayed or
    /// put behind the next one. Which, and how, is a function of the seed, the kind and the place in the order of its kind.
    /// Questions to tools and whatever has no kind are left in peace.
    pub fn noise(&self, seed: u64, per_mille: u64) {
        self.line.protocol.noise.set(seed, per_mille);
    }
}
