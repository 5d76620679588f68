//! Callers that wait for a call to be decided. They are memory of this process and nothing else: if it dies, a caller's request
//! times out and is sent again with its key.
//!
//! A waiter is woken by whichever comes first: the worker's message on NATS, its own timer when the call expires, or the poll
//! that reads every awaited call once a second. So a lost message costs at most that second.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_nats::Subscriber;
use bytes::Bytes;
use fleet::{
    bus::{BusError, connect::Bus},
    ids::{CallId, DispatcherId},
    store::{PgPool, read},
    telemetry::{metrics, report},
    wire::{envelope::EncodedEnvelope, subjects::Subjects, words},
};
use futures_util::StreamExt;
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::expiry::Expiry;

/// What a waiter gets: the result envelope, not marked as replayed. `None` until the call is decided.
pub(crate) type Decided = Option<EncodedEnvelope>;

/// The waiting callers, by call.
#[derive(Debug, Clone)]
pub(crate) struct Waiters(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    waiting: Mutex<HashMap<CallId, watch::Sender<Decided>>>,
    expiry: Expiry,
}

impl Waiters {
    /// How often the ledger is asked about every awaited call.
    const POLL: Duration = Duration::from_secs(1);
    /// The most calls in one question.
    const POLL_CALLS: usize = 1000;

    /// Without waiters. Those that come ask `expiry` when their calls expire.
    pub(crate) fn new(expiry: Expiry) -> Self {
        Self(Arc::new(Shared {
            waiting: Mutex::default(),
            expiry,
        }))
    }

    /// Waits for a call from now on. Register first and read the row after that: then no decision is missed.
    pub(crate) fn register(&self, call: CallId) -> Waiting {
        let mut waiters = self.lock();
        let decided = waiters
            .entry(call)
            .or_insert_with(|| watch::Sender::new(None))
            .subscribe();
        metrics().waiting(waiters.len());
        Waiting {
            call,
            decided: Some(decided),
            waiters: self.clone(),
        }
    }

    /// Wakes every waiter of a call; returns the envelope if there is none.
    fn tell(&self, envelope: EncodedEnvelope) -> Option<EncodedEnvelope> {
        match self.lock().get(&envelope.call()) {
            Some(waiting) => {
                waiting.send_replace(Some(envelope));
                None
            }
            None => Some(envelope),
        }
    }

    fn undecided(&self) -> Vec<CallId> {
        self.lock()
            .iter()
            .filter(|(_, decided)| decided.borrow().is_none())
            .map(|(call, _)| *call)
            .collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<CallId, watch::Sender<Decided>>> {
        self.0
            .waiting
            .lock()
            .expect("no thread panics while holding the waiters")
    }

    /// Receives what workers tell this dispatcher. Ends when `stop` is cancelled.
    pub(crate) async fn listen(
        self,
        bus: Bus,
        dispatcher: DispatcherId,
        stop: CancellationToken,
    ) -> Result<impl Future<Output = ()> + Send, BusError> {
        let subject = bus.subjects.done_of_dispatcher(dispatcher);
        let subscription = bus.client.subscribe(subject).await;
        let mut words = subscription.map_err(|error| BusError::Unavailable {
            doing: "listen for decided calls",
            source: Some(Box::new(error)),
        })?;
        Ok(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    word = words.next() => match word {
                        Some(word) => {
                            for envelope in self.hear(&word.subject, word.payload) {
                                hand_on(&bus, envelope).await;
                            }
                        }
                        None => return,
                    },
                }
            }
        })
    }

    /// An empty message only rings the bell: the poll reads the row. Of envelopes that came together, those without waiters
    /// here are returned: sent under their own subjects, other dispatchers would have heard them.
    fn hear(&self, subject: &str, payload: Bytes) -> Vec<EncodedEnvelope> {
        if Subjects::is_together(subject) {
            let envelopes = words::split(payload).filter_map(EncodedEnvelope::read);
            return envelopes
                .filter_map(|envelope| self.tell(envelope))
                .collect();
        }
        let call = Subjects::call_of_done(subject);
        let envelope = call.and_then(|call| EncodedEnvelope::read_of(call, payload));
        // Waiters at other dispatchers have heard it too.
        drop(envelope.and_then(|envelope| self.tell(envelope)));
        Vec::new()
    }

    /// Asks the ledger about every awaited call, once a second, until `stop`.
    pub(crate) async fn poll(self, pool: PgPool, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(Self::POLL) => {}
            }
            for calls in self.undecided().chunks(Self::POLL_CALLS) {
                self.look(&pool, calls).await;
            }
        }
    }

    /// Reads these calls, and wakes the waiters of those that are decided.
    pub(crate) async fn look(&self, pool: &PgPool, calls: &[CallId]) {
        if calls.is_empty() {
            return;
        }
        let rows = match read::decided(pool, calls).await {
            Ok(rows) => rows,
            Err(error) => {
                return tracing::debug!(error = report(&error), "decided calls were not read");
            }
        };
        for row in rows {
            match row.envelope(false) {
                Ok(envelope) => {
                    let envelope = envelope.as_ref().and_then(EncodedEnvelope::of);
                    // A waiter that has left meanwhile does not need it.
                    drop(envelope.and_then(|envelope| self.tell(envelope)));
                }
                Err(error) => {
                    tracing::error!(error = report(&error), "a decided call cannot be read");
                }
            }
        }
    }

    /// Has the call looked at when it expires, `left` from now, and again as often as that is worth it. Never returns.
    async fn look_when_over(&self, call: CallId, mut left: Duration) -> Decided {
        loop {
            sleep(left).await;
            left = self.0.expiry.look(call).await;
        }
    }
}

/// Publishes an envelope under its own subject, where waiters at other dispatchers hear it.
async fn hand_on(bus: &Bus, envelope: EncodedEnvelope) {
    let subject = bus.subjects.done_elsewhere(envelope.call());
    let lost = "a word was not handed on; who waits for it finds out by itself";
    bus.tell(subject, envelope.into_bytes(), lost).await;
}

/// One waiting caller. Dropping it ends the wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    call: CallId,
    /// `None` only while it is dropped.
    decided: Option<watch::Receiver<Decided>>,
    waiters: Waiters,
}

impl Waiting {
    /// The decision, or `None` when the wait is over. The call expires `left` from now, unless it ends before. `elsewhere`
    /// receives what workers tell other dispatchers.
    pub(crate) async fn decided(
        &mut self,
        wait: Duration,
        left: Duration,
        mut elsewhere: Option<Subscriber>,
    ) -> Decided {
        let call = self.call;
        let heard = async {
            while let Some(subscription) = elsewhere.as_mut() {
                let word = subscription.next().await;
                match word.map(|word| EncodedEnvelope::read_of(call, word.payload)) {
                    Some(Some(envelope)) => return envelope,
                    Some(None) => {}
                    None => break,
                }
            }
            std::future::pending().await
        };
        let decided = self.decided.as_mut()?;
        tokio::select! {
            decided = decided.wait_for(Option::is_some) => decided.ok().and_then(|decided| decided.clone()),
            envelope = heard => Some(envelope),
            () = sleep(wait) => None,
            // Most calls expire long after their callers have left: those set no second timer.
            never = self.waiters.look_when_over(call, left), if left < wait => never,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiters = self.waiters.lock();
        // Under the lock, so that of two that leave at once the second sees that none is left.
        drop(self.decided.take());
        if waiters
            .get(&self.call)
            .is_some_and(|decided| decided.receiver_count() == 0)
        {
            waiters.remove(&self.call);
        }
        metrics().waiting(waiters.len());
    }
}
