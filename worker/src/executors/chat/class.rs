//! **Next route, or not?** What the answer of a model's server means: one pure table.
//!
//! | what came | then |
//! |---|---|
//! | no status; 408, 409, 425, 429, 5xx; a body that is cut off, empty or no reply; an error inside a success; a stream that is silent for too long | next route |
//! | 401, 403, 404, a redirect | next route, and this one is misconfigured |
//! | 400 or 413 that says that the request is too long | the next route with more room |
//! | any other status of refusal | stop, with the vendor's words |
//! | a body larger than `output_limit` | stop |
//! | stopped, with no content, no call of a tool and no refusal | next route |
//! | a reply | done |

#![deny(clippy::wildcard_enum_match_arm)]

use std::time::Duration;

use fleet::{
    outcome::{Outcome, ToolFailure},
    said,
    wire::{code::Code, message::Message},
};
use secrecy::SecretString;
use serde_json::{
    Map, Value, json,
    value::{RawValue, to_raw_value},
};

use super::dialect::{Dialect, Finish};
use crate::executors::{
    http::{
        response::{BodyEnd, HttpAnswer},
        words,
    },
    output,
};

/// What is done after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RouteVerdict {
    /// It is the answer of the call.
    Done,
    /// Another route may have an answer.
    Next,
    /// The same, and this route needs an operator, as this status says.
    Misconfigured(u16),
    /// Another route may have an answer, if it has more room.
    Larger,
    /// Any other route would say the same.
    Stop,
}

/// What was seen of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeenAnswer {
    /// A status that is no success, and whether its words are that the request is too long.
    Refused { status: u16, is_too_long: bool },
    /// The body broke off.
    Broken,
    /// The stream was silent for too long.
    Silent,
    /// The body is larger than it may be.
    TooLarge,
    /// It is empty, no JSON, or no reply of the protocol.
    Unreadable,
    /// It says that the request has failed.
    Failed,
    /// It is a reply that says nothing.
    Empty,
    /// It is a reply.
    Reply,
}

/// The table.
pub(super) const fn verdict(seen: SeenAnswer) -> RouteVerdict {
    match seen {
        SeenAnswer::Reply => RouteVerdict::Done,
        SeenAnswer::TooLarge => RouteVerdict::Stop,
        SeenAnswer::Broken
        | SeenAnswer::Silent
        | SeenAnswer::Unreadable
        | SeenAnswer::Failed
        | SeenAnswer::Empty => RouteVerdict::Next,
        SeenAnswer::Refused {
            status,
            is_too_long,
        } => match status {
            408 | 409 | 425 | 429 | 500..=u16::MAX => RouteVerdict::Next,
            // A redirect is not followed: the URL is not that of a model.
            401 | 403 | 404 | 0..=399 => RouteVerdict::Misconfigured(status),
            400 | 413 if is_too_long => RouteVerdict::Larger,
            400..=499 => RouteVerdict::Stop,
        },
    }
}

/// A reply, and what of it is decided by.
#[derive(Debug)]
pub(super) struct ModelReply {
    /// As it came, in every digit.
    pub(super) raw: Box<RawValue>,
    /// Whether characters of it were replaced.
    pub(super) flaw: Option<ToolFailure>,
    pub(super) object: Map<String, Value>,
}

impl ModelReply {
    /// Puts another object in its place.
    pub(super) fn replace(&mut self, object: Map<String, Value>) {
        self.raw = to_raw_value(&object).expect("it is made of JSON, and its names are texts");
        self.object = object;
    }
}

/// An answer that was judged.
#[derive(Debug)]
pub(super) enum JudgedAnswer {
    Reply(Box<ModelReply>),
    /// What is done, what it came to, and the object that was there instead of a reply, if it was one: that may have been paid for.
    Failed(RouteVerdict, Outcome, Option<Box<Map<String, Value>>>),
}

/// What came of a request on a route.
#[derive(Debug)]
pub(super) enum RouteAnswer {
    Judged(JudgedAnswer),
    /// The attempt is over.
    Over(Outcome),
}

