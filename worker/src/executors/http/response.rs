//! What an answer means: one pure function from a status and a body to an [`Outcome`].
//!
//! The status decides alone. What follows it can only add words, or make a success unusable.

use fleet::{
    outcome::{Outcome, ToolFailure},
    wire::code::Code,
};
use secrecy::SecretString;
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};

use super::words;
use crate::executors::{StopReason, output};

/// What the manifest says about answers.
pub(super) struct Rules {
    /// Every effect class but `read`.
    pub(super) write: bool,
    pub(super) business_statuses: Vec<u16>,
    pub(super) not_applied_statuses: Vec<u16>,
    pub(super) output_limit: usize,
    /// What no message may repeat.
    pub(super) secrets: Vec<SecretString>,
}

/// As much of an answer as has arrived.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) content_type: Option<String>,
    pub(super) retry_after: Option<String>,
    pub(super) date: Option<String>,
    pub(super) body: Vec<u8>,
    pub(super) end: End,
}

/// How the body ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum End {
    #[default]
    Whole,
    TooLarge,
    Broken,
    TimedOut,
    Stopped(StopReason),
}

/// What the attempt came to, given that a status arrived.
pub(super) fn class(rules: &Rules, answer: &Answer) -> Outcome {
    let status = answer.status;
    let fail = |code, message: String| {
        ToolFailure::new(code, message)
            .with_details(json!({"status": status}))
            .with_retry_after(words::pause(
                answer.retry_after.as_deref(),
                answer.date.as_deref(),
            ))
    };
    let said = || {
        words::message(&answer.body, &rules.secrets)
            .unwrap_or_else(|| format!("the tool answered with status {status}"))
    };
    let unavailable = || {
        fail(
            Code::Unavailable,
            format!("the tool is not available: it answered with status {status}"),
        )
    };
    match status {
        200..=299 => success(rules, answer),
        // Before the business statuses: it is declared tool by tool, while those have a default that it may overlap.
        _ if rules.not_applied_statuses.contains(&status) && rules.write => {
            Outcome::NotStarted(unavailable())
        }
        _ if rules.not_applied_statuses.contains(&status) => {
            Outcome::DefiniteFailure(unavailable())
        }
        _ if rules.business_statuses.contains(&status) => {
            Outcome::DefiniteFailure(fail(Code::ToolError, said()))
        }
        // A gateway may say any of these after the tool behind it has acted.
        _ if rules.write => Outcome::Unknown(fail(
            Code::Unavailable,
            format!("the tool answered with status {status}, which does not say whether it acted"),
        )),
        408 | 504 => Outcome::DefiniteFailure(fail(
            Code::Timeout,
            format!("the tool ran out of time: it answered with status {status}"),
        )),
        425 | 429 | 500..=599 => Outcome::DefiniteFailure(unavailable()),
        300..=399 => Outcome::DefiniteFailure(fail(
            Code::ToolError,
            format!(
                "the tool answered with a redirect (status {status}), which is not followed: put the final URL in the manifest"
            ),
        )),
        _ => Outcome::DefiniteFailure(fail(Code::ToolError, said())),
    }
}

fn success(rules: &Rules, answer: &Answer) -> Outcome {
    let fail = |code, message: String| {
        ToolFailure::new(code, message).with_details(json!({"status": answer.status}))
    };
    let limit = rules.output_limit;
    match answer.end {
        End::Whole => match decode(answer) {
            Ok(result) => Outcome::Applied { result, flaw: None },
            Err(why) => Outcome::Applied {
                result: null(),
                flaw: Some(fail(Code::OutputInvalid, why)),
            },
        },
        // The success stands, so a write was applied. Its result is null rather than a beginning of the answer: half a
        // JSON text helps nobody, and a cut may show what a later mask would have hidden.
        End::TooLarge if rules.write => {
            let why = format!(
                "the tool did it, but its answer is larger than {limit} bytes and was not read"
            );
            Outcome::Applied {
                result: null(),
                flaw: Some(fail(Code::OutputTooLarge, why)),
            }
        }
        End::TooLarge => {
            let why = format!("the tool's answer is larger than {limit} bytes: ask for less");
            Outcome::DefiniteFailure(fail(Code::OutputTooLarge, why))
        }
        End::Broken => Outcome::Unknown(fail(
            Code::Unavailable,
            "the tool's answer broke off in the middle".to_owned(),
        )),
        End::TimedOut => Outcome::Unknown(fail(
            Code::Timeout,
            "the tool's answer was not complete in time".to_owned(),
        )),
        End::Stopped(reason) => Outcome::Unknown(fail(
            reason.code(),
            format!(
                "the attempt was {} in the middle of the tool's answer",
                reason.word()
            ),
        )),
    }
}

