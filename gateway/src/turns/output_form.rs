//! The form of one output: which call it is for, and one thing that is handed in, with what goes with that. Pure.

use fleet::{
    ids::CallId,
    store::approvals::Ruling,
    wire::{code::Code, message::Message},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, value::RawValue};
use uuid::Uuid;

use crate::{form::Fields, refusal::Refused};

/// What may be handed in: one of these.
const WHAT: [&str; 4] = ["result", "error", "input", "decision"];
/// What goes with a decision alone.
const OF_DECISION: [&str; 3] = ["args_hash", "note", "actor"];
/// What names the call, or proves that it is the client's.
pub(super) const NAMES: [&str; 3] = ["call_id", "approval_request_id", "token"];
/// How the id of a request for a yes begins.
const REQUEST: &str = "mcpr_";
/// The most characters of who decides, and of why.
const ACTOR_MAX: usize = 200;
const NOTE_MAX: usize = 2_000;

/// Checks an output, and says for which call it is.
///
/// # Errors
///
/// Something is wrong, missing, or there twice: what it is is said.
pub(super) fn checked(one: &RawValue, place: usize) -> Result<(Fields, CallId), Refused> {
    let Ok(fields) = Fields::of(one.get()) else {
        let what = Message::fixed("an output is an object", "每个输出必须是对象");
        return Err(wrong(place, "", what));
    };
    is_known(&fields, place)?;
    let call = call_of(&fields, place)?;
    check(&fields, place)?;
    Ok((fields, call))
}

/// Each field is one of those that there are, and stands there once.
fn is_known(fields: &Fields, place: usize) -> Result<(), Refused> {
    for name in fields.names() {
        let mut known = NAMES.iter().chain(&WHAT).chain(&OF_DECISION);
        if !known.any(|known| *known == name) && name != "not_done" {
            let what = Message::fixed(
                "an output has call_id or approval_request_id, one of result, error, input and decision, and what goes with that",
                "一个输出包含 call_id 或 approval_request_id，result、error、input、decision 之一，以及与之相配的字段",
            );
            return Err(wrong(place, name, what));
        }
        if fields.values(name).count() > 1 {
            let what = Message::fixed("the field stands there twice", "这个字段出现了两次");
            return Err(Refused::new(Code::DuplicateKey, what).at(pointer(place, name)));
        }
    }
    Ok(())
}

/// The call that an output names, by its id or by that of the request for a yes that was shown for it.
fn call_of(fields: &Fields, place: usize) -> Result<CallId, Refused> {
    let by_id: Option<CallId> = value(fields, "call_id", place, || {
        Message::fixed(
            "call_id must be the id of a call",
            "call_id 必须是调用的 id",
        )
    })?;
    let request: Option<String> = value(fields, "approval_request_id", place, request_rule)?;
    let by_request = match &request {
        None => None,
        Some(_) if !fields.has("decision") => {
            let what = Message::fixed(
                "what names a request for approval is a decision",
                "指明批准请求的输出必须是 decision",
            );
            return Err(wrong(place, "approval_request_id", what));
        }
        Some(id) => {
            let call = call_of_request(id);
            Some(call.ok_or_else(|| wrong(place, "approval_request_id", request_rule()))?)
        }
    };
    match (by_id, by_request) {
        (Some(call), None) | (None, Some(call)) => Ok(call),
        (Some(call), Some(other)) if call == other => Ok(call),
        (Some(_), Some(_)) => {
            let what = Message::fixed(
                "call_id and approval_request_id are of two calls",
                "call_id 与 approval_request_id 属于两个不同的调用",
            );
            Err(wrong(place, "approval_request_id", what))
        }
        (None, None) => {
            let what = Message::fixed(
                "the output says no call_id, nor an approval_request_id",
                "这个输出既没有 call_id，也没有 approval_request_id",
            );
            Err(wrong(place, "call_id", what))
        }
    }
}

/// The call for which a request for a yes was shown: `mcpr_`, the digits of the call's id, and how often that had spoken.
pub(super) fn call_of_request(id: &str) -> Option<CallId> {
    let (digits, nth) = id.strip_prefix(REQUEST)?.split_once('_')?;
    let is_number = !nth.is_empty() && nth.bytes().all(|byte| byte.is_ascii_digit());
    let call = digits
        .parse::<Uuid>()
        .ok()
        .filter(|_| digits.len() == 32 && is_number)?;
    Some(CallId(call))
}

fn request_rule() -> Message {
    Message::fixed(
        "approval_request_id must be the id of an mcp_approval_request",
        "approval_request_id 必须是某个 mcp_approval_request 的 id",
    )
}

