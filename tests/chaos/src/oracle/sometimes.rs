//! What must have happened over a set of runs: otherwise the faults missed what they were meant for, and the promises were
//! not put to the test.

use std::collections::BTreeMap;

use fleet::call::State;

use super::{
    case::{Case, Told},
    facts::{Call, How, ToolRow, text},
    rules::{is_ended_by_breaker, is_forbidden},
};
use crate::{
    history::{Op, Phase},
    plan::Member,
};

/// A thing that must happen sometimes.
#[derive(Debug, Clone, Copy)]
pub struct Counter {
    /// Its name.
    pub name: &'static str,
    /// What happened.
    pub means: &'static str,
    /// Where that is known from.
    pub source: &'static str,
    count: fn(&Case<'_>) -> u64,
}

macro_rules! counters {
    ($($name:ident: $means:literal, $source:literal, $count:expr;)+) => {
        /// All of them.
        pub const COUNTERS: &[Counter] = &[$(Counter {
            name: stringify!($name), means: $means, source: $source, count: $count,
        }),+];
    };
}

counters! {
    duplicate_delivery_rejected: "a message came for a call that no longer waited, and started nothing", "metric skipped_claims",
        |case| skipped(case, "not_queued") + skipped(case, "gone");
    claim_lost_to_a_rival: "a message came for a call that another attempt was running", "metric skipped_claims",
        |case| skipped(case, "running");
    claim_unknown_was_claimed: "the answer to a claim was lost, and it had been claimed", "metric lost_answers",
        |case| lost_answer(case, "claim", "done");
    claim_unknown_was_not_claimed: "the answer to a claim was lost, and it had not been claimed", "metric lost_answers",
        |case| lost_answer(case, "claim", "not_done");
    complete_unknown_was_recorded: "the answer to a completion was lost, and it had been recorded", "metric lost_answers",
        |case| lost_answer(case, "complete", "done");
    complete_unknown_was_not_recorded: "the answer to a completion was lost, and it had not been recorded", "metric lost_answers",
        |case| lost_answer(case, "complete", "not_done");
    commit_unknown_was_committed: "a transaction was not answered, and had committed", "metric lost_answers",
        |case| lost_answer(case, "transaction", "done");
    commit_unknown_was_not_committed: "a transaction was not answered, and had not committed", "metric lost_answers",
        |case| lost_answer(case, "transaction", "not_done");
    worker_declared_dead: "a worker was silent for a lease", "metric swept_calls",
        |case| swept(case, "dead_worker");
    worker_fenced: "a worker was proven gone", "view workers",
        |case| len(case.facts.ledger.workers.iter().filter(|worker| worker.fenced_at.is_some()));
    lease_lost: "a worker could not renew its lease", "metric lost_leases",
        |case| case.metric("toolfleet_lost_leases_total", &[]);
    stopped_worker_started_nothing: "a worker without a fresh lease took no call, or started nothing of what it had claimed", "metric skipped_claims; view attempts",
        |case| skipped(case, "no_lease") + len(case.facts.ledger.attempts.iter().filter(|attempt| {
            attempt.message.as_deref().is_some_and(|message| message.contains("lease ran out before the tool was started"))
        }));
    late_evidence_settled: "the attempt that a call was in doubt about proved what it did", "view call_events",
        |case| decided(case, |event| event.actor.starts_with("worker "));
    late_evidence_kept: "an attempt said what it did when that decided nothing any more", "view attempts",
        |case| len(case.facts.ledger.attempts.iter().filter(|attempt| attempt.late));
    settled_applied_by_a_person: "a person settled a doubt as applied", "view call_events",
        |case| decided(case, |event| event.reason == "settled_applied" && !event.actor.starts_with("probe "));
    settled_not_applied_by_a_person: "a person settled a doubt as not applied", "view call_events",
        |case| decided(case, |event| event.reason == "settled_not_applied" && !event.actor.starts_with("probe "));
    abandoned_by_a_person: "a person gave up finding out what became of a doubt", "view call_events",
        |case| decided(case, |event| event.reason == "settled_abandoned" && !event.actor.starts_with("probe "));
    settled_applied_by_a_probe: "a probe settled a doubt as applied", "view call_events",
        |case| decided(case, |event| event.reason == "settled_applied" && event.actor.starts_with("probe "));
    settled_not_applied_by_a_probe: "a probe settled a doubt as not applied", "view call_events",
        |case| decided(case, |event| event.reason == "settled_not_applied" && event.actor.starts_with("probe "));
    settling_refused_before_the_fence: "a person tried to settle as not applied while something might still act", "history",
        |case| answers(case, |told| told.code == Some("worker_not_fenced"));
    retried_by_a_new_process: "another attempt ran on a worker that was started after the one before had ended", "views attempts, workers",
        retried_by_a_new_process;
    claim_given_back: "a claim that had been given up turned out to be committed, and was given back", "view call_events",
        |case| moves(case, "claim_given_up");
    attempt_lost_with_its_worker: "an attempt's worker was gone", "view call_events",
        |case| moves(case, "worker_lost");
    set_aside_as_poison: "a call lost more workers than its tool allows", "view call_events",
        |case| moves(case, "poison");
    retries_exhausted: "all attempts failed", "view calls",
        |case| len(case.calls.values().filter(|call| call.code.as_deref() == Some("retries_exhausted")));
    expired_in_the_queue: "a call's deadline passed while it waited", "view calls",
        |case| len(case.calls.values().filter(|call| call.state == State::Expired));
    cancel_won: "a call was taken back before it ran", "history",
        |case| cancels(case, "cancelled");
    cancel_lost: "a call was over when its cancellation came", "history",
        |case| cancels(case, "already_terminal");
    cancel_of_a_running_call: "a running call was to stop", "view call_events",
        |case| moves(case, "cancel_requested");
    cancel_of_a_doubt: "a call in doubt was to stop", "history",
        |case| cancels(case, "in_doubt");
    published_again_after_a_wipe: "the stream was wiped, and the sweep published what had been in it", "metric swept_calls; what was injected",
        |case| {
            let wiped = case.facts.injected.struck.iter().any(|struck| struck.how == How::Stream);
            if wiped { swept(case, "lost_pointer") } else { 0 }
        };
    stream_made_again: "the stream was gone and was made again", "logs",
        |case| {
            let logs = case.facts.logs.iter().map(|(_, log)| log.matches("stream of pointers was missing and is made").count());
            // The first one is the beginning.
            (logs.sum::<usize>() as u64).saturating_sub(1)
        };
    replayed_while_queued: "a call was sent again while it waited", "history", |case| replayed(case, "queued");
    replayed_while_running: "a call was sent again while it ran", "history", |case| replayed(case, "running");
    replayed_in_doubt: "a call was sent again while it was in doubt", "history", |case| replayed(case, "in_doubt");
    replayed_after_success: "a call was sent again after it had succeeded", "history", |case| replayed(case, "succeeded");
    replayed_after_failure: "a call was sent again after it had failed", "history", |case| replayed(case, "failed");
    key_reused_refused: "a key was sent with other arguments, and refused", "history",
        |case| answers(case, |told| told.entry.op == Op::Misuse && told.code == Some("idempotency_key_reused"));
    answered_by_another_dispatcher: "a dispatcher was killed while a client waited, and the client got its answer later", "history; what was injected",
        answered_by_another_dispatcher;
    paused_at_the_gate: "a call had been published when its pause came, and a worker put it aside", "metric skipped_claims",
        |case| skipped(case, "paused");
    paused_while_held: "a call was held when its pause came, and a dispatcher moved it aside", "metric swept_calls",
        |case| swept(case, "put_aside");
    handed_back_after_a_pause: "a call that was put aside went back to its line", "metric swept_calls",
        |case| swept(case, "handed_back");
    refused_by_a_pause: "a pause that refuses met a new call", "history",
        |case| answers(case, |told| told.code == Some("tool_paused"));
    waited_for_its_start_in_nats: "a call of a tool with a rate got a start time that was to come, and its message waited for it", "metric skipped_claims",
        |case| skipped(case, "starts_in");
    sent_back_for_a_start: "a call of a tool with a rate came to a worker when no start was free, and went back into its line", "metric skipped_claims",
        |case| skipped(case, "limited");
    released_in_its_turn: "a held call was released", "metric held_wait",
        |case| case.metric("toolfleet_held_wait_seconds_count", &[]);
    started_as_fast_as_it_may: "calls of a tool with a rate waited for their starts: it started as often as it may for three seconds", "view attempts",
        |case| len(case.tools.values().filter(|tool| started_as_fast_as_it_may(case, tool)));
    breaker_opened: "the target of a tool failed, and its breaker opened", "metric breaker_openings",
        |case| case.metric("toolfleet_breaker_openings_total", &[]);
    target_probed: "a breaker gave out permits for probes, and their calls went to the target", "view breakers",
        |case| case.facts.ledger.breakers.iter().map(|one| rounds_of_probes(one.generation)).sum();
    breaker_closed: "probes succeeded, and the breaker closed", "logs",
        |case| {
            let closed = |(_, log): &(String, String)| log.matches("the breaker is closed: calls are sent to this target again").count() as u64;
            case.facts.logs.iter().map(closed).sum()
        };
    ended_by_an_open_breaker: "a call was ended because its breaker was open", "view calls",
        |case| ended_by_breakers(case);
    held_by_an_open_breaker: "a call came to a worker while its breaker was open, and was put aside", "metric skipped_claims; view calls",
        |case| skipped(case, "circuit_open").saturating_sub(ended_by_breakers(case));
    breaker_forced_open: "an operator forced a breaker open", "view control_log",
        |case| len(case.facts.ledger.forced.iter().filter(|one| one.is_open));
    breaker_forced_closed: "an operator forced a breaker closed", "view control_log",
        |case| len(case.facts.ledger.forced.iter().filter(|one| !one.is_open));
    hit: "a call was answered by an equal one", "view calls",
        |case| len(case.calls.values().filter(|call| call.source.as_deref() == Some("cache")));
    followed: "a call was put aside behind an equal one that fetched the answer", "metric cache_looks",
        |case| looked(case, "followed");
    led: "a call fetched an answer for equal ones", "metric cache_looks",
        |case| looked(case, "miss");
    answered_by_a_stub: "a call that its tool could not answer was answered with a constant", "view calls",
        |case| len(case.calls.values().filter(|call| call.source.as_deref() == Some("stub")));
    taken_over: "a call that fetched an answer ended without one, and an equal call that had waited for it ran", "views calls, attempts",
        taken_over;
    approved: "as many people as had to said yes, and the call went on", "views approvals, call_events",
        |case| len(case.calls.values().filter(|call| is_agreed(case, call)));
    denied: "somebody said no", "view approvals",
        |case| len(case.facts.ledger.decisions.iter().filter(|decision| !decision.is_yes));
    expired_unapproved: "nobody decided about a call in time", "view call_events",
        |case| moves(case, "undecided");
    decided_too_late: "somebody decided about a call that did not wait for it any more, or not by this person", "history",
        |case| answers(case, |told| matches!(told.entry.op, Op::Approve | Op::Deny) && told.code == Some("conflict"));
    other_arguments_refused: "somebody decided about other arguments than those of the call", "history",
        |case| answers(case, |told| told.entry.op == Op::OtherArguments && told.code == Some("conflict"));
    output_counted: "a caller's program handed in what came of a call, in time", "view call_events",
        |case| handed_in(case, State::AwaitingClient);
    late_output_settled: "it came when the call was in doubt, and settled it", "view call_events",
        |case| handed_in(case, State::InDoubt);
    late_output_refused: "it came when the call was over", "history",
        |case| answers(case, |told| told.entry.op == Op::Output && told.code == Some("already_terminal"));
    output_repeated: "it was handed in again, and got the stored answer", "history",
        output_repeated;
    other_output_refused: "another answer came after it, and was refused", "history",
        |case| answers(case, |told| told.entry.op == Op::OtherOutput && told.code == Some("conflict"));
    write_left_silent: "nothing was heard of a write that was handed out", "view call_events",
        |case| silent(case, State::InDoubt);
    read_left_silent: "nothing was heard of a read that was handed out", "view call_events",
        |case| silent(case, State::Expired);
    stopped_by_a_policy: "a call broke a rule of its tool's policy, and was ended", "view calls",
        |case| len(case.calls.values().filter(|call| is_forbidden(call)));
    let_by_a_policy: "a call had a tool with a policy, broke no rule, and succeeded", "view calls",
        |case| len(case.calls.values().filter(|call| case.policy(&call.tool).is_some() && call.state == State::Succeeded));
    overloaded_refused: "a dispatcher had too much in hand", "history",
        |case| answers(case, |told| told.code == Some("overloaded"));
    store_unavailable_refused: "the ledger was out of reach, and a client was told so", "history",
        |case| answers(case, |told| told.code == Some("store_unavailable"));
}

/// How often each of them happened.
pub fn count(case: &Case<'_>) -> BTreeMap<&'static str, u64> {
    COUNTERS
        .iter()
        .map(|counter| (counter.name, (counter.count)(case)))
        .collect()
}

fn len<T>(items: impl Iterator<Item = T>) -> u64 {
    items.count() as u64
}

fn skipped(case: &Case<'_>, reason: &str) -> u64 {
    case.metric("toolfleet_skipped_claims_total", &[("reason", reason)])
}

fn swept(case: &Case<'_>, pass: &str) -> u64 {
    case.metric("toolfleet_swept_calls_total", &[("pass", pass)])
}

fn lost_answer(case: &Case<'_>, statement: &str, found: &str) -> u64 {
    case.metric(
        "toolfleet_lost_answers_total",
        &[("statement", statement), ("found", found)],
    )
}

fn looked(case: &Case<'_>, found: &str) -> u64 {
    case.metric("toolfleet_cache_looks_total", &[("found", found)])
}

fn moves(case: &Case<'_>, reason: &str) -> u64 {
    len(case
        .facts
        .ledger
        .events
        .iter()
        .filter(|event| event.reason == reason))
}

/// Doubts that came to an end like this.
fn decided(case: &Case<'_>, how: impl Fn(&super::facts::Event) -> bool) -> u64 {
    let ends = case.facts.ledger.events.iter();
    len(ends
        .filter(|event| event.from == Some(State::InDoubt) && event.to.is_terminal() && how(event)))
}

fn answers(case: &Case<'_>, like: impl Fn(&Told<'_>) -> bool) -> u64 {
    len(case.told.iter().filter(|told| like(told)))
}

fn cancels(case: &Case<'_>, result: &str) -> u64 {
    answers(case, |told| {
        told.entry.op == Op::Cancel && text(told.answer, "/result") == Some(result)
    })
}

fn replayed(case: &Case<'_>, state: &str) -> u64 {
    answers(case, |told| {
        let replayed = told
            .answer
            .get("replayed")
            .and_then(serde_json::Value::as_bool);
        told.entry.op == Op::Replay && replayed == Some(true) && told.state == state
    })
}

fn ended_by_breakers(case: &Case<'_>) -> u64 {
    len(case.calls.values().filter(|call| is_ended_by_breaker(call)))
}

/// How often a breaker that has moved so often was half-open at least: the first move opens it, and none but the second of three
/// leads there where every round succeeds.
const fn rounds_of_probes(generation: u64) -> u64 {
    (generation + 1) / 3
}

fn retried_by_a_new_process(case: &Case<'_>) -> u64 {
    let pairs = case
        .calls
        .keys()
        .flat_map(|call| case.attempts(call).windows(2));
    len(pairs.filter(|pair| {
        let began = case
            .workers
            .get(pair[1].worker_id.as_deref().unwrap_or_default())
            .map(|worker| worker.started_at);
        !pair[1].late
            && began.is_some_and(|began| pair[0].finished_at.is_some_and(|ended| ended <= began))
    }))
}

/// Whether a call waited for a yes, and does not any more because it has got it.
fn is_agreed(case: &Case<'_>, call: &Call) -> bool {
    let yeses = case
        .decisions(&call.call_id)
        .iter()
        .filter(|one| one.is_yes);
    let yeses = yeses.count();
    case.yeses_needed(call)
        .is_some_and(|needed| yeses >= needed)
}

/// Calls that ended by the answer of their caller's program while they stood like this.
fn handed_in(case: &Case<'_>, from: State) -> u64 {
    let events = case.facts.ledger.events.iter();
    len(events.filter(|event| {
        event.actor == "client" && event.from == Some(from) && event.to.is_terminal()
    }))
}

/// Calls that came to this because nothing was heard of their caller's program.
fn silent(case: &Case<'_>, to: State) -> u64 {
    let events = case.facts.ledger.events.iter();
    len(events.filter(|event| event.reason == "client_silent" && event.to == to))
}

/// Answers to what was handed in once more.
fn output_repeated(case: &Case<'_>) -> u64 {
    let ends = case
        .told
        .iter()
        .filter(|told| told.entry.op == Op::Output && told.is_end());
    let mut times: BTreeMap<&str, u64> = BTreeMap::new();
    for call in ends.filter_map(|told| told.call) {
        *times.entry(call).or_default() += 1;
    }
    times.values().map(|times| times - 1).sum()
}

/// Calls of tools with a cache that waited while an equal one ran and ended without an answer, and that ran then.
fn taken_over(case: &Case<'_>) -> u64 {
    let has_cache = |call: &&&Call| {
        let tool = case.tools.get(call.tool.as_str());
        tool.is_some_and(|tool| tool.ttl_ms.is_some())
    };
    let calls: Vec<&Call> = case.calls.values().filter(has_cache).copied().collect();
    let began = |call: &Call| {
        case.attempts(&call.call_id)
            .first()
            .map(|one| one.started_at)
    };
    let took_over = |call: &Call| {
        calls.iter().any(|leader| {
            let is_equal = (&leader.tenant, &leader.tool, leader.told)
                == (&call.tenant, &call.tool, call.told)
                && case.mode(leader) == case.mode(call);
            let (Some(led), Some(began), Some(ended)) =
                (began(leader), began(call), leader.finished_at)
            else {
                return false;
            };
            let waited = led <= call.accepted_at && call.accepted_at < ended && ended <= began;
            is_equal && leader.state != State::Succeeded && waited
        })
    };
    len(calls.iter().filter(|call| took_over(call)))
}

/// How long a tool has to start as often as it may before that is no accident, in seconds.
const AT_FULL_RATE_S: u64 = 3;
/// By so much such starts may be late, in milliseconds.
const LATE_MS: i64 = 200;

/// Whether a tool with a rate started as often as it may for some time.
fn started_as_fast_as_it_may(case: &Case<'_>, tool: &ToolRow) -> bool {
    let Some(rate) = tool.rate else { return false };
    let calls = case.calls.values().filter(|call| call.tool == tool.tool);
    let attempts = calls.flat_map(|call| case.attempts(&call.call_id));
    let mut starts: Vec<i64> = attempts.map(|attempt| attempt.started_at).collect();
    starts.sort_unstable();
    let many = usize::try_from(rate.calls * AT_FULL_RATE_S * 1_000 / rate.per_ms);
    let window = i64::try_from(AT_FULL_RATE_S * 1_000).unwrap_or(i64::MAX) + LATE_MS;
    let mut windows = starts.windows(many.unwrap_or(usize::MAX).saturating_add(1));
    windows.any(|some| some[some.len() - 1] - some[0] <= window)
}

/// Calls whose first submission was never answered, with a dispatcher killed meanwhile, and whose end a client was told later.
fn answered_by_another_dispatcher(case: &Case<'_>) -> u64 {
    let began = case.facts.injected.clients_began;
    let moment = |at_ms: u64| began.saturating_add_unsigned(at_ms);
    let killed: Vec<i64> = case
        .facts
        .injected
        .struck
        .iter()
        .filter(|struck| {
            struck.how == How::Killed && matches!(struck.member, Some(Member::Dispatcher(_)))
        })
        .map(|struck| struck.from)
        .collect();
    let mut asked = BTreeMap::new();
    let mut hung: BTreeMap<u64, u64> = BTreeMap::new();
    for entry in case
        .facts
        .history
        .iter()
        .filter(|entry| matches!(entry.op, Op::Submit | Op::Attach))
    {
        let place = (entry.client, entry.op_id, entry.n);
        match entry.phase {
            Phase::Asked => drop(asked.insert(place, entry.at_ms)),
            Phase::Unknown => {
                let meanwhile = |from: &u64| {
                    killed
                        .iter()
                        .any(|at| (moment(*from)..=moment(entry.at_ms)).contains(at))
                };
                if asked.get(&place).is_some_and(meanwhile) {
                    hung.insert(entry.n, entry.at_ms);
                }
            }
            Phase::Answered => {}
        }
    }
    len(hung.iter().filter(|(n, at)| {
        case.told
            .iter()
            .any(|told| told.entry.n == **n && told.entry.at_ms >= **at && told.is_end())
    }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::oracle::sample;

    #[test]
    fn every_counter_counts_what_it_is_named_for() {
        let clean = sample::clean();
        for (name, times) in count(&Case::of(&clean)) {
            assert_eq!(times, 0, "{name} on facts in which it does not happen");
        }
        let happened = sample::everything_happened();
        for (name, times) in count(&Case::of(&happened)) {
            assert!(times > 0, "{name} on facts in which it happens");
        }
    }

    #[test]
    fn counters_have_names_of_their_own() {
        let names: BTreeSet<&str> = COUNTERS.iter().map(|counter| counter.name).collect();
        assert_eq!(names.len(), COUNTERS.len());
        assert!(
            COUNTERS
                .iter()
                .all(|counter| !counter.means.is_empty() && !counter.source.is_empty())
        );
    }
}
