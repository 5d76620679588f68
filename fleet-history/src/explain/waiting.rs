//! Why no worker runs a call yet: from reasons for which no worker can help to reasons that only take a moment.

use fleet::{
    hold::{HeldWhy, Line},
    lease::LEASE,
    obstacle::{Lack, Obstacle},
    store::server_check::Finding,
};
use time::Duration;

use super::{
    explanation::{Explanation, because, counted},
    facts::{BreakerFacts, Facts, ToolLimit, is_late},
    follows, rates,
};
use crate::instant::instant;

/// How long a pointer may take from its call to a worker with a free slot.
const PUBLISHED_JUST_NOW: Duration = Duration::seconds(5);
/// The most calls before it that are counted.
const AHEAD_MAX: i64 = 10_000;
/// The most silent workers that are named.
const NAMED_MAX: usize = 3;

pub(super) fn queued(facts: &Facts) -> Explanation {
    let queue = &facts.queue;
    if facts.deadline_at <= facts.now {
        let passed = instant(facts.deadline_at);
        return because(
            "overdue",
            format!("its deadline passed at {passed}; it will not run"),
            "the sweep of a dispatcher ends it within seconds; if it stays, no dispatcher runs",
        );
    }
    if !facts.tool_known {
        let (tool, version) = (&facts.tool, facts.tool_version);
        return because(
            "unknown_tool_version",
            format!("version {version} of the tool {tool} is not applied in this database"),
            "apply that version, or take the call back",
        );
    }
    let workers = QueueWorkers::of(facts);
    if facts.held {
        return held(facts, &workers);
    }
    let ready = facts.not_before.unwrap_or(facts.accepted_at);
    if ready > facts.now {
        return put_off(facts, &instant(ready));
    }
    if workers.awake == 0 {
        return no_worker(&workers, queue, "");
    }
    let (slots, running, silent) = (workers.slots, workers.running, workers.silence());
    let slots_free = workers.slots_free(queue);
    if running >= slots {
        return because(
            "no_free_slot",
            format!("{slots_free}{silent}"),
            "wait, or start more workers",
        );
    }
    if let Some(away) = nats_away(facts) {
        return away;
    }
    if facts.now - ready.max(facts.last.at) < PUBLISHED_JUST_NOW {
        // Until a worker takes it, what was lacking when it was put back is the reason still.
        if let Some(obstacle) = &facts.obstacle {
            return put_back(obstacle, &instant(ready));
        }
        return because(
            "published",
            format!("its pointer has just been published, and {slots_free}{silent}"),
            "wait a moment; if it stays so, no dispatcher runs",
        );
    }
    because(
        "not_taken",
        format!("{slots_free}, and no worker has taken it{silent}"),
        "look whether NATS is up and at toolfleet_skipped_claims_total of the workers; \
         a dispatcher publishes its pointer again every few seconds, if one runs",
    )
}

/// Its message is in NATS, or has to go there, and NATS does not answer.
fn nats_away(facts: &Facts) -> Option<Explanation> {
    let Finding { what, advice } = facts.nats_away.as_ref()?;
    let advice = match advice.as_str() {
        "" => String::new(),
        advice => format!("{advice}; "),
    };
    Some(because(
        "nats_away",
        format!("a worker gets it through NATS, and {what}"),
        format!(
            "{advice}the call goes on by itself within seconds of NATS's return, until its deadline at {}. Where dispatchers and \
             workers reach NATS, and only this command does not, their /readyz says so",
            instant(facts.deadline_at)
        ),
    ))
}

/// The workers of its queue: live ones, and those that have been silent for too long.
struct QueueWorkers<'a> {
    awake: usize,
    slots: i64,
    running: i64,
    /// Name and seconds of silence.
    silent: Vec<(&'a str, f64)>,
}

impl<'a> QueueWorkers<'a> {
    fn of(facts: &'a Facts) -> Self {
        let (silent, awake): (Vec<_>, Vec<_>) = facts
            .workers
            .iter()
            .partition(|worker| is_late(&worker.silent_s));
        let running: i64 = awake.iter().map(|worker| worker.running).sum();
        Self {
            awake: awake.len(),
            slots: awake.iter().map(|worker| worker.slots).sum(),
            // Calls on workers that are silent, drain or are dead take no slot of the live ones.
            running: running.min(facts.queue_running),
            silent: silent
                .iter()
                .map(|worker| (worker.name.as_str(), worker.silent_s))
                .collect(),
        }
    }

