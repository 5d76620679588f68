//! Callers that wait for a call to be decided. They are memory of this process and nothing else: if it dies, a caller's request
//! times out and is sent again with its key.
//!
//! A waiter is woken by whichever comes first: the worker's message on NATS, its own timer when the call expires, or the poll
//! that reads every awaited call once a second. So a lost message costs at most that second.
//!
//! The message is handed on only with the proof of the worker that claimed the call (`wire::proof`). Any other message, a
//! sweep's bell or a forged answer, makes this dispatcher read the row: calls that are rung for together in one statement,
//! then a pause.

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
    wire::{
        envelope::EncodedEnvelope,
        proof::{DoneSecret, Word},
        subjects::Subjects,
        words,
    },
};
use futures_util::{StreamExt, future::join};
use tokio::{
    sync::{Notify, watch},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use crate::{expiry::Expiry, running::Running};

/// What a waiter gets: the result envelope, not marked as replayed. `None` where the call is not decided.
pub(crate) type Decided = Option<EncodedEnvelope>;

/// What is known of an awaited call.
#[derive(Debug, Clone, Default)]
enum Known {
    /// Nothing that ends a wait.
    #[default]
    Open,
    /// Its tool asks its caller for something, at this revision.
    Asks(i32),
    /// It is decided.
    Decided(EncodedEnvelope),
}

impl Known {
    const fn is_decided(&self) -> bool {
        matches!(self, Self::Decided(_))
    }

    /// Whether it ends this wait.
    const fn ends(&self, wait: WaitFor) -> bool {
        match (self, wait) {
            (Self::Decided(_), _) => true,
            (Self::Asks(rev), WaitFor::QuestionAfter(seen)) => *rev > seen,
            (Self::Asks(_), WaitFor::Decision) | (Self::Open, _) => false,
        }
    }
}

/// What ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// That the call is decided.
    Decision,
    /// That too, or that its tool asks for something after this revision: who waits is the one who knows it.
    QuestionAfter(i32),
}

/// The waiting callers, by call.
#[derive(Debug, Clone)]
pub(crate) struct Waiters(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    waiting: Mutex<Table>,
    /// Told when the row of an awaited call is worth a look.
    rung: Notify,
    expiry: Expiry,
}

#[derive(Debug, Default)]
struct Table {
    calls: HashMap<CallId, Awaited>,
    /// Awaited calls that a bell was rung for, each once; nothing said of them is believed.
    rung: Vec<CallId>,
}

#[derive(Debug)]
struct Awaited {
    decided: watch::Sender<Known>,
    /// With what the call's worker proves its answer. Without one every answer comes from the row.
    secret: Option<DoneSecret>,
    is_rung: bool,
}

impl Waiters {
    /// How often the ledger is asked about every awaited call.
    const POLL: Duration = Duration::from_secs(1);
    /// How long after one look the next bells are answered: a forged bell costs a share of a statement.
    const LOOK_PAUSE: Duration = Duration::from_millis(10);
    /// The most calls in one question.
    const POLL_CALLS: usize = 1000;

    /// Without waiters. Those that come ask `expiry` when their calls expire.
    pub(crate) fn new(expiry: Expiry) -> Self {
        Self(Arc::new(Shared {
            waiting: Mutex::default(),
            rung: Notify::new(),
            expiry,
        }))
    }

    /// Waits for a call from now on. Register first and read the row after that: then no decision is missed. With its secret,
    /// the answer of its worker is believed without another look.
    pub(crate) fn register(&self, call: CallId, secret: Option<DoneSecret>) -> Waiting {
        let mut waiters = self.lock();
        let awaited = waiters.calls.entry(call).or_insert_with(|| Awaited {
            decided: watch::Sender::new(Known::Open),
            secret: None,
            is_rung: false,
        });
        awaited.secret = awaited.secret.or(secret);
        let decided = awaited.decided.subscribe();
        metrics().waiting(waiters.calls.len());
        Waiting {
            call,
            decided: Some(decided),
            waiters: self.clone(),
        }
    }