/// Judges an answer that has a status, and whose attempt is not over.
pub(super) fn judge(
    dialect: &dyn Dialect,
    answer: &HttpAnswer,
    output_limit: usize,
    secrets: &[SecretString],
) -> JudgedAnswer {
    let failed = FailedAnswer {
        answer,
        output_limit,
        secrets,
    };
    let (seen, reply) = look(dialect, answer);
    match reply {
        Ok(reply) if seen == SeenAnswer::Reply => JudgedAnswer::Reply(Box::new(reply)),
        reply => {
            let (object, why) = match reply {
                Ok(reply) => (Some(Box::new(reply.object)), None),
                Err(why) => (None, Some(why)),
            };
            JudgedAnswer::Failed(verdict(seen), failed.outcome(seen, why), object)
        }
    }
}

/// Judges a stream that was silent for so long, before its first chunk or behind one.
pub(super) fn silent(limit: Duration, has_begun: bool) -> JudgedAnswer {
    let what = if has_begun {
        said!(
            "the model's stream was silent for {limit:?}",
            "模型的流已有 {limit:?} 没有任何内容"
        )
    } else {
        said!(
            "the model's stream did not begin within {limit:?}",
            "模型的流没有在 {limit:?} 内开始"
        )
    };
    let failure = ToolFailure::new(Code::Timeout, what);
    JudgedAnswer::Failed(verdict(SeenAnswer::Silent), Outcome::Unknown(failure), None)
}

/// What is seen, and the reply or why there is none.
fn look(dialect: &dyn Dialect, answer: &HttpAnswer) -> (SeenAnswer, Result<ModelReply, Message>) {
    let none = || Message::fixed("there is no reply", "没有回复");
    if !(200..300).contains(&answer.status) {
        let refused = SeenAnswer::Refused {
            status: answer.status,
            is_too_long: is_too_long(&answer.body),
        };
        return (refused, Err(none()));
    }
    match answer.end {
        BodyEnd::Whole => {}
        BodyEnd::TooLarge => return (SeenAnswer::TooLarge, Err(none())),
        BodyEnd::Broken | BodyEnd::NoResult | BodyEnd::TimedOut | BodyEnd::Stopped(_) => {
            return (SeenAnswer::Broken, Err(none()));
        }
    }
    let reply = match read(&answer.body) {
        Ok(reply) => reply,
        Err(why) => return (SeenAnswer::Unreadable, Err(why)),
    };
    if dialect.has_failed(&reply.object) {
        return (SeenAnswer::Failed, Ok(reply));
    }
    if dialect.answer(&reply.object).is_none() {
        return (SeenAnswer::Unreadable, Ok(reply));
    }
    let says_nothing =
        dialect.finish(&reply.object) == Finish::Stop && dialect.is_empty(&reply.object);
    let seen = if says_nothing {
        SeenAnswer::Empty
    } else {
        SeenAnswer::Reply
    };
    (seen, Ok(reply))
}

fn read(body: &[u8]) -> Result<ModelReply, Message> {
    let (raw, flaw) = output::json(body)?;
    let object: Map<String, Value> = serde_json::from_str(raw.get())
        .map_err(|_no_object| Message::fixed("it is not a JSON object", "它不是 JSON 对象"))?;
    Ok(ModelReply { raw, flaw, object })
}

/// An answer that becomes a failure.
struct FailedAnswer<'a> {
    answer: &'a HttpAnswer,
    output_limit: usize,
    secrets: &'a [SecretString],
}