    fn in_words(&self) -> String {
        match self.awake {
            1 => "the live worker".to_owned(),
            live => format!("the {live} live workers"),
        }
    }

    /// How many slots of live workers are free.
    fn slots_free(&self, queue: &str) -> String {
        let of_workers = self.in_words();
        let have = if self.awake == 1 { "has" } else { "have" };
        let free = match self.slots.saturating_sub(self.running) {
            ..=0 => "none".to_owned(),
            more => more.to_string(),
        };
        let slots = counted(self.slots, "slot");
        format!("{of_workers} of its queue {queue} {have} {slots} for it, {free} of them free")
    }

    /// The silent ones, by name; `None` where there is none.
    fn named(&self) -> Option<String> {
        let named = self.silent.iter().take(NAMED_MAX);
        let named = named.map(|(name, seconds)| {
            let seconds = seconds.round();
            format!("worker {name} has been silent for {seconds} s")
        });
        let named: Vec<String> = named.collect();
        let more = match self.silent.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(", and {more} more are silent"),
        };
        (!named.is_empty()).then(|| named.join(", ") + &more)
    }

    /// The addition about silent workers where others live.
    fn silence(&self) -> String {
        self.named().map_or_else(String::new, |named| {
            format!("; {named} and may be dead: not counted")
        })
    }
}

/// No worker of its queue is live.
fn no_worker(workers: &QueueWorkers<'_>, queue: &str, meanwhile: &str) -> Explanation {
    let start = format!("toolfleet worker --queues {queue}");
    match workers.named() {
        None => because(
            "no_worker",
            format!("no live worker pulls from its queue {queue}{meanwhile}"),
            format!("start one: {start}"),
        ),
        Some(named) => because(
            "silent_worker",
            format!(
                "no worker that lives pulls from its queue {queue}: {named} and may be dead{meanwhile}"
            ),
            format!(
                "see whether it runs (after {} s of silence a dispatcher says that it is dead), or start another: {start}",
                LEASE.as_secs()
            ),
        ),
    }
}

/// Its time has not come: a worker put it back, or an attempt failed.
fn put_off(facts: &Facts, until: &str) -> Explanation {
    if let Some(obstacle) = &facts.obstacle {
        return put_back(obstacle, until);
    }
    if let Some(rate) = &facts.rate
        && facts.last.reason == "accepted"
    {
        return rates::on_its_way(facts, rate, until);
    }
    let code = facts.error_code.as_deref().unwrap_or("an error");
    if facts.attempts > 0 && facts.last.reason != "accepted" {
        let what = format!(
            "attempt {} ended with {code}; the next one starts at {until}",
            facts.attempts
        );
        because("retry_wait", what, "wait")
    } else {
        because(
            "postponed",
            format!("it was put back until {until}, and no worker has said why"),
            "wait; if it is put back again, toolfleet doctor lists what no worker can run",
        )
    }
}

/// The word for a lack.
pub(super) const fn word(lack: Lack) -> &'static str {
    match lack {
        Lack::Secret => "missing_secret",
        Lack::ProgramSlot => "no_program_slot",
        Lack::Interceptor => "missing_interceptor",
        Lack::Consent => "no_consent",
        Lack::ToolVersion | Lack::Ability => "postponed",
    }
}

/// A worker could not run it: which one, what it lacks, and where to get that.
fn put_back(obstacle: &Obstacle, until: &str) -> Explanation {
    let (worker, why) = (&obstacle.worker, &obstacle.why);
    let remedy = obstacle.remedy();
    let next = match obstacle.lack {
        Lack::ProgramSlot | Lack::Consent => remedy,
        Lack::Secret | Lack::ToolVersion | Lack::Interceptor | Lack::Ability => {
            format!("{remedy}; toolfleet doctor lists what no worker can run")
        }
    };
    because(
        word(obstacle.lack),
        format!("worker {worker} could not run it and put it back until {until}: {why}"),
        next,
    )
}

