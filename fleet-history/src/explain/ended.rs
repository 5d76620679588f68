//! Why a call ended as it did, and what can be done: only from the history, and from nothing that is true only now.

mod held;
mod reasons;

use fleet::{call::State, wire::code::Code};

use self::reasons::{
    ABANDONED, ANSWERED, CLIENT, CLIENT_SILENT, COMPLETION_SILENT, NOT_TOLD, POISON, UNDECIDED,
};
use super::{
    dealt::dealt,
    explanation::{Explanation, because, counted, seconds},
    facts::{DegradedFacts, EndedFacts, Facts, Last},
    waiting,
};
use crate::instant::instant;

/// How a new call is made of it.
fn again(facts: &Facts) -> String {
    format!(
        "toolfleet calls retry {} makes a new call of it, with --key NEW if its tool writes once",
        facts.call_id
    )
}

pub(super) fn ended(facts: &Facts) -> Explanation {
    let last = &facts.last;
    let Some(history) = &facts.ended else {
        let at = instant(last.at);
        return because(
            "ended",
            format!("it ended at {at} by {}", last.actor),
            "toolfleet calls show has the whole story",
        );
    };
    let (mark, retry) = (history.dealt.as_ref(), history.under_way.as_ref());
    dealt(end(facts, history), facts.call_id, mark, retry)
}

/// How it ended, and what can be done where nobody has done anything.
fn end(facts: &Facts, history: &EndedFacts) -> Explanation {
    let last = &facts.last;
    if last.from_state.as_deref() == Some("in_doubt") {
        return settled(facts, history);
    }
    match facts.state {
        State::Succeeded => succeeded(facts, history),
        State::Cancelled => cancelled(facts, history),
        State::Expired => expired(facts, history),
        State::Failed if last.reason == POISON => poison(facts, history),
        State::Failed => failed(facts, history),
        State::Queued | State::Running | State::InDoubt | State::AwaitingClient => {
            because("ended", "it is not over", "wait")
        }
    }
}

fn succeeded(facts: &Facts, history: &EndedFacts) -> Explanation {
    let at = instant(facts.last.at);
    let attempt = history.attempt.as_ref().map_or_else(String::new, |last| {
        if facts.last.actor == CLIENT {
            ", by the answer of its caller's program".to_owned()
        } else {
            format!(", in attempt {}{}", last.number, on(last))
        }
    });
    // It was carried out, and its answer cannot be used as it is.
    let flaw = facts
        .error_code
        .as_deref()
        .map_or_else(String::new, |code| {
            format!("; its answer has a flaw, {code} (docs/errors/{code}.md)")
        });
    let how = match (facts.last.reason.as_str(), &facts.last.answer_of) {
        (ANSWERED, Some(call)) => {
            format!("was answered with what the equal call {call} had got (docs/cache.md),")
        }
        _ => "succeeded".to_owned(),
    };
    because(
        "ended",
        format!("it {how} at {at}{attempt}{flaw}"),
        "nothing: toolfleet calls show has its result",
    )
}

fn on(last: &Last) -> String {
    let worker = last.worker.as_ref();
    worker.map_or_else(String::new, |worker| format!(" on worker {worker}"))
}

/// It was in doubt, and a person, a probe or the attempt's own late answer settled it.
fn settled(facts: &Facts, history: &EndedFacts) -> Explanation {
    let again = again(facts);
    let last = &facts.last;
    let (at, actor) = (instant(last.at), &last.actor);
    let since = history.doubt.as_ref().map_or_else(String::new, |doubt| {
        let why = match history.quarantined {
            true => "Postgres lost writes",
            false => doubt.reason.as_str(),
        };
        let by = doubt.cancelled_by.as_ref();
        let by = by.map_or_else(String::new, |actor| format!(" by {actor}"));
        format!(" since {} ({why}{by})", instant(doubt.at))
    });
    let is_abandoned = last.reason == ABANDONED;
    let found = match facts.state {
        State::Succeeded => "settled as applied",
        _failed if is_abandoned => "abandoned",
        _not_applied => "settled as not applied",
    };
    let mut what = format!("it was in doubt{since} and was {found} at {at} by {actor}");
    if last.by_time_only {
        what.push_str(", by time only: something of its attempts may have been alive");
    }
    if let Some(note) = &last.note {
        what = format!("{what}: {note}");
    }
    let next = match facts.state {
        State::Succeeded => {
            "nothing: its effect is there; toolfleet calls show has what was recorded as its result"
                .to_owned()
        }
        _failed if is_abandoned => {
            format!(
                "nothing: whether its effect is there will never be known, so it is not made again by itself; who wants it all the same \
                 makes a new call of it with toolfleet calls retry {} --anyway, which may do it twice",
                facts.call_id
            )
        }
        _not_applied => format!("ask whether it is still wanted; then {again}"),
    };
    because("settled", what, next)
}

