//! **Why is this call not running, or not finished, and how did it end?** One reason, the first that holds, from what the
//! views say of it.
//!
//! `look` reads the views into `facts`. `waiting` has the reasons of a call without an attempt, `running` of a call with one, `awaiting`
//! of one that waits for somebody outside the fleet, `ended` of a call that is over, and `dealt` what was done about it since;
//! `explanation` is the result.

mod facts;

mod look;

mod explanation;

mod follows;
mod rates;
mod waiting;

mod running;

mod awaiting;

mod dealt;
mod ended;

use fleet::call::State;

pub use self::{
    explanation::Explanation,
    facts::Facts,
    look::{facts, facts_of},
};

/// The one reason.
pub fn explain(facts: &Facts) -> Explanation {
    match facts.state {
        State::Queued => waiting::queued(facts),
        State::Running => running::running(facts),
        State::InDoubt => running::in_doubt(facts),
        State::AwaitingClient => awaiting::awaiting(facts),
        State::Succeeded | State::Failed | State::Cancelled | State::Expired => ended::ended(facts),
    }
}

#[cfg(test)]
mod tests;
