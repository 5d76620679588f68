//! What is asked of clients, and what their answers come to.

use bytes::Bytes;
use serde_json::json;

use super::*;

const ALL: Askable = Askable {
    form: true,
    url: true,
    sampling: true,
    sampling_with_tools: true,
    roots: true,
};
const NONE: Askable = Askable {
    form: false,
    url: false,
    sampling: false,
    sampling_with_tools: false,
    roots: false,
};

fn question(awaiting: &Value) -> Option<CallQuestion> {
    let envelope = json!({
        "call_id": "01980000-0000-7000-8000-000000000000", "tool": "charge", "state": "awaiting_client", "awaiting": awaiting,
    });
    let sent = br#"{"amount":1.10,"to":"a\u202eb"}"#;
    CallQuestion::of(envelope.to_string().as_bytes(), Some(sent), Language::En)
}

fn responses(of: &Value) -> RawMembers {
    RawMembers::of(&Bytes::from(of.to_string())).unwrap()
}

fn asked(question: &CallQuestion, of: Askable) -> Value {
    match question.asks(of, Language::En) {
        ClientAsked::Requests(requests) => requests
            .into_iter()
            .map(|(name, request)| (name, serde_json::to_value(request).unwrap()))
            .collect(),
        ClientAsked::Lacks(lacked) => json!({ "lacks": lacked }),
        ClientAsked::Nothing => Value::Null,
    }
}

#[test]
fn a_yes_is_asked_for_with_the_exact_arguments_and_decides_about_those() {
    let awaiting = json!({"for": "approval", "by": "caller", "token": "secret", "args_hash": "abc", "reason": "Dear."});
    let question = question(&awaiting).unwrap();
    let asks = asked(&question, ALL);
    let message = asks["approval"]["params"]["message"].as_str().unwrap();
    assert!(
        message.contains("charge") && message.contains("Dear."),
        "{message}"
    );
    assert!(
        message.contains("1.10") && message.contains("a\\u202eb"),
        "{message}"
    );
    assert!(!asks.to_string().contains("secret"));
    assert_eq!(asked(&question, NONE), Value::Null);
    let decided = |is_yes, note: &str| GivenAnswer::Decided {
        is_yes,
        args_hash: "abc".to_owned(),
        note: note.to_owned(),
    };
    for (response, expected) in [
        (
            json!({"action": "accept", "content": {"decision": "approve", "note": " ok "}}),
            decided(true, "ok"),
        ),
        (
            json!({"action": "accept", "content": {"decision": "approve"}}),
            decided(true, NO_NOTE),
        ),
        (
            json!({"action": "accept", "content": {"decision": "deny"}}),
            decided(false, NO_NOTE),
        ),
        (json!({"action": "decline"}), decided(false, NO_NOTE)),
        (json!({"action": "cancel"}), GivenAnswer::Dismissed),
        (json!({"action": "accept"}), GivenAnswer::Missing),
        (
            json!({"action": "accept", "content": {"decision": "yes"}}),
            GivenAnswer::Missing,
        ),
        (
            json!({"action": "accept", "content": {"decision": true}}),
            GivenAnswer::Missing,
        ),
        (json!({"action": "approve"}), GivenAnswer::Missing),
        (json!(7), GivenAnswer::Missing),
    ] {
        let given = responses(&json!({ "approval": response, "other": 1 }));
        assert_eq!(question.answered(&given, ALL), expected, "{response}");
    }
    assert_eq!(
        question.answered(&responses(&json!({})), ALL),
        GivenAnswer::Missing
    );
}

#[test]
fn arguments_that_were_corrected_are_shown_as_they_will_run() {
    let awaiting =
        json!({"for": "approval", "token": "t", "args_hash": "a", "args": {"amount": 7}});
    let asks = asked(&question(&awaiting).unwrap(), ALL).to_string();
    assert!(
        asks.contains("\\\"amount\\\": 7") && !asks.contains("1.10"),
        "{asks}"
    );
    let long = json!({"for": "approval", "token": "t", "args_hash": "a", "args": {"text": "x".repeat(16 * 1024)}});
    assert!(question(&long).is_none());
    // Of an operator, and of whoever nobody asks here.
    assert!(question(&json!({"for": "approval", "by": "operator", "args_hash": "a"})).is_none());
    assert!(question(&json!({"for": "client", "token": "t"})).is_none());
}

#[test]
fn what_a_tool_asks_in_the_protocols_form_is_handed_on_where_it_is_declared() {
    let form = json!({"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}});
    let sampling =
        json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 7}});
    let roots = json!({"method": "roots/list"});
    let requests = json!({"inputRequests": {"who": form, "model": sampling, "roots": roots}});
    let question = question(&json!({"for": "input", "token": "t", "requests": requests})).unwrap();
    let mut expected = requests["inputRequests"].clone();
    expected["who"]["params"]["message"] = "The tool charge asks: Who?".into();
    assert_eq!(asked(&question, ALL), expected);
    let only = Askable {
        sampling: true,
        ..NONE
    };
    assert_eq!(asked(&question, only), json!({ "model": sampling }));
    assert_eq!(asked(&question, NONE), Value::Null);
    let given = json!({
        "who": {"action": "accept", "content": {"name": "Ann"}}, "model": {"role": "assistant", "content": {"type": "text", "text": "x"}},
        "roots": {"roots": []}, "more": 1,
    });
    let GivenAnswer::Input(input) = question.answered(&responses(&given), ALL) else {
        panic!("an input");
    };
    let mut expected = given.clone();
    expected.as_object_mut().unwrap().remove("more");
    assert_eq!(
        serde_json::from_str::<Value>(&input).unwrap(),
        json!({ "inputResponses": expected })
    );
    for (name, wrong) in [
        ("who", json!(7)),
        ("model", json!({})),
        ("roots", json!({"roots": 1})),
        ("who", json!({"action": "x"})),
    ] {
        let mut given = given.clone();
        given[name] = wrong;
        assert_eq!(
            question.answered(&responses(&given), ALL),
            GivenAnswer::Missing,
            "{name}"
        );
    }
    assert!(matches!(
        question.answered(&responses(&given), only),
        GivenAnswer::Input(_)
    ));
    assert_eq!(
        question.answered(&responses(&given), NONE),
        GivenAnswer::Missing
    );
}