fn cancelled(facts: &Facts, history: &EndedFacts) -> Explanation {
    let again = again(facts);
    because(
        "cancelled",
        taken_back(facts, history),
        format!("nothing; if it is wanted after all, {again}"),
    )
}

/// Who cancelled it, why, and how far it had come.
fn taken_back(facts: &Facts, history: &EndedFacts) -> String {
    let last = &facts.last;
    let (by, note) = match &history.taken_back {
        Some(asked) => (
            format!("{} at {}", asked.actor, instant(asked.at)),
            asked.note.as_ref(),
        ),
        None => (
            format!("{} at {}", last.actor, instant(last.at)),
            last.note.as_ref(),
        ),
    };
    let far = match &history.attempt {
        None => "before it ran".to_owned(),
        Some(attempt) => format!("and its attempt {} changed nothing", attempt.number),
    };
    let note = note.map_or_else(String::new, |note| format!(": {note}"));
    format!("it was taken back by {by}, {far}{note}")
}

/// No attempt of it succeeded before its time was over.
fn expired(facts: &Facts, history: &EndedFacts) -> Explanation {
    let again = again(facts);
    let queue = &facts.queue;
    let ended = facts.last.at;
    if facts.last.reason == CLIENT_SILENT {
        return because(
            CLIENT_SILENT,
            format!(
                "the program of its caller had it from {} and had not answered by {}{}",
                instant(facts.accepted_at),
                instant(ended),
                at_deadline(facts)
            ),
            format!(
                "see whether that program runs, and whether {}; then {again}",
                long_enough(facts, "the timeout of its tool is long enough")
            ),
        );
    }
    if facts.last.reason == COMPLETION_SILENT {
        return because(
            COMPLETION_SILENT,
            format!(
                "its tool had said that it would answer later, and had not by {}{}",
                instant(ended),
                at_deadline(facts)
            ),
            format!(
                "see what became of it in the remote system (docs/completion.md), and whether {}; then {again}",
                long_enough(facts, "completion.wait of its tool is long enough")
            ),
        );
    }
    if facts.last.reason == NOT_TOLD {
        return because(
            NOT_TOLD,
            format!(
                "its tool had asked for something and was not told by {}, and nothing of it was done",
                instant(ended)
            ),
            format!(
                "see whether its caller answers questions of tools (docs/asking.md); then {again}"
            ),
        );
    }
    if facts.last.reason == UNDECIDED {
        return because(
            UNDECIDED,
            format!(
                "nobody had decided by {} whether it may run, and nothing of it was done",
                instant(ended)
            ),
            format!(
                "see who should have decided, and whether approval.expires of its tool is long enough (docs/approvals.md); then {again}"
            ),
        );
    }
    // Only a call that never began can wait too long for its first attempt, and then it ends before its deadline.
    let over = if ended < facts.deadline_at {
        format!(
            "it waited longer for its first attempt than its tool allows (max_queue_wait), until {}, {} after it was accepted",
            instant(ended),
            seconds(ended - facts.accepted_at)
        )
    } else {
        format!("its deadline passed at {}", deadline(facts))
    };
    if let Some(lacked) = &history.lacked {
        let (worker, why) = (&lacked.worker, &lacked.why);
        return because(
            waiting::word(lacked.lack),
            format!("{over}; worker {worker} had put it back: {why}"),
            format!(
                "{}; then {again}",
                lacked.lack.remedy(lacked.secret.as_deref())
            ),
        );
    }
    if let Some(braked) = held::expired(facts, history, &over) {
        return braked;
    }
    if let Some(
        last @ Last {
            number,
            code: Some(code),
            ..
        },
    ) = &history.attempt
    {
        let (limit, longer) = time_limit(facts, last, "then");
        return because(
            Code::DeadlineExceeded.as_str(),
            format!("{over}, after attempt {number} had ended with {code}{limit}"),
            format!("find out why its attempts fail (docs/errors/{code}.md){longer}; {again}"),
        );
    }
    if history.workers_meanwhile == 0 {
        return because(
            "no_worker",
            format!("{over}, and no worker that pulls from its queue {queue} lived meanwhile"),
            format!("start one: toolfleet worker --queues {queue}; then {again}"),
        );
    }
    let workers = counted(history.workers_meanwhile, "worker");
    let told = quoted(history);
    because(
        Code::DeadlineExceeded.as_str(),
        format!(
            "{over}; {workers} of its queue {queue} lived meanwhile and did not start it{told}"
        ),
        format!(
            "start more workers for {queue}, or let callers wait longer (Toolfleet-Deadline-Ms, max_queue_wait of the tool); {again}"
        ),
    )
}

