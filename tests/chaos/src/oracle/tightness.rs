//! That nothing is unknown without a cause, and that most calls succeed. A fleet that calls everything in doubt, or refuses
//! everything, keeps every other promise; so this is a promise too.
//!
//! A doubt stands on attempts whose effect is unknown, and each of those is put down to a cause of its own: how its tool was
//! told to behave, a fault that struck its worker, its wires or a server while it ran, or a wish to stop it.

use std::{collections::BTreeMap, time::Duration};

use fleet::call::State;

use super::{
    case::{Case, at_large, breach},
    facts::{Attempt, Call, How, Moment},
    rules::{came_after_settlement, is_forbidden, is_not_agreed},
    verdict::Breach,
};
use crate::{
    effects::{Did, Mode, Tool, tool},
    history::{Op, Phase},
};

const CAUSE: &str = "nothing_is_unknown_without_a_cause";
const DOUBT: &str = "a_doubt_stands_on_an_unknown_attempt";
const SLOWNESS: &str = "few_attempts_are_just_too_slow";
const SUCCESS: &str = "most_undisturbed_calls_succeed";
const TOOLS: &str = "every_tool_works_sometimes";
const HEALED: &str = "all_is_well_after_healing";
const WORKERS: &str = "a_living_worker_is_not_declared_dead";

/// The names of all of these rules.
pub const NAMES: &[&str] = &[CAUSE, DOUBT, SLOWNESS, SUCCESS, TOOLS, HEALED, WORKERS];

/// Of calls that nothing disturbs, so many in a hundred succeed at least.
const SUCCEED_PERCENT: usize = 90;
/// Fewer of them than this prove nothing.
const UNDISTURBED_MIN: usize = 20;
/// After the last fault the fleet may need so long until everything goes right again: a lease, and some.
pub const RECOVERY_MAX: Duration = Duration::from_secs(25);
/// So long a breaker may stay open after its target is well, in milliseconds, and processes may not know that it is closed: the
/// longest time it is open, and as long again for all that comes between.
const TARGET_MS: i64 = 8_000;
/// A tool that has been asked so often must have worked once.
const ASKED_MIN: usize = 15;
/// A deadline shorter than this, in milliseconds, is meant to be missed.
const DEADLINE_MIN_MS: i64 = 10_000;
/// Attempts that were too slow by themselves, on a machine that has too much to do: so many in a hundred calls, or three.
const TOO_SLOW_PERCENT: usize = 2;

/// Why an attempt's effect is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The tool was told to behave like that.
    Mode,
    /// A fault struck it.
    Struck(How),
    /// A client cancelled it.
    Cancelled,
    /// The tool had not answered when its time was over.
    TooSlow,
    /// Its caller runs it, and no answer of its program was recorded in time.
    Silent,
}

/// Looks for whatever is not tight.
pub fn judge(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = unknown_without_cause(case);
    breaches.extend(doubts_without_attempt(case));
    breaches.extend(too_slow(case));
    breaches.extend(fails_after_healing(case));
    breaches.extend(too_few_succeed(case));
    breaches.extend(tools_that_never_work(case));
    breaches.extend(workers_without_a_fault(case));
    breaches
}

