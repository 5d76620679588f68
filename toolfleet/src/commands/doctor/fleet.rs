//! Workers, queues without workers, and doubts that only a person can settle. Judged from what the ledger says.

use std::collections::BTreeMap;

use fleet::{
    ids::QueueName,
    lease::LATE,
    obstacle::{Inability, Obstacle},
    store::health::{Doubts, Waiting, Worker},
};
use uuid::Uuid;

use super::{
    check::{Check, age, capital, count},
    postgres::{Ledger, OfferedTool},
};

/// The most names in one line.
const LISTED_MAX: usize = 5;

pub(super) fn judge(ledger: &Ledger) -> Vec<Check> {
    let mut checks = Vec::new();
    let queues = ledger
        .queues
        .iter()
        .map(|(queue, tools)| (queue.as_str(), tools.as_slice()));
    let known = |waiting: &&Waiting| !ledger.queues.keys().any(|q| q.as_str() == waiting.queue);
    let unknown = ledger.waiting.iter().filter(known);
    let queues = queues.chain(unknown.map(|waiting| (waiting.queue.as_str(), [].as_slice())));
    for (queue, tools) in queues {
        let waiting = ledger.waiting.iter().find(|one| one.queue == queue);
        checks.extend(judge_queue(queue, tools, waiting, &ledger.workers));
    }
    if checks.is_empty() {
        checks.push(Check::ok("workers", "no queue has tools yet"));
    }
    checks.extend(judge_tools(&ledger.queues, &ledger.workers));
    checks.extend(judge_dead(&ledger.workers));
    checks.push(judge_doubts(&ledger.doubts));
    checks
}

/// A queue that has neither tools nor calls needs no worker.
fn judge_queue(
    queue: &str,
    tools: &[OfferedTool],
    waiting: Option<&Waiting>,
    workers: &[Worker],
) -> Option<Check> {
    let name = "workers";
    let calls = waiting.map_or(0, |waiting| waiting.calls);
    if tools.is_empty() && calls == 0 {
        return None;
    }
    let of_queue = |worker: &&Worker| {
        worker.state == "live" && worker.queues.iter().any(|queue_of| queue_of == queue)
    };
    let (silent, living): (Vec<&Worker>, Vec<&Worker>) = workers
        .iter()
        .filter(of_queue)
        .partition(|worker| is_silent(worker));
    let wait = waiting.map(|waiting| {
        let calls = usize::try_from(waiting.calls).unwrap_or_default();
        format!(
            "; {} may run, the oldest since {}",
            count(calls, "call"),
            age(waiting.oldest_s)
        )
    });
    let wait = wait.unwrap_or_default();
    let silent = silent.iter().map(|worker| {
        let (name, silent) = (&worker.name, age(worker.silent_s));
        format!("worker {name} is silent for {silent}")
    });
    let silent: Vec<String> = silent.collect();
    if !living.is_empty() {
        let silent = match &silent[..] {
            [] => String::new(),
            some => format!(" ({}: not counted)", listed(some)),
        };
        let found = format!(
            "queue {queue}: {}{silent}{wait}",
            count(living.len(), "worker")
        );
        return Some(Check::ok(name, found));
    }
    let silent = match &silent[..] {
        [] => String::new(),
        some => format!(" ({})", listed(some)),
    };
    let tools = match tools {
        [] => "for tools of earlier versions, retired ones, or a look at an MCP server".to_owned(),
        tools => {
            let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
            format!("for {}", listed(&names))
        }
    };
    let found = format!("queue {queue} has no worker{silent} {tools}{wait}");
    let advice = format!("Start one with --queues {queue}");
    Some(Check::warn(name, found, advice))
}

/// Whether the worker should not be counted on: two of its heartbeats are missing. It is dead for certain only after a whole
/// lease.
fn is_silent(worker: &Worker) -> bool {
    worker.silent_s > LATE.as_secs_f64()
}

