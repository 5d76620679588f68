//! One direction of a connection: messages are recognised, and spoilt on their way.
//!
//! What is not struck goes out as it came in, however long it is; what is struck is first waited for until all of it is here.

use std::{collections::HashMap, future::pending, ops::ControlFlow, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    Fault, Message, Nats,
    words::{self, Spoken},
};
use crate::wire::{
    ends::{Intake, Outlet},
    line::Line,
};

/// A longer message is left in peace.
const STRUCK_MAX: usize = 16 * 1024 * 1024;
/// Late messages of one direction at most, and their bytes; others are left in peace.
const LATE_MAX: usize = 1_024;
const LATE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// When nothing comes for so long, there is nothing to be put behind.
const BEHIND_MAX: Duration = Duration::from_secs(1);

/// One direction.
pub(super) struct Carrier<'a> {
    line: &'a Line<Nats>,
    to: Outlet,
    buffer: BytesMut,
    /// So much at the front of the buffer may go.
    ready: usize,
    /// So much of the message at hand has not been read yet, and may go.
    passing: usize,
    /// The message at hand, while not all of it is here that is needed.
    at_hand: Option<AtHand>,
    late: FuturesUnordered<BoxFuture<'static, Bytes>>,
    late_bytes: usize,
    /// What goes behind the next message, or goes when this time has come.
    behind: Option<(Bytes, Instant)>,
    /// The last one of its kind, of those that are to come again.
    last: HashMap<Message, Bytes>,
}

/// A message that was counted.
#[derive(Debug, Clone, Copy)]
struct AtHand {
    length: usize,
    kind: Message,
    nth: u64,
    fault: Option<Fault>,
    /// Whether the next one of its kind brings it along once more.
    comes_again: bool,
}

impl<'a> Carrier<'a> {
    pub(super) fn new(line: &'a Line<Nats>, to: Outlet) -> Self {
        Self {
            line,
            to,
            buffer: BytesMut::new(),
            ready: 0,
            passing: 0,
            at_hand: None,
            late: FuturesUnordered::new(),
            late_bytes: 0,
            behind: None,
            last: HashMap::new(),
        }
    }

    /// Carries what the one side says. Returns when the connection is to be cut.
    pub(super) async fn carry(mut self, mut from: Intake<'_>) {
        loop {
            if self.take_in().await.is_break() {
                return;
            }
            self.forward().await;
            // Nothing may go into the middle of a message.
            let between = self.passing == 0;
            let due = self.behind.as_ref().map(|(_, due)| *due);
            tokio::select! {
                read = from.read(&mut self.buffer) => match read {
                    Ok(true) => {}
                    Ok(false) => {
                        self.follow().await;
                        self.to.end().await;
                        pending::<()>().await;
                    }
                    Err(_reset) => return,
                },
                Some(message) = self.late.next(), if between => {
                    self.late_bytes -= message.len();
                    self.to.send(message).await;
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if between && due.is_some() => {
                    self.follow().await;
                }
            }
        }
    }

    /// Looks at everything in the buffer.
    async fn take_in(&mut self) -> ControlFlow<()> {
        loop {
            let here = self.buffer.len() - self.ready;
            if self.passing > 0 {
                let count = self.passing.min(here);
                self.ready += count;
                self.passing -= count;
                if self.passing > 0 {
                    return ControlFlow::Continue(());
                }
                self.follow().await;
                continue;
            }
            if let Some(at_hand) = self.at_hand {
                if here < at_hand.length {
                    return ControlFlow::Continue(());
                }
                self.at_hand = None;
                self.whole(at_hand).await;
                continue;
            }
            match words::read(&self.buffer[self.ready..]) {
                Spoken::Unfinished => return ControlFlow::Continue(()),
                Spoken::Nonsense => return ControlFlow::Break(()),
                Spoken::Rest(length) => self.ready += length,
                Spoken::Info(length) => {
                    match words::without_ways_around(&self.buffer[self.ready..][..length]) {
                        None => self.ready += length,
                        Some(info) => {
                            drop(self.take(length).await);
                            self.to.send(info).await;
                        }
                    }
                }
                Spoken::Message(envelope) => {
                    let Nats { kinds, noise } = &self.line.protocol;
                    let length = envelope.length;
                    let passing = self.line.armed.pass(kinds.kind(&envelope));
                    let (kind, nth) = (passing.kind, passing.nth);
                    let fault = passing.fault.or_else(|| noise.fault(kind, nth));
                    let comes_again = passing.next == Some(Fault::RepeatLast);
                    if length <= STRUCK_MAX && (fault.is_some() || comes_again) {
                        self.at_hand = Some(AtHand {
                            length,
                            kind,
                            nth,
                            fault,
                            comes_again,
                        });
                    } else {
                        self.passing = length;
                    }
                }
            }
        }
    }

    /// A message that is all here, and of interest.
    async fn whole(&mut self, at_hand: AtHand) {
        let message = self.take(at_hand.length).await;
        if at_hand.comes_again {
            self.last.insert(at_hand.kind, message.clone());
        }
        let Some(fault) = at_hand.fault else {
            return self.pass(message).await;
        };
        let struck = match fault {
            Fault::Drop => true,
            Fault::Duplicate => {
                self.pass(message.clone()).await;
                self.to.send(message).await;
                true
            }
            Fault::Delay(ms) => self.delay(message, Duration::from_millis(ms.into())).await,
            Fault::Reorder => {
                let free = self.behind.is_none();
                if free {
                    self.behind = Some((message, Instant::now() + BEHIND_MAX));
                } else {
                    self.pass(message).await;
                }
                free
            }
            Fault::RepeatLast => {
                self.pass(message).await;
                let last = self.last.remove(&at_hand.kind);
                let struck = last.is_some();
                self.to.send(last.unwrap_or_default()).await;
                struck
            }
            Fault::Cut => {
                self.line.armed.strike(at_hand.kind, at_hand.nth, fault);
                self.to.send(message.slice(..message.len() / 2)).await;
                self.to.end().await;
                return pending().await;
            }
        };
        if struck {
            self.line.armed.strike(at_hand.kind, at_hand.nth, fault);
        }
    }

    /// Others pass it, if there is room for it.
    async fn delay(&mut self, message: Bytes, by: Duration) -> bool {
        let room = self.late.len() < LATE_MAX && self.late_bytes + message.len() <= LATE_BYTES_MAX;
        if room {
            self.late_bytes += message.len();
            self.late.push(Box::pin(async move {
                sleep(by).await;
                message
            }));
        } else {
            self.pass(message).await;
        }
        room
    }

    async fn pass(&mut self, message: Bytes) {
        self.to.send(message).await;
        self.follow().await;
    }

    /// A message has gone: what was to go behind it follows.
    async fn follow(&mut self) {
        if let Some((message, _)) = self.behind.take() {
            self.forward().await;
            self.to.send(message).await;
        }
    }

    /// Takes what is at hand out of the way. What was before it goes.
    async fn take(&mut self, length: usize) -> Bytes {
        self.forward().await;
        self.buffer.split_to(length).freeze()
    }

    /// Sends what may go.
    async fn forward(&mut self) {
        let bytes = self.buffer.split_to(self.ready).freeze();
        self.ready = 0;
        self.to.send(bytes).await;
    }
}
