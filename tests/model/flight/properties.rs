//! What is promised of calls with one question, and what must come up for that to mean something.

use std::fmt::Write as _;

use stateright::Property;

use super::{
    model::FlightModel,
    rules::{Asks, FlightConfig},
    state::{CALLS, FlightBreach, FlightRow, FlightState, Gate, OpenCall, Over, Part},
};

pub(super) const ONE_RUN: &str = "of the calls that fetch one answer, one runs";
pub(super) const ONE_LEADER: &str = "calls of one question follow one open call";
pub(super) const INHERITED: &str = "a call fails by itself alone";
pub(super) const QUESTION: &str = "an answer is that of the call's own question, as it was fetched";
pub(super) const FRESH: &str = "an answer that is found is in the history, and not too old";
pub(super) const NO_PART: &str = "a call that takes no part asks its tool, for itself";
pub(super) const LEGAL: &str = "every move of a call is legal";
/// Not promises that a world breaks: worlds without a way on.
pub(super) const ENDS: &str = "every call ends, whatever it follows";
pub(super) const RESTS: &str = "when all calls are over, nobody is busy with them";

/// What is checked in a configuration.
pub(super) fn of(config: &FlightConfig) -> Vec<Property<FlightModel>> {
    let mut all = vec![
        // A purge lets another one fetch beside the first, and lost writes may forget who fetches.
        Property::always(ONE_RUN, |model: &FlightModel, s: &FlightState| {
            s.purged || s.lost_writes || each_key(model, s, |run| run.len() <= 1, fetching)
        }),
        Property::always(ONE_LEADER, |model: &FlightModel, s: &FlightState| {
            s.purged || s.lost_writes || each_key(model, s, |led| led.len() <= 1, followed)
        }),
        never(INHERITED, FlightBreach::Inherited),
        never(QUESTION, FlightBreach::OtherQuestion),
        never(FRESH, FlightBreach::OldAnswer),
        never(NO_PART, FlightBreach::TookPart),
        never(LEGAL, FlightBreach::IllegalMove),
    ];
    if config.without.is_none() {
        all.extend(situations(config));
    }
    all
}

/// The same for each breach: a property's condition is a plain function.
fn never(name: &'static str, breach: FlightBreach) -> Property<FlightModel> {
    type Condition = fn(&FlightModel, &FlightState) -> bool;
    let condition: Condition = match breach {
        FlightBreach::Inherited => |_, s| s.breach != Some(FlightBreach::Inherited),
        FlightBreach::OtherQuestion => |_, s| s.breach != Some(FlightBreach::OtherQuestion),
        FlightBreach::OldAnswer => |_, s| s.breach != Some(FlightBreach::OldAnswer),
        FlightBreach::TookPart => |_, s| s.breach != Some(FlightBreach::TookPart),
        FlightBreach::IllegalMove => |_, s| s.breach != Some(FlightBreach::IllegalMove),
    };
    Property::always(name, condition)
}

