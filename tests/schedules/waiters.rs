//! The waiters: a waiting caller gets the outcome of its call and nothing else, and one that leaves leaves nothing behind.

use bytes::Bytes;
use fleet::{
    call::{CallOutcome, EffectKnown, Source, State},
    ids::{CallId, DispatcherId},
    wire::{
        envelope::{EncodedEnvelope, Envelope, EnvelopeState, no_coercions},
        proof::{DoneSecret, Word},
        words::join,
    },
};
use shuttle::future::{JoinHandle, block_on, spawn, yield_now};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    check::{finds, holds, saw},
    world::{
        calls::{PgPool, read},
        expiry::Expiry,
        nats::Bus,
        once_in, planted,
        running::Running,
        time::{Duration, NEVER, timeout},
    },
    woven::waiters::{WaitFor, Waiters},
};

/// Who can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    /// Words arrive; nothing polls.
    Words,
    /// Words get lost, are empty, are forged, or are about another call; the ledger is polled.
    WordsAndPoll,
}

#[derive(Clone)]
struct World {
    run: Run,
    bus: Bus,
    pool: PgPool,
    waiters: Waiters,
    dispatcher: DispatcherId,
}

/// What a word about some other call says.
pub(crate) fn as_of_another(word: &Bytes) -> Option<EncodedEnvelope> {
    let word = Word::read(word.clone()).filter(|word| word.call() == id_of(77))?;
    word.proven_by(secret_of(id_of(77)))
}

/// Known to the dispatcher of a call, and to its worker.
const fn secret_of(call: CallId) -> DoneSecret {
    DoneSecret(Uuid::from_u128(call.0.as_u128() ^ 1))
}

/// Ids of calls are `UUIDv7`s.
const fn id_of(number: u128) -> CallId {
    CallId(Uuid::from_u128((7 << 76) | (1 << 63) | number))
}

fn envelope(call: CallId) -> Envelope {
    Envelope {
        call_id: Some(call),
        tool: "tool".into(),
        tool_version: Some(1),
        state: EnvelopeState::Of(State::Succeeded),
        outcome: CallOutcome::Success,
        is_error: false,
        source: Source::Live,
        effect: EffectKnown::Applied,
        result: None,
        error: None,
        degraded: None,
        coercions: no_coercions(),
        attempts: 1,
        replayed: false,
        timing: None,
        settled_by: None,
    }
}

impl World {
    fn new(run: Run) -> Self {
        Self {
            run,
            bus: Bus::default(),
            pool: PgPool::default(),
            waiters: Waiters::new(Expiry),
            dispatcher: DispatcherId(Uuid::from_u128(99)),
        }
    }

    /// A call is decided: first in its row, then by word.
    async fn decide(self, call: CallId) {
        yield_now().await;
        if self.run == Run::WordsAndPoll && once_in(2) {
            self.forge(call).await;
        }
        self.pool.decide(call, envelope(call));
        yield_now().await;
        let say = async |text: Bytes| {
            let subject = self.bus.subjects.done(self.dispatcher, call);
            self.bus.client.publish(subject, text).await.unwrap();
        };
        let words = |of: CallId| secret_of(of).prove(&envelope(of).to_bytes());
        if self.run == Run::WordsAndPoll {
            if once_in(3) {
                say(words(id_of(77))).await;
            }
            if once_in(2) {
                return if once_in(2) {
                    say(Bytes::new()).await
                };
            }
        }
        if once_in(2) {
            saw("several words came in one message");
            let together = self.bus.subjects.done_together(self.dispatcher);
            let joined = join(&[words(id_of(78)), words(call)]);
            return self.bus.client.publish(together, joined).await.unwrap();
        }
        say(words(call)).await;
    }

    /// A word of a client that knows everything but the secret, before anything is decided.
    async fn forge(&self, call: CallId) {
        let lie = Envelope {
            state: EnvelopeState::Of(State::Failed),
            ..envelope(call)
        };
        let word = match (once_in(2), lie.to_bytes()) {
            (true, lie) => lie.into(),
            (false, lie) => secret_of(id_of(77)).prove(&lie),
        };
        let subject = self.bus.subjects.done(self.dispatcher, call);
        self.bus.client.publish(subject, word).await.unwrap();
        saw("a forged word came");
    }

