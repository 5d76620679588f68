//! Callers who wait for a call to be decided. They are memory of this process and nothing else:
//! if it dies, a caller's request times out and is sent again with its key.
//!
//! A waiter is woken by whichever comes first: the worker's word on NATS, or the poll that reads every call waited for
//! once a second. So a lost message costs at most that second.

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
    mutant::{self, Mutant},
    store::{PgPool, read},
    telemetry::{metrics, report},
    wire::{envelope::EncodedEnvelope, subjects::Subjects},
};
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What a waiter is told: the result envelope, not marked as replayed. `None` until the call is decided.
pub(crate) type Decided = Option<EncodedEnvelope>;

/// Who waits for what.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waiters(Arc<Mutex<HashMap<CallId, watch::Sender<Decided>>>>);

impl Waiters {
    /// How often the ledger is asked about every call that is waited for.
    const POLL: Duration = Duration::from_secs(1);
    /// Calls in one question.
    const POLL_CALLS: usize = 1000;

    /// Waits for a call from now on. Register first, look at the row after that: then no decision is missed.
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

    /// Tells everybody who waits for a call.
    fn tell(&self, envelope: EncodedEnvelope) {
        let crossed = mutant::on(Mutant::AnswersCrossed).then(|| self.undecided().pop());
        let call = crossed.flatten().unwrap_or(envelope.call());
        if let Some(waiting) = self.lock().get(&call) {
            waiting.send_replace(Some(envelope));
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
            .lock()
            .expect("nobody panics while holding the waiters")
    }

    /// Hears what workers say to this dispatcher. Ends when `stop` is cancelled.
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
                        Some(word) => self.hear(&word.subject, word.payload),
                        None => return,
                    },
                }
            }
        })
    }

    /// An empty word only rings the bell: the poll reads the row.
    fn hear(&self, subject: &str, payload: Bytes) {
        let call = Subjects::call_of_done(subject);
        if let Some(envelope) = call.and_then(|call| EncodedEnvelope::read(call, payload)) {
            self.tell(envelope);
        }
    }

    /// Asks the ledger about every call that is waited for, once a second, until `stop`.
    pub(crate) async fn poll(self, pool: PgPool, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(Self::POLL) => {}
            }
            for calls in self.undecided().chunks(Self::POLL_CALLS) {
                match read::decided(&pool, calls).await {
                    Ok(rows) => {
                        for row in rows {
                            match row.envelope(false) {
                                Ok(envelope) => {
                                    let envelope = envelope.as_ref().and_then(EncodedEnvelope::of);
                                    envelope
                                        .into_iter()
                                        .for_each(|envelope| self.tell(envelope));
                                }
                                Err(error) => tracing::error!(
                                    error = report(&error),
                                    "a decided call cannot be read"
                                ),
                            }
                        }
                    }
                    Err(error) => {
                        tracing::debug!(error = report(&error), "waiters were not polled")
                    }
                }
            }
        }
    }
}

/// One caller who waits. Dropping it ends the waiting.
#[derive(Debug)]
pub(crate) struct Waiting {
    call: CallId,
    /// `None` only while it is dropped.
    decided: Option<watch::Receiver<Decided>>,
    waiters: Waiters,
}

impl Waiting {
    /// The decision, or `None` when the time is over. `elsewhere` hears what workers say to other dispatchers.
    pub(crate) async fn decided(
        &mut self,
        wait: Duration,
        mut elsewhere: Option<Subscriber>,
    ) -> Decided {
        let call = self.call;
        let heard = async {
            while let Some(subscription) = elsewhere.as_mut() {
                let word = subscription.next().await;
                match word.map(|word| EncodedEnvelope::read(call, word.payload)) {
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
            () = tokio::time::sleep(wait) => None,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiters = self.waiters.lock();
        // Under the lock, so that of two who leave at once the second sees that nobody is left.
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
