//! **Does a call come in, and does it wait?** One decision from facts, for single calls and batches.
//!
//! Facts become known as a request goes through the door, so the decision is made several times, each time from what is known
//! by then. An unknown fact does not stand in the way. Pure: the counts behind the facts are kept elsewhere (ARCHITECTURE.md,
//! "What decides whether a call comes in, waits or is refused"). A further reason is one more fact and one more arm.

use fleet::{
    breaker::BreakerId,
    hold::{HeldWhy, Line},
    ids::QueueName,
    manifest::Manifest,
    rate_key::RateKey,
    said,
    wire::{code::Code, message::Message},
};
use serde_json::json;

use super::pause::Paused;
use crate::{
    quota::NoQuota,
    rates::{Counted, TooFast},
    refusal::Refusal,
    repeats::Repeated,
    slots::Full,
};

/// The facts that may keep a call out or make it wait, as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct Facts<'a> {
    /// Its tenant has sent too much in the last moments.
    pub(crate) too_fast: Option<TooFast>,
    /// No request slot is free for it.
    pub(crate) no_slot: Option<NoSlot>,
    /// Commits are so far behind that it would only join a queue.
    pub(crate) is_behind: bool,
    /// A pause covers it.
    pub(crate) pause: Option<&'a Paused>,
    /// It has failed as often in its run as its tool allows.
    pub(crate) repeated: Option<Repeated>,
    /// Its tenant's quota is used up.
    pub(crate) no_quota: Option<NoQuota>,
    /// The breaker of its target is shut, and calls of its tool wait for it.
    pub(crate) shut: Option<BreakerId>,
    /// Which calls of its tool it shares start times with, where each value of an argument has its own.
    pub(crate) rate_key: Option<RateKey>,
    /// The newest version of its tool, and the queue of its own.
    pub(crate) tool: Option<(&'a Manifest, &'a QueueName)>,
    /// The stream has no room for its pointer, or other calls wait for that room already; or its tenant has as many calls of its
    /// queue under way as it may have.
    pub(crate) no_room: bool,
    /// Tenants share the slots of its queue: each may have only so many calls under way.
    pub(crate) shares_slots: bool,
}

/// Which slots were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSlot {
    /// One, for a request.
    Request(Full),
    /// One for each call of a batch.
    Batch(Full),
}

/// The decision about a call.
#[derive(Debug)]
pub(crate) enum Decision {
    /// It comes in and is published at once.
    Now,
    /// It comes in and waits in this line, for this reason.
    Hold(HeldWhy, Line),
    /// It does not come in.
    Refuse(Refusal),
}

/// Decides. The first fact that stands in the way counts; facts that refuse come before facts that hold.
pub(crate) fn decide(facts: &Facts<'_>) -> Decision {
    let refuse = |code, what| Decision::Refuse(Refusal::new(code, what));
    if let Some(too_fast) = facts.too_fast {
        return Decision::Refuse(too_fast.refusal());
    }
    if let Some(no_slot) = facts.no_slot {
        return refuse(Code::Overloaded, no_slot.message());
    }
    if facts.is_behind {
        return refuse(Code::Overloaded, BEHIND);
    }
    if let Some(refusal) = facts.pause.and_then(Paused::refusal) {
        return Decision::Refuse(refusal);
    }
    if let Some(repeated) = facts.repeated {
        return Decision::Refuse(repeated.refusal());
    }
    match facts.no_quota {
        Some(NoQuota::Full(quota)) => {
            let what = said!(
                "this tenant has as many open calls as it may have at a time ({quota})",
                "这个租户未结束的调用已达到上限（{quota} 个）"
            );
            return refuse(Code::QuotaExceeded, what);
        }
        Some(NoQuota::Unreadable) => return refuse(Code::StoreUnavailable, QUOTA_UNREADABLE),
        None => {}
    }
    if let Some(pause) = facts.pause {
        let line = Line::Pause(pause.id);
        return Decision::Hold(why_of(&line), line);
    }
    if let Some(breaker) = facts.shut {
        let line = Line::Breaker(breaker);
        return Decision::Hold(why_of(&line), line);
    }
    match facts.tool {
        // Of a limited tool, only a release counts the free places and start times, over the whole fleet.
        Some((tool, queue)) if always_waits(tool) || facts.no_room => {
            let line = line_of(tool, queue, facts.rate_key, facts.shares_slots);
            Decision::Hold(why_of(&line), line)
        }
        Some(_) | None => Decision::Now,
    }
}

