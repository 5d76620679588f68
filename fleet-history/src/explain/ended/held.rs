//! Why a call expired that was held to its end by something that more workers do not change: a pause, a breaker, a limit.

use fleet::hold::Line;

use super::{
    super::{
        explanation::{Explanation, because},
        facts::{Brake, EndedFacts, Facts},
        rates,
    },
    again,
};

/// `None`: it was not held, or for lack of room, or its tenant had its share of the slots.
pub(super) fn expired(facts: &Facts, history: &EndedFacts, over: &str) -> Option<Explanation> {
    let again = again(facts);
    let held = history.held.as_ref()?;
    let over = match &history.attempt {
        None => over.to_owned(),
        Some(last) => {
            let code = last.code.as_deref().unwrap_or("an error");
            format!(
                "{over}, after attempt {} had ended with {code}",
                last.number
            )
        }
    };
    let Ok(line) = held.line.parse::<Line>() else {
        return Some(because(
            "held",
            format!(
                "{over}; it waited in the line {}, which this program does not know",
                held.line
            ),
            format!("ask again with a program of the release that the dispatchers run; {again}"),
        ));
    };
    match line {
        Line::Queue(_) | Line::Slots(_) => None,
        Line::Pause(id) => Some(because(
            "paused",
            format!(
                "{over}; it was held by a pause{}",
                by(held.pause.as_ref(), id.0)
            ),
            format!(
                "toolfleet control log says whether the pause is over; deadlines go on in a pause (docs/control.md); {again}"
            ),
        )),
        Line::Breaker(_) => Some(behind_breaker(facts, held.forced.as_ref(), &over)),
        Line::Tool(_) | Line::Key(..) => Some(limited(facts, &over)),
        Line::After(leader) => Some(because(
            "follows",
            format!("{over}; it waited for the answer of the equal call {leader}"),
            format!("toolfleet calls explain {leader} says what became of that one; {again}"),
        )),
    }
}

/// Who set the control with this id, and why.
fn by(control: Option<&Brake>, id: i64) -> String {
    control.map_or_else(
        || format!(" (control {id})"),
        |Brake { actor, note, .. }| format!(" of {actor} (control {id}): {note}"),
    )
}

fn behind_breaker(facts: &Facts, forced: Option<&Brake>, over: &str) -> Explanation {
    let again = again(facts);
    let tool = &facts.tool;
    let (what, next) = match forced {
        Some(control) => (
            format!(
                "{over}; {} had forced the breaker of its tool {tool} open (control {}: {}): nothing was sent to its target",
                control.actor, control.control_id, control.note
            ),
            "toolfleet control list says whether that still holds".to_owned(),
        ),
        None => (
            format!(
                "{over}; the breaker of its tool {tool} was open, for its target failed: nothing was sent to it"
            ),
            "see that the target works (toolfleet.breakers)".to_owned(),
        ),
    };
    because("circuit_open", what, format!("{next}; {again}"))
}

/// The history does not keep what a limit was: what is told of it is so now.
fn limited(facts: &Facts, over: &str) -> Explanation {
    let again = again(facts);
    let tool = &facts.tool;
    if let Some(rate) = &facts.rate {
        let now = rates::in_words(facts, rate);
        let next = match rate.calls {
            None => rates::next(rate),
            Some(_) => format!(
                "let more start, if the remote bears it: toolfleet control limit {} CALLS/TIME --note WHY (docs/rate-limits.md), or let \
                 callers wait longer (Toolfleet-Deadline-Ms, max_queue_wait of the tool)",
                rate.name
            ),
        };
        return because(
            rates::REASON,
            format!(
                "{over}; it waited to its end for the limit of its tool {tool}. At present {now}"
            ),
            format!("{next}; {again}"),
        );
    }
    let now = match facts.tool_limit {
        None => "; it has none at present".to_owned(),
        Some(limit) => format!(", at present {} at a time", limit.at_a_time),
    };
    because(
        "tool_limit",
        format!(
            "{over}; it waited to its end for a place of its tool {tool}, which has a limit{now}"
        ),
        format!(
            "a higher `concurrency` in a new version of {tool} lets more run at a time; more workers do not; {again}"
        ),
    )
}
