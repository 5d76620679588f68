//! What is asked of the client of a call that waits for its caller, and what its answer comes to. Pure.
//!
//! | the call waits for | the client is asked | its answer |
//! |---|---|---|
//! | a yes of its caller | a form with the tool and the exact arguments | yes or no, with the hash of what was shown |
//! | an input, asked for in the protocol's own form | those of the requests that it declares | goes to the tool as `{"inputResponses": …}` |
//! | an input, with a `question` and a `schema` of plain fields | a form of them | what the form has goes to the tool |
//! | anything else | nothing: a text says who decides and where | – |
//!
//! The protocol's own form is `{"inputRequests": {name: {"method", "params"}}}`.

use fleet::{call::Language, ids::CallId};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use sha2::{Digest, Sha256};

use super::{
    askable::Askable,
    elicitation::{FormAnswer, NO_NOTE, approval, decided, elicitation, elicited, form},
    exact::exact,
    input_requests::{InputRequest, input, of_protocol},
    members::RawMembers,
};

/// The name of the request for a yes, and of a form that is made here.
const APPROVAL: &str = "approval";
const FORM: &str = "answer";

/// What a call waits for, where its caller can be asked.
#[derive(Debug)]
pub(super) struct CallQuestion {
    pub(super) call: CallId,
    tool: String,
    /// With what it is answered. A secret of the gateway's.
    pub(super) token: String,
    what: QuestionKind,
}

#[derive(Debug)]
enum QuestionKind {
    Approval {
        args_hash: String,
        arguments: String,
        reason: Option<String>,
    },
    Requests(Vec<InputRequest>),
    Form {
        message: String,
        schema: Value,
    },
}

/// What a client is asked.
#[derive(Debug)]
pub(super) enum ClientAsked {
    /// These, by their names.
    Requests(Vec<(String, Box<RawValue>)>),
    /// Nothing: only its program could answer, and it has not declared that it does. The capabilities that it lacks.
    Lacks(Value),
    /// Nothing: somebody may answer somewhere else.
    Nothing,
}

/// What an answer comes to.
#[derive(Debug, PartialEq)]
pub(super) enum GivenAnswer {
    /// A decision: yes or no, about the arguments with this hash.
    Decided {
        is_yes: bool,
        args_hash: String,
        note: String,
    },
    /// This goes to the tool.
    Input(String),
    /// Its user does not want to answer.
    Declined,
    /// Its user has not answered.
    Dismissed,
    /// Something is missing, or is no answer.
    Missing,
}

