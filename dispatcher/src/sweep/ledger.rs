//! Everything that needs only Postgres: dead workers, lost attempts, and the walk over all open calls.

use std::{collections::BTreeSet, time::Duration};

use fleet::{
    bus::backlog,
    checkpoint::{Checkpoint, reached},
    ending::{Ending, Fact, Guard, Known, LostAttempt},
    hold,
    ids::{CallId, QueueName},
    lease::{OBSERVATION_GAP_MAX, Observations},
    store::{
        PgConnection, StoreError,
        session::within,
        sweep::{self, Lost, Publishable},
        walk::{self, WaitingCall, Worth},
        workers,
    },
    telemetry::metrics,
};
use tokio::{
    sync::{
        mpsc::{self, error::TrySendError},
        watch,
    },
    time::Instant,
};

use super::{
    Sweep, every,
    pace::{self, Pace},
    route::{Route, Stretch, Tour},
};

/// How long one second's walk may take.
const WALK_MAX: Duration = Duration::from_millis(300);
/// How long a walk over all open calls takes at least, so that a small table is not published over and over.
const PASS_MIN: Duration = Duration::from_secs(3);
/// How long after an outage outcomes have to be recorded, before an overdue attempt counts as lost.
const SETTLED_AFTER: Duration = Duration::from_secs(30);

impl Sweep {
    /// The passes that need only Postgres. Cancel-safe: each ending is one statement. Pointers that the stream may claim to
    /// have and never deliver go to `doubted`.
    pub(super) async fn sweep_ledger(self, doubted: mpsc::Sender<Publishable>) {
        let mut ticks = every(Duration::from_secs(1));
        let mut observer = Observer::default();
        let (mut pass, mut lost) = (WalkPass::default(), LostPaces::default());
        loop {
            ticks.tick().await;
            match self.dead_workers(&mut observer).await {
                Ok(0) => {}
                Ok(_declared) => lost.over_all.hurry(),
                Err(error) => {
                    observer = Observer::default();
                    self.warn("dead_worker", Err(error));
                }
            }
            let now = Instant::now();
            let overdue_too = observer.observations.unbroken_for(now) >= SETTLED_AFTER;
            // Where a look at all takes long, most are at what the walk has found.
            let over_all = Route::default();
            let due = if lost.over_all.is_due(now) {
                Some((&over_all, &mut lost.over_all))
            } else {
                let route = pass.tour.route();
                let known = !route.is_over_all() && lost.over_known.is_due(now);
                known.then_some((route, &mut lost.over_known))
            };
            if let Some((route, pace)) = due {
                let mut took = Duration::ZERO;
                let looked = self.lost_attempts(route, overdue_too, &mut took).await;
                // After an outage there is no reason to wait.
                if looked.as_ref().err().is_none_or(StoreError::took_too_long) {
                    pace.took(now, took);
                }
                self.warn("lost_attempt", looked);
            }
            self.warn("walk", self.walk(&mut pass, &doubted).await);
        }
    }