/// A tool that no living worker of its queue can run, and what they lack. A queue without workers is reported as a queue.
fn judge_tools(queues: &BTreeMap<QueueName, Vec<OfferedTool>>, workers: &[Worker]) -> Vec<Check> {
    let name = "tools";
    let mut found = Vec::new();
    for (queue, tools) in queues {
        let living = workers.iter().filter(|worker| {
            let pulls = worker.queues.iter().any(|of| of == queue.as_str());
            worker.state == "live" && !is_silent(worker) && pulls
        });
        let lacking: Vec<Vec<Inability>> = living.map(Worker::inabilities).collect();
        for tool in tools {
            let of_tool = |told: &Vec<Inability>| {
                let mut told = told.iter();
                // What a worker lacked for another version says nothing about this one; it looks every ten seconds.
                let of_tool = |told: &&Inability| {
                    told.tool.as_str() == tool.name && told.version == tool.version
                };
                told.find(of_tool)
                    .map(|inability| inability.obstacle.clone())
            };
            // What each living worker lacks; `None` as soon as one lacks nothing.
            let all: Option<Vec<Obstacle>> = lacking.iter().map(of_tool).collect();
            if let Some([first, others @ ..]) = all.as_deref() {
                found.push(judge_tool(&tool.name, first, others.len()));
            }
        }
    }
    let more = found.len().saturating_sub(LISTED_MAX);
    found.truncate(LISTED_MAX);
    if more > 0 {
        let found_more = format!("no live worker can run {} either", count(more, "more tool"));
        found.push(Check::warn(
            name,
            found_more,
            "toolfleet.workers.cannot_run has them all",
        ));
    }
    if found.is_empty() && queues.values().any(|tools| !tools.is_empty()) {
        found.push(Check::ok(
            name,
            "for each tool whose queue has live workers, one of them says that it can run it",
        ));
    }
    found
}

fn judge_tool(tool: &str, first: &Obstacle, others: usize) -> Check {
    let (worker, why) = (&first.worker, &first.why);
    let others = match others {
        0 => String::new(),
        others => format!(", nor can {} of its queue", count(others, "other worker")),
    };
    let found = format!("no live worker can run {tool}: worker {worker}: {why}{others}");
    Check::warn("tools", found, capital(&first.remedy()))
}

fn listed(names: &[impl AsRef<str>]) -> String {
    let more = names.len().saturating_sub(LISTED_MAX);
    let names: Vec<&str> = names.iter().take(LISTED_MAX).map(AsRef::as_ref).collect();
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names.join(", ") + &more
}

/// A dead worker is not a fenced one: processes that it started may still act.
fn judge_dead(workers: &[Worker]) -> Vec<Check> {
    let dead = workers.iter().filter(|worker| worker.state == "dead");
    let judge = |worker: &Worker| {
        let calls = usize::try_from(worker.in_doubt).unwrap_or_default();
        let found = format!(
            "worker {} ({}) is dead, not fenced, and had {} in doubt: nothing of it is settled as not applied",
            worker.name,
            worker.worker_id,
            count(calls, "call")
        );
        let advice = format!(
            "When it and all it started are gone: toolfleet workers fence {} --note WHY",
            worker.worker_id
        );
        Check::warn("fences", found, advice)
    };
    dead.take(LISTED_MAX).map(judge).collect()
}

