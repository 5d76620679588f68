//! What an answer means: one pure function from a status and a body to an [`Outcome`].
//!
//! The status decides the outcome. The body adds only words, or makes a success unusable: one that is too large, broken or late.

use fleet::{
    outcome::{Outcome, ToolFailure},
    said,
    wire::{code::Code, message::Message},
};
use secrecy::SecretString;
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};

use super::words;
use crate::executors::{StopReason, later, output};

/// What the manifest says about answers, and what no message may repeat.
pub(super) struct StatusRules {
    /// Every effect class but `read`.
    pub(super) write: bool,
    pub(super) business_statuses: Vec<u16>,
    pub(super) not_applied_statuses: Vec<u16>,
    /// The tool has taken the call and answers later.
    pub(super) later_statuses: Vec<u16>,
    pub(super) output_limit: usize,
    /// Whether an answer may be a stream of events.
    pub(super) is_stream: bool,
    /// Masked in every message.
    pub(super) secrets: Vec<SecretString>,
}

/// As much of an answer as has arrived.
#[derive(Default)]
pub(in crate::executors) struct HttpAnswer {
    pub(in crate::executors) status: u16,
    pub(in crate::executors) content_type: Option<String>,
    pub(in crate::executors) retry_after: Option<String>,
    pub(in crate::executors) date: Option<String>,
    pub(in crate::executors) body: Vec<u8>,
    pub(in crate::executors) end: BodyEnd,
}

/// How the body ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::executors) enum BodyEnd {
    #[default]
    Whole,
    TooLarge,
    Broken,
    /// A stream of events ended, or went on beyond every bound, without the event that has the answer.
    NoResult,
    TimedOut,
    Stopped(StopReason),
}

/// The outcome of an attempt that got a status.
pub(super) fn class(rules: &StatusRules, answer: &HttpAnswer) -> Outcome {
    let status = answer.status;
    let fail = |code, message: Message| {
        ToolFailure::new(code, message)
            .with_details(json!({"status": status}))
            .with_retry_after(words::pause(
                answer.retry_after.as_deref(),
                answer.date.as_deref(),
            ))
    };
    let said = || {
        let own = words::message(&answer.body, &rules.secrets).map(Message::verbatim);
        own.unwrap_or_else(|| {
            said!(
                "the tool answered with status {status}",
                "工具返回了状态码 {status}"
            )
        })
    };
    let unavailable = || {
        fail(
            Code::Unavailable,
            said!(
                "the tool is not available: it answered with status {status}",
                "工具不可用：它返回了状态码 {status}"
            ),
        )
    };
    match status {
        _ if rules.later_statuses.contains(&status) => later::answers_later(),
        200..=299 => success(rules, answer),
        // Before the business statuses: this list is declared tool by tool, while those have a default that it may overlap.
        _ if rules.not_applied_statuses.contains(&status) && rules.write => {
            Outcome::NotStarted(unavailable())
        }
        _ if rules.not_applied_statuses.contains(&status) => {
            Outcome::DefiniteFailure(unavailable())
        }
        _ if rules.business_statuses.contains(&status) => {
            Outcome::DefiniteFailure(fail(Code::ToolError, said()))
        }
        // A gateway may send any of these after the tool behind it has acted.
        _ if rules.write => Outcome::Unknown(fail(
            Code::Unavailable,
            said!(
                "the tool answered with status {status}, which does not say whether it acted",
                "工具返回了状态码 {status}，这不能说明它是否已经执行"
            ),
        )),
        408 | 504 => Outcome::DefiniteFailure(fail(
            Code::Timeout,
            said!(
                "the tool ran out of time: it answered with status {status}",
                "工具超时：它返回了状态码 {status}"
            ),
        )),
        425 | 429 | 500..=599 => Outcome::DefiniteFailure(unavailable()),
        300..=399 => Outcome::DefiniteFailure(fail(
            Code::ToolError,
            said!(
                "the tool answered with a redirect (status {status}), which is not followed: put the final URL in the manifest",
                "工具返回了重定向（状态码 {status}），而重定向不会被跟随：请在清单中写最终的 URL"
            ),
        )),
        _ => Outcome::DefiniteFailure(fail(Code::ToolError, said())),
    }
}