impl FailedAnswer<'_> {
    fn outcome(&self, seen: SeenAnswer, why: Option<Message>) -> Outcome {
        match seen {
            SeenAnswer::Refused { status, .. } => Outcome::DefiniteFailure(self.refused(status)),
            SeenAnswer::Broken | SeenAnswer::Silent => Outcome::Unknown(self.failure(
                Code::Unavailable,
                Message::fixed(
                    "the model's answer broke off in the middle",
                    "模型的回答中途断开",
                ),
            )),
            SeenAnswer::TooLarge => {
                let limit = self.output_limit;
                let what = said!(
                    "the model's answer is larger than {limit} bytes",
                    "模型的回答超过 {limit} 字节"
                );
                Outcome::DefiniteFailure(self.failure(Code::OutputTooLarge, what))
            }
            // It has an answer, whatever that is worth.
            SeenAnswer::Unreadable => {
                let why = why.unwrap_or_else(|| {
                    Message::fixed(
                        "it is no reply of the tool's protocol",
                        "它不是该工具所用协议的回复",
                    )
                });
                let what = said!(
                    "the model's answer cannot be used: {why}",
                    "模型的回答无法使用：{why}",
                    why
                );
                useless(self.failure(Code::OutputInvalid, what))
            }
            SeenAnswer::Empty | SeenAnswer::Reply => {
                let what = Message::fixed(
                    "the model answered with nothing: no text, no call of a tool and no refusal",
                    "模型没有回答任何内容：没有文本、没有工具调用，也没有拒绝",
                );
                useless(self.failure(Code::OutputInvalid, what))
            }
            // Without its status, which says that all is well.
            SeenAnswer::Failed => {
                let what = self.words().unwrap_or_else(|| {
                    Message::fixed(
                        "the model's server answered with an error and the status of a success",
                        "模型服务器返回了错误，状态码却表示成功",
                    )
                });
                let failure = ToolFailure::new(Code::Unavailable, what);
                Outcome::DefiniteFailure(failure.with_retry_after(self.pause()))
            }
        }
    }

    fn refused(&self, status: u16) -> ToolFailure {
        let said = || {
            self.words().unwrap_or_else(|| {
                said!(
                    "the model's server answered with status {status}",
                    "模型服务器返回了状态码 {status}"
                )
            })
        };
        match status {
            408 | 504 => self.failure(
                Code::Timeout,
                said!(
                    "the model ran out of time: its server answered with status {status}",
                    "模型超时：其服务器返回了状态码 {status}"
                ),
            ),
            409 | 425 | 429 | 500..=u16::MAX => self.failure(
                Code::Unavailable,
                said!(
                    "the model is not available: its server answered with status {status}",
                    "模型不可用：其服务器返回了状态码 {status}"
                ),
            ),
            // Nothing that a caller could send is right there.
            0..=399 | 401 | 403 | 404 => {
                let words = said();
                let what = said!(
                    "the model's server says that the route is wrong (status {status}); an operator has to look at its key, its model and its URL: {words}",
                    "模型服务器表示该路由有误（状态码 {status}）；需要运维人员检查其密钥、模型和 URL：{words}",
                    words
                );
                self.failure(Code::Unavailable, what).for_operators()
            }
            400..=499 => self.failure(Code::ToolError, said()),
        }
    }

    fn failure(&self, code: Code, message: Message) -> ToolFailure {
        ToolFailure::new(code, message)
            .with_details(json!({"status": self.answer.status}))
            .with_retry_after(self.pause())
    }

    fn words(&self) -> Option<Message> {
        words::message(&self.answer.body, self.secrets).map(Message::verbatim)
    }

    fn pause(&self) -> Option<Duration> {
        let (retry_after, date) = (&self.answer.retry_after, &self.answer.date);
        words::pause(retry_after.as_deref(), date.as_deref())
    }
}

fn useless(flaw: ToolFailure) -> Outcome {
    Outcome::Applied {
        result: to_raw_value(&()).expect("null is JSON"),
        flaw: Some(flaw),
    }
}

/// Whether a refusal says that the request has more tokens than the model takes, by the codes and the words that vendors have for it.
fn is_too_long(body: &[u8]) -> bool {
    const CODES: [&str; 3] = [
        "context_length_exceeded",
        "exceed_context_size_error",
        "model_context_window_exceeded",
    ];
    const WORDS: [&str; 8] = [
        "context length",
        "context window",
        "context limit",
        "context size",
        "prompt is too long",
        "input is too long",
        "too many input tokens",
        "maximum number of input tokens",
    ];
    let Some(body) = output::json(body).ok().and_then(|(body, _mended)| {
        let body: Option<Value> = serde_json::from_str(body.get()).ok();
        body
    }) else {
        return false;
    };
    let place = |path| body.pointer(path).and_then(Value::as_str);
    let codes = ["/error/code", "/error/type", "/code", "/type"];
    let has_code = codes
        .into_iter()
        .filter_map(place)
        .any(|code| CODES.contains(&code));
    let texts = ["/error/message", "/message", "/error", "/detail"];
    let mut texts = texts.into_iter().filter_map(place);
    has_code
        || texts.any(|text| {
            let text = text.to_lowercase();
            WORDS.iter().any(|words| text.contains(words))
        })
}

#[cfg(test)]
mod tests;
