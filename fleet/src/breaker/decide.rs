//! **May this target be tried?** The states of a breaker and the moves between them.
//!
//! | from | when | to |
//! |---|---|---|
//! | closed | enough attempts, and too large a share of them failed or was slow | open |
//! | closed | the same, but only one worker has been heard, and not for long | closed; it reports again in a moment, when others have reported |
//! | closed | the same, but only one of several workers has failures | closed; that worker leaves such calls to others for a time |
//! | open | its time is over and a call asks for a permit | half-open, a new round |
//! | half-open | fewer permits are out than there are probes, and a call asks for one | half-open |
//! | half-open | as many probes succeeded as there are | closed |
//! | half-open | a probe failed or was slow | open, twice as long, up to a limit |
//! | half-open | the round's time is over and a call asks for a permit | half-open, a new round |
//!
//! Each move but that of a further permit begins a new generation, and attempts of an older one count no more. The ledger makes
//! these moves (`toolfleet.breaker_report`, `breaker_permit`, `breaker_give_back`); a test holds it against this file. Pure: the
//! moment is an argument, in milliseconds of the ledger's clock.

use crate::{
    call::words,
    manifest::{BreakerSpec, Percent},
};

/// How long a permit lasts beyond the time that its attempt may take, in milliseconds.
pub const ROUND_GRACE_MS: i64 = 10_000;
/// How long one worker that is heard alone decides nothing, in milliseconds: others that call too report within a part of it.
pub const ALONE_MS: i64 = 500;

words! {
    /// What a breaker lets through.
    BreakerState {
        /// Every call.
        Closed = "closed",
        /// None.
        Open = "open",
        /// A few, which probe the target.
        HalfOpen = "half_open",
    }
}

/// When a breaker opens and closes. Times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerTerms {
    /// With fewer attempts nothing is decided.
    pub calls: i64,
    /// The share of failures at which it opens, in percent.
    pub failures: i64,
    /// The share of slow attempts at which it opens, in percent, if slow ones count.
    pub slow: Option<i64>,
    /// How long it is open at first.
    pub open_ms: i64,
    /// How long it is open at most.
    pub open_max_ms: i64,
    /// How many calls probe the target.
    pub probes: i32,
}

impl From<&BreakerSpec> for BreakerTerms {
    fn from(spec: &BreakerSpec) -> Self {
        let ms = |time: std::time::Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let percent = |share: Percent| i64::from(share.get());
        Self {
            calls: i64::from(spec.calls),
            failures: percent(spec.failures),
            slow: spec.slow.as_ref().map(|slow| percent(slow.share)),
            open_ms: ms(spec.open),
            open_max_ms: ms(spec.open_max),
            probes: i32::try_from(spec.probes).unwrap_or(i32::MAX),
        }
    }
}

/// What was counted of attempts: of one worker in the window, or, in a half-open breaker, in the round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Counted {
    /// Attempts that say something about the target.
    pub calls: i64,
    /// Those of them that it did not answer in time, or at all.
    pub failures: i64,
    /// Those of them that took too long.
    pub slow: i64,
}

impl Counted {
    /// Both together.
    #[must_use]
    pub const fn and(self, more: Self) -> Self {
        Self {
            calls: self.calls + more.calls,
            failures: self.failures + more.failures,
            slow: self.slow + more.slow,
        }
    }

    /// Whether so many attempts are enough to open.
    pub const fn is_over(self, terms: &BreakerTerms) -> bool {
        let slow = match terms.slow {
            Some(share) => self.slow * 100 >= share * self.calls,
            None => false,
        };
        self.calls >= terms.calls && (self.failures * 100 >= terms.failures * self.calls || slow)
    }

    /// Whether one of them was a bad one.
    pub const fn is_troubled(self, terms: &BreakerTerms) -> bool {
        self.failures > 0 || terms.slow.is_some() && self.slow > 0
    }
}

/// A breaker as the ledger has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Breaker {
    /// What it lets through.
    pub state: BreakerState,
    /// Which generation of attempts counts.
    pub generation: i64,
    /// While it is open: until when.
    pub open_until: Option<i64>,
    /// How long it was opened for the last time; 0: it is closed.
    pub open_ms: i64,
    /// How many permits of the round are out.
    pub probes_out: i32,
    /// How many of its probes succeeded.
    pub probes_ok: i32,
    /// While it is half-open: when the permits lapse.
    pub round_until: Option<i64>,
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            state: BreakerState::Closed,
            generation: 0,
            open_until: None,
            open_ms: 0,
            probes_out: 0,
            probes_ok: 0,
            round_until: None,
        }
    }
}

