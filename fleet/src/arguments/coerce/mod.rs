//! Mends what a model got slightly wrong, without ever guessing.
//!
//! Valid arguments are never touched, unless they stand in a `wrapper`, which is taken off or refused. Where validation
//! failed, rules that can mean only one thing are tried, and what they make is accepted only if the whole then validates;
//! else the violations of what was sent are told.
//!
//! `rules` says what one value can mean where another kind is wanted; `ways` turns what the validator says is `wanted`
//! into changes by these rules, a union's branches included; `mend` makes them, round by round, and gives up where two
//! values could be meant, where `crossed` finds that two were sent in each other's place, or where the changes taken
//! together leave a `doubt`. `removal`, `single`, `relaxed` and `defaults` are a rule each; `places` knows the schema at a
//! place.

mod crossed;
mod decimal;
mod defaults;
mod doubt;
mod edit;
mod kind;
mod mend;
mod places;
mod pointer;
mod relaxed;
mod removal;
mod rules;
mod single;
mod size;
mod wanted;
mod ways;
mod wrapper;

use serde::Serialize;
use serde_json::Value;

pub(super) use self::defaults::Defaults;
use self::edit::Draft;
pub(crate) use self::wrapper::WRAPPERS;
use super::{Limits, Schema, Violations};
use crate::call::words;

words! {
    /// How one value was changed.
    Rule {
        /// The arguments stood in a wrapper such as `{"arguments": {…}}`.
        Unwrap = "unwrap",
        /// `"5"` for `5`.
        StringToInteger = "string_to_integer",
        /// `"0.5"` for `0.5`.
        StringToNumber = "string_to_number",
        /// `"True"` for `true`.
        StringToBoolean = "string_to_boolean",
        /// The text of a JSON array for the array.
        StringToArray = "string_to_array",
        /// The text of a JSON object for the object.
        StringToObject = "string_to_object",
        /// `5` for `"5"`.
        IntegerToString = "integer_to_string",
        /// `true` for the only one of the allowed words that says so.
        BooleanToString = "boolean_to_string",
        /// `5.0` for `5`, where the schema does not take them for the same.
        FloatToInteger = "float_to_integer",
        /// `null` for an optional property that may not be null.
        NullRemoved = "null_removed",
        /// `""` for an optional property that may not be a string, or only one of some words.
        EmptyRemoved = "empty_removed",
        /// Another case, or space around it, for one of the allowed words.
        EnumMatch = "enum_match",
        /// Text with a code fence, in JSON5 or of Python for an array or an object; `read` only.
        RelaxedJson = "relaxed_json",
        /// A value for an array of it; `read` only.
        ValueToArray = "value_to_array",
        /// An array of one value for the value; `read` only.
        ArrayToValue = "array_to_value",
        /// A property that was not sent, from the schema's `default`.
        Default = "default",
    }
}

impl Rule {
    /// Whether it is for tools that change something in the world, too.
    const fn is_safe(self) -> bool {
        !matches!(
            self,
            Self::RelaxedJson | Self::ValueToArray | Self::ArrayToValue
        )
    }
}

words! {
    /// How much may be changed.
    Level {
        /// Nothing; not even defaults are filled in.
        Off = "off",
        /// What cannot mean anything else.
        Safe = "safe",
        /// The same, and what is harmless where nothing is changed in the world.
        Read = "read",
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Coercion {
    /// JSON pointer to the value as it is now; to where it stood, if it was left out. At most 512 bytes.
    pub path: String,
    /// What was done.
    pub rule: Rule,
}

/// Arguments that fit their schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// What the tool gets.
    pub args: Value,
    /// What was changed in what was sent, in the order of the paths; empty where nothing was.
    pub coercions: Vec<Coercion>,
}

/// Whose arguments they are, and how much of them may be changed.
#[derive(Debug, Clone, Copy)]
pub struct Coercing<'a> {
    /// How much.
    pub level: Level,
    /// The tool's name: some models wrap arguments in it.
    pub tool: &'a str,
}

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
            let filled = defaults::fill(self, &mut draft.args);
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
