//! The words with which the history says why and by whom a call ended.

/// The reason in the history for a call that lost too many workers.
pub(super) const POISON: &str = "poison";
/// The author in the history of what callers' programs hand in.
pub(super) const CLIENT: &str = "client";
/// The reason in the history for a call whose caller's program did not answer.
pub(super) const CLIENT_SILENT: &str = "client_silent";
/// The reason in the history for a call about which nobody decided.
pub(super) const UNDECIDED: &str = "undecided";
/// The reason in the history for a call whose tool did not answer although it had said that it would.
pub(super) const COMPLETION_SILENT: &str = "completion_silent";
/// The reason in the history for a call whose tool was not told what it had asked for.
pub(super) const NOT_TOLD: &str = "not_told";
/// The reason in the history for an end with a kept answer.
pub(super) const ANSWERED: &str = "answered_from_the_cache";
/// The reason in the history for a doubt that a person abandoned.
pub(super) const ABANDONED: &str = "settled_abandoned";
