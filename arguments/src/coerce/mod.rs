//! Mends what a model got slightly wrong, without ever guessing.
//!
//! Valid arguments are never touched, unless they stand in a `wrapper`, of the words that `formats` has, which is taken off or
//! refused. Where validation failed, rules that can mean only one thing are tried, and what they make is accepted only if the
//! whole then validates; else the violations of what was sent are told.
//!
//! `readings` says what one value can mean where another kind is wanted; `ways` turns what the validator says is `wanted`
//! into changes by `rule`, a union's branches included; `mend` makes them, round by round, and gives up where two
//! values could be meant, where `crossed` finds that two were sent in each other's place, or where the changes taken
//! together leave a `doubt`. `removal`, `single`, `relaxed` and `fill` are a rule each.

mod coercion;
mod crossed;
mod doubt;
mod edit;
mod fill;
mod formats;
mod mend;
mod readings;
mod relaxed;
mod removal;
mod rule;
mod single;
mod size;
mod wanted;
mod ways;
mod wrapper;

use serde_json::Value;

use self::edit::Draft;
pub use self::{
    coercion::{Coercing, Coercion, Fitted},
    formats::WRAPPERS,
    rule::{Level, Rule},
};
use crate::{schema::Schema, violations::Violations};

impl Schema {
    /// Arguments that fit, with defaults filled in; changed only where they did not fit or stood in a wrapper.
    ///
    /// The same arguments always give the same. Bounded: at most 64 changes and 256 defaults.
    ///
    /// # Errors
    ///
    /// Everything about the arguments *as they were sent* that does not fit; never empty.
    pub fn fit(&self, args: Value, how: Coercing<'_>) -> Result<Fitted, Violations> {
        let draft = if !wrapper::is_wrapped(self, &args, how.tool) && self.is_valid(&args) {
            Draft::of(args)
        } else {
            mend::mend(self, &args, how).ok_or_else(|| wrapper::refusal(self, &args, how.tool))?
        };
        Ok(self.complete(draft, how.level))
    }

    fn complete(&self, mut draft: Draft, level: Level) -> Fitted {
        if !self.defaults().is_empty() && level != Level::Off {
            let filled = fill::fill(self, &mut draft.args);
            draft
                .changes
                .extend(filled.into_iter().map(|place| (place, Rule::Default)));
        }
        let (args, coercions) = draft.into_parts();
        Fitted { args, coercions }
    }
}

#[cfg(test)]
mod tests;
