//! What the server's line means: `["<id>", "<word>", <value>]`.
//!
//! The word comes before the value, and the server writes it when it is true. So an answer that is no JSON, too large or cut off
//! does not undo what the tool did, and a line without a word proves nothing.

use secrecy::SecretString;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{json, value::RawValue};
use worker::executors::{Code, Outcome, ToolFailure, output, redact};

use crate::failure;

/// What an attempt knows about its answer.
pub(crate) struct Expected<'a> {
    /// The id of its request. A line with another one answers something else.
    pub(crate) id: &'a str,
    /// Masked in the tool's own words.
    pub(crate) secrets: &'a [SecretString],
}

/// What is known of the effect.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    /// It did it; the value is the result.
    Done,
    /// It did not do it and will not; the value is a [`No`].
    Refused,
    /// It did not do it and may do it later; the value is a [`No`].
    Busy,
}

/// Why the tool did not do it.
#[derive(Deserialize)]
struct No {
    message: String,
    code: Option<String>,
}

/// The most characters of a tool's code that are kept.
const CODE_MAX: usize = 64;

impl Expected<'_> {
    /// What a line means; `cut` says why it is not whole, where it is not.
    pub(crate) fn outcome(&self, line: &[u8], cut: Option<ToolFailure>) -> Outcome {
        match (self.word(line), cut) {
            (Some((Word::Done, rest)), None) => done(rest),
            (Some((Word::Done, rest)), Some(cut)) => Outcome::Applied {
                result: output::beginning(rest.strip_prefix(b",").unwrap_or(rest), line.len()),
                flaw: Some(match cut.code {
                    Code::OutputTooLarge => cut,
                    _ => failure(Code::OutputInvalid, "its answer broke off"),
                }),
            },
            (Some((Word::Refused, rest)), None) => {
                Outcome::DefiniteFailure(self.no(Code::ToolError, rest))
            }
            (Some((Word::Busy, rest)), None) => {
                Outcome::NotStarted(self.no(Code::Unavailable, rest))
            }
            (_, Some(cut)) => Outcome::Unknown(cut),
            (None, None) => {
                let why = "its answer does not say whether it was done";
                Outcome::Unknown(failure(Code::OutputInvalid, why))
            }
        }
    }

    /// The word, and all that follows it; `None` where the line has none or is not for this attempt.
    fn word<'a>(&self, line: &'a [u8]) -> Option<(Word, &'a [u8])> {
        let rest = line.trim_ascii_start().strip_prefix(b"[")?;
        let (id, rest) = first::<String>(rest)?;
        let rest = rest.trim_ascii_start().strip_prefix(b",")?;
        let (word, rest) = first(rest)?;
        (id == self.id).then_some((word, rest.trim_ascii()))
    }

    /// The tool's own words.
    fn no(&self, code: Code, rest: &[u8]) -> ToolFailure {
        let value = value(rest).and_then(|value| output::json(value).ok());
        let Some(no) = value.and_then(|(value, _)| serde_json::from_str::<No>(value.get()).ok())
        else {
            return failure(code, "it did not say why");
        };
        // Before they are cut: half a secret would not be found.
        let mask = |text: String| redact(&text, self.secrets).unwrap_or(text);
        let code_told = no
            .code
            .map(|code| mask(code).chars().take(CODE_MAX).collect::<String>());
        failure(code, &mask(no.message)).with_details(json!({ "code": code_told }))
    }
}

/// It was done, whatever can be made of the answer.
fn done(rest: &[u8]) -> Outcome {
    if rest == b"]" {
        let result = RawValue::NULL.to_owned();
        return Outcome::Applied { result, flaw: None };
    }
    match output::json(value(rest).unwrap_or_default()) {
        Ok((result, flaw)) => Outcome::Applied { result, flaw },
        Err(why) => Outcome::Applied {
            result: RawValue::NULL.to_owned(),
            flaw: Some(ToolFailure::new(Code::OutputInvalid, why)),
        },
    }
}

/// What stands between the word and the end of a whole line.
fn value(rest: &[u8]) -> Option<&[u8]> {
    rest.strip_prefix(b",")?.strip_suffix(b"]")
}

/// The value at the beginning, and all that follows it.
fn first<T: DeserializeOwned>(bytes: &[u8]) -> Option<(T, &[u8])> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter();
    let value = values.next()?.ok()?;
    Some((value, &bytes[values.byte_offset()..]))
}
