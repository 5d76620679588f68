//! **What is published now, and what waits?** Held calls are accepted and not yet published to NATS.
//!
//! The stream holds only what may run soon: enough that no slot is idle for lack of a message, and so little that a new call
//! does not stand behind a long row of others. All other calls wait in the ledger, in lines, and are released tenant by tenant.
//! Pure: the numbers that these decisions need are arguments.

use std::{fmt, ops::Range, str::FromStr, time::Duration};

use crate::{
    breaker::BreakerId,
    call::Priority,
    controls::ControlId,
    ids::{CallId, InvalidName, QueueName, ToolName},
    rate_key::RateKey,
};

/// Where a held call waits: in the line of its queue, or, if its tool has a limit, in the line of its tool, so that it delays
/// no other call.
///
/// Where tenants share the slots of a queue, the queue's line is another one. A newer release may write lines of other kinds: they
/// do not parse.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Line {
    /// The calls of a queue whose tools have no limit.
    Queue(QueueName),
    /// The same calls, where each tenant may have only so many of them under way.
    Slots(QueueName),
    /// The calls of a tool with a limit.
    Tool(ToolName),
    /// Those with this key, where each value of an argument has start times of its own: so no value delays another one.
    Key(ToolName, RateKey),
    /// Calls that wait for the end of a pause. Nothing is released from here: they go back to their own line first.
    Pause(ControlId),
    /// Calls that wait for a target that fails. A few are released from here to probe it; when its breaker is closed, the others
    /// go back to their own line first.
    Breaker(BreakerId),
    /// Calls that wait for the answer of an equal call. Nothing is released from here: when that call is over they go back to their
    /// own line first, or follow another one.
    After(CallId),
}

/// Why a call is held. The words are those of the column `held_why` of the view `calls`, which derives them from the line
/// (`toolfleet.held_why`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldWhy {
    /// NATS holds as much of its queue as the workers take soon, or other calls wait for that room already.
    Room,
    /// Its tenant has as many calls of its queue under way as it may have; or, where tenants have such a bound, there is no room.
    Slots,
    /// Its tool has a limit of attempts at a time, or of starts in a time.
    Limit,
    /// A pause covers it.
    Pause,
    /// The breaker of its tool and target is open.
    Breaker,
    /// An equal call fetches the answer.
    Follows,
}

impl HeldWhy {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Room,
        Self::Slots,
        Self::Limit,
        Self::Pause,
        Self::Breaker,
        Self::Follows,
    ];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Room => "room",
            Self::Slots => "slots",
            Self::Limit => "limit",
            Self::Pause => "pause",
            Self::Breaker => "breaker",
            Self::Follows => "follows",
        }
    }
}

/// Precedes a tool's name; no queue's name contains this character.
const TOOL: &str = "tool/";
/// Precedes the name of a queue whose slots tenants share.
const SLOTS: &str = "slots/";
/// Precedes the id of a pause.
const PAUSE: &str = "pause/";
/// Precedes the id of a breaker.
const BREAKER: &str = "breaker/";
/// Precedes the id of the call whose answer is waited for.
const AFTER: &str = "after/";

impl Line {
    /// Before the lines of all keys of a tool, and what each of them begins with.
    pub fn first_of_keys(tool: &ToolName) -> String {
        format!("{TOOL}{tool}/")
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(queue) => queue.fmt(f),
            Self::Slots(queue) => write!(f, "{SLOTS}{queue}"),
            Self::Tool(tool) => write!(f, "{TOOL}{tool}"),
            Self::Key(tool, key) => write!(f, "{TOOL}{tool}/{key}"),
            Self::Pause(id) => write!(f, "{PAUSE}{id}"),
            Self::Breaker(id) => write!(f, "{BREAKER}{id}"),
            Self::After(call) => write!(f, "{AFTER}{call}"),
        }
    }
}

impl FromStr for Line {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        if let Some(tool) = text.strip_prefix(TOOL) {
            match tool.split_once('/') {
                Some((tool, key)) => Ok(Self::Key(tool.parse()?, key.parse()?)),
                None => tool.parse().map(Self::Tool),
            }
        } else if let Some(queue) = text.strip_prefix(SLOTS) {
            queue.parse().map(Self::Slots)
        } else if let Some(id) = text.strip_prefix(PAUSE) {
            id.parse().map(Self::Pause)
        } else if let Some(id) = text.strip_prefix(BREAKER) {
            id.parse().map(Self::Breaker)
        } else if let Some(call) = text.strip_prefix(AFTER) {
            call.parse().map(Self::After)
        } else {
            text.parse().map(Self::Queue)
        }
    }
}

/// How many messages the stream may hold of a queue without workers: enough for the first moments of a new worker.
pub const ALLOWANCE_UNKNOWN: u64 = 64;
/// The least that it may hold of a queue with workers.
const ALLOWANCE_MIN: u64 = 16;
/// Messages for each slot: one that runs next, and one for the time that publishing it takes.
const PER_SLOT: u64 = 2;
/// For how long the stream alone must be able to feed the workers.
const AHEAD: Duration = Duration::from_millis(500);