/// It is held in the ledger: which calls are before it, and which workers run those.
fn held(facts: &Facts, workers: &QueueWorkers<'_>) -> Explanation {
    let queue = &facts.queue;
    if let Some(unknown) = held_for_something_else(facts) {
        return unknown;
    }
    if facts.held_why.as_deref() == Some(HeldWhy::Pause.as_str()) {
        return paused(facts);
    }
    if facts.held_why.as_deref() == Some(HeldWhy::Breaker.as_str()) {
        return circuit_open(facts);
    }
    if facts.held_why.as_deref() == Some(HeldWhy::Follows.as_str()) {
        return follows::waits(facts);
    }
    let behind = behind(facts);
    if workers.awake == 0 {
        return no_worker(
            workers,
            queue,
            &format!("; it waits in the ledger, and {behind}"),
        );
    }
    let limit_is_reached = |limit: ToolLimit| limit.running >= limit.at_a_time;
    let places_are_taken = facts.tool_limit.is_some_and(limit_is_reached);
    if let Some(away) = nats_away(facts)
        && !places_are_taken
    {
        return away;
    }
    if let Some(rate) = facts.rate.as_ref().filter(|_| !places_are_taken) {
        return rates::held(facts, rate, &behind);
    }
    if let Some(ToolLimit { at_a_time, running }) = facts.tool_limit {
        let tool = &facts.tool;
        return because(
            "tool_limit",
            format!(
                "its tool {tool} runs {at_a_time} at a time over the whole fleet; {running} run now, and {behind}{}{}",
                rates::beside(facts),
                rates::beside_breaker(facts)
            ),
            format!(
                "wait; toolfleet.slots says what runs, and a higher `concurrency` in a new version of {tool} lets more run"
            ),
        );
    }
    if facts.held_why.as_deref() == Some(HeldWhy::Slots.as_str()) {
        return tenant_slots(facts, workers, &behind);
    }
    let (slots, running, silent) = (workers.slots, workers.running, workers.silence());
    let of_workers = workers.in_words();
    if running < slots {
        let slots_free = workers.slots_free(queue);
        return because(
            "held",
            format!(
                "it waits in the ledger for a dispatcher to hand it over, and {slots_free}{silent}: {behind}"
            ),
            "wait a moment; if it stays so, no dispatcher runs (toolfleet doctor)",
        );
    }
    because(
        "held",
        format!(
            "more calls wait than the {} of {of_workers} of its queue {queue} take{silent}: {behind}",
            counted(slots, "slot")
        ),
        "wait for its turn, or start more workers (docs/fairness.md says whose turn it is)",
    )
}

/// Its tenant has as many calls under way as it may have, or its queue has no room: whose calls those are, and which of the two
/// an operator can change.
fn tenant_slots(facts: &Facts, workers: &QueueWorkers<'_>, behind: &str) -> Explanation {
    let (tenant, queue) = (&facts.tenant, &facts.queue);
    let of = |tenant: &str| facts.under_way.iter().find(|of| of.tenant == tenant);
    let own = of(tenant).map_or(0, |own| own.calls);
    let others = facts.under_way.iter().filter(|of| of.tenant != *tenant);
    let others: Vec<String> = others
        .map(|of| format!("{} of {}", of.calls, of.tenant))
        .collect();
    let beside = match others.as_slice() {
        [] => String::new(),
        some => format!(", beside {}", some.join(", ")),
    };
    let (calls, slots_free) = (counted(own, "call"), workers.slots_free(queue));
    let next = if workers.running < workers.slots {
        format!(
            "wait until one of its tenant's calls ends (toolfleet calls list --tenant {tenant} --state running), or let a tenant have \
             more under way: DISPATCHER_TENANT_RUNNING of every dispatcher says how many, and never more than three quarters of \
             the slots (docs/fairness.md)"
        )
    } else {
        format!(
            "wait, or start more workers: toolfleet worker --queues {queue}. A larger DISPATCHER_TENANT_RUNNING changes nothing \
             while no slot is free (docs/fairness.md)"
        )
    };
    because(
        "tenant_slots",
        format!(
            "its tenant {tenant} has {calls} under way in its queue {queue}{beside}, and {slots_free}; {behind}"
        ),
        next,
    )
}

/// It waits for the end of a pause, or for a dispatcher to notice that it is over.
fn paused(facts: &Facts) -> Explanation {
    let Some(pause) = &facts.pause else {
        return because(
            "held",
            "it waited for a pause that is over, and goes back to its line",
            "wait a moment; if it stays so, no dispatcher runs (toolfleet doctor)",
        );
    };
    let (id, actor, since) = (pause.control_id, &pause.actor, instant(pause.set_at));
    let (until, next) = match pause.expires_at {
        Some(at) => (
            format!("until {}", instant(at)),
            format!("wait, or end it: toolfleet control resume {id} --note WHY"),
        ),
        None => (
            "until somebody ends it".to_owned(),
            format!("ask {actor}, or end it: toolfleet control resume {id} --note WHY"),
        ),
    };
    because(
        "paused",
        format!(
            "it is paused since {since} by {actor}, {until} (control {id}): {}{}{}{}",
            pause.note,
            also_paused(facts),
            rates::beside(facts),
            rates::beside_breaker(facts)
        ),
        format!("{next}; its deadline goes on"),
    )
}

