//! **Does a call come in, and does it wait?** One decision out of facts, for single calls and batches.
//!
//! Facts come in as a request goes through the door, so the decision is asked for three times, each time with what is known
//! by then: what is not known yet counts as not in the way. Pure: the counts behind the facts are kept elsewhere
//! (ARCHITECTURE.md, "What decides whether a call comes in, waits or is refused"). A further reason is one more fact and one
//! more arm.

use fleet::{
    hold::{HeldWhy, Line},
    manifest::Manifest,
    said,
    wire::{code::Code, message::Message},
};

use crate::{quota::NoQuota, refusal::Refusal, slots::Full};

/// What may keep a call out or make it wait, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Facts<'a> {
    /// There is no request slot for it.
    pub(crate) no_slot: Option<NoSlot>,
    /// Commits are so far behind that it would only wait with the others.
    pub(crate) is_behind: bool,
    /// Its tenant may have no further call.
    pub(crate) no_quota: Option<NoQuota>,
    /// What it asks for.
    pub(crate) tool: Option<&'a Manifest>,
    /// The stream has no room for its pointer, or others wait for that room already.
    pub(crate) no_room: bool,
}

/// What found no request slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSlot {
    /// A request.
    Request(Full),
    /// The calls of a batch, of which each takes one.
    Batch(Full),
}

/// What becomes of a call.
#[derive(Debug)]
pub(crate) enum Decision {
    /// It comes in and is published at once.
    Now,
    /// It comes in and waits in this line, for this reason.
    Hold(HeldWhy, Line),
    /// It does not come in.
    Refuse(Refusal),
}

/// Decides; the first fact that stands in the way counts. What refuses comes before what makes it wait.
pub(crate) fn decide(facts: &Facts<'_>) -> Decision {
    let refuse = |code, what| Decision::Refuse(Refusal::new(code, what));
    if let Some(no_slot) = facts.no_slot {
        return refuse(Code::Overloaded, no_slot.message());
    }
    if facts.is_behind {
        return refuse(Code::Overloaded, BEHIND);
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
    match facts.tool {
        // Whether a place is free is the fleet's to know: a release counts them.
        Some(tool) if tool.concurrency.is_some() => Decision::Hold(HeldWhy::Limit, line_of(tool)),
        Some(tool) if facts.no_room => Decision::Hold(HeldWhy::Room, line_of(tool)),
        Some(_) | None => Decision::Now,
    }
}

/// Where a call of this tool waits when it has to: with the others of its tool, where that has a limit of its own, or else
/// with those of its queue.
pub(crate) fn line_of(tool: &Manifest) -> Line {
    match tool.concurrency {
        Some(_) => Line::Tool(tool.name.clone()),
        None => Line::Queue(tool.queue.clone()),
    }
}

impl NoSlot {
    /// As a caller is told.
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
    use fleet::{call::Language, manifest};
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

    /// The decision in a word, with its line or, where it refuses, the first sentence of what its caller is told.
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
        let slot = |no_slot| Facts {
            no_slot: Some(no_slot),
            ..Facts::default()
        };
        let quota = |no_quota| Facts {
            no_quota: Some(no_quota),
            ..Facts::default()
        };
        let of = |tool, no_room| Facts {
            tool: Some(tool),
            no_room,
            ..Facts::default()
        };
        for (facts, expected) in [
            (Facts::default(), "now"),
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
            (of(&plain, false), "now"),
            (of(&plain, true), "hold room in payments"),
            (of(&limited, false), "hold limit in tool/charge"),
            (of(&limited, true), "hold limit in tool/charge"),
            // Of several: slots, the ledger, the quota, the line.
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
                    ..of(&plain, true)
                },
                "refuse quota_exceeded: This tenant has as many open calls as it may have at a time (7)",
            ),
        ] {
            assert_eq!(told(&facts), expected, "{facts:?}");
        }
    }

    #[test]
    fn a_call_that_is_published_has_the_line_in_which_it_would_wait() {
        assert_eq!(line_of(&tool(None)).to_string(), "payments");
        assert_eq!(line_of(&tool(Some(2))).to_string(), "tool/charge");
    }
}
