//! Lets calls go that follow another call, when that one is over.
//!
//! What decides is where the leader's row stands: while it is open the others wait, however long it waits itself. Where it has an answer
//! all of them go back to their own line, and each finds the answer at the gate. Otherwise the first goes back and the rest follow it,
//! so that a tool that fails is not asked by all of them at once, and no call gets the failure of another one. Workers ring when a
//! leader has ended; without the bell every line is looked at each second. Needs no NATS.

use std::time::Duration;

use async_nats::Subscriber;
use fleet::{
    checkpoint::{Checkpoint, reached},
    hold::Line,
    ids::CallId,
    store::{
        StoreError,
        followers::{self, FollowedCall, LINES, LeaderStands},
        pauses::STEP,
        session::within,
    },
    telemetry::metrics,
};
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep, timeout_at};

use super::Sweep;

/// How often every line is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// The pause between two rounds, however many leaders end meanwhile.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a statement may take.
const STATEMENT_MAX: Duration = Duration::from_secs(10);
/// How many steps of calls one round moves.
const STEPS_AT_ONCE: usize = 20;
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
        self.let_go(&lines).await.map(drop)
    }

    /// One step of a walk over all lines of followers; whether it goes on.
    async fn all_followers(&self, cursor: &mut Option<CallId>) -> Result<bool, StoreError> {
        let looking = followers::lines_behind(&self.pool, *cursor);
        let lines = within("look whose followers may go", STATEMENT_MAX, looking).await?;
        let is_all = self.let_go(&lines).await?;
        *cursor = lines.last().map(|line| line.leader);
        if lines.len() < LINES {
            *cursor = None;
        }
        Ok(cursor.is_some() || !is_all)
    }

    /// Whether nothing of these lines is left to move.
    async fn let_go(&self, lines: &[FollowedCall]) -> Result<bool, StoreError> {
        let mut steps = STEPS_AT_ONCE;
        for line in lines {
            if steps == 0 {
                return Ok(false);
            }
            match line.stands {
                LeaderStands::Open => {}
                LeaderStands::HasAnswer => {
                    self.hand_back_followers(line.leader, &mut steps).await?
                }
                LeaderStands::IsOver => self.follow_the_first(line.leader, &mut steps).await?,
            }
        }
        Ok(steps > 0)
    }

    async fn follow_the_first(&self, leader: CallId, steps: &mut usize) -> Result<(), StoreError> {
        while *steps > 0 {
            *steps -= 1;
            let moving = followers::follow_the_first(&self.pool, leader, STEP);
            let moved = within("let calls follow another one", STATEMENT_MAX, moving).await?;
            if moved == 0 {
                // The first one is alone now.
                *steps += 1;
                return self.hand_back_followers(leader, steps).await;
            }
            metrics().swept("followed_on", moved);
            reached(Checkpoint::LineLetGo);
        }
        Ok(())
    }

    async fn hand_back_followers(
        &self,
        leader: CallId,
        steps: &mut usize,
    ) -> Result<(), StoreError> {
        self.hand_back_of(&Line::After(leader), steps).await?;
        reached(Checkpoint::LineLetGo);
        Ok(())
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