    async fn walk(
        &self,
        pass: &mut WalkPass,
        doubted: &mpsc::Sender<Publishable>,
    ) -> Result<(), StoreError> {
        let began = Instant::now();
        while began.elapsed() < WALK_MAX {
            if pass.tour.is_over() {
                if !pass.is_due(Instant::now(), self.bus.is_connected()) {
                    return Ok(());
                }
                self.begin(pass).await;
            }
            let Some(stretch) = pass.tour.next() else {
                return Ok(());
            };
            let looking = Instant::now();
            let step = walk::step_over(&self.pool, stretch.part(), &pass.worth()).await;
            pass.looked += looking.elapsed();
            let step = match step {
                Ok(step) => step,
                Err(error) if error.took_too_long() => {
                    let now = (Instant::now(), CallId::generate());
                    pass.tour.took_too_long(stretch, looking.elapsed(), now);
                    return Err(error);
                }
                Err(error) => {
                    pass.tour.again(stretch);
                    return Err(error);
                }
            };
            pass.tour.read(&step.seen, step.cursor);
            pass.waiting.extend(step.queues);
            self.expiry.remember_all(step.soon);
            self.end_expired(step.expired, "expired").await;
            if !step.waiting.is_empty() {
                reached(Checkpoint::LostPointerFound);
            }
            if self.bus.is_connected() {
                metrics().swept("lost_pointer", step.waiting.len() as u64);
                let plain = step.waiting.into_iter().filter_map(|waiting| {
                    let doubted = pass.doubts(&waiting).then_some(doubted);
                    hand_over(waiting.call, doubted)
                });
                self.publish(plain.collect()).await;
            } else if !step.waiting.is_empty() {
                self.publisher.suspect();
            }
            if pass.tour.is_over() {
                pass.tour.end(looking, pass.looked);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Begins another pass, and decides which pointers are worth publishing again in it.
    async fn begin(&self, pass: &mut WalkPass) {
        let connection = pass.connection.get_or_insert_with(|| self.bus.epoch());
        // Lost or found: what was published around that moment may not have arrived.
        let reconnected = connection.has_changed().unwrap_or(true);
        connection.mark_unchanged();
        let since = pass.began.replace(Instant::now());
        if let Some(since) = since {
            self.expiry.walk_took(since.elapsed());
        }
        let suspected = self.publisher.take_suspicion();
        pass.since = since.filter(|_| !suspected && !reconnected);
        pass.looked = Duration::ZERO;
        pass.tour.set_out(Instant::now(), CallId::generate());
        pass.empty.clear();
        // One look at the backlog of each queue that had calls waiting in the last pass.
        for queue in std::mem::take(&mut pass.waiting) {
            let asked = Instant::now();
            let found = if self.bus.is_connected() {
                backlog::look(&self.bus, &queue).await
            } else {
                Ok(None)
            };
            if matches!(found, Ok(Some(backlog)) if backlog.is_empty()) {
                pass.empty.push((queue, asked));
            }
        }
    }

    /// Declares silent workers dead; returns how many.
    async fn dead_workers(&self, observer: &mut Observer) -> Result<u64, StoreError> {
        let mut declared = 0;
        let session = match &mut observer.session {
            Some(session) => session,
            none => none.insert(self.postgres.connect().await?),
        };
        let reading = workers::heartbeats(&mut *session);
        let beats = within("read heartbeats", OBSERVATION_GAP_MAX, reading).await?;
        for (worker, beat) in observer.observations.observe(Instant::now(), &beats) {
            let declaring = workers::declare_dead(&mut *session, worker, beat);
            if within("declare a worker dead", OBSERVATION_GAP_MAX, declaring).await? {
                reached(Checkpoint::DeathDeclared);
                tracing::warn!(%worker, "worker has been silent for a whole lease and is declared dead");
                metrics().swept("dead_worker", 1);
                declared += 1;
            }
        }
        Ok(declared)
    }

    /// Decides about calls on this route whose worker is gone; adds to `took` how long looking for them takes.
    async fn lost_attempts(
        &self,
        route: &Route,
        overdue_too: bool,
        took: &mut Duration,
    ) -> Result<(), StoreError> {
        let mut ahead = route.stretches();
        while let Some(stretch) = ahead.pop_front() {
            let looking = Instant::now();
            let lost = sweep::lost_in(&self.pool, stretch.part(), overdue_too).await;
            *took += looking.elapsed();
            let lost = lost?;
            let Some(last) = lost.last() else {
                continue;
            };
            reached(Checkpoint::LossFound);
            if matches!(stretch, Stretch::Behind(_)) {
                ahead.push_back(Stretch::Behind(Some(last.call_id)));
            }
            let endings = lost.iter().map(lost_attempt).collect();
            self.end_all(endings, "lost_attempt").await;
        }
        Ok(())
    }
}

/// When calls of workers that are gone are looked for again.
#[derive(Default)]
struct LostPaces {
    over_all: Pace,
    over_known: Pace,
}

/// What this dispatcher has seen of the workers, and its session. Both are replaced together: what a server was before the
/// session broke cannot be told.
#[derive(Default)]
struct Observer {
    session: Option<PgConnection>,
    observations: Observations,
}

/// One walk over all open calls.
#[derive(Default)]
struct WalkPass {
    /// Which open calls it reads.
    tour: Tour,
    began: Option<Instant>,
    /// How long its statements took.
    looked: Duration,
    /// When the pass before this one began. `None`: every pointer may be lost, or this is the first pass.
    since: Option<Instant>,
    /// Changes when the connection to NATS is lost or found.
    connection: Option<watch::Receiver<u64>>,
    /// Queues with calls that have waited longer than a pointer takes.
    waiting: BTreeSet<QueueName>,
    /// Queues among these of which the stream held nothing at that look: their pointers are lost.
    empty: Vec<(QueueName, Instant)>,
}

impl WalkPass {
    /// Whether the next pass begins now. A connection that was found again hurries it: what was accepted while it was away has
    /// no pointer, and its callers wait. [`pace::again_after`] bounds the passes over a large table all the same.
    fn is_due(&self, now: Instant, connected: bool) -> bool {
        let changed = |epoch: &watch::Receiver<u64>| epoch.has_changed().unwrap_or(false);
        let found_again = connected && self.connection.as_ref().is_some_and(changed);
        let least = if found_again {
            Duration::ZERO
        } else {
            PASS_MIN
        };
        let again = least.max(pace::again_after(self.looked));
        self.began
            .is_none_or(|began| now.saturating_duration_since(began) >= again)
    }

    /// Which waiting pointers are worth publishing again.
    fn worth(&self) -> Worth {
        let Some(since) = self.since else {
            return Worth::all();
        };
        let lost = Duration::from_millis(walk::LOST_AFTER_MS.unsigned_abs());
        let empty = self.empty.iter();
        // A pointer that was published after that look may be in the stream.
        let empty = empty.map(|(queue, looked)| (queue.clone(), lost + looked.elapsed()));
        Worth {
            ages: hold::worth_republishing(since.elapsed()),
            empty: empty.collect(),
        }
    }

    /// Whether the stream's answer that this pointer is there is not believed without a look.
    fn doubts(&self, waiting: &WaitingCall) -> bool {
        waiting.waited >= hold::DOUBTED_AFTER
            || self
                .empty
                .iter()
                .any(|(queue, _)| *queue == waiting.call.queue)
    }
}

/// Gives a doubted pointer to the pass that looks at it. A pointer without doubt, or beyond that pass's capacity, comes back.
fn hand_over(
    call: Publishable,
    doubted: Option<&mpsc::Sender<Publishable>>,
) -> Option<Publishable> {
    match doubted {
        None => Some(call),
        Some(doubted) => doubted.try_send(call).err().map(TrySendError::into_inner),
    }
}

/// The ending of a running call whose worker is gone.
fn lost_attempt(lost: &Lost) -> Ending {
    let known = Known {
        effect: lost.effect,
        language: lost.language,
        cancelled: lost.cancel_requested,
        // The lost attempt may itself have had its effect, so what came before it decides nothing.
        earlier_unknown: false,
        applied_late: false,
    };
    let attempt = LostAttempt {
        why: lost.why,
        before: lost.lost_attempts,
        allowed: lost.allowed,
    };
    let (fact, guard) = (Fact::Lost(attempt), Guard::Attempt(lost.attempt_id));
    let ended = Some(attempt.attempt(&known));
    Ending::by(
        &fact,
        &known,
        lost.call_id,
        guard,
        ended,
        "sweep".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_was_found_again_does_not_wait_for_the_next_pass() {
        let (epoch, connection) = watch::channel(1_u64);
        let began = Instant::now();
        let pass = WalkPass {
            began: Some(began),
            looked: Duration::from_millis(20),
            connection: Some(connection),
            ..WalkPass::default()
        };
        let soon = began + Duration::from_millis(900);
        assert!(!pass.is_due(soon, true), "nothing has changed");
        epoch.send_replace(2);
        assert!(!pass.is_due(soon, false), "there is nobody to publish to");
        assert!(pass.is_due(soon, true));
        assert!(pass.is_due(began + PASS_MIN, false));
        let large = WalkPass {
            looked: Duration::from_secs(2),
            ..pass
        };
        assert!(!large.is_due(soon, true), "each look has its share of time");
    }
}
