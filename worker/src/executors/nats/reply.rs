//! What a reply means: one pure function from its headers and body to an [`Outcome`].
//!
//! The headers alone decide the outcome. The body adds only words, or makes a success unusable.

use async_nats::{HeaderMap, StatusCode};
use bytes::Bytes;
use fleet::{
    bus::malformed::is_malformed,
    outcome::{Outcome, ToolFailure},
    said,
    wire::{code::Code, message::Message},
};
use serde_json::{Value, json, value::RawValue};

use crate::executors::{later, output, refusal};

/// The part of a reply that is looked at.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// Whether its headers cannot be read.
    pub(super) malformed: bool,
    /// The status in the first line of its headers, which NATS itself sets.
    pub(super) status: Option<u16>,
    /// `Nats-Service-Error-Code` as it came; empty where there is only a text.
    pub(super) code: Option<String>,
    /// `Nats-Service-Error`.
    pub(super) text: Option<String>,
    /// Whether the service says that it answers later.
    pub(super) is_deferred: bool,
    pub(super) body: Bytes,
}

impl Reply {
    pub(super) fn read(message: async_nats::Message) -> Self {
        let headers = message.headers.as_ref();
        let text = headers.and_then(|headers| header(headers, "Nats-Service-Error"));
        let code = headers.and_then(|headers| header(headers, "Nats-Service-Error-Code"));
        let deferred = headers.and_then(|headers| header(headers, later::DEFERRED));
        Self {
            malformed: is_malformed(&message),
            is_deferred: deferred.is_some_and(|said| said.eq_ignore_ascii_case("true")),
            status: message.status.map(|status| status.as_u16()),
            code: code.or_else(|| text.is_some().then(String::new)),
            text,
            body: message.payload,
        }
    }
}

/// The first value of a header, without control characters. Upper and lower case count alike: some services write it otherwise.
fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    let spelled = |known: &&str| known.eq_ignore_ascii_case(name);
    let mut values = headers.iter();
    let (_, values) = values.find(|(known, _)| spelled(&known.as_ref()))?;
    Some(printable(values.first()?.as_str().trim()))
}

/// The text without control characters, at most as long as a message may be.
fn printable(text: &str) -> String {
    let mut printable = String::new();
    for character in text.chars() {
        if printable.len() > ToolFailure::MESSAGE_MAX {
            break;
        }
        if character.is_control() {
            printable.extend(character.escape_default());
        } else {
            printable.push(character);
        }
    }
    printable
}

/// Only the message of a refusal is read.
const REFUSAL_MAX: usize = 64 * 1024;
/// As a service's error code: it has not begun. As the server's status: there is no service.
const NOT_STARTED: u16 = 503;

/// The outcome of an attempt that got a reply.
pub(super) fn class(reply: &Reply, output_limit: usize) -> Outcome {
    if reply.malformed {
        let what = Message::fixed(
            "the headers of the service's answer cannot be read, so it does not say whether the service acted",
            "无法读取服务返回结果的消息头，因此不能说明服务是否已经执行",
        );
        return Outcome::Unknown(ToolFailure::new(Code::Unavailable, what));
    }
    if let Some(code) = &reply.code {
        return match code.parse::<u16>() {
            Ok(status @ 400..=499) => Outcome::DefiniteFailure(no(status, reply)),
            Ok(NOT_STARTED) => {
                let silent = Message::fixed("the service is not available", "服务不可用");
                let said = said(reply, silent);
                Outcome::NotStarted(failure(Code::Unavailable, said, NOT_STARTED.into()))
            }
            Ok(status) => Outcome::Unknown(unclear(status.into(), reply)),
            Err(_not_a_code) => Outcome::Unknown(unclear(short(code), reply)),
        };
    }
    if reply.is_deferred {
        return later::answers_later();
    }
    match reply.status {
        None => answer(&reply.body, output_limit),
        Some(status) if status == StatusCode::NO_RESPONDERS.as_u16() && reply.body.is_empty() => {
            let what = Message::fixed(
                "no service listens on the tool's subject",
                "没有服务在监听工具的 subject",
            );
            Outcome::NotStarted(failure(Code::Unavailable, what, status.into()))
        }
        Some(status) => Outcome::Unknown(unclear(status.into(), reply)),
    }
}

