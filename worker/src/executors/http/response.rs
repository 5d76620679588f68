//! What an answer means: one pure function from a status and a body to an [`Outcome`].
//!
//! The status decides alone. What follows it can only add words, or make a success unusable.

use std::time::Duration;

use fleet::{
    outcome::{Outcome, ToolFailure},
    wire::code::Code,
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use time::{OffsetDateTime, format_description::well_known::Rfc2822};

use crate::executors::output;

/// A server may ask us to stay away at most this long.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);

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
    Stopped,
}

/// What the attempt came to, given that a status arrived.
pub(super) fn class(rules: &Rules, answer: &Answer) -> Outcome {
    let status = answer.status;
    let fail = |code, message: String| {
        ToolFailure::new(code, message)
            .with_details(json!({"status": status}))
            .with_retry_after(pause(answer))
    };
    let said = || {
        message(rules, answer).unwrap_or_else(|| format!("the tool answered with status {status}"))
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
        End::Stopped => Outcome::Unknown(fail(
            Code::Timeout,
            "the attempt was stopped in the middle of the tool's answer".to_owned(),
        )),
    }
}

/// The one JSON value that a successful answer is.
fn decode(answer: &Answer) -> Result<Box<RawValue>, String> {
    if answer.body.is_empty() || answer.status == 204 {
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
    output::json(body).map(|(value, _mended)| value)
}

fn text(body: &[u8]) -> Result<Box<RawValue>, String> {
    let text = std::str::from_utf8(body)
        .map_err(|_position| "the tool's answer is neither JSON nor UTF-8 text".to_owned())?;
    Ok(to_raw_value(&text.replace('\0', "\u{fffd}")).expect("a text is always JSON"))
}

fn null() -> Box<RawValue> {
    RawValue::NULL.to_owned()
}

/// The tool's own words: `error.message`, `message`, `error`, or `title` and `detail` of RFC 9457.
fn message(rules: &Rules, answer: &Answer) -> Option<String> {
    let body: Value = serde_json::from_slice(&answer.body).ok()?;
    let said = |value: &Value| {
        value
            .as_str()
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let problem = || match (said(&body["title"]), said(&body["detail"])) {
        (Some(title), Some(detail)) => Some(format!("{title}: {detail}")),
        (title, detail) => title.or(detail),
    };
    let text = said(&body["error"]["message"])
        .or_else(|| said(&body["message"]))
        .or_else(|| said(&body["error"]))
        .or_else(problem)?;
    Some(veil(text, &rules.secrets))
}

/// Servers like to repeat the key that they refuse.
fn veil(text: String, secrets: &[SecretString]) -> String {
    let known = secrets
        .iter()
        .map(ExposeSecret::expose_secret)
        .filter(|secret| !secret.is_empty());
    known.fold(text, |text, secret| text.replace(secret, "[secret]"))
}

/// `Retry-After` in seconds, or as a date measured against the server's own `Date`, so that no clock has to agree.
fn pause(answer: &Answer) -> Option<Duration> {
    let text = answer.retry_after.as_deref()?.trim();
    let pause = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_not_a_number) => {
            let date = |text: &str| OffsetDateTime::parse(text.trim(), &Rfc2822).ok();
            let wait = date(text)? - date(answer.date.as_deref()?)?;
            wait.try_into().unwrap_or(Duration::ZERO)
        }
    };
    Some(pause.min(RETRY_AFTER_MAX))
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
            secrets: vec![SecretString::from("hunter2"), SecretString::from("")],
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
            (End::Stopped, Code::Timeout),
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
    fn the_tools_own_words_are_found() {
        for (body, expected) in [
            (
                r#"{"error":{"message":"no such order","code":7}}"#,
                "no such order",
            ),
            (r#"{"message":"no such order"}"#, "no such order"),
            (r#"{"error":"no such order"}"#, "no such order"),
            (
                r#"{"type":"about:blank","title":"Gone","detail":"no order 7"}"#,
                "Gone: no order 7",
            ),
            (r#"{"detail":"no order 7"}"#, "no order 7"),
            (
                r#"{"error":{"message":"key hunter2 is not valid"}}"#,
                "key [secret] is not valid",
            ),
            (r#"{"message":"  "}"#, "the tool answered with status 404"),
            (r#"{"message":7}"#, "the tool answered with status 404"),
            (r#"["message"]"#, "the tool answered with status 404"),
            ("<html>no</html>", "the tool answered with status 404"),
            ("", "the tool answered with status 404"),
        ] {
            let outcome = class(
                &rules(true),
                &answer(404, "application/json", body.as_bytes()),
            );
            let failure = outcome.failure().unwrap();
            assert_eq!(failure.message, expected, "{body}");
            assert_eq!(failure.details, Some(json!({"status": 404})));
        }
        let long = json!({"message": "é".repeat(2_000)}).to_string();
        let outcome = class(
            &rules(true),
            &answer(404, "application/json", long.as_bytes()),
        );
        assert_eq!(
            outcome.failure().unwrap().message.len(),
            ToolFailure::MESSAGE_MAX
        );
    }

    #[test]
    fn a_pause_is_read_in_both_forms() {
        let date = "Wed, 21 Oct 2015 07:28:00 GMT";
        for (retry_after, date, expected) in [
            ("120", None, Some(120_000)),
            (" 0 ", None, Some(0)),
            ("99999999999", None, Some(86_400_000)),
            ("Wed, 21 Oct 2015 07:28:30 GMT", Some(date), Some(30_000)),
            ("Wed, 21 Oct 2015 07:27:00 GMT", Some(date), Some(0)),
            ("Wed, 21 Oct 2015 07:28:30 GMT", None, None),
            ("soon", Some(date), None),
            ("-5", Some(date), None),
            ("", None, None),
        ] {
            let answer = Answer {
                retry_after: Some(retry_after.to_owned()),
                date: date.map(str::to_owned),
                ..answer(503, "application/json", b"")
            };
            let outcome = class(&rules(true), &answer);
            assert_eq!(
                outcome.failure().unwrap().retry_after_ms,
                expected,
                "{retry_after}"
            );
        }
    }
}
