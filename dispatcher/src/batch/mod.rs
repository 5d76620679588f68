//! `batch`: many calls with one commit. Each goes through the same door as a single call, is accepted or refused by itself, and
//! is answered at its own place. A batch waits for no results.
//!
//! `split` finds the calls in the body, `item` reads one, `answer` writes the outcomes. In between, all acceptable calls go to
//! the ledger together, and taken keys are looked up together.

mod answer;
mod item;
mod split;

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use fleet::{
    arguments::Limits,
    checkpoint::{Checkpoint, reached},
    ids::{CallId, Label},
    said,
    store::{
        accept::AcceptedAt,
        keys::{self, KeyRow},
        lane::Reply,
        read,
        starts::Wanted,
    },
    telemetry::{
        spans::{self, Step},
        trace,
    },
    wire::code::Code,
};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::Instrument;

use self::{
    answer::{Outcome, calls_max, write},
    item::{Defaults, Item, Named},
};
use crate::{
    admission::{self, Facts, NoSlot, admit},
    answer::{Answer, bytes_max},
    arguments::{SHORT, aside},
    check::{self, Submission, TurnedAway},
    commit::{ACCEPTS_MAX, key_of, new_call, tell_accepted},
    door::Door,
    files::named as files,
    hand_over,
    pending::{Holder, PendingAccept, Told},
    publish::{Committed, publish_together},
    refusal::{self, Refusal},
    repetition, replay,
    request::Request,
    slots::RequestPermit,
    starts,
};

/// How much is checked before other requests get their turn.
#[derive(Default)]
struct Burst {
    calls: usize,
    bytes: usize,
}

impl Burst {
    const CALLS: usize = 32;
    const BYTES: usize = 128 * 1024;

    /// Whether others are next, before a call with so many bytes.
    fn is_over(&mut self, bytes: usize) -> bool {
        let is_over = self.calls >= Self::CALLS || self.bytes >= Self::BYTES;
        if is_over {
            *self = Self::default();
        }
        self.calls += 1;
        self.bytes += bytes;
        is_over
    }
}

/// The calls in the body, on a blocking thread where that may take long.
async fn split(body: &[u8]) -> Result<Vec<Cow<'_, RawValue>>, Refusal> {
    if body.len() <= SHORT || body.len() > split::BODY_MAX {
        let raws = split::split(body)?.into_iter();
        return Ok(raws.map(Cow::Borrowed).collect());
    }
    let body = body.to_vec();
    let splitting = move || {
        let raws = split::split(&body)?.into_iter();
        Ok(raws.map(|raw| Cow::Owned(raw.to_owned())).collect())
    };
    aside(splitting).await
}

