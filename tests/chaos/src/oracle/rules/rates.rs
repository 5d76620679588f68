//! Rates: attempts of a tool start only so often.
//!
//! Start times are handed out one by one, under the lock of their bucket: of any window of them there are at most `burst`, and
//! one more for each `per / calls` of the window. An attempt starts at its time or later, and at most a second later: a start
//! time that was not used for a second is void. (One that is at most half a second away is handed out at once, and the message
//! waits for it in NATS; that is in no attempt's way, for it does not start before.)
//!
//! So the start time of an attempt lies between a second before its claim and the moment at which its tool was asked. What the
//! tool sees in a window has its start times in that window and a second before; what was long on its way from the claim to the
//! tool has more room. Where more attempts than may start in a window have all of that within it, no start times explain them.
//!
//! With 50 in a second and a burst of 1: 101 starts at most in any second, and 102 where requests are 20 ms on their way; 60
//! where no start is later than 180 ms.

use crate::{
    effects::Did,
    oracle::{
        case::{Case, at_large},
        facts::{Moment, Rate, ToolRow},
        verdict::Breach,
    },
};

pub(super) const RATE: &str = "starts_keep_their_rate";

/// A start time is void when it was not used for so many milliseconds.
const UNUSED_MAX_MS: Moment = 1_000;
/// How far two clocks of one machine may be apart once they are put together.
const CLOCKS_MS: Moment = 100;

/// When the start time of an attempt can have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    from: Moment,
    until: Moment,
}

/// What tools saw of a tool with a rate has start times that its rate allows.
pub(super) fn starts_keep_their_rate(case: &Case<'_>) -> Vec<Breach> {
    let tools = case.tools.values();
    let paced = tools.filter_map(|tool| Some((*tool, tool.rate?)));
    paced
        .filter_map(|(tool, rate)| {
            let starts = starts(case, tool);
            let (seen, window) =
                too_many(&starts, rate, |from, until| was_moved(case, from, until))?;
            let what = format!(
                "{} started {seen} times with start times within {window} ms, and may {} times",
                tool.tool,
                most(rate, window)
            );
            Some(at_large(RATE, what))
        })
        .collect()
}

/// How many may have a start time within a window of so many milliseconds.
pub(super) fn most(rate: Rate, window: Moment) -> u64 {
    rate.burst + window.unsigned_abs() * rate.calls / rate.per_ms
}

/// Every attempt of a tool. Until its tool was asked; where it turned the request away at the door, until its end.
fn starts(case: &Case<'_>, tool: &ToolRow) -> Vec<Start> {
    let calls = case.calls.values().filter(|call| call.tool == tool.tool);
    let attempts = calls.flat_map(|call| case.attempts(&call.call_id));
    let starts = attempts
        .filter(|attempt| !attempt.late)
        .filter_map(|attempt| {
            let marks = case.marks(&attempt.call_id).iter();
            let asked = marks
                .filter(|mark| mark.did == Did::Started && mark.attempt == attempt.number)
                .map(|mark| i64::try_from(mark.at / 1_000_000).unwrap_or(i64::MAX))
                .min();
            Some(Start {
                from: attempt.started_at - UNUSED_MAX_MS - CLOCKS_MS,
                until: asked.or(attempt.finished_at)?,
            })
        });
    starts.collect()
}

/// The first window that holds more start times than it may, and how many; those in which the rate's clock was moved say nothing.
pub(super) fn too_many(
    starts: &[Start],
    rate: Rate,
    was_moved: impl Fn(Moment, Moment) -> bool,
) -> Option<(u64, Moment)> {
    let mut by_end = starts.to_vec();
    by_end.sort_by_key(|start| start.until);
    let mut begins: Vec<Moment> = starts.iter().map(|start| start.from).collect();
    begins.sort_unstable();
    begins.dedup();
    begins.into_iter().find_map(|begin| {
        let within = by_end.iter().filter(|start| start.from >= begin);
        (1..).zip(within).find_map(|(seen, last)| {
            let window = last.until - begin;
            let over = seen > most(rate, window) && !was_moved(begin, last.until);
            over.then_some((seen, window))
        })
    })
}

/// Whether the clock of the bucket was moved within a window, or so shortly before that it shows: a clock that is set back makes a
/// start time last longer.
fn was_moved(case: &Case<'_>, from: Moment, until: Moment) -> bool {
    case.facts.injected.clock_moves.iter().any(|one| {
        let shows = one.done + UNUSED_MAX_MS + (-one.by).max(0);
        one.begun <= until && from <= shows
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIFTY: Rate = Rate {
        calls: 50,
        per_ms: 1_000,
        burst: 1,
    };

    /// Attempts that are claimed and asked for at these moments.
    fn at(moments: impl IntoIterator<Item = Moment>) -> Vec<Start> {
        let start = |at| Start {
            from: at - UNUSED_MAX_MS,
            until: at,
        };
        moments.into_iter().map(start).collect()
    }

    fn over(starts: &[Start]) -> Option<u64> {
        too_many(starts, FIFTY, |_, _| false).map(|(seen, _)| seen)
    }

    #[test]
    fn a_second_holds_what_its_start_times_allow() {
        // A second of start times, of starts up to 180 ms late, of starts up to a second late, with 20 ms on their way.
        let most_of = |window| most(FIFTY, window);
        assert_eq!(
            [1_000, 1_180, 2_000, 2_020].map(most_of),
            [51, 60, 101, 102]
        );
        let hour = Rate {
            calls: 1_000,
            per_ms: 3_600_000,
            burst: 20,
        };
        assert_eq!(
            [most(hour, 0), most(hour, 3_599), most(hour, 3_600)],
            [20, 20, 21]
        );
    }

    #[test]
    fn an_even_rate_and_a_second_of_late_starts_hold_and_one_more_does_not() {
        assert_eq!(over(&at((0..1_000).map(|n| n * 20))), None);
        // All that were due for a second start at its end, with the second that follows.
        let late = (0..51).map(|_| 10_000);
        let starts = at(late.clone().chain((1..50).map(|n| 10_000 + n * 20)));
        assert_eq!(over(&starts), None);
        let starts = at(late.chain([10_000]));
        assert_eq!(over(&starts), Some(52));
    }

    #[test]
    fn what_was_long_on_its_way_says_less() {
        let mut starts = at((0..52).map(|_| 10_000));
        assert!(over(&starts).is_some());
        starts[7].from -= 20;
        assert!(over(&starts).is_none(), "its start time was the one before");
    }

    #[test]
    fn a_window_in_which_the_clock_was_moved_says_nothing() {
        let starts = at((0..60).map(|_| 10_000));
        let moved = |from: Moment, until: Moment| from <= 9_500 && until >= 9_500;
        assert!(too_many(&starts, FIFTY, moved).is_none());
    }
}