    /// A caller whose submission makes the call: it waits before the call can be decided.
    fn submits(&self, id: CallId) -> JoinHandle<()> {
        let world = self.clone();
        spawn(async move {
            let mut waiting = world.waiters.register(id, Some(secret_of(id)));
            let deciding = spawn(world.clone().decide(id));
            let told = waiting.decided(WaitFor::Decision, NEVER, NEVER, None).await;
            let told = told.expect("told nothing although somebody waits");
            is_true_of(id, &told);
            saw("who submitted was told");
            drop(waiting);
            deciding.await.unwrap();
        })
    }

    /// A caller who asks for a call that is there: in place first, then a look at the row.
    async fn asks(self, id: CallId, wait: Duration) {
        let early = read::one(&self.pool, id).await;
        let mut waiting = self.waiters.register(id, None);
        let subject = self.bus.subjects.done_of_call(id);
        let elsewhere = self.bus.client.subscribe(subject).await.unwrap();
        let row = if planted("the row is read before there is somebody to tell") {
            early
        } else {
            read::one(&self.pool, id).await
        };
        waiting.may_be_told_with(Some(secret_of(id)));
        let told = match row {
            Some(row) => {
                saw("the row had it");
                EncodedEnvelope::of(&row)
            }
            None => {
                waiting
                    .decided(WaitFor::Decision, wait, NEVER, Some(elsewhere))
                    .await
            }
        };
        match told {
            Some(told) => is_true_of(id, &told),
            None => {
                assert!(wait < NEVER, "told nothing although there was time");
                saw("the time was over");
            }
        }
    }
}

fn is_true_of(call: CallId, told: &EncodedEnvelope) {
    assert_eq!(told.call(), call, "told of another call");
    let state = told.decode().unwrap().state;
    assert!(
        matches!(state, EnvelopeState::Of(State::Succeeded)),
        "told what the row does not say"
    );
}

fn callers(run: Run) {
    block_on(async move {
        let world = World::new(run);
        let stop = CancellationToken::new();
        let waiters = world.waiters.clone();
        let listening = waiters.listen(world.bus.clone(), world.dispatcher, Running, stop.clone());
        let mut parts = vec![spawn(listening.await.unwrap())];
        if run == Run::WordsAndPoll {
            let polling = world.waiters.clone().poll(world.pool.clone(), stop.clone());
            parts.push(spawn(polling));
        }
        let [one, other] = [id_of(1), id_of(2)];
        let (patient, hasty) = (world.clone(), world.clone());
        let callers = [
            world.submits(one),
            world.submits(other),
            spawn(patient.clone().asks(one, NEVER)),
            spawn(patient.asks(other, NEVER)),
            spawn(hasty.clone().asks(one, Duration::from_millis(500))),
            spawn(async move {
                if timeout(Duration::from_millis(300), hasty.asks(other, NEVER))
                    .await
                    .is_err()
                {
                    saw("a caller went away");
                }
            }),
        ];
        for caller in callers {
            caller.await.unwrap();
        }
        assert!(world.waiters.is_empty(), "somebody who left still waits");
        stop.cancel();
        for part in parts {
            part.await.unwrap();
        }
    });
}

fn by_word() {
    callers(Run::Words);
}

fn by_word_and_poll() {
    callers(Run::WordsAndPoll);
}

const SIGHTS: [&str; 6] = [
    "a forged word came",
    "several words came in one message",
    "who submitted was told",
    "the row had it",
    "the time was over",
    "a caller went away",
];

#[test]
fn whoever_waits_hears_the_word() {
    holds("waiters, words", &SIGHTS[1..], by_word);
}

#[test]
fn whoever_waits_is_told_though_words_are_lost() {
    holds("waiters, words and poll", &SIGHTS, by_word_and_poll);
}

#[test]
fn mistakes_of_the_waiters_are_found() {
    finds(
        "the row is read before there is somebody to tell",
        "deadlock",
        by_word,
    );
    finds("the last to come is the only one", "told", by_word);
    finds(
        "who leaves counts himself",
        "somebody who left still waits",
        by_word,
    );
    finds(
        "a word about another call is believed",
        "told of another call",
        by_word_and_poll,
    );
    finds("the poll tells nobody", "max_steps", by_word_and_poll);
    finds(
        "a word is believed without a proof",
        "told what the row does not say",
        by_word_and_poll,
    );
}