/// The outcome of a success. Whatever is wrong with the answer, the tool did it.
fn answer(body: &[u8], output_limit: usize) -> Outcome {
    let flawed = |result, code, why: Message| Outcome::Applied {
        result,
        flaw: Some(ToolFailure::new(code, why)),
    };
    if body.len() > output_limit {
        let why = said!(
            "the service's answer is larger than {output_limit} bytes",
            "服务返回的结果超过 {output_limit} 字节"
        );
        return flawed(
            output::beginning(body, output_limit),
            Code::OutputTooLarge,
            why,
        );
    }
    match output::json(body) {
        Ok((result, mark)) => Outcome::Applied { result, flaw: mark },
        Err(problem) => flawed(
            RawValue::NULL.to_owned(),
            Code::OutputInvalid,
            said!(
                "the service's answer cannot be used: {problem}",
                "服务返回的结果无法使用：{problem}",
                problem
            ),
        ),
    }
}

/// The failure of a service that said no: the words of its body as a program writes them, else those of the header.
fn no(status: u16, reply: &Reply) -> ToolFailure {
    let spoken = (reply.body.len() <= REFUSAL_MAX).then(|| refusal::read(&reply.body));
    let (message, code) = match spoken.flatten() {
        Some((message, code)) => (Message::verbatim(message), code),
        None => (said(reply, refusal::NO_REASON), None),
    };
    let mut details = json!({ "status": status });
    if let Some(code) = code {
        details["code"] = Value::String(code);
    }
    ToolFailure::new(Code::ToolError, message).with_details(details)
}

/// An error that does not say whether the service acted.
fn unclear(status: Value, reply: &Reply) -> ToolFailure {
    let what = Message::fixed(
        "the service answered with an error that does not say whether it acted",
        "服务返回了错误，这个错误不能说明它是否已经执行",
    );
    let mut failure = failure(Code::Unavailable, what, status);
    if let (Some(Value::Object(details)), Some(text)) = (&mut failure.details, &reply.text) {
        details.insert("said".to_owned(), short(text));
    }
    failure
}

fn said(reply: &Reply, otherwise: Message) -> Message {
    let text = reply.text.clone().filter(|text| !text.is_empty());
    text.map_or(otherwise, Message::verbatim)
}

fn failure(code: Code, message: Message, status: Value) -> ToolFailure {
    ToolFailure::new(code, message).with_details(json!({ "status": status }))
}

fn short(text: &str) -> Value {
    let mut text = text.to_owned();
    text.truncate(text.floor_char_boundary(ToolFailure::MESSAGE_MAX));
    Value::String(text)
}

#[cfg(test)]
mod tests {
    use fleet::outcome::OutcomeWord;

    use super::*;

    fn error(code: &str, text: &str, body: &str) -> Reply {
        Reply {
            malformed: false,
            status: None,
            code: Some(code.to_owned()),
            text: Some(text.to_owned()),
            is_deferred: false,
            body: Bytes::copy_from_slice(body.as_bytes()),
        }
    }

    fn plain(body: &[u8]) -> Reply {
        Reply {
            body: Bytes::copy_from_slice(body),
            ..Reply::default()
        }
    }

    fn word(reply: &Reply) -> (OutcomeWord, Option<Code>) {
        let outcome = class(reply, 100);
        (outcome.word(), outcome.failure().map(|f| f.code))
    }