    /// Wakes every waiter of a call with what its row says.
    fn tell(&self, envelope: EncodedEnvelope) {
        // A waiter that has left meanwhile does not need it.
        if let Some(awaited) = self.lock().calls.get(&envelope.call()) {
            awaited.decided.send_replace(Known::Decided(envelope));
        }
    }

    /// Wakes the waiters of a call who know what its tool asks for at this revision.
    fn tell_question(&self, call: CallId, rev: i32) {
        if let Some(awaited) = self.lock().calls.get(&call) {
            awaited.decided.send_if_modified(|known| {
                let tells = !known.ends(WaitFor::QuestionAfter(rev - 1));
                if tells {
                    *known = Known::Asks(rev);
                }
                tells
            });
        }
    }

    /// Wakes every waiter of a call if the word is proven, and has its row looked at if not; returns the word if there is no
    /// waiter.
    fn tell_if_proven(&self, word: Word) -> Option<Word> {
        let call = word.call();
        let mut waiters = self.lock();
        let Some(awaited) = waiters.calls.get(&call) else {
            return Some(word);
        };
        // A caller who asks for a call waits before its secret was read, so that no decision is missed: such a word proves nothing yet,
        // and nobody has lied.
        match awaited.secret.map(|secret| word.proven_by(secret)) {
            Some(Some(envelope)) => {
                awaited.decided.send_replace(Known::Decided(envelope));
            }
            Some(None) => {
                metrics().unproven_answer();
                self.ring(&mut waiters, call);
            }
            None => self.ring(&mut waiters, call),
        }
        None
    }

    /// Has the row of an awaited call looked at soon.
    fn ring(&self, waiters: &mut Table, call: CallId) {
        let Some(awaited) = waiters.calls.get_mut(&call) else {
            return;
        };
        if !awaited.is_rung && !awaited.decided.borrow().is_decided() {
            awaited.is_rung = true;
            waiters.rung.push(call);
            self.0.rung.notify_one();
        }
    }

    /// The calls that bells were rung for since the last time.
    fn take_rung(&self) -> Vec<CallId> {
        let mut waiters = self.lock();
        let rung = std::mem::take(&mut waiters.rung);
        for call in &rung {
            if let Some(awaited) = waiters.calls.get_mut(call) {
                awaited.is_rung = false;
            }
        }
        rung
    }

    fn undecided(&self) -> Vec<CallId> {
        self.lock()
            .calls
            .iter()
            .filter(|(_, awaited)| !awaited.decided.borrow().is_decided())
            .map(|(call, _)| *call)
            .collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
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
        running: Running,
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
                            running.call_has_ended();
                            for word in self.hear(&word.subject, word.payload) {
                                hand_on(&bus, word).await;
                            }
                        }
                        None => return,
                    },
                }
            }
        })
    }

    /// Of words that came together, those without waiters here are returned: sent under their own subjects, other dispatchers
    /// would have heard them.
    fn hear(&self, subject: &str, payload: Bytes) -> Vec<Word> {
        if Subjects::is_together(subject) {
            let words = words::split(payload).filter_map(Word::read);
            return words.filter_map(|word| self.tell_if_proven(word)).collect();
        }
        let call = Subjects::call_of_done(subject);
        // Waiters at other dispatchers have heard it too.
        if let Some(call) = call {
            self.hear_of(call, payload);
        }
        Vec::new()
    }

    /// A word about this call. What is none, an empty message for example, only rings the bell.
    fn hear_of(&self, call: CallId, payload: Bytes) {
        match Word::read(payload).filter(|word| word.call() == call) {
            Some(word) => drop(self.tell_if_proven(word)),
            None => self.ring(&mut self.lock(), call),
        }
    }

    /// Asks the ledger about every awaited call once a second, and about those that bells are rung for at once, until `stop`.
    pub(crate) async fn poll(self, pool: PgPool, stop: CancellationToken) {
        join(
            self.look_at_all(&pool, &stop),
            self.look_at_rung(&pool, &stop),
        )
        .await;
    }

    async fn look_at_all(&self, pool: &PgPool, stop: &CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(Self::POLL) => {}
            }
            self.look(pool, &self.undecided()).await;
        }
    }

    async fn look_at_rung(&self, pool: &PgPool, stop: &CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.rung.notified() => {}
            }
            self.look(pool, &self.take_rung()).await;
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(Self::LOOK_PAUSE) => {}
            }
        }
    }

    /// Reads these calls, and wakes the waiters of those that are decided.
    pub(crate) async fn look(&self, pool: &PgPool, calls: &[CallId]) {
        for calls in calls.chunks(Self::POLL_CALLS) {
            self.look_at(pool, calls).await;
        }
    }

    async fn look_at(&self, pool: &PgPool, calls: &[CallId]) {
        let rows = match read::decided(pool, calls).await {
            Ok(rows) => rows,
            Err(error) => {
                return tracing::debug!(error = report(&error), "decided calls were not read");
            }
        };
        for row in rows {
            match row.envelope(false) {
                Ok(Some(envelope)) => {
                    if let Some(envelope) = EncodedEnvelope::of(&envelope) {
                        self.tell(envelope);
                    }
                }
                Ok(None) => self.tell_question(row.call_id, row.rev),
                Err(error) => {
                    tracing::error!(error = report(&error), "a decided call cannot be read");
                }
            }
        }
    }

    /// Has the call looked at when it expires, `left` from now, and again as often as that is worth it. Never returns.
    async fn look_when_over(&self, call: CallId, mut left: Duration) -> Known {
        loop {
            sleep(left).await;
            left = self.0.expiry.look(call).await;
        }
    }
}

