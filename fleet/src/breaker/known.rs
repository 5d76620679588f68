//! **May this call try its target?** The breakers as a process knows them, and what that means for one call.
//!
//! A snapshot knows how long a breaker is still open by the ledger's clock, counted on this process's own from the moment when
//! it was read. An old snapshot does no harm: a call that it lets through is an ordinary attempt, whose result counts for a
//! generation that is over, and before a probe the ledger is asked for a permit.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use super::{BreakerId, BreakerState};
use crate::ids::ToolName;

/// One breaker, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownBreaker {
    /// Which one it is.
    pub id: BreakerId,
    /// What attempts depend on.
    pub target: String,
    /// What it lets through.
    pub state: BreakerState,
    /// Which generation of attempts counts.
    pub generation: i64,
    /// Open: when it may be probed. Half-open: when its permits lapse.
    pub until: Option<Instant>,
    /// Half-open: how many permits are out.
    pub probes_out: u32,
}

/// A breaker that an operator has forced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForcedBreaker {
    /// Whether nothing is let through, or everything.
    pub is_open: bool,
    /// When that is over; `None`: when somebody ends it.
    pub until: Option<Instant>,
}

/// What a snapshot says about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// It may try the target; its attempt counts for this generation.
    Free(i64),
    /// It may not before that; `None`: until an operator says otherwise.
    Shut(Option<Instant>),
    /// The ledger has to be asked for a permit.
    Ask,
}

impl KnownBreaker {
    /// What it means for a call, where so many probes may be under way.
    pub fn passage(&self, probes: u32, now: Instant) -> Passage {
        let is_due = self.until.is_none_or(|until| until <= now);
        match self.state {
            BreakerState::Closed => Passage::Free(self.generation),
            BreakerState::Open | BreakerState::HalfOpen if is_due => Passage::Ask,
            BreakerState::HalfOpen if self.probes_out < probes => Passage::Ask,
            BreakerState::Open => Passage::Shut(self.until),
            BreakerState::HalfOpen => Passage::Shut(Some(known_soon(self.until, now))),
        }
    }

    /// How many calls of its line may be handed over to probe it now.
    pub fn room(&self, probes: u32, now: Instant) -> u32 {
        match self.passage(probes, now) {
            Passage::Free(_) | Passage::Shut(_) => 0,
            Passage::Ask if self.until.is_none_or(|until| until <= now) => probes,
            Passage::Ask => probes.saturating_sub(self.probes_out),
        }
    }
}

/// The breakers, as they were read at one moment. One that is not here is closed and was never open.
#[derive(Debug, Clone, Default)]
pub struct Breakers(HashMap<ToolName, Vec<KnownBreaker>>);

impl Breakers {
    /// These.
    pub fn new(known: impl IntoIterator<Item = (ToolName, KnownBreaker)>) -> Self {
        let mut all = Self::default();
        for (tool, breaker) in known {
            all.0.entry(tool).or_default().push(breaker);
        }
        all
    }

    /// That of a tool and a target.
    pub fn of(&self, tool: &ToolName, target: &str) -> Option<&KnownBreaker> {
        let mut found = self.0.get(tool)?.iter();
        found.find(|breaker| breaker.target == target)
    }

    /// All of them, with their tools.
    pub fn iter(&self) -> impl Iterator<Item = (&ToolName, &KnownBreaker)> {
        let all = self.0.iter();
        all.flat_map(|(tool, breakers)| breakers.iter().map(move |breaker| (tool, breaker)))
    }

    /// The one with this id, and its tool.
    pub fn with_id(&self, id: BreakerId) -> Option<(&ToolName, &KnownBreaker)> {
        let mut found = self.iter().filter(|(_, breaker)| breaker.id == id);
        found.next()
    }
}

impl ForcedBreaker {
    /// Whether it is not over yet.
    pub fn holds(self, now: Instant) -> bool {
        self.until.is_none_or(|until| until > now)
    }

    /// What it means for a call whose breaker is `known`; `None`: it is over by now.
    pub fn passage(&self, known: Option<&KnownBreaker>, now: Instant) -> Option<Passage> {
        if !self.holds(now) {
            return None;
        }
        Some(if self.is_open {
            Passage::Shut(self.until)
        } else {
            Passage::Free(known.map_or(0, |known| known.generation))
        })
    }
}