/// Whether its calls wait for a release in any case: not those that have their start time from the door.
pub(super) fn always_waits(tool: &Manifest) -> bool {
    tool.concurrency.is_some() || tool.rate_limit.is_some() && !tool.refuses_over_limit()
}

/// The line in which a call waits: its tool's own if the newest version has a limit, that of its key if values have start times of their
/// own, else one of the call's queue.
pub(crate) fn line_of(
    tool: &Manifest,
    queue: &QueueName,
    key: Option<RateKey>,
    shares_slots: bool,
) -> Line {
    let key = key.filter(|_| tool.rate_pointer().is_some());
    match (tool.is_limited(), shares_slots) {
        (true, _) => {
            let name = tool.name.clone();
            key.map_or_else(
                || Line::Tool(name.clone()),
                |key| Line::Key(name.clone(), key),
            )
        }
        (false, true) => Line::Slots(queue.clone()),
        (false, false) => Line::Queue(queue.clone()),
    }
}

/// The view `calls` derives it in the same way.
const fn why_of(line: &Line) -> HeldWhy {
    match line {
        Line::Queue(_) => HeldWhy::Room,
        Line::Slots(_) => HeldWhy::Slots,
        Line::Tool(_) | Line::Key(..) => HeldWhy::Limit,
        Line::Pause(_) => HeldWhy::Pause,
        Line::Breaker(_) => HeldWhy::Breaker,
        Line::After(_) => HeldWhy::Follows,
    }
}

impl TooFast {
    /// As the caller reads it.
    fn refusal(self) -> Refusal {
        let rate = self.per_second;
        let what = match self.what {
            Counted::Calls => said!(
                "this tenant sends more calls than it may ({rate} a second)",
                "这个租户发送的调用太多（每秒最多 {rate} 个）"
            ),
            Counted::Bytes => said!(
                "this tenant sends more bytes than it may ({rate} a second)",
                "这个租户发送的字节太多（每秒最多 {rate} 字节）"
            ),
        };
        let wait_ms = u64::try_from(self.wait.as_millis()).unwrap_or(u64::MAX);
        Refusal::too_early(Code::RateLimited, what, wait_ms)
    }
}

impl Repeated {
    /// As the caller reads it.
    fn refusal(self) -> Refusal {
        let (failures, last) = (self.failures, self.last);
        let what = said!(
            "this call has failed {failures} times with the same arguments in this run or session, the last time with {last}",
            "这次调用在本次 run 或 session 中以同样的参数失败了 {failures} 次，最后一次的错误是 {last}"
        );
        let details = json!({"failures": failures, "last": last});
        Refusal::new(Code::RepeatedFailure, what).with_details(|_language| details.clone())
    }
}

impl NoSlot {
    /// As the caller reads it.
    const fn message(self) -> Message {
        match self {
            Self::Request(Full::All) => Message::fixed(
                "too many requests are waiting here",
                "这里等待处理的请求太多",
            ),
            Self::Request(Full::Share) => Message::fixed(
                "too many requests of this tenant are waiting here",
                "这个租户在这里等待处理的请求太多",
            ),
            Self::Request(Full::Bytes) | Self::Batch(Full::Bytes) => Message::fixed(
                "the requests that are waiting here have too many bytes",
                "这里等待处理的请求字节数太多",
            ),
            Self::Batch(Full::All) => Message::fixed(
                "too many requests are waiting here for so many calls",
                "这里等待处理的请求太多，容不下这么多调用",
            ),
            Self::Batch(Full::Share) => Message::fixed(
                "too many requests of this tenant are waiting here for so many calls",
                "这个租户在这里等待处理的请求太多，容不下这么多调用",
            ),
        }
    }
}

