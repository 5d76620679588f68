//! What is promised of held calls, permits and places, and what must come up for that to mean something.

use std::collections::BTreeSet;

use fleet::call::{Effect, State};
use stateright::Property;

use super::{
    actions::HeldAction,
    model::HeldModel,
    rules::HeldConfig,
    state::{
        ALLOWANCE, Disposal, HeldBreach, HeldLine, HeldRow, HeldState, HeldStep, Message, Request,
    },
};
use crate::properties::AT_MOST_ONCE;

pub(crate) const PLACES: &str = "no more attempts are live than the tool has places";
pub(crate) const ONE_EACH: &str = "each live attempt has one place, and no other attempt has it";
pub(crate) const KEPT: &str = "a place is not taken while its attempt is live";
pub(crate) const FULL: &str = "no place is free while as many attempts are live as the limit says";
pub(crate) const HELD: &str = "no pointer claims a held call";
pub(crate) const WAITS: &str = "what is held is queued";
pub(crate) const PERMITS: &str = "every permit that counts exists, and no more than there is room";
pub(crate) const POINTER: &str = "no acknowledgement takes the pointer of a call that may run";
pub(crate) const LEGAL: &str = "every move is legal";
/// Not promises that a world breaks: worlds without a way on.
pub(crate) const RELEASED: &str = "every held call is released in the end, or ends";
pub(crate) const GIVEN_BACK: &str = "permits and places are given back, and queues open again";

/// What is checked in a configuration.
pub(crate) fn of(config: &HeldConfig) -> Vec<Property<HeldModel>> {
    let mut all = vec![
        Property::always(PLACES, |model: &HeldModel, s: &HeldState| {
            let live = || live(model, s);
            // A claim counts by the limit that it saw; a smaller one waits until enough have ended.
            let seen = live().map(|row| usize::from(row.limit)).max();
            let limit = if model.config.shrinks { seen } else { None };
            live().count() <= limit.unwrap_or(model.config.limit.into())
        }),
        Property::always(ONE_EACH, |model: &HeldModel, s: &HeldState| {
            let named = |row: &HeldRow| {
                let its = |place: &&u8| Some(**place) == row.attempt;
                s.places.iter().filter(its).count() == 1
            };
            live(model, s).all(named)
        }),
        Property::always(KEPT, |_, s: &HeldState| {
            s.breach != Some(HeldBreach::PlaceTaken)
        }),
        Property::always(FULL, |_, s: &HeldState| {
            s.breach != Some(HeldBreach::PlaceBeyondLimit)
        }),
        Property::always(HELD, |_, s: &HeldState| {
            s.breach != Some(HeldBreach::ClaimedHeld)
        }),
        Property::always(WAITS, |_, s: &HeldState| {
            let waits = |row: &HeldRow| !row.held || row.state == State::Queued && !row.waits;
            s.rows.iter().flatten().all(waits)
        }),
        Property::always(PERMITS, |_, s: &HeldState| {
            s.dispatchers.iter().enumerate().all(|(at, dispatcher)| {
                dispatcher.on_their_way == s.permits(at)
                    && dispatcher.room + dispatcher.on_their_way <= ALLOWANCE
            })
        }),
        Property::always(POINTER, |_, s: &HeldState| {
            s.breach != Some(HeldBreach::PointerTaken)
        }),
        Property::always(LEGAL, |_, s: &HeldState| {
            s.breach != Some(HeldBreach::IllegalMove)
        }),
        Property::always(AT_MOST_ONCE, |_, s: &HeldState| {
            s.effects.iter().all(|effects| *effects <= 1)
        }),
    ];
    if config.without.is_none() {
        all.extend(situations(config));
    }
    all
}

