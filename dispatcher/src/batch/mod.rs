//! `batch`: many calls with one commit. Each goes through the same door as a single call, is accepted or refused by
//! itself, and is answered in its place; nobody waits for results here.
//!
//! `split` finds the calls in the body, `item` reads one, `answer` writes what became of them. In between, all that are
//! good go to the ledger together, and keys that are taken are looked up together.

mod answer;
mod item;
mod split;

use std::{collections::HashMap, sync::Arc};

use async_nats::Message as Request;
use fleet::{
    arguments::Limits,
    checkpoint::{Checkpoint, reached},
    ids::{CallId, Label},
    said,
    store::{
        lane::Reply,
        read::{self, KeyRow},
    },
    telemetry::{
        spans::{self, Step},
        trace,
    },
    wire::{code::Code, envelope::Accepted},
};
use tracing::Instrument;

use self::{
    answer::{Outcome, calls_max, write},
    item::{Defaults, Item, Named},
};
use crate::{
    accept::{Door, lines},
    answer::{Answer, Refusal},
    check::{Submission, TurnedAway},
    commit::{ACCEPTS_MAX, Attempted, Holder, Told, accepted, key_of},
    slots::Held,
};

/// Calls that are checked before others get their turn.
const CHECKED_AT_ONCE: usize = 32;

/// Answers one batch.
///
/// # Errors
///
/// All of it is refused, and nothing of it is stored.
pub(crate) async fn batch(
    door: &Door,
    tenant: &Label,
    request: &Request,
    slots: &mut Held,
) -> Result<Answer, Refusal> {
    let lines = lines(request.headers.as_ref());
    let defaults = Defaults::read(&lines)?;
    let raws = split::split(&request.payload)?;
    let answerable = calls_max(door.payload_max());
    if raws.len() > answerable {
        let count = raws.len();
        let what = said!(
            "this server can carry the answers to {answerable} calls; the batch has {count}",
            "这台服务器最多能传送 {answerable} 个调用的结果；这一批有 {count} 个"
        );
        return Err(Refusal::new(Code::PayloadTooLarge, what));
    }
    // One for each of its calls, and at least one for each 256 KiB.
    let needed = raws
        .len()
        .max(request.payload.len() / Limits::DEFAULT.bytes);
    slots
        .further(needed)
        .map_err(|full| Refusal::new(Code::Overloaded, full.message_for_many()))?;
    // All of it takes the lane of what comes together.
    door.keeps_up(usize::MAX)?;

    let span = spans::step(Step::Accept);
    trace::set_parent(&span, &defaults.trace);
    let answering = async {
        let mut batch = Batch::new(door, tenant, raws.len());
        for (place, raw) in raws.into_iter().enumerate() {
            if place % CHECKED_AT_ONCE == CHECKED_AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            let mut named = Named::default();
            match item::read(place, raw, tenant, &defaults, &mut named) {
                Ok(item) => batch.check(place, item).await,
                Err(refusal) => batch.refuse(place, named, refusal),
            }
        }
        batch.answer_old().await;
        batch.commit().await;
        batch.answer_known().await;
        write(batch.outcomes(), door.payload_max())
    };
    Ok(answering.instrument(span).await)
}

fn named(submission: &Submission) -> Named {
    Named {
        tool: submission.tool.to_string(),
        language: submission.headers.language,
    }
}

/// What is known so far of each call, by its place.
struct Batch<'a> {
    door: &'a Door,
    tenant: &'a Label,
    outcomes: Vec<Option<Outcome>>,
    /// Good ones, on their way into the ledger.
    new: Vec<(usize, Attempted)>,
    /// Those with a key that would be refused if the key were new.
    old: Vec<(usize, Submission, [u8; 32], Refusal)>,
    /// Those that are there, and whether another submission made them.
    known: Vec<(usize, Submission, CallId, bool)>,
}

impl<'a> Batch<'a> {
    fn new(door: &'a Door, tenant: &'a Label, calls: usize) -> Self {
        Self {
            door,
            tenant,
            outcomes: (0..calls).map(|_| None).collect(),
            new: Vec::new(),
            old: Vec::new(),
            known: Vec::new(),
        }
    }

    fn refuse(&mut self, place: usize, named: Named, refusal: Refusal) {
        self.door.count_refusal(refusal.code, &named.tool);
        let language = self.door.language_of(named.language, &named.tool);
        self.outcomes[place] = Some(Outcome::Refused(named.tool, refusal, language));
    }

    /// The key comes first: what it names is answered even where a new call would be refused.
    async fn check(&mut self, place: usize, item: Item) {
        let Item {
            mut submission,
            own_trace,
        } = item;
        match self.door.check(&mut submission).await {
            Ok(checked) => {
                let (id, manifest) = (CallId::generate(), &checked.tool.manifest);
                match self.door.admit(&submission.tenant, manifest, id).await {
                    Ok(admission) => {
                        let door = self.door;
                        let mut call = door.new_call(&submission, &checked, id, &admission);
                        if own_trace {
                            call.trace = submission.headers.trace.clone();
                        }
                        let attempted = Attempted::new(submission, call, admission);
                        self.new.push((place, attempted));
                    }
                    Err(refusal) => match key_of(&submission, &checked) {
                        Some(key) => self.old.push((place, submission, key, refusal)),
                        None => self.refuse(place, named(&submission), refusal),
                    },
                }
            }
            Err(TurnedAway { refusal, key }) => match key {
                Some(key) => self.old.push((place, submission, key, refusal)),
                None => self.refuse(place, named(&submission), refusal),
            },
        }
    }