/// Answers one batch; takes further request slots for its calls.
///
/// # Errors
///
/// The whole batch is refused, and nothing of it is stored.
pub(crate) async fn batch(
    door: &Door,
    request: &Request<'_>,
    permit: &mut RequestPermit,
) -> Result<Answer, Refusal> {
    let tenant = &request.tenant()?;
    let defaults = Defaults::read(&request.headers)?;
    let raws = split(request.body).await?;
    let answerable = calls_max(bytes_max(&door.bus));
    if raws.len() > answerable {
        let count = raws.len();
        let what = said!(
            "this server can carry the answers to {answerable} calls; the batch has {count}",
            "这台服务器最多能传送 {answerable} 个调用的结果；这一批有 {count} 个"
        );
        return Err(Refusal::new(Code::PayloadTooLarge, what));
    }
    // One slot for each of its calls, and at least one for each 256 KiB.
    let needed = raws.len().max(request.body.len() / Limits::DEFAULT.bytes);
    door.rates
        .further(request.tenant, raws.len() - 1, Instant::now());
    admission::comes_in(&Facts {
        no_slot: permit.further(needed).err().map(NoSlot::Batch),
        // A batch uses the lane for statements with many rows.
        is_behind: door.accepting.is_behind(usize::MAX),
        ..Facts::default()
    })?;

    let span = spans::step(Step::Accept);
    trace::set_parent(&span, &defaults.trace);
    let answering = async {
        let mut batch = Batch::new(door, tenant, raws.len());
        let mut turn = Burst::default();
        for (place, raw) in raws.into_iter().enumerate() {
            if turn.is_over(raw.get().len()) {
                tokio::task::yield_now().await;
            }
            let mut named = Named::default();
            match item::read(place, &raw, &door.registry, tenant, &defaults, &mut named) {
                Ok(item) => batch.check(place, item).await,
                Err(refusal) => batch.refuse(place, named, refusal),
            }
        }
        batch.take_starts().await;
        batch.answer_old().await;
        batch.commit().await;
        batch.answer_known().await;
        write(batch.outcomes(), bytes_max(&door.bus))
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
    /// Acceptable calls, on their way into the ledger.
    new: Vec<(usize, PendingAccept)>,
    /// The same, of tools that refuse what could not start at once.
    paced: Vec<(usize, PendingAccept)>,
    /// Calls with a key that would be refused if the key were new.
    old: Vec<(usize, Submission, [u8; 32], Refusal)>,
    /// Calls that other submissions made.
    known: Vec<(usize, Submission, CallId)>,
}

impl<'a> Batch<'a> {
    fn new(door: &'a Door, tenant: &'a Label, calls: usize) -> Self {
        Self {
            door,
            tenant,
            outcomes: (0..calls).map(|_| None).collect(),
            new: Vec::new(),
            paced: Vec::new(),
            old: Vec::new(),
            known: Vec::new(),
        }
    }

    fn refuse(&mut self, place: usize, named: Named, refusal: Refusal) {
        let registry = &self.door.registry;
        refusal.count(registry, &named.tool);
        let language = refusal::language_for(registry, named.language, &named.tool);
        self.outcomes[place] = Some(Outcome::Refused(named.tool, refusal, language));
    }

    /// A known key is answered with its call, even where a new call would be refused.
    async fn check(&mut self, place: usize, item: Item) {
        let Item {
            mut submission,
            own_trace,
        } = item;
        match check::check(&self.door.registry, &self.door.pool, &mut submission).await {
            Ok(checked) => {
                let id = CallId::generate();
                match admit(self.door, &submission, &checked, id).await {
                    Ok(admission) => {
                        let dispatcher = self.door.dispatcher;
                        let mut call = new_call(dispatcher, &submission, &checked, id, &admission);
                        if own_trace {
                            call.trace = submission.headers.trace.clone();
                        }
                        let takes_start =
                            checked.newest.manifest.refuses_over_limit() && admission.starts_now();
                        let pending = PendingAccept::new(submission, call, admission);
                        if takes_start {
                            self.paced.push((place, pending));
                        } else {
                            self.new.push((place, pending));
                        }
                    }
                    Err(refusal) => match key_of(&submission, &checked) {
                        Some(key) => self.old.push((place, submission, key, refusal)),
                        None => self.refuse(place, named(&submission), refusal),
                    },
                }
            }
            Err(TurnedAway { refusal, key }) => match key {
                Some(key) => self.old.push((place, submission, key, refusal)),
                None => {
                    let refusal =
                        Box::pin(repetition::refused(self.door, &submission, refusal)).await;
                    self.refuse(place, named(&submission), refusal);
                }
            },
        }
    }

    /// Takes the start times of calls that are refused without one, those of each tool and key together; a known key is answered with its
    /// call, and takes none.
    async fn take_starts(&mut self) {
        let paced = std::mem::take(&mut self.paced);
        if paced.is_empty() {
            return;
        }
        let hash = |pending: &PendingAccept| pending.call.key.as_ref().map(|key| key.hash);
        let hashes: Vec<_> = paced.iter().filter_map(|(_, call)| hash(call)).collect();
        let found = self.find_keys(&hashes).await;
        let (mut fresh, mut wanted) = (Vec::new(), BTreeMap::new());
        for (place, pending) in paced {
            let known = match &found {
                Ok(found) => hash(&pending).and_then(|hash| found.get(&hash)),
                Err(unreadable) => {
                    let unreadable = unreadable.clone();
                    self.refuse(place, named(&pending.submission), unreadable);
                    continue;
                }
            };
            match known.filter(|key| !key.lapsed) {
                Some(key) => self.meet(place, pending.into_submission(), key).await,
                None => {
                    let of = (pending.call.tool.clone(), pending.call.rate_key);
                    *wanted.entry(of).or_insert(0_u32) += 1;
                    fresh.push((place, pending));
                }
            }
        }
        let asked = wanted.iter().map(|((tool, key), calls)| Wanted {
            tool,
            key: *key,
            calls: *calls,
        });
        let asked: Vec<_> = asked.collect();
        let started = starts::take(self.door, self.tenant, &asked).await;
        let mut started: HashMap<_, _> = match started {
            Ok(started) => wanted.keys().zip(started).collect(),
            Err(unreadable) => {
                for (place, pending) in fresh {
                    let unreadable = unreadable.clone();
                    self.refuse(place, named(&pending.submission), unreadable);
                }
                return;
            }
        };
        for (place, pending) in fresh {
            let tool = &pending.call.tool;
            match started.get_mut(&(tool.clone(), pending.call.rate_key)) {
                Some(left) if left.calls == 0 => {
                    let refusal = starts::refusal(tool, left.next);
                    self.refuse(place, named(&pending.submission), refusal);
                }
                Some(left) => {
                    left.calls -= 1;
                    self.new.push((place, pending));
                }
                None => self.new.push((place, pending)),
            }
        }
    }

    /// Looks up which of the calls that would be refused are in the ledger already.
    async fn answer_old(&mut self) {
        let old = std::mem::take(&mut self.old);
        let hashes: Vec<_> = old.iter().map(|(_, _, hash, _)| *hash).collect();
        let mut found = self.find_keys(&hashes).await;
        for (place, submission, hash, refusal) in old {
            let named = named(&submission);
            match &mut found {
                Ok(found) => match found.get(&hash) {
                    Some(key) if !key.lapsed => self.meet(place, submission, key).await,
                    Some(_) | None => {
                        let refusal =
                            Box::pin(repetition::refused(self.door, &submission, refusal)).await;
                        self.refuse(place, named, refusal);
                    }
                },
                Err(unreadable) => {
                    let unreadable = unreadable.clone();
                    self.refuse(place, named, unreadable);
                }
            }
        }
    }

    /// A key names a call already: the same one, or one with other arguments, which is a conflict.
    async fn meet(&mut self, place: usize, submission: Submission, key: &KeyRow) {
        let is_its_call = async {
            replay::is_call_of(self.door, &submission, key).await?;
            replay::note(self.door, &submission, key).await
        };
        match is_its_call.await {
            Ok(()) => {
                replay::count(&submission);
                self.known.push((place, submission, key.call_id));
            }
            Err(refusal) => self.refuse(place, named(&submission), refusal),
        }
    }

    /// All acceptable calls in one statement. Those whose key is taken, or without an answer of the ledger, are sent once more.
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
            if replies.iter().any(|reply| matches!(reply, Reply::Unknown)) {
                self.door.publisher.suspect_late();
            }
            let (mut committed, mut taken) = (Vec::new(), Vec::new());
            for ((place, mut sent), reply) in sent.into_iter().zip(replies) {
                match sent.told(reply) {
                    Told::Committed(at) => committed.push(self.committed(place, sent, at)),
                    Told::Taken => taken.push((place, sent)),
                    Told::Again => self.new.push((place, sent)),
                    Told::Refused(refusal) => {
                        self.refuse(place, named(&sent.submission), refusal);
                    }
                }
            }
            self.publish(committed).await;
            let ours = self.look_up(taken).await;
            self.publish(ours).await;
        }
        for (place, pending) in std::mem::take(&mut self.new) {
            let refusal = pending.given_up();
            self.refuse(place, named(&pending.submission), refusal);
        }
    }

    /// A call is in the ledger: tells its followers, remembers when its time is over, and answers with its id.
    fn committed(&mut self, place: usize, mut sent: PendingAccept, at: AcceptedAt) -> Committed {
        tell_accepted(&self.door.events, &sent.call, &at);
        let mut awaits = hand_over::awaited(self.door, &sent.call, at);
        match &mut awaits {
            Some(awaits) => {
                hand_over::tell(self.door, &sent.call, at, awaits);
                // Who asks for many knows how much an answer may carry; `get` has them.
                awaits.args = None;
            }
            None => {
                let left = sent.call.lasts(at);
                self.door.expiry.remember(sent.call.call_id, left);
            }
        }
        let accepted = hand_over::accepted(&sent.call, at, awaits);
        self.outcomes[place] = Some(Outcome::Accepted(accepted));
        let permit = sent.take_permit();
        (sent.call, permit)
    }

    async fn publish(&self, calls: Vec<Committed>) {
        if !calls.is_empty() {
            publish_together(self.door, calls).await;
            reached(Checkpoint::Published);
        }
    }

    /// Looks up the calls of the keys that were taken. Returns those that an earlier try of this batch has committed.
    async fn look_up(&mut self, taken: Vec<(usize, PendingAccept)>) -> Vec<Committed> {
        let hash = |pending: &PendingAccept| pending.call.key.as_ref().map(|key| key.hash);
        let hashes: Vec<_> = taken.iter().filter_map(|(_, taken)| hash(taken)).collect();
        let found = match self.find_keys(&hashes).await {
            Ok(found) => found,
            Err(unreadable) => {
                for (place, taken) in taken {
                    let unreadable = unreadable.clone();
                    self.refuse(place, named(&taken.submission), unreadable);
                }
                return Vec::new();
            }
        };
        let mut ours = Vec::new();
        for (place, mut taken) in taken {
            let holder = hash(&taken).and_then(|hash| found.get(&hash)).cloned();
            match taken.holder(holder) {
                Holder::Ours(at) => ours.push(self.committed(place, taken, at)),
                Holder::Other(key) => self.meet(place, taken.into_submission(), &key).await,
                Holder::Free => {
                    let pool = &self.door.pool;
                    match Box::pin(files::still_there(pool, &taken.call)).await {
                        Ok(()) => self.new.push((place, taken)),
                        Err(refusal) => self.refuse(place, named(&taken.submission), refusal),
                    }
                }
            }
        }
        ours
    }

    async fn find_keys(&self, hashes: &[[u8; 32]]) -> Result<HashMap<[u8; 32], KeyRow>, Refusal> {
        if hashes.is_empty() {
            return Ok(HashMap::new());
        }
        let found = keys::find_keys(&self.door.pool, self.tenant, hashes).await;
        found.map_err(|error| Refusal::unreadable(&error))
    }

    /// Reads the states of the calls that are in the ledger already.
    async fn answer_known(&mut self) {
        let known = std::mem::take(&mut self.known);
        if known.is_empty() {
            return;
        }
        let calls: Vec<CallId> = known.iter().map(|(_, _, call)| *call).collect();
        let standing = read::standing(&self.door.pool, self.tenant, &calls).await;
        let standing = standing.map_err(|error| Refusal::unreadable(&error));
        for (place, submission, call) in known {
            let accepted = match &standing {
                Ok(standing) => standing.get(&call).cloned().ok_or_else(Refusal::not_found),
                Err(unreadable) => Err(unreadable.clone()),
            };
            match accepted {
                Ok(accepted) => {
                    self.outcomes[place] = Some(Outcome::Accepted(accepted));
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