fn success(rules: &StatusRules, answer: &HttpAnswer) -> Outcome {
    let fail = |code, message: Message| {
        ToolFailure::new(code, message).with_details(json!({"status": answer.status}))
    };
    let limit = rules.output_limit;
    match answer.end {
        BodyEnd::Whole => match decode(answer) {
            Ok((result, mark)) => Outcome::Applied { result, flaw: mark },
            Err(why) => Outcome::Applied {
                result: null(),
                flaw: Some(fail(Code::OutputInvalid, why)),
            },
        },
        // The success holds, so a write was applied, and this beginning of its answer may be the only trace of it.
        BodyEnd::TooLarge if rules.write => {
            let why = said!(
                "the tool did it, but its answer is larger than {limit} bytes; only its beginning was kept",
                "工具已完成操作，但返回的结果超过 {limit} 字节，只保留了开头"
            );
            Outcome::Applied {
                result: output::beginning(&answer.body, limit),
                flaw: Some(fail(Code::OutputTooLarge, why)),
            }
        }
        BodyEnd::TooLarge => {
            let why = said!(
                "the tool's answer is larger than {limit} bytes: ask for less",
                "工具返回的结果超过 {limit} 字节：请减少请求的内容"
            );
            Outcome::DefiniteFailure(fail(Code::OutputTooLarge, why))
        }
        BodyEnd::Broken => Outcome::Unknown(fail(
            Code::Unavailable,
            Message::fixed(
                "the tool's answer broke off in the middle",
                "工具返回结果时中途断开",
            ),
        )),
        // Its status came before it had done anything.
        BodyEnd::NoResult => Outcome::Unknown(fail(
            Code::Unavailable,
            Message::fixed(
                "the tool's stream ended without the event that has its result",
                "工具的事件流在给出结果事件之前就结束了",
            ),
        )),
        BodyEnd::TimedOut => Outcome::Unknown(fail(
            Code::Timeout,
            Message::fixed(
                "the tool's answer was not complete in time",
                "工具没有按时返回完整的结果",
            ),
        )),
        BodyEnd::Stopped(reason) => {
            let word = reason.word();
            let why = said!(
                "the attempt was {word} in the middle of the tool's answer",
                "工具返回结果时，这次尝试中途{word}",
                word
            );
            Outcome::Unknown(fail(reason.code(), why))
        }
    }
}

/// A value, and a flaw where characters of it were replaced.
type Usable = (Box<RawValue>, Option<ToolFailure>);

/// Reads the answer of a success as one JSON value.
fn decode(answer: &HttpAnswer) -> Result<Usable, Message> {
    if answer.status == 204 || answer.body.iter().all(u8::is_ascii_whitespace) {
        return Ok((null(), None));
    }
    let kind = answer
        .content_type
        .as_deref()
        .map(|text| text.split(';').next().unwrap_or(text).trim());
    match kind {
        Some(kind) if is_json(kind) => json(&answer.body),
        Some(kind) => text(kind, &answer.body),
        None => json(&answer.body).or_else(|_not_json| text("", &answer.body)),
    }
}

fn is_json(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    kind == "application/json" || kind == "text/json" || kind.ends_with("+json")
}

fn json(body: &[u8]) -> Result<Usable, Message> {
    output::json(body).map_err(|why| {
        said!(
            "the tool's answer cannot be used: {why}",
            "工具返回的结果无法使用：{why}",
            why
        )
    })
}

/// Invalid characters are replaced only in a text type: another type may be an image.
fn text(kind: &str, body: &[u8]) -> Result<Usable, Message> {
    let is_text = kind.to_ascii_lowercase().starts_with("text/");
    if !is_text && std::str::from_utf8(body).is_err() {
        return Err(Message::fixed(
            "the tool's answer is neither JSON nor UTF-8 text",
            "工具返回的结果既不是 JSON，也不是 UTF-8 文本",
        ));
    }
    let (text, replaced) = output::text(body);
    let value = to_raw_value(&text).expect("a text is always JSON");
    Ok((value, replaced.then(ToolFailure::mended)))
}

fn null() -> Box<RawValue> {
    RawValue::NULL.to_owned()
}

#[cfg(test)]
mod tests;