/// A promise over situations that never come up proves nothing: these must.
fn situations(config: &FlightConfig) -> Vec<Property<FlightModel>> {
    let mut all = vec![
        sometimes("a call follows one that is over already", |_, s| {
            open(s).any(|row| {
                row.after
                    .is_some_and(|leader| s.ledger.open(leader).is_none())
            })
        }),
        sometimes(
            "a leader waits for its next attempt, and is followed",
            |_, s| {
                followed(s).iter().any(|leader| {
                    s.ledger
                        .open(*leader)
                        .is_some_and(|row| row.by.is_none() && row.has_begun())
                })
            },
        ),
        sometimes("one takes over from a leader that failed", |_, s| {
            s.ledger.kept.iter().flatten().any(|row| row.failed_before)
        }),
        sometimes("a call is answered by another", |_, s| {
            s.ledger.calls.contains(&FlightRow::Over(Over::Copied))
        }),
        sometimes(
            "two wait for the lock of one row",
            |_, s| matches!(s.gates, [Gate::Waits(one, _), Gate::Waits(other, _)] if one != other),
        ),
        sometimes(
            "a call is at two gates",
            |_, s| matches!(s.gates, [Gate::Aside(one, _), Gate::Goes(other, _)] if one == other),
        ),
    ];
    if config.asks == [Asks::Equal; CALLS] {
        all.extend([
            sometimes("two calls follow a third", |_, s| {
                open(s).filter(|row| row.after.is_some()).count() == 2
            }),
            sometimes(
                "two have failed in turn, and equal calls run for themselves",
                |_, s| s.ledger.kept.iter().flatten().any(|row| row.is_apart),
            ),
        ]);
    } else {
        all.push(sometimes("two run beside each other", |_, s| {
            open(s).filter(|row| row.by.is_some()).count() == 2
        }));
    }
    if config.purge {
        all.push(sometimes("two calls follow each other", |_, s| {
            let follows = |call: u8| s.ledger.open(call).and_then(|row| row.after);
            (0..).zip(&s.ledger.calls).any(|(call, row)| {
                let leader = row.open().and_then(|row| row.after);
                leader.is_some_and(|leader| follows(leader) == Some(call))
            })
        }));
    }
    if config.drops {
        all.push(sometimes(
            "an answer is gone before it is copied",
            |_, s| {
                s.gates.iter().any(|gate| {
                    matches!(gate, Gate::Answers(_, from)
                    if s.ledger.calls[usize::from(*from)] == FlightRow::Over(Over::Dropped))
                })
            },
        ));
    }
    if config.failover {
        all.push(sometimes(
            "a leader is one that the ledger has forgotten",
            |_, s| {
                s.lost_writes
                    && s.gates
                        .iter()
                        .any(|gate| matches!(gate, Gate::Goes(_, Part::Leads)))
                    && s.ledger.kept[0].is_none()
            },
        ));
    }
    all
}

type Situation = fn(&FlightModel, &FlightState) -> bool;

fn sometimes(name: &'static str, condition: Situation) -> Property<FlightModel> {
    Property::sometimes(name, condition)
}

fn open(s: &FlightState) -> impl Iterator<Item = OpenCall> {
    s.ledger.calls.iter().filter_map(|row| row.open())
}

/// Calls that fetch the answer for all and are run.
fn fetching(s: &FlightState) -> Vec<u8> {
    let runs = (0..)
        .zip(&s.gates)
        .filter_map(|(worker, gate)| match *gate {
            Gate::Runs(call, Part::Leads) => {
                let row = s.ledger.open(call)?;
                (row.by == Some(worker)).then_some(call)
            }
            _ => None,
        });
    runs.collect()
}

/// Open calls that others follow.
fn followed(s: &FlightState) -> Vec<u8> {
    let mut leaders: Vec<u8> = open(s).filter_map(|row| row.after).collect();
    leaders.retain(|leader| s.ledger.open(*leader).is_some());
    leaders.sort_unstable();
    leaders.dedup();
    leaders
}

/// Whether another call is in the line of this one.
pub(super) fn is_followed(s: &FlightState, call: u8) -> bool {
    open(s).any(|row| row.after == Some(call))
}

/// Whether it holds for the calls of each question.
fn each_key(
    model: &FlightModel,
    s: &FlightState,
    holds: impl Fn(&[u8]) -> bool,
    calls: fn(&FlightState) -> Vec<u8>,
) -> bool {
    let (other, own): (Vec<u8>, Vec<u8>) = calls(s)
        .into_iter()
        .partition(|call| model.config.asks[usize::from(*call)] == Asks::OtherTenant);
    holds(&other) && holds(&own)
}

/// Whether every call is over.
pub(super) fn is_over(s: &FlightState) -> bool {
    open(s).next().is_none()
}

/// A world in a line.
pub(super) fn digest(s: &FlightState) -> String {
    let mut told = String::new();
    for call in 0..CALLS {
        let words = match s.ledger.calls[call] {
            FlightRow::Over(over) => format!("{over:?}"),
            FlightRow::Open(row) => match (row.by, row.after) {
                (Some(worker), _) => format!("run by {worker}"),
                (None, Some(leader)) => format!("after {leader}"),
                (None, None) => "queued".to_owned(),
            },
        };
        write!(told, "call {call} {words}; ").expect("a text takes all");
    }
    for row in s.ledger.kept.iter().flatten() {
        write!(told, "kept: led by {}", row.leader).expect("a text takes all");
        if let Some(answer) = row.answer {
            write!(told, ", answer of {answer}").expect("a text takes all");
        }
        told.push_str("; ");
    }
    for gate in s.gates.iter().filter(|gate| **gate != Gate::Idle) {
        write!(told, "{gate:?}; ").expect("a text takes all");
    }
    told
}
