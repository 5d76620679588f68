//! The sweep: finds what is due by Postgres and not under way, and sets it going again.
//!
//! This file has what all passes share; each file beside it is a loop of its own. Any number of dispatchers run the sweep at
//! once, so every pass is bounded and safe to repeat. Passes that need only Postgres, passes that need NATS, and passes that
//! may take minutes run beside each other: without NATS, dead workers are still found and calls still expire.
//!
//! | pass | finds | does |
//! |---|---|---|
//! | `due` | queued calls whose pause is over | publishes them, under a new number; holds those for which there is no room |
//! | `release` | held calls whose turn it is | publishes them, under a new number |
//! | `put_aside`, `handed_back` | held calls that a pause covers, or no pause any more | moves them to the line of the pause, or back to their own |
//! | `release`, `handed_back` | held calls whose target may be probed, or whose breaker is closed | publishes a few of them, moves all of them back to their own line |
//! | `handed_back` | held calls that follow a call which is over, or is not to answer them any more | moves them back to their own line |
//! | `lost_pointer` | queued calls older than a pointer takes, seldom; all of them when pointers may have been lost | publishes them again, under the same number: refused while the message is there |
//! | `expired_waited`, `expired_soon` | queued calls whose time is over, when their waiter's timer or their dispatcher's memory says so | ends them |
//! | `expired` | queued calls whose time is over, all others | ends them |
//! | `wait_over` | calls of client tools for which nobody came in time | ends them; a write that was handed out is in doubt |
//! | `undecided` | calls about which nobody decided in time | they expire |
//! | `completion_silent` | calls whose tool said that it would answer later, and did not | tries them again, or ends them; a `once` call is in doubt |
//! | `not_told` | calls whose tool was not told in time what it asked for | they expire |
//! | `dead_worker` | workers silent for a whole lease | declares them dead |
//! | `lost_attempt` | running calls without a worker, or overdue by far | again, in doubt or failed, by effect class |
//! | `probe` | calls in doubt whose tool has a probe | asks, and settles what the answers prove |
//! | `watermark` | that the ledger has moved on | moves its watermark, and leaves it in NATS |
//! | `topology` | a missing stream or consumer, a new tool's queue | makes it |
//! | `orphan` | messages that no worker will ever get, after the stream's files were rolled back | purges them, so that `lost_pointer` can publish |
//! | `stranded_pointer` | calls whose pointer the stream refuses as there and never delivers, among those that have waited for long or whose queue it says is empty | publishes them under a new number |
//! | `timeouts` | tools whose timeout is learned, every ten minutes | looks at a day of run times, changes the timeout |
//! | `files` | files whose time is over and that no open call names | deletes them |
//! | `upkeep` | dead rows, missing or old partitions | vacuums, creates ahead, drops |

mod breakers;
mod due;
mod expiry;
mod files;
mod keys;
mod learn;
mod ledger;
mod lines;
mod orphans;
mod pace;
mod paced;
mod pauses;
mod probe;
mod release;
mod route;
mod stranded;
mod topology;
mod turn;
mod upkeep;
mod vacuum;
mod waits;
mod watermark;

use std::time::Duration;

use bytes::Bytes;
use fleet::{
    bus::{connect::Bus, events::Events, prefix::PrefixClaim, publish::Publisher},
    checkpoint::{Checkpoint, reached},
    ids::{CallId, DispatcherId},
    registry::Registry,
    store::{
        PgPool, StoreError, complete::Ending, ledger::Completing, session::Postgres,
        sweep::Publishable,
    },
    telemetry::{metrics, report},
};
use futures_util::{FutureExt, future::join_all};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Interval, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use crate::{
    expiry::{Expiry, Question},
    meter::Meter,
    news,
    running::Running,
    waiters::Waiters,
};

/// What the passes need.
#[derive(Clone)]
pub(crate) struct Sweep {
    pub(crate) bus: Bus,
    pub(crate) postgres: Postgres,
    pub(crate) pool: PgPool,
    pub(crate) publisher: Publisher,
    pub(crate) events: Events,
    pub(crate) completing: Completing,
    pub(crate) registry: Registry,
    pub(crate) prefix: PrefixClaim,
    pub(crate) dispatcher: DispatcherId,
    pub(crate) meter: Meter,
    pub(crate) running: Running,
    pub(crate) expiry: Expiry,
    pub(crate) waiters: Waiters,
    /// Days of history to keep; `None` keeps all.
    pub(crate) history_days: Option<i32>,
}