/// How many messages of a queue the stream may hold, given the slots of its live workers and the messages that they take per
/// second.
pub fn allowance(slots: u64, drain_per_s: f64) -> u64 {
    if slots == 0 {
        return ALLOWANCE_UNKNOWN;
    }
    // More than any fleet needs, and far from any overflow.
    let drained = (drain_per_s * AHEAD.as_secs_f64()).clamp(0.0, 1e9) as u64;
    ALLOWANCE_MIN
        .max(slots.saturating_mul(PER_SLOT))
        .max(drained)
}

/// How fast a queue's messages are taken, smoothed over about half a second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Drain {
    per_s: f64,
}

impl Drain {
    /// The time constant of the smoothing.
    const SMOOTH: Duration = Duration::from_millis(500);

    /// Adds a measurement: so many messages were taken in this time.
    ///
    /// `waited`: other messages waited all the while, so the workers could not have taken more. Otherwise a low number says
    /// nothing about what they can do.
    #[must_use]
    pub fn after(self, taken: u64, elapsed: Duration, waited: bool) -> Self {
        let seconds = elapsed.as_secs_f64();
        if seconds <= 0.0 {
            return self;
        }
        let now = taken as f64 / seconds;
        if now < self.per_s && !waited {
            return self;
        }
        let weight = 1.0 - (-seconds / Self::SMOOTH.as_secs_f64()).exp();
        Self {
            per_s: self.per_s + weight * (now - self.per_s),
        }
    }

    /// Messages per second.
    pub const fn per_s(self) -> f64 {
        self.per_s
    }
}

/// How many of `room` places each of so many tenants gets, in the order of turns. No tenant gets two more than another; with
/// fewer places than tenants, the first tenants get one each.
pub fn shares(room: usize, tenants: usize) -> Vec<usize> {
    let each = room.checked_div(tenants).unwrap_or(0);
    let more = room.checked_rem(tenants).unwrap_or(0);
    (0..tenants.min(room))
        .map(|place| each + usize::from(place < more))
        .collect()
}

/// The delay that a priority adds to the time at which a call came. A low call overtakes every high call that comes a minute
/// later, so it is never starved.
pub const fn penalty(priority: Priority) -> Duration {
    match priority {
        Priority::High => Duration::ZERO,
        Priority::Normal => Duration::from_secs(30),
        Priority::Low => Duration::from_secs(60),
    }
}

/// A waiting pointer is published again at this age, and then each time its age has grown by this factor.
const REPUBLISHED_AFTER: Duration = Duration::from_secs(3);
const REPUBLISHED_FACTOR: u32 = 8;
/// A pointer of this age was published at least twice. The stream's answer that it has the pointer is then no longer believed
/// without a look.
pub const DOUBTED_AFTER: Duration = REPUBLISHED_AFTER.saturating_mul(REPUBLISHED_FACTOR);
/// A call waits at most until its deadline, which is at most a day away.
const WAITS_MAX: Duration = Duration::from_secs(86_400);

/// The ages at which a waiting pointer is worth publishing again, where the last look was `since` ago.
///
/// It is worth it if it has reached one of the steps since then. The stream refuses what it holds, so this costs little when
/// nothing is lost, and it finds silent losses.
pub fn worth_republishing(since: Duration) -> Vec<Range<Duration>> {
    let mut step = REPUBLISHED_AFTER;
    let mut worth: Vec<Range<Duration>> = Vec::new();
    while step <= WAITS_MAX {
        let end = step.saturating_add(since);
        match worth.last_mut() {
            Some(last) if last.end >= step => last.end = end,
            _ => worth.push(step..end),
        }
        step *= REPUBLISHED_FACTOR;
    }
    worth
}

/// How many calls of a limited tool are under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Admitted {
    /// Attempts that have a place: they run, or are in doubt and may still act.
    pub running: u32,
    /// Calls that were released to take a place, in the last two seconds.
    pub on_its_way: u32,
}

/// How many more calls of a tool may be released, of which at most `limit` may run at a time. A line whose tool has no limit
/// any more gets the default allowance.
///
/// No call is released before a place is free: a worker with a free slot would claim it at once, and be refused. One that nobody
/// claims for two seconds keeps no place from others.
pub fn room_of_tool(limit: Option<u32>, admitted: Admitted) -> u32 {
    match limit {
        Some(limit) => limit
            .saturating_sub(admitted.running)
            .saturating_sub(admitted.on_its_way),
        None => u32::try_from(ALLOWANCE_UNKNOWN)
            .unwrap_or(u32::MAX)
            .saturating_sub(admitted.on_its_way),
    }
}

/// How many calls of a queue a tenant may have under way: `most`, and never the last quarter of the slots of its live workers.
///
/// So a tenant with slow calls leaves slots for others. Without workers there are none to leave.
pub const fn tenant_share(most: u64, slots: u64) -> u64 {
    let share = slots - slots / 4;
    if slots == 0 || most < share {
        most
    } else {
        share
    }
}

#[cfg(test)]
mod tests;