/// The one JSON value that a successful answer is.
fn decode(answer: &Answer) -> Result<Box<RawValue>, String> {
    if answer.status == 204 || answer.body.iter().all(u8::is_ascii_whitespace) {
        return Ok(null());
    }
    let kind = answer
        .content_type
        .as_deref()
        .map(|text| text.split(';').next().unwrap_or(text).trim());
    match kind {
        Some(kind) if is_json(kind) => mended(&answer.body),
        Some(_) => text(&answer.body),
        None => mended(&answer.body).or_else(|_not_json| text(&answer.body)),
    }
}

fn is_json(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    kind == "application/json" || kind == "text/json" || kind.ends_with("+json")
}

fn mended(body: &[u8]) -> Result<Box<RawValue>, String> {
    let value =
        output::json(body).map_err(|why| format!("the tool's answer cannot be used: {why}"))?;
    // Mended characters read as U+FFFD, which is mark enough: the answer can be used.
    Ok(value.0)
}

fn text(body: &[u8]) -> Result<Box<RawValue>, String> {
    let text = std::str::from_utf8(body)
        .map_err(|_position| "the tool's answer is neither JSON nor UTF-8 text".to_owned())?;
    Ok(to_raw_value(&text.replace('\0', "\u{fffd}")).expect("a text is always JSON"))
}

fn null() -> Box<RawValue> {
    RawValue::NULL.to_owned()
}

#[cfg(test)]
mod tests {
    use fleet::outcome::OutcomeWord;

    use super::*;

    fn rules(write: bool) -> Rules {
        Rules {
            write,
            business_statuses: vec![400, 404, 409, 422],
            not_applied_statuses: vec![503, 422],
            output_limit: 100,
            secrets: Vec::new(),
        }
    }

    fn answer(status: u16, content_type: &str, body: &[u8]) -> Answer {
        Answer {
            status,
            content_type: Some(content_type.to_owned()),
            body: body.to_vec(),
            ..Answer::default()
        }
    }

    fn of(write: bool, status: u16) -> (OutcomeWord, Option<Code>) {
        let outcome = class(&rules(write), &answer(status, "application/json", b"{}"));
        (
            outcome.word(),
            outcome.failure().map(|failure| failure.code),
        )
    }

    #[test]
    fn each_status_has_its_class() {
        use Code::{Timeout, ToolError, Unavailable};
        use OutcomeWord::{Applied, DefiniteFailure, NotStarted, Unknown};
        for (status, read, write) in [
            (200, (Applied, None), (Applied, None)),
            (202, (Applied, None), (Applied, None)),
            (299, (Applied, None), (Applied, None)),
            (
                101,
                (DefiniteFailure, Some(ToolError)),
                (Unknown, Some(Unavailable)),
            ),
            (
                301,
                (DefiniteFailure, Some(ToolError)),
                (Unknown, Some(Unavailable)),
            ),
            (
                304,
                (DefiniteFailure, Some(ToolError)),
                (Unknown, Some(Unavailable)),
            ),
            (
                400,
                (DefiniteFailure, Some(ToolError)),
                (DefiniteFailure, Some(ToolError)),
            ),
            (
                401,
                (DefiniteFailure, Some(ToolError)),
                (Unknown, Some(Unavailable)),
            ),
            (
                403,
                (DefiniteFailure, Some(ToolError)),
                (Unknown, Some(Unavailable)),
            ),
            (
                404,
                (DefiniteFailure, Some(ToolError)),
                (DefiniteFailure, Some(ToolError)),
            ),
            (
                408,
                (DefiniteFailure, Some(Timeout)),
                (Unknown, Some(Unavailable)),
            ),
            (
                409,
                (DefiniteFailure, Some(ToolError)),
                (DefiniteFailure, Some(ToolError)),
            ),
            (
                422,
                (DefiniteFailure, Some(Unavailable)),
                (NotStarted, Some(Unavailable)),
            ),
            (
                425,
                (DefiniteFailure, Some(Unavailable)),
                (Unknown, Some(Unavailable)),
            ),
            (
                429,
                (DefiniteFailure, Some(Unavailable)),
                (Unknown, Some(Unavailable)),
            ),
            (
                500,
                (DefiniteFailure, Some(Unavailable)),
                (Unknown, Some(Unavailable)),
            ),
            (
                503,
                (DefiniteFailure, Some(Unavailable)),
                (NotStarted, Some(Unavailable)),
            ),
            (
                504,
                (DefiniteFailure, Some(Timeout)),
                (Unknown, Some(Unavailable)),
            ),
            (
                999,
                (DefiniteFailure, Some(ToolError)),
                (Unknown, Some(Unavailable)),
            ),
        ] {
            assert_eq!(of(false, status), read, "read {status}");
            assert_eq!(of(true, status), write, "write {status}");
        }
    }