/// What is handed in has its form.
fn check(fields: &Fields, place: usize) -> Result<(), Refused> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct HandedInError {
        message: String,
        #[serde(default)]
        code: Option<String>,
    }

    let mut what = WHAT.into_iter().filter(|what| fields.has(what));
    let (Some(what), None) = (what.next(), what.next()) else {
        let rule = Message::fixed(
            "an output has exactly one of result, error, input and decision",
            "一个输出必须恰好包含 result、error、input、decision 之一",
        );
        return Err(wrong(place, "", rule));
    };
    let is_decision = what == "decision";
    if let Some(name) = OF_DECISION.into_iter().find(|name| fields.has(name))
        && !is_decision
    {
        let rule = Message::fixed(
            "only a decision has args_hash, note and actor",
            "只有 decision 才有 args_hash、note 和 actor",
        );
        return Err(wrong(place, name, rule));
    }
    if fields.has("not_done") && what != "error" {
        let rule = Message::fixed("only an error has not_done", "只有 error 才有 not_done");
        return Err(wrong(place, "not_done", rule));
    }
    value::<String>(fields, "token", place, || {
        Message::fixed("token must be a string", "token 必须是字符串")
    })?;
    value::<bool>(fields, "not_done", place, || {
        Message::fixed(
            "not_done must be true or false",
            "not_done 必须是 true 或 false",
        )
    })?;
    value::<Map<String, Value>>(fields, "input", place, || {
        Message::fixed("input must be an object", "input 必须是对象")
    })?;
    let error_rule = || {
        Message::fixed(
            "error must be {message} or {message, code}, and each says something",
            "error 必须是 {message} 或 {message, code}，且都不能为空",
        )
    };
    let error: Option<HandedInError> = value(fields, "error", place, error_rule)?;
    let says = |text: &String| !text.trim().is_empty();
    if error.is_some_and(|error| !(says(&error.message) && error.code.iter().all(says))) {
        return Err(wrong(place, "error", error_rule()));
    }
    if is_decision {
        return check_decision(fields, place);
    }
    Ok(())
}

fn check_decision(fields: &Fields, place: usize) -> Result<(), Refused> {
    value::<Ruling>(fields, "decision", place, || {
        Message::fixed(
            "decision must be approve or deny",
            "decision 必须是 approve 或 deny",
        )
    })?;
    let hash_rule = || {
        Message::fixed(
            "a decision says by args_hash which arguments it is about: awaiting.args_hash of the call",
            "decision 用 args_hash 说明针对哪些参数：即该调用的 awaiting.args_hash",
        )
    };
    if value::<String>(fields, "args_hash", place, hash_rule)?.is_none() {
        return Err(wrong(place, "args_hash", hash_rule()));
    }
    let texts = [
        (
            "note",
            NOTE_MAX,
            Message::fixed(
                "note must say why, in 1 to 2000 characters",
                "note 必须说明原因，长度为 1 到 2000 个字符",
            ),
        ),
        (
            "actor",
            ACTOR_MAX,
            Message::fixed(
                "actor must say who decides, in 1 to 200 characters",
                "actor 必须说明由谁决定，长度为 1 到 200 个字符",
            ),
        ),
    ];
    for (name, most, rule) in texts {
        let text: Option<String> = value(fields, name, place, || rule.clone())?;
        let fits = |text: String| !text.trim().is_empty() && text.chars().count() <= most;
        if text.is_some_and(|text| !fits(text)) {
            return Err(wrong(place, name, rule));
        }
    }
    Ok(())
}

/// The value of a field as this type, if it is there.
fn value<T: DeserializeOwned>(
    fields: &Fields,
    name: &str,
    place: usize,
    rule: impl Fn() -> Message,
) -> Result<Option<T>, Refused> {
    let Some(value) = fields.values(name).next() else {
        return Ok(None);
    };
    let read = serde_json::from_str(value.get());
    read.map(Some).map_err(|_other| wrong(place, name, rule()))
}

/// The pointer to an output of the body, or to a field of it.
pub(crate) fn pointer(place: usize, field: &str) -> String {
    let mut pointer = format!("/outputs/{place}");
    if !field.is_empty() {
        let field: String = field.chars().take(64).collect();
        pointer.push('/');
        pointer.push_str(&field.replace('~', "~0").replace('/', "~1"));
    }
    pointer
}

/// What is wrong with an output, or with a field of it.
pub(super) fn wrong(place: usize, field: &str, what: Message) -> Refused {
    Refused::new(Code::InvalidArguments, what).at(pointer(place, field))
}

#[cfg(test)]
mod tests {
    use fleet::call::Language;

    use super::*;

    fn of(fields: &str) -> Result<(Fields, CallId), Refused> {
        let one = RawValue::from_string(format!("{{{fields}}}")).unwrap();
        checked(&one, 0)
    }

    #[test]
    fn what_has_another_form_is_refused_and_named() {
        let id = CallId::generate();
        for (fields, path) in [
            ("", "/outputs/0/call_id"),
            (r#""call_id":"x","result":1"#, "/outputs/0/call_id"),
            (r#""call_id":"ID""#, "/outputs/0"),
            (
                r#""call_id":"ID","result":1,"error":{"message":"m"}"#,
                "/outputs/0",
            ),
            (r#""call_id":"ID","result":1,"more":1"#, "/outputs/0/more"),
            (
                r#""call_id":"ID","result":1,"result":1"#,
                "/outputs/0/result",
            ),
            (r#""call_id":"ID","result":1,"note":"n""#, "/outputs/0/note"),
            (
                r#""call_id":"ID","result":1,"not_done":true"#,
                "/outputs/0/not_done",
            ),
            (r#""call_id":"ID","result":1,"token":7"#, "/outputs/0/token"),
            (r#""call_id":"ID","error":"m""#, "/outputs/0/error"),
            (
                r#""call_id":"ID","error":{"message":" "}"#,
                "/outputs/0/error",
            ),
            (r#""call_id":"ID","input":[]"#, "/outputs/0/input"),
            (
                r#""call_id":"ID","decision":"yes","args_hash":"h""#,
                "/outputs/0/decision",
            ),
            (
                r#""call_id":"ID","decision":"deny""#,
                "/outputs/0/args_hash",
            ),
            (
                r#""call_id":"ID","decision":"deny","args_hash":"h","note":"""#,
                "/outputs/0/note",
            ),
        ] {
            let fields = fields.replace("ID", &id.to_string());
            let refused = of(&fields).unwrap_err();
            let error = refused.envelope(Language::En).error.unwrap();
            assert_eq!(error.path.as_deref(), Some(path), "{fields}");
        }
    }
}