fn judge_doubts(doubts: &Doubts) -> Check {
    let name = "in_doubt";
    let calls = usize::try_from(doubts.calls).unwrap_or_default();
    if calls == 0 {
        return Check::ok(name, "no call");
    }
    let oldest = doubts.oldest.unwrap_or(Uuid::nil());
    let found = format!(
        "{}, the oldest {oldest} for {}",
        count(calls, "call"),
        age(doubts.oldest_s.unwrap_or_default())
    );
    let advice = "Look each up in the system it writes to (docs/operations.md, calls are in doubt)";
    Check::warn(name, found, advice)
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    fn worker(state: &str, queue: &str, silent_s: f64) -> Worker {
        Worker {
            worker_id: Uuid::nil(),
            name: "w".to_owned(),
            state: state.to_owned(),
            queues: vec![queue.to_owned()],
            silent_s,
            in_doubt: 2,
            cannot_run: None,
        }
    }

    fn tool(name: &str) -> OfferedTool {
        OfferedTool {
            name: name.to_owned(),
            version: 1,
        }
    }

    #[test]
    fn a_queue_with_tools_or_calls_needs_a_worker_that_lives() {
        let tools = [tool("look")];
        let waiting = Waiting {
            queue: "q".to_owned(),
            calls: 3,
            oldest_s: 60.0,
        };
        let judge = |tools: &[OfferedTool], waiting, workers: &[Worker]| {
            judge_queue("q", tools, waiting, workers).map(|check| check.status)
        };
        assert_eq!(judge(&[], None, &[]), None);
        assert_eq!(judge(&tools, None, &[]), Some(Status::Warn));
        assert_eq!(judge(&[], Some(&waiting), &[]), Some(Status::Warn));
        let of = |state, queue, silent| [worker(state, queue, silent)];
        assert_eq!(judge(&tools, None, &of("live", "q", 2.0)), Some(Status::Ok));
        for useless in [
            of("live", "other", 2.0),
            of("live", "q", 60.0),
            of("live", "q", 7.0),
            of("draining", "q", 2.0),
            of("dead", "q", 2.0),
        ] {
            assert_eq!(
                judge(&tools, None, &useless),
                Some(Status::Warn),
                "{useless:?}"
            );
        }
        let check = judge_queue("q", &tools, Some(&waiting), &[]).unwrap();
        assert_eq!(
            check.found,
            "queue q has no worker for look; 3 calls may run, the oldest since 60 s"
        );
        // A worker that missed two heartbeats may be dead, although its lease is not over.
        let silent = judge_queue("q", &tools, None, &of("live", "q", 7.0)).unwrap();
        assert_eq!(
            silent.found,
            "queue q has no worker (worker w is silent for 7 s) for look"
        );
        let both = [worker("live", "q", 2.0), worker("live", "q", 7.0)];
        let both = judge_queue("q", &tools, None, &both).unwrap();
        assert_eq!(
            (both.status, both.found.as_str()),
            (
                Status::Ok,
                "queue q: 1 worker (worker w is silent for 7 s: not counted)"
            )
        );
    }

    #[test]
    fn a_tool_that_no_living_worker_can_run_is_named_with_what_it_lacks() {
        let queue: QueueName = "q".parse().unwrap();
        let queues = BTreeMap::from([(queue, vec![tool("look"), tool("pay")])]);
        let lacks = |name: &str| Worker {
            name: name.to_owned(),
            cannot_run: Some(format!(
                r#"[{{"tool":"pay","version":1,"lack":"secret","secret":"TOKEN","why":"secret TOKEN is not here","why_zh":"x","worker":"{name}"}}]"#
            )),
            ..worker("live", "q", 1.0)
        };
        let judge = |workers: &[Worker]| judge_tools(&queues, workers);
        let [check] = judge(&[lacks("a"), lacks("b")]).try_into().unwrap();
        assert_eq!(check.status, Status::Warn);
        assert_eq!(
            check.found,
            "no live worker can run pay: worker a: secret TOKEN is not here, nor can 1 other worker of its queue"
        );
        assert_eq!(
            check.advice.as_deref(),
            Some(
                "Give the workers of its queue a readable file TOKEN in the folder of their --secrets, or start them with \
                 TOOLFLEET_SECRET_TOKEN"
            )
        );
        // One worker that can run it is enough; a worker that is gone does not count.
        for workers in [
            vec![lacks("a"), worker("live", "q", 1.0)],
            vec![worker("live", "q", 1.0)],
            vec![worker("dead", "q", 1.0)],
        ] {
            let [check] = judge(&workers).try_into().unwrap();
            assert_eq!(check.status, Status::Ok, "{}", check.found);
        }
        let checks = judge(&[lacks("a"), worker("live", "q", 60.0)]);
        assert_eq!(checks[0].status, Status::Warn);
        // The version that lacked a secret is no longer offered, and no worker has reported a lack for this one.
        let newer = OfferedTool {
            version: 2,
            ..tool("pay")
        };
        let queues = BTreeMap::from([("q".parse().unwrap(), vec![newer])]);
        let [check] = judge_tools(&queues, &[lacks("a")]).try_into().unwrap();
        assert_eq!(check.status, Status::Ok, "{}", check.found);
        assert!(judge_tools(&BTreeMap::new(), &[]).is_empty());
    }

    #[test]
    fn only_the_dead_are_to_be_fenced() {
        assert!(judge_dead(&[worker("live", "q", 1.0)]).is_empty());
        let checks = judge_dead(&[worker("dead", "q", 100.0)]);
        assert!(checks[0].advice.as_ref().unwrap().contains("workers fence"));
    }

    #[test]
    fn a_call_in_doubt_wants_somebody() {
        let none = Doubts {
            calls: 0,
            oldest: None,
            oldest_s: None,
        };
        assert_eq!(judge_doubts(&none).status, Status::Ok);
        let some = Doubts {
            calls: 1,
            oldest: Some(Uuid::nil()),
            oldest_s: Some(7_200.0),
        };
        let check = judge_doubts(&some);
        assert_eq!(check.status, Status::Warn);
        assert!(check.found.starts_with("1 call,") && check.found.ends_with("2 h"));
    }

    #[test]
    fn a_long_list_is_cut() {
        let names: Vec<String> = (0..8).map(|name| name.to_string()).collect();
        assert_eq!(listed(&names), "0, 1, 2, 3, 4 and 3 more");
        assert_eq!(listed(&names[..2]), "0, 1");
    }
}