/// How much there was of everything.
pub fn figures(case: &Case<'_>) -> BTreeMap<&'static str, u64> {
    let count = |times: usize| times as u64;
    let in_state = |state| {
        count(
            case.calls
                .values()
                .filter(|call| call.state == state)
                .count(),
        )
    };
    let causes: Vec<Option<Cause>> = unknown(case)
        .map(|(call, attempt)| cause(case, call, attempt))
        .collect();
    let caused = |by: &dyn Fn(Cause) -> bool| {
        count(causes.iter().flatten().filter(|cause| by(**cause)).count())
    };
    let late = case.calls.values().filter(|call| {
        call.state == State::Failed && case.applied(call) > 0 && came_after_settlement(case, call)
    });
    let undisturbed = undisturbed(case);
    let doubted = case.calls.keys().filter(|id| {
        case.events(id)
            .iter()
            .any(|event| event.to == State::InDoubt)
    });
    [
        ("calls", count(case.calls.len())),
        ("calls succeeded", in_state(State::Succeeded)),
        ("calls failed", in_state(State::Failed)),
        ("calls cancelled", in_state(State::Cancelled)),
        ("calls expired", in_state(State::Expired)),
        ("calls in doubt at the end", in_state(State::InDoubt)),
        ("calls ever in doubt", count(doubted.count())),
        ("calls undisturbed", count(undisturbed.len())),
        (
            "calls undisturbed and succeeded",
            count(
                undisturbed
                    .iter()
                    .filter(|call| call.state == State::Succeeded)
                    .count(),
            ),
        ),
        ("effects after a settlement", count(late.count())),
        ("answers", count(case.told.len())),
        (
            "attempts",
            count(
                case.facts
                    .ledger
                    .attempts
                    .iter()
                    .filter(|attempt| !attempt.late)
                    .count(),
            ),
        ),
        (
            "faults that struck",
            count(case.facts.injected.struck.len()),
        ),
        ("unknown attempts", count(causes.len())),
        (
            "unknown attempts by mode",
            caused(&|cause| cause == Cause::Mode),
        ),
        (
            "unknown attempts by a fault",
            caused(&|cause| matches!(cause, Cause::Struck(_))),
        ),
        (
            "unknown attempts by a cancel",
            caused(&|cause| cause == Cause::Cancelled),
        ),
        (
            "unknown attempts by slowness",
            caused(&|cause| cause == Cause::TooSlow),
        ),
        (
            "unknown attempts by silence",
            caused(&|cause| cause == Cause::Silent),
        ),
    ]
    .into()
}

/// Attempts of writes that left their effect unknown.
fn unknown<'a>(case: &'a Case<'_>) -> impl Iterator<Item = (&'a Call, &'a Attempt)> {
    let writes = case.calls.values().filter(|call| call.effect.may_doubt());
    writes.flat_map(|call| {
        let attempts = case.attempts(&call.call_id).iter();
        let unknown = attempts.filter(|a| !a.late && a.outcome.as_deref() == Some("unknown"));
        unknown.map(|attempt| (*call, *attempt))
    })
}

fn unknown_without_cause(case: &Case<'_>) -> Vec<Breach> {
    let without = unknown(case).filter(|(call, attempt)| cause(case, call, attempt).is_none());
    let said = without.map(|(call, attempt)| {
        let what = format!(
            "attempt {} of {} ({:?}) ended as unknown ({}, {}), and nothing had happened to it",
            attempt.number,
            call.tool,
            case.mode(call),
            reason(case, attempt).unwrap_or("no move names it"),
            attempt.code.as_deref().unwrap_or("no code"),
        );
        breach(CAUSE, &call.call_id, what)
    });
    said.collect()
}

/// Why the call moved when this attempt ended.
fn reason<'a>(case: &Case<'a>, attempt: &Attempt) -> Option<&'a str> {
    let mut events = case.events(&attempt.call_id).iter();
    let ended = events.find(|event| {
        event.attempt_id.as_deref() == Some(&attempt.attempt_id)
            && event.from == Some(State::Running)
            && event.to != State::Running
    });
    ended.map(|event| event.reason.as_str())
}

/// Faults that can have struck may show so much later, in milliseconds: a lease is 15 s, the sweep looks once a second, and
/// an attempt is overdue 30 s after its time.
const SHOWS_AFTER_MS: i64 = 20_000;
/// Two clocks of a machine, and a fault that takes effect a moment before it is written down.
const SLACK_MS: i64 = 1_000;

