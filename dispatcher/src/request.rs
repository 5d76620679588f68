//! The body of a request that is not a submission: parsed under limits, then held against its form.

use fleet::{
    arguments::{self, Limits},
    ids::CallId,
    wire::code::Code,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::answer::Refusal;

/// One JSON object within these limits.
pub(crate) fn parse(body: &[u8], limits: &Limits) -> Result<Value, Refusal> {
    arguments::parse(body, limits).map_err(|error| Refusal::new(error.code, &error.message))
}

/// The request that this value is; `form` says what it should be.
pub(crate) fn of_form<T: DeserializeOwned>(value: Value, form: &str) -> Result<T, Refusal> {
    serde_json::from_value(value).map_err(|_mismatch| {
        let what = format!("the body must have the form {{{form}}}");
        Refusal::new(Code::InvalidArguments, &what)
    })
}

/// The call that a request names.
pub(crate) fn call_id(text: &str) -> Result<CallId, Refusal> {
    text.parse()
        .map_err(|_rule| Refusal::new(Code::InvalidId, "a call id is a UUIDv7 in hyphenated form"))
}
