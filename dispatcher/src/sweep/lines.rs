//! Lets calls go that follow another call, when they are not to get its answer: it is over, or shares none any more.
//!
//! What decides is where the leader's row stands: while it is open the others wait, however long it waits itself; but nobody waits for
//! a leader whose answer was purged before it came, nor where an operator has switched the cache off or lets it observe. When it is over,
//! or is not waited for, all of them go back to their own line, and each finds out at the gate what is true now: the answer, or that the
//! first of them fetches it, or that each has to ask. No call gets the failure of another one.
//! A worker that does not know of such a mode yet puts them aside again; the next walk finds them.
//! Workers ring when a leader has ended, and when they have put a call aside behind one that may have ended just before; without the
//! bell every line is looked at each second. Needs no NATS.

use std::time::Duration;

use async_nats::Subscriber;
use fleet::{
    checkpoint::{Checkpoint, reached},
    hold::Line,
    ids::CallId,
    modes::{Brake, InterceptMode},
    store::{
        StoreError,
        followers::{self, FollowedCall, LINES},
        session::within,
    },
};
use futures_util::{FutureExt, StreamExt, future::join_all};
use tokio::time::{Instant, sleep, timeout_at};

use super::Sweep;

/// How often every line is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// The pause between two rounds, however many leaders end meanwhile.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a statement may take.
const STATEMENT_MAX: Duration = Duration::from_secs(10);
/// How many lines are let go at a time: most have few calls, and share a commit. Fewer than the process has connections for reading.
const LINES_AT_ONCE: usize = 2;
/// How many steps of calls of one line a round moves.
const STEPS_AT_ONCE: usize = 4;
/// The queue group of dispatchers, of which one hears that a leader has ended.
const FOLLOWERS: &str = "followers";

impl Sweep {
    /// Follows the leaders. Cancel-safe: a call is in one line or in the other.
    pub(super) async fn let_followers_go(self) {
        let (subject, one_of) = (self.bus.subjects.room(), FOLLOWERS.to_owned());
        let mut bell = match self.bus.client.queue_subscribe(subject, one_of).await {
            Ok(bell) => Some(bell),
            Err(error) => {
                tracing::warn!(%error, "cannot listen for calls that others follow; looking for them instead");
                None
            }
        };
        let (mut next, mut cursor) = (Instant::now() + LOOK, None);
        loop {
            let ended = ended_leaders(&mut bell, next).await;
            if !ended.is_empty() {
                self.warn("followers", self.followers_of(&ended).await);
            }
            if Instant::now() >= next {
                let walked = self.all_followers(&mut cursor).await;
                // The rest of a walk goes on at once.
                next = Instant::now()
                    + if matches!(walked, Ok(true)) {
                        PAUSE
                    } else {
                        LOOK
                    };
                self.warn("followers", walked.map(drop));
            }
            sleep(PAUSE).await;
        }
    }

    async fn followers_of(&self, leaders: &[CallId]) -> Result<(), StoreError> {
        let looking = followers::lines_of(&self.pool, leaders);
        let lines = within("look whose followers may go", STATEMENT_MAX, looking).await?;
        self.let_go(&lines).await;
        Ok(())
    }

    /// One step of a walk over all lines of followers; whether it goes on at once.
    async fn all_followers(&self, cursor: &mut Option<CallId>) -> Result<bool, StoreError> {
        // A fleet that uses none of this pays nothing for it.
        if !self.registry.has_caches() {
            return Ok(false);
        }
        let looking = followers::lines_behind(&self.pool, *cursor);
        let lines = within("look whose followers may go", STATEMENT_MAX, looking).await?;
        *cursor = lines.last().map(|line| line.leader);
        if lines.len() < LINES {
            *cursor = None;
        }
        let is_all = self.let_go(&lines).await;
        Ok(cursor.is_some() || !is_all)
    }

    /// Whether the calls of this line wait for an answer that they are to get.
    fn is_waited_for(&self, line: &FollowedCall) -> bool {
        let Some(answer) = &line.fetches else {
            return false;
        };
        let controls = self.registry.controls();
        let (tool, tenant) = (&answer.tool, Some(&answer.tenant));
        let mode = controls
            .modes()
            .of_brake(Brake::Cache, tool, tenant, Instant::now());
        mode == InterceptMode::Enforce
    }

    /// Hands back who waits for no answer any more, the largest lines in several rounds. Whether nothing is left to move.
    async fn let_go(&self, lines: &[FollowedCall]) -> bool {
        let over = lines.iter().filter(|line| !self.is_waited_for(line));
        let over: Vec<CallId> = over.map(|line| line.leader).collect();
        let mut is_all = true;
        for some in over.chunks(LINES_AT_ONCE) {
            let going = some.iter().map(|leader| self.let_line_go(*leader));
            is_all &= join_all(going).await.into_iter().all(|whole| whole);
        }
        is_all
    }

    /// The same of one line.
    async fn let_line_go(&self, leader: CallId) -> bool {
        let (line, mut steps) = (Line::After(leader), STEPS_AT_ONCE);
        let handed_back = self.hand_back_of(&line, &mut steps).await;
        reached(Checkpoint::LineLetGo);
        // The lines of others do not wait for it.
        self.warn("followers", handed_back);
        steps > 0
    }
}

/// Waits until workers have told that leaders have ended, at most until then. Cancel-safe.
async fn ended_leaders(bell: &mut Option<Subscriber>, until: Instant) -> Vec<CallId> {
    let mut ended = Vec::new();
    let Some(words) = bell else {
        tokio::time::sleep_until(until).await;
        return ended;
    };
    let first = match timeout_at(until, words.next()).await {
        Ok(Some(first)) => first,
        Ok(None) => {
            *bell = None;
            return ended;
        }
        Err(_nobody_rang) => return ended,
    };
    // A bell without an id is for who releases calls.
    let leader = |body: &[u8]| str::from_utf8(body).ok()?.parse::<CallId>().ok();
    ended.extend(leader(&first.payload));
    while ended.len() < LINES
        && let Some(Some(word)) = words.next().now_or_never()
    {
        ended.extend(leader(&word.payload));
    }
    ended
}