/// Why this attempt's effect is unknown; `None` where there is no reason.
pub fn cause(case: &Case<'_>, call: &Call, attempt: &Attempt) -> Option<Cause> {
    let ended = attempt.finished_at.unwrap_or(Moment::MAX);
    let (from, until) = (
        attempt.started_at - SLACK_MS,
        ended.saturating_add(SLACK_MS),
    );
    let struck = |hows, from| {
        let mut struck = case.struck(attempt.worker_id.as_deref(), hows, from, until);
        struck.next().map(|struck| Cause::Struck(struck.how))
    };
    let platform = matches!(
        reason(case, attempt),
        Some("worker_lost" | "worker_left" | "attempt_overdue" | "poison")
    );
    // A worker is lost to what happened to it or to its ledger; how the tool behaves explains nothing of it.
    if platform {
        let gone = struck(&[How::Killed, How::Drained], from);
        return gone.or_else(|| {
            struck(
                &[How::Paused, How::Ledger, How::Postgres],
                from - SHOWS_AFTER_MS,
            )
        });
    }
    if is_by_mode(case, call, attempt) {
        return Some(Cause::Mode);
    }
    if attempt.worker_id.is_none() {
        return why_silent(case, call, attempt);
    }
    let events = case.events(&call.call_id).iter();
    let wished = events.clone().any(|event| {
        event.reason == "cancel_requested"
            && event.attempt_id.as_deref() == Some(&attempt.attempt_id)
    });
    if wished {
        return Some(Cause::Cancelled);
    }
    let executor = executor_of(case, call);
    let wires: &[How] = match executor {
        "nats" => &[
            How::Paused,
            How::Drained,
            How::Killed,
            How::Tools,
            How::Bus,
            How::Nats,
        ],
        "sql" => &[
            How::Paused,
            How::Drained,
            How::Killed,
            How::Tools,
            How::ToolDatabase,
            How::Postgres,
        ],
        _ => &[How::Paused, How::Drained, How::Killed, How::Tools],
    };
    let hit = struck(wires, from);
    // An attempt's time runs from when its claim was sent: one that was long on its way leaves little of it.
    let claimed_late = || {
        let timed_out = attempt.code.as_deref() == Some("timeout");
        timed_out
            .then(|| struck(&[How::Ledger, How::Postgres], from - attempt.timeout_ms))
            .flatten()
    };
    hit.or_else(claimed_late)
        .or_else(|| was_too_slow(case, call, attempt).then_some(Cause::TooSlow))
}

/// Why nothing was heard in time of what a caller runs, whose program was not told to be silent; `None`: it was told that its answer
/// counts, and it does not.
fn why_silent(case: &Case<'_>, call: &Call, attempt: &Attempt) -> Option<Cause> {
    let mut events = case.events(&call.call_id).iter();
    if events.any(|event| event.reason == "cancelled") {
        return Some(Cause::Cancelled);
    }
    let ended = attempt.finished_at.unwrap_or(Moment::MAX);
    let mut answers = case.told.iter().filter(|told| {
        told.entry.op == Op::Output && told.call == Some(call.call_id.as_str()) && told.is_end()
    });
    let counted = answers.any(|told| case.moment(told.entry) < ended);
    (!counted).then_some(Cause::Silent)
}

/// Whether this attempt's effect is unknown because its tool was told to behave like that.
fn is_by_mode(case: &Case<'_>, call: &Call, attempt: &Attempt) -> bool {
    let executor = executor_of(case, call);
    // Who was not asked has not misbehaved.
    let mut marks = case.marks(&call.call_id).iter();
    if !marks.any(|mark| mark.did == Did::Started && mark.attempt == attempt.number) {
        return false;
    }
    match case.mode(call) {
        // Having written, such a program goes on until it is ended.
        Some(Mode::Huge) => executor == "process",
        // A tool misbehaves in its first attempt; a server that ends a statement has rolled it back, and says so.
        Some(
            Mode::ErrorBefore
            | Mode::ErrorAfter
            | Mode::ResetAfter
            | Mode::HangBefore
            | Mode::HangAfter
            | Mode::Late,
        ) => attempt.number == 1 && executor != "sql",
        Some(
            Mode::Ok | Mode::Slow | Mode::Refuse | Mode::Business | Mode::Garbage | Mode::Escape,
        )
        | None => false,
    }
}

fn executor_of<'a>(case: &Case<'a>, call: &Call) -> &'a str {
    let tool = case.tools.get(call.tool.as_str());
    tool.map_or("", |tool| tool.executor.as_str())
}

