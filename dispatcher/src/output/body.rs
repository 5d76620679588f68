//! What a caller's program sends: a result, or what went wrong.

use fleet::{
    arguments::Limits,
    canonical,
    ending::ClientAnswer,
    ids::CallId,
    outcome::ToolFailure,
    wire::{code::Code, message::Message},
};
use serde::Deserialize;
use serde_json::json;

use crate::{form, refusal::Refusal};

/// Room for the form around the largest answer.
const FORM_BYTES: usize = 16 * 1024;

pub(super) static FORM: Message = Message::fixed(
    "call_id, token, and result; or error: {message, code}, and perhaps not_done: true beside it",
    "call_id, token，再加 result；或者再加 error: {message, code}，旁边还可以有 not_done: true",
);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputRequest {
    call_id: String,
    token: String,
    error: Option<ClientError>,
    #[serde(default)]
    not_done: bool,
}

/// What went wrong, in the words of the caller's program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientError {
    message: String,
    code: Option<String>,
}

/// The request; its result stays text, so that no number in it is rewritten.
pub(super) fn read(body: &[u8]) -> Result<(CallId, String, ClientAnswer), Refusal> {
    let limits = Limits {
        bytes: Limits::ANSWER.bytes + FORM_BYTES,
        ..Limits::ANSWER
    };
    let mut value = form::parse(body, &limits)?;
    let fields = value.as_object_mut();
    let result = fields.and_then(|fields| fields.remove("result"));
    let asked: OutputRequest = form::of_form(value, &FORM)?;
    let call = form::call_id(&asked.call_id)?;
    let answer = match (result, asked.error) {
        (Some(result), None) if !asked.not_done => ClientAnswer::Did(canonical::to_text(&result)),
        (None, Some(error)) => ClientAnswer::Failed {
            failure: failure(&error)?,
            not_done: asked.not_done,
        },
        (_, _) => return Err(form::mismatch(&FORM)),
    };
    Ok((call, asked.token, answer))
}

/// What the caller's program says, as a tool's no.
fn failure(error: &ClientError) -> Result<ToolFailure, Refusal> {
    if error.message.trim().is_empty() {
        let what = Message::fixed(
            "error.message must say what went wrong",
            "error.message 必须说明出了什么错",
        );
        return Err(Refusal::of_output(Code::InvalidArguments, what).at("/error/message"));
    }
    let message = Message::verbatim(error.message.clone());
    let mut failure = ToolFailure::new(Code::ToolError, message).bounded();
    if let Some(code) = &error.code {
        if code.is_empty() || code.chars().count() > 64 {
            let what = Message::fixed(
                "error.code must have 1 to 64 characters",
                "error.code 必须有 1 到 64 个字符",
            );
            return Err(Refusal::of_output(Code::InvalidArguments, what).at("/error/code"));
        }
        failure.details = Some(json!({ "code": code }));
    }
    Ok(failure)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const CALL: &str = "01980000-0000-7000-8000-000000000000";

    fn read_body(rest: &Value) -> Result<ClientAnswer, Code> {
        let mut body = json!({"call_id": CALL, "token": "t"});
        for (name, value) in rest.as_object().unwrap() {
            body[name] = value.clone();
        }
        let read = read(body.to_string().as_bytes());
        read.map(|(_, _, answer)| answer)
            .map_err(|refusal| refusal.code)
    }

    #[test]
    fn an_answer_is_a_result_or_an_error_and_null_is_a_result() {
        assert!(
            matches!(read_body(&json!({"result": null})), Ok(ClientAnswer::Did(text)) if text == "null")
        );
        let failed = read_body(&json!({"error": {"message": "no such file"}}));
        assert!(matches!(
            failed,
            Ok(ClientAnswer::Failed {
                not_done: false,
                ..
            })
        ));
        let proof = read_body(
            &json!({"error": {"message": "no shell", "code": "ENOENT"}, "not_done": true}),
        );
        let Ok(ClientAnswer::Failed {
            failure,
            not_done: true,
        }) = proof
        else {
            panic!("{proof:?}")
        };
        assert_eq!(failure.details, Some(json!({"code": "ENOENT"})));
    }

    #[test]
    fn what_is_neither_or_both_is_refused() {
        for wrong in [
            json!({}),
            json!({"result": 1, "error": {"message": "m"}}),
            json!({"result": 1, "not_done": true}),
            json!({"error": "m"}),
            json!({"error": {"message": " "}}),
            json!({"error": {"message": "m", "code": ""}}),
            json!({"error": {"message": "m", "more": 1}}),
            json!({"result": 1, "more": 1}),
        ] {
            assert_eq!(
                read_body(&wrong).unwrap_err(),
                Code::InvalidArguments,
                "{wrong}"
            );
        }
        assert_eq!(
            read_body(&json!({"result": "\0"})).unwrap_err(),
            Code::NulNotAllowed
        );
    }
}