const BEHIND: Message = Message::fixed(
    "the ledger is too far behind to take more calls",
    "账本积压太多，暂时不能接受更多调用",
);
const QUOTA_UNREADABLE: Message = Message::fixed(
    "this tenant seems to have as many open calls as it may have, and the ledger cannot be asked",
    "这个租户未结束的调用似乎已达到上限，而目前无法查询账本",
);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fleet::{
        call::Language,
        controls::PauseMode,
        manifest::{self, OnLimit, RateLimit},
    };
    use serde_json::json;

    use super::*;

    fn tool(concurrency: Option<u32>) -> Manifest {
        let manifest = json!({
            "name": "charge",
            "version": 1,
            "description": "Looks what a card was charged with.",
            "effect": "read",
            "queue": "payments",
            "input_schema": {"type": "object", "properties": {}, "additionalProperties": false},
            "executor": {"http": {"method": "GET", "url": "https://api.example.com/v1"}},
        });
        let manifest = manifest::parse(&manifest.to_string()).unwrap();
        Manifest {
            concurrency,
            ..manifest
        }
    }

    /// The decision as text: its word, with the line or with the first sentence of the refusal.
    fn told(facts: &Facts<'_>) -> String {
        match decide(facts) {
            Decision::Now => "now".to_owned(),
            Decision::Hold(why, line) => format!("hold {} in {line}", why.as_str()),
            Decision::Refuse(refusal) => {
                let error = refusal.error(Language::En);
                let (first, _) = error.message.split_once('.').unwrap();
                format!("refuse {}: {first}", refusal.code)
            }
        }
    }

    #[test]
    fn the_first_fact_in_the_way_decides() {
        let (plain, limited) = (tool(None), tool(Some(2)));
        let paced = Manifest {
            rate_limit: Some(RateLimit::default()),
            ..tool(None)
        };
        let refusing = Manifest {
            on_limit: OnLimit::Refuse,
            ..paced.clone()
        };
        let slot = |no_slot| Facts {
            no_slot: Some(no_slot),
            ..Facts::default()
        };
        let quota = |no_quota| Facts {
            no_quota: Some(no_quota),
            ..Facts::default()
        };
        let fast = |what| Facts {
            too_fast: Some(TooFast {
                what,
                per_second: 9,
                wait: Duration::from_millis(40),
            }),
            ..Facts::default()
        };
        let of = |tool, no_room| Facts {
            tool: Some((tool, &tool.queue)),
            no_room,
            ..Facts::default()
        };
        let waits = Paused::with(PauseMode::Wait, None, None);
        let closed = Some("the bank is closed until 14:00");
        let refuses = Paused::with(
            PauseMode::Refuse,
            closed,
            Some(Duration::from_millis(1_500)),
        );
        let paused = |pause, tool| Facts {
            pause: Some(pause),
            ..of(tool, false)
        };
        let repeated = |tool| Facts {
            repeated: Some(Repeated {
                failures: 10,
                last: Code::Timeout,
            }),
            ..of(tool, false)
        };
        let shut = |tool, no_room| Facts {
            shut: Some(BreakerId(7)),
            ..of(tool, no_room)
        };
        let shared = |tool, no_room| Facts {
            shares_slots: true,
            ..of(tool, no_room)
        };
        for (facts, expected) in [
            (Facts::default(), "now"),
            (
                fast(Counted::Calls),
                "refuse rate_limited: This tenant sends more calls than it may (9 a second)",
            ),
            (
                fast(Counted::Bytes),
                "refuse rate_limited: This tenant sends more bytes than it may (9 a second)",
            ),
            (
                slot(NoSlot::Request(Full::Bytes)),
                "refuse overloaded: The requests that are waiting here have too many bytes",
            ),
            (
                slot(NoSlot::Request(Full::All)),
                "refuse overloaded: Too many requests are waiting here",
            ),
            (
                slot(NoSlot::Request(Full::Share)),
                "refuse overloaded: Too many requests of this tenant are waiting here",
            ),
            (
                slot(NoSlot::Batch(Full::All)),
                "refuse overloaded: Too many requests are waiting here for so many calls",
            ),
            (
                slot(NoSlot::Batch(Full::Share)),
                "refuse overloaded: Too many requests of this tenant are waiting here for so many calls",
            ),
            (
                Facts {
                    is_behind: true,
                    ..Facts::default()
                },
                "refuse overloaded: The ledger is too far behind to take more calls",
            ),
            (
                quota(NoQuota::Full(7)),
                "refuse quota_exceeded: This tenant has as many open calls as it may have at a time (7)",
            ),
            (
                quota(NoQuota::Unreadable),
                "refuse store_unavailable: This tenant seems to have as many open calls as it may have, and the ledger cannot be asked",
            ),
            (
                repeated(&plain),
                "refuse repeated_failure: This call has failed 10 times with the same arguments in this run or session, the last time with timeout",
            ),
            (
                Facts {
                    pause: Some(&refuses),
                    ..repeated(&plain)
                },
                "refuse tool_paused: Calls like this one are paused for the moment: the bank is closed until 14:00",
            ),
            (
                Facts {
                    no_quota: Some(NoQuota::Full(7)),
                    pause: Some(&waits),
                    ..repeated(&plain)
                },
                "refuse repeated_failure: This call has failed 10 times with the same arguments in this run or session, the last time with timeout",
            ),
            (of(&plain, false), "now"),
            (of(&plain, true), "hold room in payments"),
            (shared(&plain, false), "now"),
            (shared(&plain, true), "hold slots in slots/payments"),
            (shared(&limited, true), "hold limit in tool/charge"),
            (of(&limited, false), "hold limit in tool/charge"),
            (of(&limited, true), "hold limit in tool/charge"),
            (of(&paced, false), "hold limit in tool/charge"),
            (of(&refusing, false), "now"),
            (of(&refusing, true), "hold limit in tool/charge"),
            (shut(&plain, true), "hold breaker in breaker/7"),
            (shut(&limited, false), "hold breaker in breaker/7"),
            (
                Facts {
                    pause: Some(&waits),
                    ..shut(&plain, false)
                },
                "hold pause in pause/7",
            ),
            (paused(&waits, &plain), "hold pause in pause/7"),
            (paused(&waits, &limited), "hold pause in pause/7"),
            (
                paused(&refuses, &plain),
                "refuse tool_paused: Calls like this one are paused for the moment: the bank is closed until 14:00",
            ),
            // With several facts: the rate, slots, the ledger, the quota, the line.
            (
                Facts {
                    no_slot: Some(NoSlot::Request(Full::All)),
                    ..fast(Counted::Calls)
                },
                "refuse rate_limited: This tenant sends more calls than it may (9 a second)",
            ),
            (
                Facts {
                    no_slot: Some(NoSlot::Request(Full::All)),
                    is_behind: true,
                    no_quota: Some(NoQuota::Full(7)),
                    ..of(&limited, true)
                },
                "refuse overloaded: Too many requests are waiting here",
            ),
            (
                Facts {
                    is_behind: true,
                    no_quota: Some(NoQuota::Full(7)),
                    ..of(&limited, true)
                },
                "refuse overloaded: The ledger is too far behind to take more calls",
            ),
            (
                Facts {
                    no_quota: Some(NoQuota::Full(7)),
                    ..paused(&refuses, &plain)
                },
                "refuse tool_paused: Calls like this one are paused for the moment: the bank is closed until 14:00",
            ),
            (
                Facts {
                    no_quota: Some(NoQuota::Full(7)),
                    ..paused(&waits, &plain)
                },
                "refuse quota_exceeded: This tenant has as many open calls as it may have at a time (7)",
            ),
            (
                Facts {
                    no_quota: Some(NoQuota::Full(7)),
                    ..of(&plain, true)
                },
                "refuse quota_exceeded: This tenant has as many open calls as it may have at a time (7)",
            ),
        ] {
            assert_eq!(told(&facts), expected, "{facts:?}");
        }
    }

    #[test]
    fn a_refused_caller_is_told_when_the_pause_is_over() {
        let after = |left: Option<Duration>| {
            let paused = Paused::with(PauseMode::Refuse, None, left);
            let error = paused.refusal().unwrap().error(Language::En);
            assert!(error.retryable, "{error:?}");
            error.retry_after_ms.unwrap()
        };
        assert_eq!(after(Some(Duration::from_millis(1_500))), 1_500);
        assert_eq!(after(Some(Duration::ZERO)), 1);
        assert_eq!(after(None), 60_000);
    }

    #[test]
    fn a_call_that_is_published_has_the_line_in_which_it_would_wait() {
        let line = |concurrency, shares| {
            let tool = tool(concurrency);
            line_of(&tool, &tool.queue, None, shares).to_string()
        };
        assert_eq!(line(None, false), "payments");
        assert_eq!(line(None, true), "slots/payments");
        assert_eq!(
            [line(Some(2), false), line(Some(2), true)],
            ["tool/charge"; 2]
        );
    }
}