/// Whether the attempt took all its time, and the tool did not answer within it.
fn was_too_slow(case: &Case<'_>, call: &Call, attempt: &Attempt) -> bool {
    let over = attempt.started_at + attempt.timeout_ms;
    let replied = case.marks(&call.call_id).iter().any(|mark| {
        let at = i64::try_from(mark.at / 1_000_000).unwrap_or(i64::MAX);
        mark.did == Did::Replied && mark.attempt == attempt.number && at + SLACK_MS < over
    });
    let code = attempt.code.as_deref() == Some("timeout");
    code && !replied
        && !case.is_sql(&call.tool)
        && attempt.finished_at.is_some_and(|at| at + SLACK_MS >= over)
}

fn doubts_without_attempt(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for call in case.calls.values() {
        let doubted = case
            .events(&call.call_id)
            .iter()
            .find(|event| event.to == State::InDoubt && event.from != Some(State::InDoubt));
        let unknown = case
            .attempts(&call.call_id)
            .iter()
            .any(|a| a.outcome.as_deref() == Some("unknown"));
        // Evidence that came late may be all that is left to say that it was done.
        let evidence = case
            .attempts(&call.call_id)
            .iter()
            .any(|a| a.late && a.outcome.as_deref() == Some("applied"));
        if let Some(event) = doubted.filter(|_| !unknown && !evidence) {
            breaches.push(breach(
                DOUBT,
                &call.call_id,
                format!(
                    "it is in doubt because of {}, and no attempt of it is unknown",
                    event.reason
                ),
            ));
        }
    }
    breaches
}

fn too_slow(case: &Case<'_>) -> Vec<Breach> {
    let slow = unknown(case)
        .filter(|(call, attempt)| cause(case, call, attempt) == Some(Cause::TooSlow))
        .count();
    let most = (case.calls.len() * TOO_SLOW_PERCENT / 100).max(3);
    if slow > most {
        return vec![at_large(
            SLOWNESS,
            format!(
                "{slow} attempts of {} calls took all their time for no reason",
                case.calls.len()
            ),
        )];
    }
    Vec::new()
}

/// Calls whose tool behaves and that no client cancelled.
fn undisturbed<'a>(case: &Case<'a>) -> Vec<&'a Call> {
    let calls = case.calls.values().copied().filter(|call| {
        let asked = call.n.and_then(|n| case.asked.get(&n));
        asked.is_some_and(|asked| {
            matches!(asked.mode, Mode::Ok | Mode::Slow) && !asked.cancelled && !asked.misused
        }) && call.deadline_at - call.accepted_at >= DEADLINE_MIN_MS
            && !is_kept_from_its_target(case, call)
            && !is_not_agreed(case, call)
            && !is_forbidden(call)
            && !is_left_to_silence(case, call)
    });
    calls.collect()
}

/// Whether a call was handed to its caller, whose program never answered in time: it has died, or was not told of it.
fn is_left_to_silence(case: &Case<'_>, call: &Call) -> bool {
    if !case.is_handed(call) {
        return false;
    }
    let Some(attempt) = case.attempts(&call.call_id).first() else {
        return true;
    };
    let until = attempt.started_at + attempt.timeout_ms - SLACK_MS;
    let mut answers = case.facts.history.iter().filter(|entry| {
        entry.op == Op::Output && entry.phase == Phase::Asked && Some(entry.n) == call.n
    });
    !answers.any(|entry| case.moment(entry) < until)
}

/// Whether a call has a tool with a breaker, and its target failed while it was open, or an operator has forced the breaker open.
fn is_kept_from_its_target(case: &Case<'_>, call: &Call) -> bool {
    if !tool(&call.tool).is_some_and(Tool::is_guarded) {
        return false;
    }
    let ended = call.finished_at.unwrap_or(Moment::MAX);
    let from = call.accepted_at - TARGET_MS;
    let failed = case
        .struck(None, &[How::Target], from, ended)
        .next()
        .is_some();
    let mut forced = case.facts.ledger.forced.iter();
    let mut is_forced = || {
        forced.any(|one| {
            one.is_open && one.tool == call.tool && one.set_at <= ended && one.ended_at >= from
        })
    };
    // A call that succeeded all the same is as good as any.
    call.state != State::Succeeded && (failed || is_forced())
}

