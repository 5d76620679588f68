//! What is looked at, and which rule is left out.

use super::state::CALLS;

/// What a call asks, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asks {
    /// The question of all.
    Equal,
    /// The same, and it wants an answer of its own.
    NoStore,
    /// The same, about a call in doubt.
    Probe,
    /// The same, for another tenant.
    OtherTenant,
}

impl Asks {
    /// Whether it takes part.
    pub(super) const fn shares(self) -> bool {
        matches!(self, Self::Equal | Self::OtherTenant)
    }
}

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlightConfig {
    pub(super) name: &'static str,
    pub(super) asks: [Asks; CALLS],
    /// Whether calls are cancelled.
    pub(super) cancel: bool,
    /// Whether tools say no and are asked again.
    pub(super) not_now: bool,
    /// Whether answers may be too large.
    pub(super) large: bool,
    /// Whether the tool answers with old answers where it fails, so that the last good one is remembered.
    pub(super) keeps: bool,
    /// Whether the history drops calls.
    pub(super) drops: bool,
    /// Whether an operator takes answers away.
    pub(super) purge: bool,
    /// Whether Postgres may fall back to an older copy, once.
    pub(super) failover: bool,
    pub(super) without: Option<FlightMutant>,
}

impl FlightConfig {
    /// Three equal calls; workers die, attempts fail, deadlines pass, answers grow old.
    pub(super) const fn of(name: &'static str) -> Self {
        Self {
            name,
            asks: [Asks::Equal; CALLS],
            cancel: false,
            not_now: true,
            large: false,
            keeps: false,
            drops: false,
            purge: false,
            failover: false,
            without: None,
        }
    }

    /// Two of these and another one.
    pub(super) const fn with(name: &'static str, third: Asks) -> Self {
        Self {
            asks: [Asks::Equal, Asks::Equal, third],
            ..Self::of(name)
        }
    }

    /// The same with one rule left out.
    #[must_use]
    pub(super) const fn without(mut self, rule: FlightMutant) -> Self {
        self.without = Some(rule);
        self
    }
}

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FlightMutant {
    /// Who has waited for the kept row's lock goes by what it saw before.
    FollowerChecksBeforeLock,
    /// The sweep lets followers go when their leader has succeeded.
    LeaderDeathUnseen,
    /// The sweep lets nobody go who follows an open call, whatever the kept row says.
    PurgeUnseen,
    /// Followers that are let go ask their tool, without another look.
    RestNotRepointed,
    /// A leader that looks again takes itself for another one.
    FollowsItself,
    /// The end of a leader is the end of who looks next, whatever it is.
    FailureInherited,
    /// What a row names is taken for an answer, however old it is, and whether it is still there.
    OldAnswerCounts,
    ProbeSeesCache,
    NoStoreShares,
    KeyWithoutTenant,
}