    #[test]
    fn only_a_declared_status_proves_that_a_write_did_not_happen() {
        for status in 100..=999 {
            let word = of(true, status).0;
            assert_eq!(
                word == OutcomeWord::NotStarted,
                matches!(status, 503 | 422),
                "{status}"
            );
            assert_eq!(
                word == OutcomeWord::DefiniteFailure,
                matches!(status, 400 | 404 | 409),
                "{status}"
            );
            assert_eq!(
                word == OutcomeWord::Applied,
                (200..300).contains(&status),
                "{status}"
            );
        }
    }

    #[test]
    fn an_answer_becomes_one_json_value() {
        let result = |answer: Answer| match class(&rules(true), &answer) {
            Outcome::Applied { result, flaw } => {
                (result.get().to_owned(), flaw.map(|flaw| flaw.code))
            }
            other => panic!("{other:?}"),
        };
        let exact = r#"{"n":9007199254740993}"#;
        let plain = |text: &str| (text.to_owned(), None);
        for (kind, body, expected) in [
            ("application/json", exact, plain(exact)),
            (
                "Application/Problem+JSON; charset=utf-8",
                "[1.10]",
                plain("[1.10]"),
            ),
            ("application/json", "", plain("null")),
            ("text/html", " \r\n", plain("null")),
            ("text/plain", "say \"hi\"", plain(r#""say \"hi\"""#)),
            ("text/plain", "1", plain("\"1\"")),
            ("text/plain", "a\0b", plain("\"a\u{fffd}b\"")),
            (
                "application/json",
                "{oops",
                ("null".to_owned(), Some(Code::OutputInvalid)),
            ),
        ] {
            assert_eq!(
                result(answer(200, kind, body.as_bytes())),
                expected,
                "{kind} {body}"
            );
        }
        assert_eq!(
            result(answer(200, "image/png", b"\x89PNG\xff")).1,
            Some(Code::OutputInvalid)
        );
        assert_eq!(
            result(answer(204, "application/json", b"junk")),
            plain("null")
        );
        let untyped = |body: &str| Answer {
            status: 200,
            body: body.into(),
            ..Answer::default()
        };
        assert_eq!(result(untyped("[1]")), plain("[1]"));
        assert_eq!(result(untyped("hello")), plain("\"hello\""));
    }

    #[test]
    fn a_success_that_breaks_off_is_unknown_and_a_refusal_that_breaks_off_is_a_refusal() {
        for (end, code) in [
            (End::Broken, Code::Unavailable),
            (End::TimedOut, Code::Timeout),
            (End::Stopped(StopReason::Drained), Code::Timeout),
            (End::Stopped(StopReason::Cancelled), Code::Cancelled),
        ] {
            for write in [true, false] {
                let outcome = class(
                    &rules(write),
                    &Answer {
                        end,
                        ..answer(200, "application/json", b"{\"a\":")
                    },
                );
                assert_eq!(outcome.word(), OutcomeWord::Unknown, "{end:?}");
                assert_eq!(outcome.failure().unwrap().code, code, "{end:?}");
                let outcome = class(
                    &rules(write),
                    &Answer {
                        end,
                        ..answer(404, "application/json", b"{\"a\":")
                    },
                );
                assert_eq!(outcome.word(), OutcomeWord::DefiniteFailure, "{end:?}");
            }
        }
    }

    #[test]
    fn a_write_whose_answer_is_too_large_was_applied() {
        let large = |write| {
            class(
                &rules(write),
                &Answer {
                    end: End::TooLarge,
                    ..answer(200, "text/plain", b"x")
                },
            )
        };
        let Outcome::Applied {
            result,
            flaw: Some(flaw),
        } = large(true)
        else {
            panic!()
        };
        assert_eq!((result.get(), flaw.code), ("null", Code::OutputTooLarge));
        assert_eq!(large(false).word(), OutcomeWord::DefiniteFailure);
        assert_eq!(large(false).failure().unwrap().code, Code::OutputTooLarge);
    }

    #[test]
    fn a_refusal_carries_a_bounded_message_the_status_and_the_pause() {
        let refusal = |body: &str| {
            let retry_after = Some("7".to_owned());
            let outcome = class(
                &rules(true),
                &Answer {
                    retry_after,
                    ..answer(404, "text/html", body.as_bytes())
                },
            );
            outcome.failure().cloned().expect("it is refused")
        };
        let failure = refusal("<html>");
        assert_eq!(failure.message, "the tool answered with status 404");
        assert_eq!(
            (failure.details, failure.retry_after_ms),
            (Some(json!({"status": 404})), Some(7_000))
        );
        let long = refusal(&json!({"message": "é".repeat(2_000)}).to_string());
        assert_eq!(long.message.len(), ToolFailure::MESSAGE_MAX);
    }
}