/// A promise over situations that never come up proves nothing: these must.
fn situations(config: &HeldConfig) -> Vec<Property<HeldModel>> {
    let mut all = vec![
        sometimes("all have succeeded", |model, s| {
            let rows = model.config.lines.iter().zip(&s.rows);
            let known = rows.filter(|(line, _)| line.is_some_and(|line| line != HeldLine::Newer));
            let done = |row: &Option<HeldRow>| row.is_some_and(|row| row.state == State::Succeeded);
            known.into_iter().all(|(_, row)| done(row))
        }),
        sometimes("a call waits held while another runs", |_, s| {
            row(s, |row| row.held) && row(s, |row| row.state == State::Running)
        }),
        sometimes(
            "a call was released, and its pointer is not there yet",
            |_, s| {
                let calls = s.rows.iter().zip(&s.pointers).zip(&s.requests);
                calls.into_iter().any(|((row, of), request)| {
                    let may_run = row.is_some_and(|row| row.may_run());
                    may_run && of.current == Message::Absent && *request == Request::Over
                })
            },
        ),
    ];
    if config.repeats {
        all.push(sometimes("a message of an earlier number finds its call held", |_, s| {
            s.workers.iter().any(|worker| {
                let finds = |call: u8| s.rows[usize::from(call)].is_some_and(|row| row.held);
                matches!(worker.step, HeldStep::NotOurs(taken) if !taken.current && finds(taken.call))
            })
        }));
    }
    if config.lines.contains(&Some(HeldLine::Queue)) {
        all.extend([
            sometimes("a permit is on its way", |_, s| s.permits(0) > 0),
            sometimes("a queue is closed", |_, s| s.dispatchers[0].holds),
        ]);
    }
    if config.lines.contains(&Some(HeldLine::Slots)) {
        all.extend([
            sometimes("a permit is on its way", |_, s| s.permits(0) > 0),
            sometimes("a tenant waits, and its queue is open", |_, s| {
                s.dispatchers[0].tenant_waits && !s.dispatchers[0].holds
            }),
        ]);
    }
    if config.dispatchers > 1 && config.lines.contains(&Some(HeldLine::Tool)) {
        all.push(sometimes("a call was put back into its line", |_, s| {
            s.workers.iter().any(|worker| {
                let held = |call: u8| s.rows[usize::from(call)].is_some_and(|row| row.held);
                matches!(worker.step, HeldStep::Disposing(taken, Disposal::Acknowledge) if taken.current && held(taken.call))
            })
        }));
    }
    if config.lines.contains(&Some(HeldLine::Tool)) && config.workers > 1 {
        all.push(sometimes("two claims have judged the same place", |_, s| {
            let judged = s.workers.iter().filter(
                |worker| matches!(worker.step, HeldStep::Judged(_, _, seen) if seen.free[0].is_some()),
            );
            judged.count() > 1
        }));
    }
    if config.lines.contains(&Some(HeldLine::Tool)) && config.effect == Effect::Once {
        all.push(sometimes(
            "a doubt keeps its place from a held call",
            |_, s| {
                row(s, |row| row.state == State::InDoubt && row.is_live()) && row(s, |row| row.held)
            },
        ));
    }
    if config.shrinks {
        all.push(sometimes("two run under a limit of one", |model, s| {
            s.limit == 1 && live(model, s).count() == 2
        }));
    }
    if config.dispatchers > 1 && config.lines.contains(&Some(HeldLine::Tool)) {
        all.push(sometimes(
            "two dispatchers have counted the same place",
            |_, s| s.dispatchers.iter().all(|one| one.counted.is_some()),
        ));
    }
    all
}

fn sometimes(
    name: &'static str,
    condition: fn(&HeldModel, &HeldState) -> bool,
) -> Property<HeldModel> {
    Property::sometimes(name, condition)
}

fn row(s: &HeldState, is: impl Fn(&HeldRow) -> bool) -> bool {
    s.rows.iter().flatten().any(is)
}

/// Live attempts of the tool that has places.
fn live<'a>(model: &HeldModel, s: &'a HeldState) -> impl Iterator<Item = &'a HeldRow> {
    let calls = model.of_line(HeldLine::Tool);
    calls
        .filter_map(|call| s.rows[call].as_ref())
        .filter(|row| row.is_live())
}

/// Whether every call that came in has ended or is in doubt. What waits in a line of a newer release waits for that.
pub(crate) fn is_decided(model: &HeldModel, s: &HeldState) -> bool {
    let lines = model.config.lines.iter().zip(&s.rows).zip(&s.requests);
    lines.into_iter().all(|((line, row), request)| {
        let newer = *line == Some(HeldLine::Newer);
        let undecided =
            |row: &HeldRow| matches!(row.state, State::Queued | State::Running) && !newer;
        let over = matches!(request, Request::NotSent | Request::Over);
        over && !row.as_ref().is_some_and(undecided)
    })
}

/// Whether, besides, nothing is taken any more that others might need.
pub(crate) fn is_given_back(model: &HeldModel, s: &HeldState) -> bool {
    let back = s.dispatchers.iter().all(|one| {
        let is_open = !one.holds && !one.tenant_waits && one.under_way == 0;
        is_open && one.on_their_way == 0 && one.room == ALLOWANCE
    });
    is_decided(model, s) && back && live(model, s).next().is_none()
}

/// The moves that calls of a configuration make.
pub(crate) fn moves(config: &HeldConfig) -> BTreeSet<(State, State)> {
    use State::{Cancelled, Expired, Failed, InDoubt, Queued, Running, Succeeded};
    let mut moves = vec![
        (Queued, Running),
        (Queued, Expired),
        (Running, Queued),
        (Running, Succeeded),
    ];
    match config.effect {
        Effect::Once => moves.extend([(Running, InDoubt), (InDoubt, Succeeded)]),
        Effect::Idempotent => moves.push((Queued, InDoubt)),
        Effect::Read | Effect::Transaction => {}
    }
    if config.quarantine {
        moves.extend([(Queued, InDoubt), (Running, InDoubt), (InDoubt, Succeeded)]);
    }
    if config.cancel {
        moves.push((Queued, Cancelled));
        // What was asked to stop and did not start: done once, it has failed; otherwise it is cancelled.
        moves.push(match config.effect {
            Effect::Once => (Running, Failed),
            Effect::Read | Effect::Idempotent | Effect::Transaction => (Running, Cancelled),
        });
    }
    moves.into_iter().collect()
}

/// Steps that the rules themselves exclude.
pub(crate) fn impossible(_config: &HeldConfig) -> Vec<HeldAction> {
    Vec::new()
}