/// It lost too many workers: it may be what kills them.
fn poison(facts: &Facts, history: &EndedFacts) -> Explanation {
    let again = again(facts);
    let at = instant(facts.last.at);
    let (lost, allowed, tool) = (
        counted(history.lost, "time"),
        history.losses_allowed,
        &facts.tool,
    );
    let at_last = |last: &Last| format!(", at last{}", on(last));
    let on = history.attempt.as_ref().map_or_else(String::new, at_last);
    because(
        POISON,
        format!(
            "it was set aside at {at}: it lost its worker {lost} while it ran{on}, and its tool {tool} allows {allowed}"
        ),
        format!(
            "look into the logs of those workers (toolfleet calls show names them) before it is sent again, for it may be what ends them; \
             if it is not, {again}"
        ),
    )
}

/// Whose answer the caller got instead.
fn stood_in(degraded: &DegradedFacts) -> String {
    let whose = match (degraded.tool.as_deref(), degraded.age_ms) {
        (Some(tool), _) => format!("the answer of the tool {tool}"),
        (None, Some(age_ms)) => {
            let age = seconds(time::Duration::seconds_f64(age_ms / 1_000.0));
            format!("an answer that was {age} old")
        }
        (None, None) => format!("the {} of its tool", degraded.kind),
    };
    format!("; its caller got {whose} instead (docs/fallback.md)")
}

fn failed(facts: &Facts, history: &EndedFacts) -> Explanation {
    let again = again(facts);
    let at = instant(facts.last.at);
    let told = quoted(history);
    let Some(code) = facts.error_code.as_deref() else {
        return because("ended", format!("it failed at {at}{told}"), again);
    };
    let known: Option<Code> = code.parse().ok();
    let reason = known.map_or("ended", Code::as_str);
    if known == Some(Code::Cancelled) {
        return because(
            reason,
            taken_back(facts, history),
            format!("nothing; if it is wanted after all, {again}"),
        );
    }
    if known == Some(Code::Denied) {
        let last = &facts.last;
        let note = last.note.as_ref();
        let note = note.map_or_else(String::new, |note| format!(": {note}"));
        return because(
            reason,
            format!(
                "{} said no to it at {at}, before anything of it was done{note}",
                last.actor
            ),
            format!(
                "nothing; where the decision was wrong, {again}, and that one waits for a yes again"
            ),
        );
    }
    let attempt = match &history.attempt {
        None => format!("before an attempt{}", at_gate(facts)),
        Some(last) if facts.last.from_state.as_deref() == Some("queued") => {
            let attempts = counted(last.number.into(), "attempt");
            format!(
                "without a further attempt, after {attempts}{}",
                at_gate(facts)
            )
        }
        Some(last) => format!("in attempt {}{}", last.number, on(last)),
    };
    let (mut limit, longer) = limit(facts, history, known);
    if history.suppressed {
        limit.push_str(
            ", and the retry budget of its tool allowed no further attempt (docs/attempts.md)",
        );
    }
    let stood_in = history.degraded.as_ref().map_or_else(String::new, stood_in);
    let next = match known {
        // Another call would fail as this one did.
        Some(Code::ToolChanged) => format!(
            "toolfleet mcp diff SERVER says in what (toolfleet tools show {} names the server), and docs/errors/{code}.md what to do; until \
             then a new call of it fails, too",
            facts.tool
        ),
        Some(Code::BudgetExceeded) => format!(
            "a new version of {} with a larger budget, or of a day's the next day by UTC (docs/errors/{code}.md); until then a new call fails, too",
            facts.tool
        ),
        _other => {
            format!("docs/errors/{code}.md says what that means and what to do{longer}; {again}")
        }
    };
    because(
        reason,
        format!("it failed at {at} {attempt} with {code}{limit}{stood_in}{told}"),
        next,
    )
}