words! {
    /// What a report came to.
    ReportVerdict {
        /// Nothing new.
        Stays = "stays",
        /// The breaker opened.
        Opened = "opened",
        /// It closed.
        Closed = "closed",
        /// It would open, but other workers may not have reported yet: the worker reports again.
        Unsure = "unsure",
        /// Only the reporting worker fails, of several: it leaves such calls to others for a time.
        Local = "local",
        /// The worker counts for a generation that is over.
        Stale = "stale",
    }
}

words! {
    /// Whether a call may try the target.
    PermitVerdict {
        /// Every call may.
        Closed = "closed",
        /// This one may, as a probe.
        Granted = "granted",
        /// It may not.
        Refused = "refused",
        /// The tool has no breaker.
        Unguarded = "unguarded",
    }
}

/// The answer to a call that asks for a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermitAnswer {
    /// Whether it may.
    pub verdict: PermitVerdict,
    /// The generation for which its attempt counts.
    pub generation: i64,
    /// When it is refused: in how many milliseconds a call may ask again.
    pub left_ms: Option<i64>,
}

impl Breaker {
    /// Decides by what was counted of this generation, the reporting worker's `own` counts among those of `all` workers.
    /// `heard_for_ms`: how long ago the first of it was reported.
    pub fn judge(
        &mut self,
        own: Counted,
        all: &[Counted],
        heard_for_ms: i64,
        now: i64,
        terms: &BreakerTerms,
    ) -> ReportVerdict {
        let total = all
            .iter()
            .fold(Counted::default(), |sum, one| sum.and(*one));
        let troubled = all.iter().filter(|one| one.is_troubled(terms)).count();
        match self.state {
            BreakerState::Open => ReportVerdict::Stays,
            BreakerState::Closed => {
                let callers = all.iter().filter(|one| one.calls > 0).count();
                let is_bad_alone = troubled == 1 && own.is_over(terms);
                if !(total.is_over(terms) || is_bad_alone) {
                    return ReportVerdict::Stays;
                }
                if callers > 1 && troubled == 1 {
                    return if own.is_troubled(terms) {
                        ReportVerdict::Local
                    } else {
                        ReportVerdict::Stays
                    };
                }
                if callers <= 1 && heard_for_ms < ALONE_MS {
                    return ReportVerdict::Unsure;
                }
                self.open(terms.open_ms, now);
                ReportVerdict::Opened
            }
            BreakerState::HalfOpen if troubled > 0 => {
                self.open((self.open_ms.max(1) * 2).min(terms.open_max_ms), now);
                ReportVerdict::Opened
            }
            BreakerState::HalfOpen => {
                self.probes_ok = i32::try_from(total.calls).unwrap_or(i32::MAX);
                if self.probes_ok < terms.probes {
                    return ReportVerdict::Stays;
                }
                *self = Self {
                    generation: self.generation + 1,
                    ..Self::default()
                };
                ReportVerdict::Closed
            }
        }
    }

    const fn open(&mut self, open_ms: i64, now: i64) {
        *self = Self {
            state: BreakerState::Open,
            generation: self.generation + 1,
            open_until: Some(now + open_ms),
            open_ms,
            probes_out: 0,
            probes_ok: 0,
            round_until: None,
        };
    }

    /// Asks whether a call may try the target whose attempt may take so long.
    pub fn permit(&mut self, now: i64, timeout_ms: i64, terms: &BreakerTerms) -> PermitAnswer {
        let over = match self.state {
            BreakerState::Closed => {
                return PermitAnswer {
                    verdict: PermitVerdict::Closed,
                    generation: self.generation,
                    left_ms: None,
                };
            }
            BreakerState::Open => self.open_until,
            BreakerState::HalfOpen => self.round_until,
        };
        let over = over.unwrap_or(now);
        if over <= now {
            self.state = BreakerState::HalfOpen;
            self.generation += 1;
            (self.probes_out, self.probes_ok) = (0, 0);
        } else if self.state == BreakerState::Open || self.probes_out >= terms.probes {
            return PermitAnswer {
                verdict: PermitVerdict::Refused,
                generation: self.generation,
                left_ms: Some(over - now),
            };
        }
        self.probes_out += 1;
        self.round_until = Some(now + timeout_ms + ROUND_GRACE_MS);
        PermitAnswer {
            verdict: PermitVerdict::Granted,
            generation: self.generation,
            left_ms: None,
        }
    }

    /// Gives a permit of this generation back; false: its round is over.
    pub const fn give_back(&mut self, generation: i64) -> bool {
        let is_out = matches!(self.state, BreakerState::HalfOpen)
            && self.generation == generation
            && self.probes_out > self.probes_ok;
        if is_out {
            self.probes_out -= 1;
        }
        is_out
    }
}

#[cfg(test)]
mod tests;