#[test]
fn what_only_a_program_can_answer_is_lacking_where_it_is_not_declared() {
    let requests =
        json!({"inputRequests": {"m": {"method": "sampling/createMessage", "params": {}}}});
    let question = question(&json!({"for": "input", "token": "t", "requests": requests})).unwrap();
    assert_eq!(asked(&question, NONE), json!({"lacks": {"sampling": {}}}));
}

#[test]
fn a_model_that_may_use_tools_is_asked_of_who_declares_that() {
    let with_tools = json!({"messages": [], "maxTokens": 1, "tools": [{"name": "t", "inputSchema": {"type": "object"}}]});
    let model = json!({"method": "sampling/createMessage", "params": with_tools});
    let form = json!({"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}});
    let of = |requests: Value| {
        let requests = json!({ "inputRequests": requests });
        question(&json!({"for": "input", "token": "t", "requests": requests})).unwrap()
    };
    let without = Askable {
        sampling_with_tools: false,
        ..ALL
    };
    let alone = of(json!({ "m": model }));
    assert_eq!(asked(&alone, ALL), json!({ "m": model }));
    let lacks = json!({"lacks": {"sampling": {"tools": {}}}});
    assert_eq!(asked(&alone, without), lacks);
    let beside = of(json!({ "m": model, "who": form }));
    let beside = asked(&beside, without);
    let names: Vec<&String> = beside.as_object().unwrap().keys().collect();
    assert_eq!(names, ["who"]);
    let choice = json!({"m": {"method": "sampling/createMessage", "params": {"toolChoice": {"mode": "auto"}}}});
    assert_eq!(asked(&of(choice), without), lacks);
}

#[test]
fn a_question_with_plain_fields_becomes_a_form_and_any_other_a_text() {
    let of =
        |requests: Value| question(&json!({"for": "input", "token": "t", "requests": requests}));
    let plain = of(json!({"question": "For how many?", "schema": {"people": "integer"}})).unwrap();
    let asks = asked(&plain, ALL);
    assert!(
        asks["answer"]["params"]["message"]
            .as_str()
            .unwrap()
            .contains("For how many?")
    );
    let schema = &asks["answer"]["params"]["requestedSchema"];
    assert_eq!(schema["properties"], json!({"people": {"type": "integer"}}));
    assert_eq!(schema["required"], json!(["people"]));
    let given = |response: Value| plain.answered(&responses(&json!({ "answer": response })), ALL);
    assert_eq!(
        given(json!({"action": "accept", "content": {"people": 4}})),
        GivenAnswer::Input(r#"{"people":4}"#.to_owned())
    );
    assert_eq!(given(json!({"action": "decline"})), GivenAnswer::Declined);
    assert_eq!(given(json!({"action": "cancel"})), GivenAnswer::Dismissed);
    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}, "b": {"type": "boolean"}}, "required": ["a"]});
    let written = of(json!({"question": "Which?", "schema": schema})).unwrap();
    assert_eq!(
        asked(&written, ALL)["answer"]["params"]["requestedSchema"],
        schema
    );
    for text in [
        json!({"question": "Which?"}),
        json!({"schema": {"a": "string"}}),
        json!({"question": "Which?", "schema": {}}),
        json!({"question": "Which?", "schema": {"a": "list"}}),
        json!({"question": "Which?", "schema": {"a": {"type": "object", "properties": {}}}}),
        json!({"question": "Which?", "schema": {"a": {"type": "string", "$ref": "#"}}}),
        json!({"inputRequests": {}}),
        json!({"inputRequests": {"a": {"method": "tools/call", "params": {}}}}),
        json!({"inputRequests": {"a": {"method": "elicitation/create", "params": {"message": "m"}}}}),
        json!({"inputRequests": {"a": {"method": "elicitation/create", "params": {"mode": "url", "message": "m", "url": "javascript:x"}}}}),
        json!({"question": "x".repeat(4_001), "schema": {"a": "string"}}),
        json!({"question": "Which?", "schema": {"properties": {"a": "string"}, "required": {"a": 1}}}),
        json!({"question": "Which?", "schema": {"properties": {"a": "string"}, "required": ["b"]}}),
    ] {
        assert!(of(text.clone()).is_none(), "{text}");
    }
}

#[test]
fn who_made_a_call_is_asked_and_nobody_else() {
    let awaiting = |principal: Option<&str>| json!({"for": "approval", "token": "t", "args_hash": "a", "principal": principal});
    let of = |principal| question(&awaiting(principal)).unwrap();
    assert!(of(Some("ann")).is_asked_of(Some("ann")));
    assert!(!of(Some("ann")).is_asked_of(Some("bob")));
    assert!(!of(None).is_asked_of(Some("bob")));
    // Where nobody is asked for a name.
    assert!(of(Some("ann")).is_asked_of(None) && of(None).is_asked_of(None));
}

#[test]
fn each_question_of_a_call_is_a_round_of_its_own() {
    let of = |token: &str| {
        question(&json!({"for": "approval", "token": token, "args_hash": "a"}))
            .unwrap()
            .round()
    };
    assert_eq!(of("x"), of("x"));
    assert_ne!(of("x"), of("y"));
}