/// How long an ending waits for the ledger; the next pass finds what is left.
const PATIENCE: Duration = Duration::from_secs(2);

impl Sweep {
    /// Starts the passes on `tasks`; they end when `stop` is cancelled. `asked` receives the waiters' questions.
    pub(crate) fn start(
        self,
        tasks: &mut JoinSet<()>,
        stop: &CancellationToken,
        asked: mpsc::Receiver<Question>,
    ) {
        let (doubted, doubtful) = mpsc::channel(stranded::ASKED_MAX);
        spawn(tasks, stop, self.clone().sweep_due());
        spawn(tasks, stop, self.clone().release_held());
        spawn(tasks, stop, self.clone().keep_pauses());
        spawn(tasks, stop, self.clone().let_followers_go());
        spawn(tasks, stop, self.clone().keep_meters());
        spawn(tasks, stop, self.clone().expire_waited(asked));
        spawn(tasks, stop, self.clone().expire_soon());
        spawn(tasks, stop, self.clone().sweep_ledger(doubted));
        spawn(tasks, stop, self.clone().sweep_stranded(doubtful));
        spawn(tasks, stop, self.clone().end_waits());
        spawn(tasks, stop, self.clone().sweep_doubts());
        spawn(tasks, stop, self.clone().keep_watermark());
        spawn(tasks, stop, self.clone().keep_topology());
        spawn(tasks, stop, self.clone().keep_events());
        spawn(tasks, stop, self.clone().sweep_orphans());
        spawn(tasks, stop, self.clone().learn_timeouts());
        spawn(tasks, stop, self.clone().drop_files());
        spawn(tasks, stop, self.keep_up());
    }

    /// Ends calls side by side, so that they share commits; a call that cannot be ended is left to the next pass.
    async fn end_all(&self, endings: Vec<Ending>, pass: &'static str) {
        join_all(endings.into_iter().map(|ending| self.end(ending, pass))).await;
    }

    async fn end(&self, ending: Ending, pass: &'static str) {
        match self.completing.complete(&ending, PATIENCE).await {
            Ok(Some(ended)) => {
                reached(Checkpoint::SweepEnded);
                metrics().swept(pass, 1);
                let event = || ended.event(&ending);
                self.events.tell(ended.followed(), event);
                if ended.state.answers_waiters() {
                    ended.count(&ending.kind);
                    self.ring(ended.dispatcher, ending.call_id).await;
                }
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(pass, call = %ending.call_id, error = report(&error), "a call was not ended");
            }
        }
    }

    /// Tells the dispatcher of a waiter that a call is decided. Only the bell: that dispatcher reads the row.
    async fn ring(&self, dispatcher: DispatcherId, call: CallId) {
        if self.bus.is_connected() {
            let subject = self.bus.subjects.done(dispatcher, call);
            news::ring(&self.bus, subject, Bytes::new()).await;
        }
    }

    /// False when NATS accepted no more.
    async fn publish(&self, calls: Vec<Publishable>) -> bool {
        for call in calls {
            if !self
                .publisher
                .publish(&call.queue, call.n, &call.pointer)
                .await
            {
                return false;
            }
        }
        true
    }
}

/// Runs a pass until it ends or `stop` is cancelled.
fn spawn(
    tasks: &mut JoinSet<()>,
    stop: &CancellationToken,
    pass: impl Future<Output = ()> + Send + 'static,
) {
    tasks.spawn(stop.clone().run_until_cancelled_owned(pass).map(drop));
}

fn every(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

impl Sweep {
    /// Says that a pass was cut short, unless the log says already that Postgres does not answer.
    fn warn(&self, pass: &'static str, swept: Result<(), StoreError>) {
        let Err(error) = swept else {
            return;
        };
        let (error_text, what) = (
            report(&error),
            "a sweep was cut short; the next one goes on",
        );
        if error.is_unavailable() && self.postgres.is_away() {
            tracing::debug!(pass, error = error_text, "{what}");
        } else {
            tracing::warn!(pass, error = error_text, "{what}");
        }
    }
}
