//! The facts about a call that do not depend on how it ended.

use super::table::effect_after;
use crate::{
    call::{Effect, EffectKnown, Language},
    outcome::OutcomeWord,
};

/// What is known of a call, apart from what happened to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// What running it again would mean.
    pub effect: Effect,
    /// The language of its messages.
    pub language: Language,
    /// Whether it was cancelled while it ran.
    pub cancelled: bool,
    /// Whether an earlier attempt may have had its effect.
    pub earlier_unknown: bool,
    /// Whether an earlier attempt has reported, too late to decide, that it had its effect.
    pub applied_late: bool,
}

impl Known {
    /// What is known of the effect where no attempt has had it.
    pub(super) const fn untouched(&self) -> EffectKnown {
        effect_after(self.effect, OutcomeWord::NotStarted)
    }

    /// Whether an earlier attempt may have had an effect that nothing proves.
    pub(super) const fn is_doubtful(&self) -> bool {
        self.earlier_unknown && self.effect.may_doubt()
    }
}
