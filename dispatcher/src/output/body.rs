//! What is handed in: a result, or what went wrong; or what a tool has asked for.

use fleet::{
    arguments::Limits,
    canonical,
    ending::LaterAnswer,
    ids::CallId,
    input::InputWanted,
    outcome::ToolFailure,
    said,
    wire::{code::Code, message::Message},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{form, refusal::Refusal};

/// Room for the form around the largest answer.
const FORM_BYTES: usize = 16 * 1024;

pub(super) static FORM: Message = Message::fixed(
    "call_id, token, and result; or error: {message, code}, and perhaps not_done: true beside it; or, where the tool asks, input: {…}",
    "call_id, token，再加 result；或者再加 error: {message, code}，旁边还可以有 not_done: true；如果是工具在询问，则再加 input: {…}",
);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputRequest {
    call_id: String,
    token: String,
    error: Option<HandedInError>,
    #[serde(default)]
    not_done: bool,
}

/// What went wrong, in the words of who hands it in.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HandedInError {
    message: String,
    code: Option<String>,
}

/// What is handed in.
#[derive(Debug)]
pub(super) enum HandedIn {
    /// What came of the call.
    Answer(LaterAnswer),
    /// What its tool has asked for, a JSON object as text.
    Input(String),
}

/// The request; its result stays text, so that no number in it is rewritten.
pub(super) fn read(body: &[u8]) -> Result<(CallId, String, HandedIn), Refusal> {
    let limits = Limits {
        bytes: Limits::ANSWER.bytes + FORM_BYTES,
        ..Limits::ANSWER
    };
    let mut value = form::parse(body, &limits)?;
    let fields = value.as_object_mut();
    let (result, input) = match fields {
        Some(fields) => (fields.remove("result"), fields.remove("input")),
        None => (None, None),
    };
    let asked: OutputRequest = form::of_form(value, &FORM)?;
    let call = form::call_id(&asked.call_id)?;
    let handed_in = match (result, asked.error, input) {
        (Some(result), None, None) if !asked.not_done => {
            HandedIn::Answer(LaterAnswer::Did(canonical::to_text(&result)))
        }
        (None, Some(error), None) => HandedIn::Answer(LaterAnswer::Failed {
            failure: failure(&error)?,
            not_done: asked.not_done,
        }),
        (None, None, Some(input)) if !asked.not_done => HandedIn::Input(told(&input)?),
        (_, _, _) => return Err(form::mismatch(&FORM)),
    };
    Ok((call, asked.token, handed_in))
}

/// What a tool is told, as text.
fn told(input: &Value) -> Result<String, Refusal> {
    let text = canonical::to_text(input);
    if !input.is_object() || text.len() > InputWanted::INPUT_MAX {
        let most = InputWanted::INPUT_MAX;
        let what = said!(
            "input must be an object of at most {most} bytes",
            "input 必须是最多 {most} 字节的对象"
        );
        return Err(Refusal::new(Code::InvalidArguments, what).at("/input"));
    }
    Ok(text)
}

/// What went wrong, as a tool's no.
fn failure(error: &HandedInError) -> Result<ToolFailure, Refusal> {
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
    use super::*;

    const CALL: &str = "01980000-0000-7000-8000-000000000000";

    fn read_body(rest: &Value) -> Result<LaterAnswer, Code> {
        let mut body = json!({"call_id": CALL, "token": "t"});
        for (name, value) in rest.as_object().unwrap() {
            body[name] = value.clone();
        }
        let read = read(body.to_string().as_bytes());
        match read.map_err(|refusal| refusal.code)? {
            (_, _, HandedIn::Answer(answer)) => Ok(answer),
            (_, _, HandedIn::Input(input)) => panic!("{input}"),
        }
    }

    #[test]
    fn an_answer_is_a_result_or_an_error_and_null_is_a_result() {
        assert!(
            matches!(read_body(&json!({"result": null})), Ok(LaterAnswer::Did(text)) if text == "null")
        );
        let failed = read_body(&json!({"error": {"message": "no such file"}}));
        assert!(matches!(
            failed,
            Ok(LaterAnswer::Failed {
                not_done: false,
                ..
            })
        ));
        let proof = read_body(
            &json!({"error": {"message": "no shell", "code": "ENOENT"}, "not_done": true}),
        );
        let Ok(LaterAnswer::Failed {
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
            json!({"result": 1, "input": {}}),
            json!({"input": []}),
            json!({"input": {}, "not_done": true}),
            json!({"input": {"a": "x".repeat(InputWanted::INPUT_MAX)}}),
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
