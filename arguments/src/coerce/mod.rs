//! Mends what a model got slightly wrong, and never guesses.
//!
//! What is valid is never changed, unless it stands in a `wrapper` of the words in `formats`: it is taken off or refused. Defaults
//! are filled in where a property is absent.
//! Where validation fails, only rules are tried that can mean one thing, and their result is accepted only if the whole then
//! validates. Otherwise the violations of the arguments as sent are reported.
//!
//! `readings` says what one value can mean where another kind is wanted. `ways` turns what the validator `wanted` into changes
//! by `rule`, the branches of a union included. `mend` makes them, round by round. It gives up where two values could be meant,
//! where `crossed` finds that two were sent in each other's place, or where the changes together leave a `doubt`. `removal`,
//! `single`, `relaxed` and `fill` are a rule each.

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
    /// The same arguments always give the same result. Bounded: at most 64 changes and 256 defaults.
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
        Ok(self.complete(draft, how.level, fill::fits))
    }

    /// The same arguments with defaults filled in, unless the level is `off`, whether they fit or not.
    #[must_use]
    pub fn filled(&self, args: Value, level: Level) -> Fitted {
        self.complete(Draft::of(args), level, |_schema, _args| true)
    }

    /// Everything that does not fit where nothing may be changed, a wrapper included; `None`: they fit.
    pub fn misfit(&self, args: &Value, tool: &str) -> Option<Violations> {
        let fits = !wrapper::is_wrapped(self, args, tool) && self.is_valid(args);
        (!fits).then(|| wrapper::refusal(self, args, tool))
    }

    fn complete(
        &self,
        mut draft: Draft,
        level: Level,
        fits: impl Fn(&Self, &Value) -> bool,
    ) -> Fitted {
        if !self.defaults().is_empty() && level != Level::Off {
            let filled = fill::fill(self, &mut draft.args, fits);
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