/// The addition about other pauses, which hold it when the first one is over.
fn also_paused(facts: &Facts) -> String {
    let others = facts.other_pauses.iter().map(|pause| {
        let (id, actor, note) = (pause.control_id, &pause.actor, &pause.note);
        format!("; then control {id} by {actor} holds it: {note}")
    });
    others.collect()
}

/// It waits for a target that fails, or for a dispatcher to notice that it works again.
fn circuit_open(facts: &Facts) -> Explanation {
    let shut = |breaker: &&BreakerFacts| {
        breaker.forced.as_deref() == Some("open")
            || breaker.forced.is_none() && breaker.state != "closed"
    };
    let Some(breaker) = facts.breaker.as_ref().filter(shut) else {
        return because(
            "held",
            "it waited for a target that failed, and goes back to its line",
            "wait a moment; if it stays so, no dispatcher runs (toolfleet doctor)",
        );
    };
    let (tool, target) = (&facts.tool, &breaker.target);
    if breaker.forced.is_some() {
        return because(
            "circuit_open",
            format!(
                "an operator has forced the breaker of its tool {tool} open: nothing is sent to {target}"
            ),
            format!(
                "toolfleet control list says who, why and until when; toolfleet control breaker {tool} auto --note WHY ends it; \
                 its deadline goes on"
            ),
        );
    }
    let since = breaker
        .opened_at
        .map_or_else(String::new, |at| format!(" since {}", instant(at)));
    let counted = breaker.why.as_ref().map_or_else(String::new, |why| {
        let slow = match why.slow {
            0 => String::new(),
            slow => format!(" and {slow} were slow"),
        };
        let (failures, calls) = (why.failures, counted(why.calls, "attempt"));
        format!("; it opened because {failures} of {calls} failed{slow}")
    });
    let now = match (breaker.state.as_str(), breaker.open_until) {
        ("open", Some(until)) if until > facts.now => {
            format!("nothing is sent to it before {}", instant(until))
        }
        ("open", _) => "the next call may try it".to_owned(),
        _half_open => "another call is trying it".to_owned(),
    };
    because(
        "circuit_open",
        format!(
            "its target {target} fails, and the breaker of its tool {tool} is open{since}: {now}{counted}"
        ),
        format!(
            "repair the target: a call tries it by itself; toolfleet control breaker {tool} closed --note WHY sends everything at once; \
             its deadline goes on"
        ),
    )
}

/// A newer dispatcher holds it, in a line or for a reason that this program does not know.
fn held_for_something_else(facts: &Facts) -> Option<Explanation> {
    let line = facts.line.as_deref().unwrap_or(&facts.queue);
    let why = facts.held_why.as_deref();
    let is_known = why.is_none_or(|why| HeldWhy::ALL.iter().any(|known| known.as_str() == why));
    if is_known && line.parse::<Line>().is_ok() {
        return None;
    }
    let why = why.map_or_else(String::new, |why| format!(", for the reason {why}"));
    Some(because(
        "held",
        format!(
            "it waits in the ledger, in the line {line}{why}, which this program does not know"
        ),
        "ask again with a program of the release that the dispatchers run",
    ))
}

/// Which calls are before it, and which tenants share its line.
fn behind(facts: &Facts) -> String {
    let ahead = match facts.ahead.unwrap_or(0) {
        AHEAD_MAX.. => format!("{AHEAD_MAX} or more calls of its tenant are"),
        ..=0 => "no call of its tenant is".to_owned(),
        1 => "1 call of its tenant is".to_owned(),
        some => format!("{some} calls of its tenant are"),
    };
    let line = facts.line.as_deref().unwrap_or(&facts.queue);
    let behind = format!("{ahead} before it in the line {line}");
    match facts.others {
        Some(1) => format!("{behind}, which 1 other tenant shares in turn"),
        Some(others @ 2..) => format!("{behind}, which {others} other tenants share in turn"),
        Some(_) | None => behind,
    }
}