/// Who ended a call that no attempt ended: a worker that had it before its claim.
fn at_gate(facts: &Facts) -> String {
    let worker = facts.last.worker.as_ref();
    worker.map_or_else(String::new, |worker| {
        format!(", at the gate of worker {worker},")
    })
}

/// Its deadline, and how long that was after it was accepted.
fn deadline(facts: &Facts) -> String {
    let (at, given) = (facts.deadline_at, facts.deadline_at - facts.accepted_at);
    format!("{}, {} after it was accepted", instant(at), seconds(given))
}

/// That it waited to its deadline, where that ended it and no limit of its tool.
fn at_deadline(facts: &Facts) -> String {
    match facts.last.at < facts.deadline_at {
        true => String::new(),
        false => format!(", when its deadline had passed at {}", deadline(facts)),
    }
}

/// What to look at: what its tool sets, or its deadline where that ended it.
fn long_enough(facts: &Facts, of_tool: &str) -> String {
    match facts.last.at < facts.deadline_at {
        true => of_tool.to_owned(),
        false => format!("its deadline was long enough: {DEADLINE_SETTINGS}"),
    }
}

/// Where a call's deadline is set.
const DEADLINE_SETTINGS: &str = "its caller sets the deadline (Toolfleet-Deadline-Ms, Toolfleet-Run-Deadline), else its tool (deadline)";

/// The limit that ended it, and where it is set; both are empty where none did.
fn limit(facts: &Facts, history: &EndedFacts, code: Option<Code>) -> (String, String) {
    let (tool, attempt) = (&facts.tool, history.attempt.as_ref());
    let until = match code {
        // Its own sentence names it.
        Some(Code::DeadlineExceeded) => "then".to_owned(),
        _other => format!("its deadline at {}", deadline(facts)),
    };
    let of_attempt = attempt.map(|last| time_limit(facts, last, &until));
    let (for_time, longer) = of_attempt.unwrap_or_default();
    let the_last = match for_time.as_str() {
        "" => String::new(),
        for_time => format!("; its last attempt ended with timeout{for_time}"),
    };
    match code {
        Some(Code::RetriesExhausted) => {
            let number = attempt.map_or(0, |last| last.number);
            (
                format!(", after {number} attempts, as many as its tool {tool} allows{the_last}"),
                format!(
                    "; its tool {tool} sets how many attempts there are (retry.max_attempts){longer}"
                ),
            )
        }
        Some(Code::DeadlineExceeded) => (
            format!(
                ", for another attempt would have begun after its deadline at {}{the_last}",
                deadline(facts)
            ),
            match longer.contains(DEADLINE_SETTINGS) {
                true => longer,
                false => format!("; {DEADLINE_SETTINGS}{longer}"),
            },
        ),
        Some(Code::OutputTooLarge) => (
            String::new(),
            format!("; its tool {tool} sets how large an answer may be (output_limit)"),
        ),
        _other => (for_time, longer),
    }
}

/// How long an attempt had that was ended for its time, by which limit, and where that is set; `until` is its call's deadline, in words.
fn time_limit(facts: &Facts, last: &Last, until: &str) -> (String, String) {
    let (Some(Code::Timeout), Some(given_ms), Some(ends_at)) = (
        last.code.as_deref().and_then(|code| code.parse().ok()),
        last.timeout_ms,
        last.until,
    ) else {
        return Default::default();
    };
    let (given, tool) = (seconds(time::Duration::milliseconds(given_ms)), &facts.tool);
    // A claim gives an attempt what its tool allows, and no more than is left to its deadline.
    if ends_at + CLAIM_ROUNDING < facts.deadline_at {
        (
            format!(" after the {given} that its tool {tool} gives an attempt (timeout)"),
            format!("; a longer timeout in a new version of {tool} gives it more time"),
        )
    } else {
        (
            format!(" after {given}, which were left until {until}"),
            format!("; {DEADLINE_SETTINGS}"),
        )
    }
}

/// By how much the end of an attempt that has all the time until its deadline may be before that: what a claim rounds away.
const CLAIM_ROUNDING: time::Duration = time::Duration::milliseconds(5);

/// The message that the caller got.
fn quoted(history: &EndedFacts) -> String {
    let message = history.message.as_ref();
    message.map_or_else(String::new, |message| format!(": {message}"))
}

#[cfg(test)]
mod tests;
