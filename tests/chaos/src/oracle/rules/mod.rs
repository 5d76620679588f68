//! The promises that hold at the end, whatever the faults: a pure function for each.

use super::{case::Case, verdict::Breach};

mod accepted;
mod agreed;
mod attempts;
mod caches;
mod effects;
mod handed;
mod moves;
mod paused;
mod processes;
mod rates;
mod ruled;
mod told;
mod waits;

pub(super) use agreed::is_not_agreed;
pub(super) use effects::came_after_settlement;
pub(super) use ruled::is_forbidden;
pub(super) use waits::is_ended_by_breaker;

/// Looks for whatever breaks one promise.
pub type Rule = fn(&Case<'_>) -> Vec<Breach>;

/// Every rule, by the name that its breaches carry.
pub const ALL: &[(&str, Rule)] = &[
    (accepted::KNOWN, accepted::accepted_is_known),
    (accepted::ASKED, accepted::known_was_asked),
    (accepted::ONE, accepted::one_call_per_key),
    (accepted::REFUSED, accepted::refused_leaves_nothing),
    (accepted::MISUSED, accepted::a_key_names_one_call),
    (
        accepted::CROSSED,
        accepted::answers_belong_to_their_questions,
    ),
    (effects::TWICE, effects::done_once_at_most),
    (effects::STATE, effects::state_agrees_with_effect),
    (effects::OUTCOME, effects::outcome_agrees_with_effect),
    (effects::ALARM, effects::alarms_have_a_reason),
    (attempts::AGAIN, attempts::once_is_not_started_again),
    (attempts::CLAIMED, attempts::what_started_was_claimed),
    (attempts::KEY, attempts::tools_are_told_one_key),
    (attempts::GAPS, attempts::attempts_are_numbered_without_gaps),
    (attempts::POLICY, attempts::attempts_keep_the_policy),
    (attempts::DEADLINE, attempts::nothing_is_claimed_too_late),
    (paused::PAUSED, paused::nothing_starts_while_paused),
    (paused::FORCED, paused::nothing_starts_while_forced_open),
    (waits::NOBODY, waits::nothing_waits_for_nobody),
    (waits::AGAIN, waits::an_open_breaker_tries_again),
    (waits::UNKNOWN, waits::an_open_breaker_ends_nothing_unknown),
    (rates::RATE, rates::starts_keep_their_rate),
    (ruled::AT_MOST, ruled::no_more_happens_than_a_policy_allows),
    (
        ruled::AFTER,
        ruled::nothing_comes_before_what_it_must_follow,
    ),
    (ruled::NEVER, ruled::nothing_comes_after_what_forbids_it),
    (ruled::REASON, ruled::nothing_is_forbidden_without_a_reason),
    (agreed::YES, agreed::nothing_runs_without_its_yes),
    (agreed::NO, agreed::a_no_is_the_end),
    (agreed::RECORDED, agreed::what_was_decided_is_recorded),
    (handed::TWICE, handed::nothing_is_handed_out_twice),
    (handed::OPEN, handed::what_was_handed_out_may_have_happened),
    (handed::LATE, handed::an_answer_that_was_handed_in_counts),
    (handed::TIME, handed::who_is_waited_for_has_his_time),
    (caches::TENANT, caches::answers_are_of_their_tenant),
    (caches::HIT, caches::an_answer_that_is_given_again_counts),
    (caches::DEGRADED, caches::degraded_is_marked),
    (moves::LEGAL, moves::moves_are_legal),
    (moves::CLASS, moves::states_fit_the_effect_class),
    (moves::STUCK, moves::nothing_is_stuck),
    (told::ONE_END, told::everybody_is_told_one_end),
    (told::AS_IT_IS, told::told_as_it_is),
    (told::BACK, told::no_answer_goes_back),
    (told::CODES, told::codes_are_expected),
    (effects::MONEY, effects::no_money_is_made_or_lost),
    (processes::SESSIONS, processes::no_session_is_left),
    (processes::PROCESSES, processes::no_process_is_left),
    (processes::LEAVES, processes::nobody_leaves_without_a_reason),
    (processes::STAYS, processes::everybody_leaves_when_told),
    (processes::PANICS, processes::nobody_panicked),
    (processes::RIGHTS, processes::nobody_lacks_a_right),
    (processes::SECRETS, processes::logs_keep_secrets),
];

#[cfg(test)]
mod tests;