/// What it means for a call that an operator has forced a breaker, or else what is known of it. One that nobody knows is closed.
pub fn passage(
    forced: Option<ForcedBreaker>,
    known: Option<&KnownBreaker>,
    probes: u32,
    now: Instant,
) -> Passage {
    let forced = forced.and_then(|forced| forced.passage(known, now));
    let by_itself = || known.map_or(Passage::Free(0), |known| known.passage(probes, now));
    forced.unwrap_or_else(by_itself)
}

/// How long another call that tries the target is waited for: its permit may last for minutes, and what becomes of it is mostly
/// known much sooner.
const KNOWN_SOON: Duration = Duration::from_secs(2);

/// When it is worth asking again about a target that others are trying, whose permits lapse then.
pub fn known_soon(lapses: Option<Instant>, now: Instant) -> Instant {
    let soon = now + KNOWN_SOON;
    lapses.map_or(soon, |lapses| lapses.min(soon))
}

/// How soon a refused caller may come again: when the target may be tried, and never at once.
pub(crate) const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
/// The same where only an operator can end it.
pub(crate) const RETRY_AFTER_FORCED: Duration = Duration::from_secs(60);

impl Passage {
    /// In how long a call that may not pass should come again.
    pub fn retry_after(self, now: Instant) -> Duration {
        match self {
            Self::Shut(None) => RETRY_AFTER_FORCED,
            Self::Shut(Some(until)) => RETRY_AFTER_MIN.max(until.saturating_duration_since(now)),
            Self::Free(_) | Self::Ask => RETRY_AFTER_MIN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker(state: BreakerState, until: Option<Instant>, probes_out: u32) -> KnownBreaker {
        KnownBreaker {
            id: BreakerId(1),
            target: "http://a".to_owned(),
            state,
            generation: 7,
            until,
            probes_out,
        }
    }

    #[test]
    fn the_ledger_is_asked_only_when_a_permit_may_be_there() {
        let now = Instant::now();
        let (before, after) = (Some(now), Some(now + Duration::from_millis(1)));
        for (state, until, out, passage, room) in [
            (BreakerState::Closed, None, 0, Passage::Free(7), 0),
            (BreakerState::Open, after, 0, Passage::Shut(after), 0),
            (BreakerState::Open, before, 0, Passage::Ask, 2),
            (BreakerState::HalfOpen, after, 0, Passage::Ask, 2),
            (BreakerState::HalfOpen, after, 1, Passage::Ask, 1),
            (BreakerState::HalfOpen, after, 2, Passage::Shut(after), 0),
            (BreakerState::HalfOpen, before, 2, Passage::Ask, 2),
        ] {
            let known = breaker(state, until, out);
            assert_eq!(known.passage(2, now), passage, "{known:?}");
            assert_eq!(known.room(2, now), room, "{known:?}");
        }
    }

    #[test]
    fn a_call_does_not_wait_for_the_lapse_of_a_permit() {
        let now = Instant::now();
        let (lapses, soon) = (now + Duration::from_secs(310), now + KNOWN_SOON);
        let known = breaker(BreakerState::HalfOpen, Some(lapses), 2);
        assert_eq!(known.passage(2, now), Passage::Shut(Some(soon)));
        let known = breaker(BreakerState::Open, Some(lapses), 0);
        assert_eq!(known.passage(2, now), Passage::Shut(Some(lapses)));
    }

    #[test]
    fn a_forced_breaker_comes_before_its_state_until_it_is_over() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let shut = breaker(BreakerState::Open, Some(later), 0);
        let forced = |is_open, until| ForcedBreaker { is_open, until };
        assert_eq!(
            forced(false, None).passage(Some(&shut), now),
            Some(Passage::Free(7))
        );
        assert_eq!(
            forced(true, Some(later)).passage(None, now),
            Some(Passage::Shut(Some(later)))
        );
        assert_eq!(forced(true, Some(later)).passage(None, later), None);
        assert_eq!(Passage::Shut(None).retry_after(now), RETRY_AFTER_FORCED);
        assert_eq!(Passage::Shut(Some(now)).retry_after(now), RETRY_AFTER_MIN);
    }

    #[test]
    fn a_breaker_is_found_by_its_target_and_by_its_id() {
        let tool: ToolName = "look".parse().unwrap();
        let known = Breakers::new([(tool.clone(), breaker(BreakerState::Closed, None, 0))]);
        assert_eq!(known.of(&tool, "http://a").unwrap().id, BreakerId(1));
        assert!(known.of(&tool, "http://b").is_none());
        assert_eq!(known.with_id(BreakerId(1)).unwrap().0, &tool);
        assert!(known.with_id(BreakerId(2)).is_none());
    }
}