    #[test]
    fn each_code_has_its_class() {
        use OutcomeWord::{DefiniteFailure, NotStarted, Unknown};
        for code in ["400", "404", "409", "422", "499"] {
            let expected = (DefiniteFailure, Some(Code::ToolError));
            assert_eq!(word(&error(code, "no", "")), expected, "{code}");
        }
        let expected = (NotStarted, Some(Code::Unavailable));
        assert_eq!(word(&error("503", "busy", "")), expected);
        for code in [
            "500",
            "502",
            "504",
            "599",
            "200",
            "0",
            "399",
            "600",
            "4",
            "",
            "E1",
            "4xx",
            "404.0",
            "-404",
            "+x",
            "99999999999999999999",
        ] {
            let expected = (Unknown, Some(Code::Unavailable));
            assert_eq!(word(&error(code, "broken", "{}")), expected, "{code:?}");
        }
    }

    #[test]
    fn only_the_status_of_no_responders_without_a_body_proves_that_nobody_listens() {
        let status = |status, body: &[u8]| Reply {
            status: Some(status),
            ..plain(body)
        };
        assert_eq!(
            word(&status(503, b"")),
            (OutcomeWord::NotStarted, Some(Code::Unavailable))
        );
        for reply in [
            status(503, b"{}"),
            status(408, b""),
            status(404, b"{}"),
            status(200, b"{}"),
        ] {
            let expected = (OutcomeWord::Unknown, Some(Code::Unavailable));
            assert_eq!(word(&reply), expected, "{reply:?}");
        }
    }

    #[test]
    fn an_answer_is_one_json_value_and_the_effect_stands_whatever_it_is() {
        let exact = br#"{"n":9007199254740993,"p":1.10}"#;
        let Outcome::Applied { result, flaw: None } = class(&plain(exact), 100) else {
            panic!("it is applied");
        };
        assert_eq!(result.get().as_bytes(), exact);
        for garbage in [b"".as_slice(), b"{", b"\xff", b"{} {}", b"hello"] {
            let expected = (OutcomeWord::Applied, Some(Code::OutputInvalid));
            assert_eq!(word(&plain(garbage)), expected, "{garbage:?}");
        }
        let expected = (OutcomeWord::Applied, Some(Code::OutputTooLarge));
        assert_eq!(word(&plain(&[b'1'; 101])), expected);
        assert_eq!(word(&plain(&[b'1'; 100])), (OutcomeWord::Applied, None));
    }

    #[test]
    fn a_no_has_the_services_words_and_its_status() {
        let no = |text: &str, body: &str| {
            let outcome = class(&error("409", text, body), 100);
            outcome.failure().cloned().expect("it is a no")
        };
        let spoken = no("header", r#"{"error":{"message":"sold out","code":"E1"}}"#);
        assert_eq!(
            (spoken.message.english(), spoken.details),
            ("sold out", Some(json!({"status": 409, "code": "E1"})))
        );
        let silent = no("sold out", "<html>");
        assert_eq!(
            (silent.message.english(), silent.details),
            ("sold out", Some(json!({"status": 409})))
        );
        assert_eq!(
            no("", "").message.english(),
            "the tool said no and gave no reason"
        );
        let huge = format!(r#"{{"error":{{"message":"{}"}}}}"#, "x".repeat(REFUSAL_MAX));
        assert_eq!(no("short", &huge).message.english(), "short");
    }

    #[test]
    fn a_header_is_found_however_it_is_spelled_and_hurts_nobody() {
        let message = |name: &str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value);
            Reply::read(async_nats::Message {
                subject: "inbox".into(),
                reply: None,
                payload: Bytes::new(),
                headers: Some(headers),
                status: None,
                description: None,
                length: 0,
            })
        };
        for name in [
            "Nats-Service-Error-Code",
            "nats-service-error-code",
            "NATS-SERVICE-ERROR-CODE",
        ] {
            assert_eq!(
                word(&message(name, " 404 ")).0,
                OutcomeWord::DefiniteFailure,
                "{name}"
            );
        }
        let only_text = message("nats-service-error", "a\u{1b}[2J\u{7f}");
        assert_eq!(word(&only_text).0, OutcomeWord::Unknown);
        assert_eq!(only_text.text.as_deref(), Some("a\\u{1b}[2J\\u{7f}"));
        let huge = message("Nats-Service-Error", &"\u{7f}".repeat(1_000_000));
        assert!(huge.text.expect("a text").len() < 1_000);
    }
}