impl CallQuestion {
    /// What the call of this envelope asks of its caller; `None`: nothing that could be asked here. `arguments`: as they were sent.
    pub(super) fn of(envelope: &[u8], arguments: &[u8], language: Language) -> Option<Self> {
        #[derive(Deserialize)]
        struct AskingEnvelope<'a> {
            call_id: CallId,
            tool: String,
            #[serde(borrow)]
            awaiting: Awaited<'a>,
        }
        #[derive(Deserialize)]
        struct Awaited<'a> {
            #[serde(rename = "for")]
            whom: String,
            token: String,
            #[serde(default)]
            args_hash: Option<String>,
            #[serde(default, borrow)]
            args: Option<&'a RawValue>,
            #[serde(default)]
            reason: Option<String>,
            #[serde(default, borrow)]
            requests: Option<&'a RawValue>,
        }

        let read: AskingEnvelope<'_> = serde_json::from_slice(envelope).ok()?;
        let AskingEnvelope {
            call_id,
            tool,
            awaiting,
        } = read;
        let what = match awaiting.whom.as_str() {
            "approval" => {
                // Where the door has corrected them, it says so.
                let corrected = awaiting.args.map(|args| args.get().as_bytes());
                QuestionKind::Approval {
                    args_hash: awaiting.args_hash?,
                    arguments: exact(corrected.unwrap_or(arguments))?,
                    reason: awaiting.reason,
                }
            }
            "input" => {
                let requests = awaiting.requests?;
                match of_protocol(requests) {
                    Some(requests) => QuestionKind::Requests(requests),
                    None => {
                        let (message, schema) = form(requests, &tool, language)?;
                        QuestionKind::Form { message, schema }
                    }
                }
            }
            _ => return None,
        };
        Some(Self {
            call: call_id,
            tool,
            token: awaiting.token,
            what,
        })
    }

    /// Whether its tool has written it as the protocol does.
    pub(super) const fn is_of_protocol(&self) -> bool {
        matches!(self.what, QuestionKind::Requests(_))
    }

    /// Which of the questions of the call it is.
    pub(super) fn round(&self) -> String {
        hex::encode(&Sha256::digest(&self.token)[..16])
    }

    /// What this client is asked.
    pub(super) fn asks(&self, of: Askable, language: Language) -> ClientAsked {
        match &self.what {
            QuestionKind::Approval { .. } | QuestionKind::Form { .. } if !of.form => {
                ClientAsked::Nothing
            }
            QuestionKind::Approval {
                arguments, reason, ..
            } => {
                let (message, schema) =
                    approval(&self.tool, arguments, reason.as_deref(), language);
                ClientAsked::Requests(vec![(APPROVAL.to_owned(), elicitation(&message, &schema))])
            }
            QuestionKind::Form { message, schema } => {
                ClientAsked::Requests(vec![(FORM.to_owned(), elicitation(message, schema))])
            }
            QuestionKind::Requests(requests) => {
                let asked = requests.iter().filter(|one| one.kind.is_declared(of));
                let asked: Vec<_> = asked
                    .map(|one| (one.name.clone(), one.request.clone()))
                    .collect();
                match asked.is_empty() {
                    false => ClientAsked::Requests(asked),
                    true if requests.iter().all(|one| one.kind.is_of_programs()) => {
                        let lacked = requests.iter().map(|one| one.kind.capability());
                        ClientAsked::Lacks(
                            lacked.map(|name| (name.to_owned(), json!({}))).collect(),
                        )
                    }
                    true => ClientAsked::Nothing,
                }
            }
        }
    }

    /// What these answers come to, of a client that can be asked this.
    pub(super) fn answered(&self, responses: &RawMembers, of: Askable) -> GivenAnswer {
        match &self.what {
            QuestionKind::Approval { args_hash, .. } => match responses.get(APPROVAL).map(elicited)
            {
                Some(Some(FormAnswer::Accepted(form))) => match decided(&form) {
                    Some((is_yes, note)) => GivenAnswer::Decided {
                        is_yes,
                        args_hash: args_hash.clone(),
                        note,
                    },
                    None => GivenAnswer::Missing,
                },
                Some(Some(FormAnswer::Declined)) => GivenAnswer::Decided {
                    is_yes: false,
                    args_hash: args_hash.clone(),
                    note: NO_NOTE.to_owned(),
                },
                Some(Some(FormAnswer::Dismissed)) => GivenAnswer::Dismissed,
                Some(None) | None => GivenAnswer::Missing,
            },
            QuestionKind::Form { .. } => match responses.get(FORM).map(elicited) {
                Some(Some(FormAnswer::Accepted(form))) => GivenAnswer::Input(form.get().to_owned()),
                Some(Some(FormAnswer::Declined)) => GivenAnswer::Declined,
                Some(Some(FormAnswer::Dismissed)) => GivenAnswer::Dismissed,
                Some(None) | None => GivenAnswer::Missing,
            },
            QuestionKind::Requests(requests) => {
                let mut given = Vec::new();
                for one in requests.iter().filter(|one| one.kind.is_declared(of)) {
                    let response = responses.get(&one.name);
                    match response.filter(|response| one.kind.is_answered_by(response)) {
                        Some(response) => given.push((one.name.as_str(), response)),
                        None => return GivenAnswer::Missing,
                    }
                }
                match given.is_empty() {
                    true => GivenAnswer::Missing,
                    false => GivenAnswer::Input(input(&given)),
                }
            }
        }
    }

    /// The same where a client may answer one by one: what is there, though something is missing.
    pub(super) fn answered_in_part(&self, responses: &RawMembers, of: Askable) -> GivenAnswer {
        let QuestionKind::Requests(requests) = &self.what else {
            return self.answered(responses, of);
        };
        let mut given = Vec::new();
        for one in requests.iter().filter(|one| one.kind.is_declared(of)) {
            match responses.get(&one.name) {
                Some(response) if one.kind.is_answered_by(response) => {
                    given.push((one.name.as_str(), response));
                }
                Some(_no_answer) => return GivenAnswer::Missing,
                None => {}
            }
        }
        match given.is_empty() {
            true => GivenAnswer::Missing,
            false => GivenAnswer::Input(input(&given)),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const ALL: Askable = Askable {
        form: true,
        url: true,
        sampling: true,
        roots: true,
    };
    const NONE: Askable = Askable {
        form: false,
        url: false,
        sampling: false,
        roots: false,
    };

    fn question(awaiting: &Value) -> Option<CallQuestion> {
        let envelope = json!({
            "call_id": "01980000-0000-7000-8000-000000000000", "tool": "charge", "state": "awaiting_client", "awaiting": awaiting,
        });
        let sent = br#"{"amount":1.10,"to":"a\u202eb"}"#;
        CallQuestion::of(envelope.to_string().as_bytes(), sent, Language::En)
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
        assert!(
            question(&json!({"for": "approval", "by": "operator", "args_hash": "a"})).is_none()
        );
        assert!(question(&json!({"for": "client", "token": "t"})).is_none());
    }

    #[test]
    fn what_a_tool_asks_in_the_protocols_form_is_handed_on_where_it_is_declared() {
        let form = json!({"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}});
        let sampling =
            json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 7}});
        let roots = json!({"method": "roots/list"});
        let requests = json!({"inputRequests": {"who": form, "model": sampling, "roots": roots}});
        let question =
            question(&json!({"for": "input", "token": "t", "requests": requests})).unwrap();
        assert_eq!(asked(&question, ALL), requests["inputRequests"]);
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
        let question =
            question(&json!({"for": "input", "token": "t", "requests": requests})).unwrap();
        assert_eq!(asked(&question, NONE), json!({"lacks": {"sampling": {}}}));
    }

    #[test]
    fn a_question_with_plain_fields_becomes_a_form_and_any_other_a_text() {
        let of = |requests: Value| {
            question(&json!({"for": "input", "token": "t", "requests": requests}))
        };
        let plain =
            of(json!({"question": "For how many?", "schema": {"people": "integer"}})).unwrap();
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
        let given =
            |response: Value| plain.answered(&responses(&json!({ "answer": response })), ALL);
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
        ] {
            assert!(of(text.clone()).is_none(), "{text}");
        }
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
}
