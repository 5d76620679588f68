//! The rules by which a value may be changed, and how many of them may be used.

use crate::words::words;

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
        /// The text of a JSON array, for the array.
        StringToArray = "string_to_array",
        /// The text of a JSON object, for the object.
        StringToObject = "string_to_object",
        /// `5` for `"5"`.
        IntegerToString = "integer_to_string",
        /// `true` for the only allowed word that means it.
        BooleanToString = "boolean_to_string",
        /// `5.0` for `5`, where the schema distinguishes them.
        FloatToInteger = "float_to_integer",
        /// `null` for an optional property that may not be null.
        NullRemoved = "null_removed",
        /// `""` for an optional property that may not be a string, or only one of some words.
        EmptyRemoved = "empty_removed",
        /// Another case, or space around it, for one of the allowed words.
        EnumMatch = "enum_match",
        /// A text with a code fence, in JSON5 or of Python, for an array or an object; `read` only.
        RelaxedJson = "relaxed_json",
        /// A value for an array of such values; `read` only.
        ValueToArray = "value_to_array",
        /// An array of one value for the value; `read` only.
        ArrayToValue = "array_to_value",
        /// A property that was not sent, from the schema's `default`.
        Default = "default",
    }
}

impl Rule {
    /// Whether it may be used for tools with an effect too.
    pub(super) const fn is_safe(self) -> bool {
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
        /// Only changes that cannot mean anything else: for any tool.
        Safe = "safe",
        /// More rules, for tools that only read: a mistake by them has no effect.
        Read = "read",
    }
}