    /// Finds out which of those that would be refused are there already.
    async fn answer_old(&mut self) {
        let old = std::mem::take(&mut self.old);
        let hashes: Vec<_> = old.iter().map(|(_, _, hash, _)| *hash).collect();
        let mut found = self.find_keys(&hashes).await;
        for (place, submission, hash, refusal) in old {
            let named = named(&submission);
            match &mut found {
                Ok(found) => match found.get(&hash) {
                    Some(key) if !key.lapsed => self.meet(place, submission, key).await,
                    Some(_) | None => self.refuse(place, named, refusal),
                },
                Err(unreadable) => {
                    let unreadable = unreadable.clone();
                    self.refuse(place, named, unreadable);
                }
            }
        }
    }

    /// A key names a call already: the same one, or one it must not be confused with.
    async fn meet(&mut self, place: usize, submission: Submission, key: &KeyRow) {
        match self.door.is_call_of(&submission, key).await {
            Ok(()) => self.known.push((place, submission, key.call_id, true)),
            Err(reused) => self.refuse(place, named(&submission), reused),
        }
    }

    /// All that are good in one statement. Those whose key is taken, or about which the ledger was silent, once more.
    async fn commit(&mut self) {
        if !self.new.is_empty() {
            reached(Checkpoint::Validated);
        }
        for _ in 0..ACCEPTS_MAX {
            let sent = std::mem::take(&mut self.new);
            if sent.is_empty() {
                return;
            }
            let calls = sent.iter().map(|(_, sent)| Arc::clone(&sent.call));
            let accepting = self.door.accepting.accept_all(calls);
            let replies = accepting.instrument(spans::step(Step::Commit)).await;
            if replies.iter().any(|reply| matches!(reply, Reply::Done(_))) {
                reached(Checkpoint::Committed);
            }
            let (mut committed, mut taken) = (Vec::new(), Vec::new());
            for ((place, mut sent), reply) in sent.into_iter().zip(replies) {
                match sent.told(reply) {
                    Told::Committed(at) => {
                        self.door.tell_accepted(&sent.call, &at);
                        let left = sent.call.lasts(at);
                        self.door.expiry.remember(sent.call.call_id, left);
                        let accepted = accepted(&sent.call, at);
                        self.outcomes[place] = Some(Outcome::Accepted(accepted));
                        let permit = sent.take_permit();
                        committed.push((sent.call, permit));
                    }
                    Told::Taken => taken.push((place, sent)),
                    Told::Again => self.new.push((place, sent)),
                    Told::Refused(refusal) => {
                        self.refuse(place, named(&sent.submission), refusal);
                    }
                }
            }
            let any = !committed.is_empty();
            for (call, permit) in committed {
                self.door.publish(&call, permit).await;
            }
            if any {
                reached(Checkpoint::Published);
            }
            self.look_up(taken).await;
        }
        for (place, attempted) in std::mem::take(&mut self.new) {
            let refusal = attempted.given_up();
            self.refuse(place, named(&attempted.submission), refusal);
        }
    }

    /// Finds out what the keys name that were taken.
    async fn look_up(&mut self, taken: Vec<(usize, Attempted)>) {
        let hash = |attempted: &Attempted| attempted.call.key.as_ref().map(|key| key.hash);
        let hashes: Vec<_> = taken.iter().filter_map(|(_, taken)| hash(taken)).collect();
        let found = match self.find_keys(&hashes).await {
            Ok(found) => found,
            Err(unreadable) => {
                for (place, taken) in taken {
                    let unreadable = unreadable.clone();
                    self.refuse(place, named(&taken.submission), unreadable);
                }
                return;
            }
        };
        for (place, mut taken) in taken {
            let named = hash(&taken).and_then(|hash| found.get(&hash)).cloned();
            match taken.holder(named) {
                Holder::Ours(call) => {
                    let permit = taken.take_permit();
                    self.door.publish(&taken.call, permit).await;
                    self.known.push((place, taken.submission, call, false));
                }
                Holder::Other(key) => self.meet(place, taken.into_submission(), &key).await,
                Holder::Nobody => self.new.push((place, taken)),
            }
        }
    }

    async fn find_keys(&self, hashes: &[[u8; 32]]) -> Result<HashMap<[u8; 32], KeyRow>, Refusal> {
        if hashes.is_empty() {
            return Ok(HashMap::new());
        }
        let found = read::find_keys(&self.door.pool, self.tenant, hashes).await;
        found.map_err(|error| Refusal::unreadable(&error))
    }

    /// Reads where those stand that are there.
    async fn answer_known(&mut self) {
        let known = std::mem::take(&mut self.known);
        if known.is_empty() {
            return;
        }
        let calls: Vec<CallId> = known.iter().map(|(_, _, call, _)| *call).collect();
        let standing = read::standing(&self.door.pool, self.tenant, &calls).await;
        let standing = standing.map_err(|error| Refusal::unreadable(&error));
        for (place, submission, call, replayed) in known {
            let accepted = match &standing {
                Ok(standing) => standing.get(&call).cloned().ok_or_else(Refusal::not_found),
                Err(unreadable) => Err(unreadable.clone()),
            };
            match accepted {
                Ok(accepted) => {
                    self.outcomes[place] = Some(Outcome::Accepted(Accepted {
                        replayed,
                        ..accepted
                    }));
                }
                Err(refusal) => self.refuse(place, named(&submission), refusal),
            }
        }
    }

    fn outcomes(self) -> Vec<Outcome> {
        let decided = self.outcomes.into_iter();
        decided
            .map(|outcome| outcome.expect("every call was accepted or refused"))
            .collect()
    }
}
