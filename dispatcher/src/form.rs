//! The body of a request that is not a submission: parsed under limits, then checked against its form.

use fleet::{
    arguments::{self, Limits},
    ids::CallId,
    said,
    wire::{code::Code, message::Message},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::refusal::Refusal;

/// Parses one JSON object within these limits.
pub(crate) fn parse(body: &[u8], limits: &Limits) -> Result<Value, Refusal> {
    arguments::parse(body, limits).map_err(|error| Refusal::new(error.code.into(), error.message))
}

/// Reads this value as a request; `form` says how it should look.
pub(crate) fn of_form<T: DeserializeOwned>(value: Value, form: &Message) -> Result<T, Refusal> {
    serde_json::from_value(value).map_err(|_mismatch| mismatch(form))
}

/// The refusal of a request that does not have this form.
pub(crate) fn mismatch(form: &Message) -> Refusal {
    let what = said!(
        "the body must have the form {{{form}}}; over HTTP without what the path and the token say",
        "请求体必须采用这样的形式：{{{form}}}；通过 HTTP 时不含路径和 token 已说明的内容",
        form
    );
    Refusal::new(Code::InvalidArguments, what)
}

/// Reads a small request of this form.
pub(crate) fn short<T: DeserializeOwned>(body: &[u8], form: &Message) -> Result<T, Refusal> {
    let limits = Limits {
        bytes: 4096,
        ..Limits::DEFAULT
    };
    of_form(parse(body, &limits)?, form)
}

/// Reads a request of this form in which people give reasons.
pub(crate) fn long<T: DeserializeOwned>(body: &[u8], form: &Message) -> Result<T, Refusal> {
    let limits = Limits {
        // A note of 2000 characters, all of them escaped, and the rest.
        bytes: 32 * 1024,
        ..Limits::DEFAULT
    };
    of_form(parse(body, &limits)?, form)
}

/// The call that a request names.
pub(crate) fn call_id(text: &str) -> Result<CallId, Refusal> {
    text.parse().map_err(|_rule| {
        let what = Message::fixed(
            "a call id is a UUIDv7 in hyphenated form",
            "call_id 必须是带连字符的 UUIDv7",
        );
        Refusal::new(Code::InvalidId, what)
    })
}
