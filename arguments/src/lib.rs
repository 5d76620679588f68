//! Reads, checks and mends the arguments that a language model sends to a tool.
//!
//! [`parse()`] turns bytes into a [`Value`](serde_json::Value) under [`Limits`] and keeps every number exactly as it was sent.
//! [`Schema::compile`] refuses JSON Schemas that would be unsafe or slow to check against. [`Schema::fit`] then returns one of
//! two things: the arguments with defaults filled in and a list of the changes ([`Fitted`]), or what does not fit, worded for
//! the model in English and Chinese ([`Violations`]). [`canonical`] gives equal arguments one text and one hash.
//!
//! ```
//! use arguments::{Coercing, Language, Level, Limits, Rule, Schema, canonical, parse};
//!
//! let schema = parse(
//!     br#"{
//!         "type": "object",
//!         "properties": {
//!             "city": {"type": "string"},
//!             "days": {"type": "integer", "maximum": 14},
//!             "unit": {"enum": ["celsius", "fahrenheit"], "default": "celsius"}
//!         },
//!         "required": ["city"],
//!         "additionalProperties": false
//!     }"#,
//!     &Limits::DEFAULT,
//! )?;
//! let schema = Schema::compile_input(&schema).expect("this schema compiles");
//! let how = Coercing { level: Level::Safe, tool: "get_weather" };
//!
//! // Mended: a text for an integer, and a default.
//! let args = parse(br#"{"city": "Paris", "days": "5"}"#, &Limits::DEFAULT)?;
//! let fitted = schema.fit(args, how).expect("these can only mean one thing");
//! let text = canonical::to_text(&fitted.args);
//! assert_eq!(text, r#"{"city":"Paris","days":5,"unit":"celsius"}"#);
//! let rules: Vec<Rule> = fitted.coercions.iter().map(|coercion| coercion.rule).collect();
//! assert_eq!(rules, [Rule::StringToInteger, Rule::Default]);
//!
//! // Refused: no rule can know what was meant.
//! let args = parse(br#"{"town": "Paris"}"#, &Limits::DEFAULT)?;
//! let violations = schema.fit(args, how).expect_err("the city is missing");
//! assert_eq!(
//!     violations.summary().told(Language::En),
//!     "/city: expected the required property \"city\" (string), found nothing; \
//!      /town: expected only the properties \"city\", \"days\", \"unit\", found string \"Paris\"",
//! );
//! # Ok::<(), arguments::ParseError>(())
//! ```
//!
//! # Exact numbers
//!
//! Numbers are decimals, compared and kept as the text that was sent: 9007199254740993 does not become …992 and 0.10 does
//! not become 0.1. The crate needs `serde_json` with its feature `arbitrary_precision`, which Cargo then switches on for the
//! whole program. Read arguments with [`parse()`] and not with `serde_json`, which respells exponents.
//!
//! # Bounds
//!
//! Everything that grows with an input has a limit: a body ([`Limits`]), a schema (64 KiB, 2,000 values, patterns that run in
//! linear time, and a computed worst case of 10,000 evaluations along one path through an input), one call's mending (64
//! changes, 256 defaults, 64 validations) and its report (16 violations, 2 KiB). Nothing here waits, keeps state between calls,
//! or reads a clock, a file or the network. `fit` of a large value may take milliseconds: in an async program, run it where no
//! other task waits for the thread.
//!
//! # Errors
//!
//! [`ParseError`] (the body is not JSON, or exceeds a limit), [`SchemaProblem`] (the schema is refused) and [`Violations`] (the
//! arguments do not fit) are for the author of the body, the schema or the arguments. There are no others.
//!
//! The modules stand in reading order.

// Words and texts.
pub mod words;

pub mod message;

mod pointer;

mod shorten;

mod nearest;

// Bytes in: the limits, the parser, numbers as the texts they are.
mod limits;

mod number;

mod parse;

// The way back: one text for one value.
mod plain;

pub mod canonical;

// What a tool wants.
mod decimal;

mod kind;

mod schema;

// What does not fit, and the one thing that it can mean.
mod violations;

mod coerce;

pub use self::{
    coerce::{Coercing, Coercion, Fitted, Level, Rule, WRAPPERS},
    limits::Limits,
    message::{Language, Message},
    nearest::nearest,
    parse::{ParseCode, ParseError, has_reserved_key, parse, parse_any},
    pointer::pointer_segment,
    schema::{Inner, Schema, SchemaProblem, count, inner, keywords, unfit_defaults},
    shorten::shorten,
    violations::{Violation, Violations},
    words::UnknownWord,
};