/// Publishes a word under its own subject, where waiters at other dispatchers hear it.
async fn hand_on(bus: &Bus, word: Word) {
    let subject = bus.subjects.done_elsewhere(word.call());
    let lost = "a word was not handed on; who waits for it finds out by itself";
    bus.tell(subject, word.into_message(), lost).await;
}

/// One waiting caller. Dropping it ends the wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    call: CallId,
    /// `None` only while it is dropped.
    decided: Option<watch::Receiver<Known>>,
    waiters: Waiters,
}

impl Waiting {
    /// The secret of the call, once it is known: from now on its worker's answer is believed.
    pub(crate) fn may_be_told_with(&self, secret: Option<DoneSecret>) {
        if let Some(awaited) = self.waiters.lock().calls.get_mut(&self.call) {
            awaited.secret = awaited.secret.or(secret);
        }
    }

    /// The decision; `None` when the wait is over, or what it is for came that is no decision. The call expires `left` from now, unless it
    /// ends before. `elsewhere` receives what workers tell other dispatchers.
    pub(crate) async fn decided(
        &mut self,
        wait_for: WaitFor,
        wait: Duration,
        left: Duration,
        mut elsewhere: Option<Subscriber>,
    ) -> Decided {
        let (call, waiters) = (self.call, &self.waiters);
        let heard = async {
            if let Some(words) = elsewhere.as_mut() {
                while let Some(word) = words.next().await {
                    waiters.hear_of(call, word.payload);
                }
            }
            std::future::pending().await
        };
        let decided = self.decided.as_mut()?;
        let known = tokio::select! {
            known = decided.wait_for(|known| known.ends(wait_for)) => known.ok()?.clone(),
            never = heard => never,
            () = sleep(wait) => Known::Open,
            // Most calls expire long after their callers have left: those set no second timer.
            never = waiters.look_when_over(call, left), if left < wait => never,
        };
        match known {
            Known::Decided(envelope) => Some(envelope),
            Known::Open | Known::Asks(_) => None,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiters = self.waiters.lock();
        // Under the lock, so that of two that leave at once the second sees that none is left.
        drop(self.decided.take());
        if waiters
            .calls
            .get(&self.call)
            .is_some_and(|awaited| awaited.decided.receiver_count() == 0)
        {
            waiters.calls.remove(&self.call);
        }
        metrics().waiting(waiters.calls.len());
    }
}
