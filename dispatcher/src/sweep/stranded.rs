//! Pointers that the stream refuses as duplicates and never delivers: their calls get new numbers.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use fleet::{
    bus::{
        BusError,
        publish::{self, Numbered},
        stranded::{self, PointerLook, Stranded},
    },
    ids::{CallId, QueueName},
    store::{StoreError, renumber, sweep::Publishable},
    telemetry::{metrics, report},
};
use tokio::sync::mpsc;

use super::{Sweep, every};

const PASS: &str = "stranded_pointer";
/// The pause between the two looks that prove it.
const PAUSE: Duration = Duration::from_secs(1);
/// The most pointers in one turn.
const TURN_MAX: usize = 512;
/// The most pointers that wait for a look. Further ones are published as usual and come again.
pub(super) const ASKED_MAX: usize = 2_048;

/// The pointers that were doubtful at the last look.
type Doubts = HashMap<Numbered, PointerLook>;

impl Sweep {
    /// Publishes the pointers that the walk doubts, and looks at those that the stream claims to have. Cancel-safe: a call that
    /// got a new number and was not published is found by its age.
    pub(super) async fn sweep_stranded(self, mut asked: mpsc::Receiver<Publishable>) {
        let mut ticks = every(PAUSE);
        let mut connection = self.bus.epoch();
        let mut doubts = Doubts::new();
        loop {
            ticks.tick().await;
            let mut turn = Vec::new();
            while turn.len() + doubts.len() < TURN_MAX
                && let Ok(call) = asked.try_recv()
            {
                turn.push(call);
            }
            if connection.has_changed().unwrap_or(true) {
                // Another server may answer now, or the same one with other files.
                connection.mark_unchanged();
                doubts.clear();
            }
            if turn.is_empty() && doubts.is_empty() {
                continue;
            }
            if !self.bus.is_connected() {
                self.publisher.suspect();
                continue;
            }
            let before = std::mem::take(&mut doubts);
            match self.look_at(turn, &before).await {
                Ok((stranded, doubtful)) => {
                    doubts = doubtful;
                    self.warn(PASS, self.renumber(stranded).await);
                }
                Err(error) => {
                    // They come again with the next walk.
                    self.publisher.suspect();
                    tracing::warn!(
                        pass = PASS,
                        error = report(&error),
                        "a sweep was cut short; the next one goes on"
                    );
                }
            }
        }
    }

    /// Publishes these. Of the refused ones and of those that were doubtful before, returns the pointers that no worker will
    /// get, and the pointers that are doubtful for the first time.
    async fn look_at(
        &self,
        turn: Vec<Publishable>,
        before: &Doubts,
    ) -> Result<(HashMap<Numbered, Stranded>, Doubts), BusError> {
        let turn = turn
            .into_iter()
            .map(|call| (call.queue, call.n, call.pointer));
        let published = publish::publish_all(&self.bus, turn).await?;
        let mut pointers = published.there;
        pointers.retain(|pointer| !before.contains_key(pointer));
        pointers.extend(before.keys().cloned());
        let (mut found, mut doubtful) = (HashMap::new(), Doubts::new());
        for (pointer, now) in stranded::look(&self.bus, pointers).await? {
            let confirmed = before.get(&pointer).and_then(|then| now.confirms(*then));
            if let Some(why) = confirmed {
                found.insert(pointer, why);
            } else if now.doubt().is_some() {
                doubtful.insert(pointer, now);
            }
        }
        Ok((found, doubtful))
    }

    /// Gives new numbers to the calls that still wait, and publishes them.
    async fn renumber(&self, stranded: HashMap<Numbered, Stranded>) -> Result<(), StoreError> {
        if stranded.is_empty() {
            return Ok(());
        }
        let numbers: Vec<(CallId, i32)> = stranded.keys().map(|one| (one.call, one.n)).collect();
        let calls = renumber::renumber(&self.pool, &numbers).await?;
        if calls.is_empty() {
            return Ok(());
        }
        metrics().swept(PASS, calls.len() as u64);
        let moved: HashSet<CallId> = calls.iter().map(|call| call.pointer.call_id).collect();
        self.publish(calls).await;
        // Where there is one there are more: all waiting calls are published again, and those that have waited long are looked
        // at.
        self.publisher.suspect();
        let mut told: BTreeMap<(QueueName, Stranded), (u64, CallId)> = BTreeMap::new();
        for (pointer, why) in stranded {
            if !moved.contains(&pointer.call) {
                continue;
            }
            let of_queue = (pointer.queue.clone(), why);
            told.entry(of_queue).or_insert((0, pointer.call)).0 += 1;
            if why == Stranded::PassedOver
                && let Err(error) = stranded::clear(&self.bus, &pointer).await
            {
                tracing::debug!(call = %pointer.call, error = report(&error), "what was passed over stays in the stream");
            }
        }
        for ((queue, why), (calls, call)) in told {
            match why {
                Stranded::Unreadable => tracing::warn!(
                    pass = PASS, %queue, calls, %call,
                    "the stream refused pointers as there and had no message that it could give; their calls were \
                     published under new numbers"
                ),
                Stranded::PassedOver => tracing::warn!(
                    pass = PASS, %queue, calls, %call,
                    "the stream had messages that its consumer had passed over; their calls were published under new \
                     numbers"
                ),
            }
        }
        Ok(())
    }
}
