//! **How long may I believe my lease?**
//!
//! A worker writes every few seconds, in one row of Postgres, that it lives. Dispatchers conclude from silence that it is dead,
//! and give its calls away. Both sides measure with their own monotonic clock; no clock is compared with another.
//!
//! ```text
//!   worker     beat sent ──▶ committed                    trusted until: sent + LEASE − MARGIN
//!   others           first seen ─────── same beat for a whole LEASE ──▶ dead
//! ```
//!
//! The worker counts from when it *sent* the beat, a dispatcher from when it first *saw* the beat, which is later. So the
//! worker stops trusting itself before any dispatcher does, by at least the margin. A worker that cannot renew starts no effect
//! any more (checked again right before the first byte), lets running attempts finish and reports them late: to abort a running
//! write would only make its effect unknown.
//!
//! An observer that was itself asleep, or whose Postgres was away, has seen nothing: after a gap in its own observations it
//! starts to count anew. It does so too after its session to Postgres broke, for it cannot tell which server it had before. So
//! an outage or a clock jump makes no worker dead.
//!
//! A dead worker is not a *fenced* one. Dead means that it may not start anything; fenced means that it, and every process
//! it started, is proven gone ([`crate::fencing`]).

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use crate::ids::WorkerId;

/// How often a worker beats.
pub const BEAT: Duration = Duration::from_secs(3);
/// How old the last beat of a live worker may be: one beat may come late.
///
/// A worker that is silent for longer may be dead. That is certain only after a whole lease; until then nothing should count on
/// the worker.
pub const LATE: Duration = Duration::from_secs(2 * BEAT.as_secs());
/// How long a beat is valid.
pub const LEASE: Duration = Duration::from_secs(15);
/// How much earlier the worker itself stops trusting it.
pub const MARGIN: Duration = Duration::from_secs(3);
/// A gap between two observations after which an observer starts to count anew.
pub const OBSERVATION_GAP_MAX: Duration = Duration::from_secs(5);

/// A worker's own view.
#[derive(Debug, Clone, Copy)]
pub struct Lease {
    sent_at: Instant,
}

impl Lease {
    /// Renewed by a beat that was sent at this moment and has been committed since.
    pub const fn renewed(sent_at: Instant) -> Self {
        Self { sent_at }
    }

    /// Whether an effect may be started now.
    pub fn may_start(&self, now: Instant) -> bool {
        now < self.ends_at()
    }

    /// From when on nothing may be started, unless it is renewed.
    pub fn ends_at(&self) -> Instant {
        self.sent_at + LEASE.saturating_sub(MARGIN)
    }
}

/// An observer's view of all workers, over one session to Postgres. A new session begins with a new view.
#[derive(Debug, Default)]
pub struct Observations {
    seen: HashMap<WorkerId, (i64, Instant)>,
    since: Option<Instant>,
    last: Option<Instant>,
}

impl Observations {
    /// Adds the heartbeats that were read now, and returns the workers that have been silent for a whole lease, each with its
    /// last beat.
    pub fn observe(&mut self, now: Instant, beats: &[(WorkerId, i64)]) -> Vec<(WorkerId, i64)> {
        if self
            .last
            .is_none_or(|last| now.saturating_duration_since(last) > OBSERVATION_GAP_MAX)
        {
            self.seen.clear();
            self.since = Some(now);
        }
        self.last = Some(now);
        self.seen
            .retain(|worker, _| beats.iter().any(|(beating, _)| beating == worker));
        let mut silent = Vec::new();
        for (worker, beat) in beats {
            let (seen, since) = self.seen.entry(*worker).or_insert((*beat, now));
            if seen != beat {
                (*seen, *since) = (*beat, now);
            } else if now.saturating_duration_since(*since) >= LEASE {
                silent.push((*worker, *beat));
            }
        }
        silent
    }

    /// How long the observations have gone on without a gap.
    pub fn unbroken_for(&self, now: Instant) -> Duration {
        self.since
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observe_every_second(
        observations: &mut Observations,
        from: Instant,
        seconds: u64,
        beat: i64,
    ) -> Vec<WorkerId> {
        let worker = worker();
        (0..=seconds)
            .flat_map(|second| {
                observations.observe(from + Duration::from_secs(second), &[(worker, beat)])
            })
            .map(|(worker, _)| worker)
            .collect()
    }

    fn worker() -> WorkerId {
        WorkerId(uuid::Uuid::from_u128(7))
    }

    #[test]
    fn a_worker_is_dead_after_a_whole_lease_of_silence_and_not_before() {
        let start = Instant::now();
        assert!(observe_every_second(&mut Observations::default(), start, 14, 1).is_empty());
        assert!(!observe_every_second(&mut Observations::default(), start, 15, 1).is_empty());
    }

    #[test]
    fn a_beat_starts_the_count_anew() {
        let (start, mut observations) = (Instant::now(), Observations::default());
        assert!(observe_every_second(&mut observations, start, 14, 1).is_empty());
        assert!(
            observe_every_second(&mut observations, start + Duration::from_secs(15), 14, 2)
                .is_empty()
        );
    }

    #[test]
    fn an_observer_that_was_away_kills_nobody() {
        let (start, mut observations) = (Instant::now(), Observations::default());
        assert!(observe_every_second(&mut observations, start, 10, 1).is_empty());
        let back = start + Duration::from_secs(60);
        assert!(observe_every_second(&mut observations, back, 14, 1).is_empty());
    }

    #[test]
    fn a_worker_stops_trusting_itself_before_anybody_else_does() {
        let sent = Instant::now();
        let lease = Lease::renewed(sent);
        assert!(lease.may_start(sent + Duration::from_secs(11)));
        assert!(!lease.may_start(sent + LEASE - MARGIN));
    }
}