/// Of what was accepted after the fleet had time to recover, everything succeeds that was not told to do otherwise.
fn fails_after_healing(case: &Case<'_>) -> Vec<Breach> {
    let Some(healed_at) = case.facts.healed_at else {
        return Vec::new();
    };
    let mut after = undisturbed(case);
    let recovery_max = Moment::try_from(RECOVERY_MAX.as_millis()).unwrap_or(Moment::MAX);
    after.retain(|call| call.accepted_at > healed_at.saturating_add(recovery_max));
    if after.len() < UNDISTURBED_MIN {
        let few = format!(
            "only {} calls came after it: that proves nothing",
            after.len()
        );
        return vec![at_large(HEALED, few)];
    }
    let failed = after.iter().filter(|call| call.state != State::Succeeded);
    failed
        .map(|call| {
            let code = call.code.as_deref().unwrap_or("no code");
            let what = format!("{} is {}, {code}", call.tool, call.state.as_str());
            breach(HEALED, &call.call_id, what)
        })
        .collect()
}

fn too_few_succeed(case: &Case<'_>) -> Vec<Breach> {
    let calls = undisturbed(case);
    let succeeded = calls
        .iter()
        .filter(|call| call.state == State::Succeeded)
        .count();
    if calls.len() < UNDISTURBED_MIN {
        return vec![at_large(
            SUCCESS,
            format!(
                "only {} calls were undisturbed: that proves nothing",
                calls.len()
            ),
        )];
    }
    if succeeded * 100 < calls.len() * SUCCEED_PERCENT {
        return vec![at_large(
            SUCCESS,
            format!("{succeeded} of {} undisturbed calls succeeded", calls.len()),
        )];
    }
    Vec::new()
}

fn tools_that_never_work(case: &Case<'_>) -> Vec<Breach> {
    let mut asked: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let calls = case.calls.values();
    for call in calls.filter(|call| call.probe_of.is_none() && !is_forbidden(call)) {
        let (times, worked) = asked.entry(&call.tool).or_default();
        *times += 1;
        *worked += usize::from(call.state == State::Succeeded);
    }
    let never = asked
        .into_iter()
        .filter(|(name, _)| {
            tool(name).is_none_or(|tool| tool.modes.iter().any(|(mode, _)| *mode == Mode::Ok))
        })
        .filter(|(_, (times, worked))| *times >= ASKED_MIN && *worked == 0);
    never
        .map(|(tool, (times, _))| {
            at_large(
                TOOLS,
                format!("{tool} was called {times} times and never worked"),
            )
        })
        .collect()
}

/// Who is taken for dead was killed, or stopped, or could not reach the ledger.
fn workers_without_a_fault(case: &Case<'_>) -> Vec<Breach> {
    let hows = [
        How::Killed,
        How::Drained,
        How::Paused,
        How::Ledger,
        How::Postgres,
    ];
    let gone = case
        .facts
        .ledger
        .workers
        .iter()
        .filter(|worker| matches!(worker.state.as_str(), "dead" | "fenced"))
        // Who leaves and cannot prove in time that nothing of it lives says so itself, rather than that it has left.
        .filter(|worker| {
            !worker
                .ended_by
                .as_deref()
                .is_some_and(|by| by.starts_with("itself"))
        });
    let without = gone.filter(|worker| {
        let at = worker.ended_at.unwrap_or(Moment::MAX);
        case.struck(
            Some(&worker.worker_id),
            &hows,
            worker.started_at,
            at.saturating_add(SLACK_MS),
        )
        .next()
        .is_none()
    });
    let said = without.map(|worker| {
        let by = worker.ended_by.as_deref().unwrap_or("nobody");
        at_large(
            WORKERS,
            format!(
                "worker {} (process {}) was taken for {} by {by}",
                worker.worker_id, worker.pid, worker.state
            ),
        )
    });
    said.collect()
}

#[cfg(test)]
mod tests;
