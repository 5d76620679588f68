//! The configurations of this model, and the rules that a mutant leaves out.

use fleet::call::Effect;

use super::state::{CALLS, HeldLine};

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldConfig {
    pub(crate) name: &'static str,
    pub(crate) effect: Effect,
    /// Where each call waits; `None`: there is no such call.
    pub(crate) lines: [Option<HeldLine>; CALLS],
    pub(crate) workers: usize,
    pub(crate) dispatchers: usize,
    /// How many attempts of the tool may run at a time.
    pub(crate) limit: u8,
    /// Whether a newer version of the tool may allow one attempt at a time only.
    pub(crate) shrinks: bool,
    /// Whether calls are cancelled.
    pub(crate) cancel: bool,
    /// Whether Postgres may fail over, and the calls be quarantined, once.
    pub(crate) quarantine: bool,
    /// Whether claims may go unanswered.
    pub(crate) silence: bool,
    /// Whether pointers may get lost and come again.
    pub(crate) repeats: bool,
    pub(crate) without: Option<HeldMutant>,
}

impl HeldConfig {
    /// Calls of a tool that runs once at a time.
    pub(crate) const fn of_tool(name: &'static str, effect: Effect) -> Self {
        Self {
            name,
            effect,
            lines: [Some(HeldLine::Tool), Some(HeldLine::Tool), None],
            workers: 2,
            dispatchers: 1,
            limit: 1,
            shrinks: false,
            cancel: false,
            quarantine: false,
            silence: false,
            repeats: false,
            without: None,
        }
    }

    /// Calls of a queue of which the stream may hold one message.
    pub(crate) const fn of_queue(name: &'static str, effect: Effect) -> Self {
        Self {
            lines: [Some(HeldLine::Queue), Some(HeldLine::Queue), None],
            workers: 1,
            ..Self::of_tool(name, effect)
        }
    }

    /// The same, of a tenant that may have one of them under way.
    pub(crate) const fn of_slots(name: &'static str, effect: Effect) -> Self {
        Self {
            lines: [Some(HeldLine::Slots), Some(HeldLine::Slots), None],
            ..Self::of_queue(name, effect)
        }
    }

    /// The same with one rule left out.
    #[must_use]
    pub(crate) const fn without(mut self, rule: HeldMutant) -> Self {
        self.without = Some(rule);
        self
    }
}

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeldMutant {
    PermitLeaked,
    PermitLeakedUnaudited,
    PermitGivenBackTwice,
    QueueStaysClosed,
    TenantWaitsForEver,
    ShareNeverCounted,
    LineForgotten,
    UnknownLineStopsReleases,
    ReleaseKeepsNumber,
    PutBackUnheld,
    HeldClaimed,
    DoubtStaysHeld,
    PlaceByOldSnapshot,
    PlaceFreedTwice,
    PlaceOfDoubtFree,
    LargerLimitForgotten,
}
