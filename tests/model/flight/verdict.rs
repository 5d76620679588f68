//! What a kept row says to a call that comes to it, as `toolfleet.answer_verdict` and `toolfleet.look` say it.
//!
//! The ledger's tests include this file and compare it with the real functions in every case (`tests/tests/ledger/flight.rs`): a
//! rule that changes in SQL has to change here.

/// Where the call stands that fetches the answer, or was the last to do so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Leader {
    /// It waits or runs.
    Open,
    /// It has ended with an answer that counts.
    Good,
    /// With one whose time is over.
    Old,
    /// The same, and it was too large to be kept.
    OldLarge,
    /// With one that counts and is too large to be kept.
    Large,
    /// With none, or the history does not have it.
    Bad,
}

/// A kept row, as a call sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    /// Its answer's time is not over.
    pub(crate) is_fresh: bool,
    /// The history has the call with the answer.
    pub(crate) has_answer: bool,
    /// The answer is the leader's.
    pub(crate) is_of_leader: bool,
    /// The leader is the call that looks.
    pub(crate) is_mine: bool,
    /// Where the leader stands.
    pub(crate) leader: Leader,
    /// Equal calls are runs of their own for now.
    pub(crate) is_apart: bool,
}

/// What it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Verdict {
    Hit,
    Lead,
    Follow,
    Alone,
    /// The leader has an answer that counts, and the row does not say so yet.
    Found,
    /// The same with one whose time is over: it is the last good one.
    Old,
    Large,
    Failed,
    Free,
}

impl Verdict {
    /// As in SQL.
    #[allow(dead_code, reason = "for the tests of the ledger")]
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Lead => "lead",
            Self::Follow => "follow",
            Self::Alone => "alone",
            Self::Found => "found",
            Self::Old => "old",
            Self::Large => "large",
            Self::Failed => "failed",
            Self::Free => "free",
        }
    }

    /// Whether the row's lock has to be had, and the row looked at again.
    #[allow(dead_code, reason = "for the model")]
    pub(crate) const fn needs_lock(self) -> bool {
        matches!(
            self,
            Self::Found | Self::Old | Self::Large | Self::Failed | Self::Free
        )
    }
}

/// What the row says; `None`: there is none.
pub(crate) const fn verdict(row: Option<Seen>) -> Verdict {
    let Some(row) = row else { return Verdict::Free };
    if row.is_fresh && row.has_answer {
        return Verdict::Hit;
    }
    if row.is_mine {
        return Verdict::Lead;
    }
    match row.leader {
        Leader::Open if row.is_apart => Verdict::Alone,
        Leader::Open => Verdict::Follow,
        // It is known, and does not count any more.
        _ if row.is_of_leader => Verdict::Free,
        Leader::Bad => Verdict::Failed,
        Leader::Old => Verdict::Old,
        Leader::OldLarge => Verdict::Free,
        Leader::Large => Verdict::Large,
        Leader::Good => Verdict::Found,
    }
}

/// Whether another leader has failed before this one, and whether equal calls are runs of their own, once a call leads that has had
/// this verdict.
pub(crate) const fn leads(verdict: Verdict, failed_before: bool, is_apart: bool) -> (bool, bool) {
    let has_failed = matches!(verdict, Verdict::Failed);
    let is_large = matches!(verdict, Verdict::Large);
    (
        has_failed && !failed_before,
        is_large || has_failed && failed_before || is_apart,
    )
}
