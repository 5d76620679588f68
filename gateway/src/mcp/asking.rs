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
use serde_json::{Value, value::RawValue};
use sha2::{Digest, Sha256};

use super::{
    askable::Askable,
    elicitation::{APPROVAL, FormAnswer, NO_NOTE, approval, decided, elicitation, elicited, form},
    exact::exact,
    input_requests::{InputRequest, input, lacked, of_protocol},
    members::RawMembers,
};

/// The name of a form that is made here.
const FORM: &str = "answer";

/// What a call waits for, where its caller can be asked.
#[derive(Debug)]
pub(super) struct CallQuestion {
    pub(super) call: CallId,
    tool: String,
    /// With what it is answered. A secret of the gateway's.
    pub(super) token: String,
    /// Who made the call, by name.
    principal: Option<String>,
    what: QuestionKind,
}

#[derive(Debug)]
enum QuestionKind {
    Approval {
        args_hash: String,
        /// `None`: they are withheld.
        arguments: Option<String>,
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
    /// What the call of this envelope asks of its caller; `None`: nothing that could be asked here. `arguments`: as they were sent,
    /// where that is known: an envelope has none that are sensitive.
    pub(super) fn of(
        envelope: &[u8],
        arguments: Option<&[u8]>,
        language: Language,
    ) -> Option<Self> {
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
            principal: Option<String>,
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
                    arguments: match corrected.or(arguments) {
                        Some(arguments) => Some(exact(arguments)?),
                        None => None,
                    },
                    reason: awaiting.reason,
                }
            }
            "input" => {
                let requests = awaiting.requests?;
                match of_protocol(requests, &tool, language) {
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
            principal: awaiting.principal,
            what,
        })
    }

    /// Whether it is asked of this principal: of who made the call, and where nobody is asked for a name, of everybody.
    pub(super) fn is_asked_of(&self, principal: Option<&str>) -> bool {
        principal.is_none_or(|name| self.principal.as_deref() == Some(name))
    }

    /// Whether its tool has written it as the protocol does.
    pub(super) const fn is_of_protocol(&self) -> bool {
        matches!(self.what, QuestionKind::Requests(_))
    }

    /// What its tool has written as the protocol does, by name.
    pub(super) fn requests(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        let requests = match &self.what {
            QuestionKind::Requests(requests) => &requests[..],
            QuestionKind::Approval { .. } | QuestionKind::Form { .. } => &[],
        };
        requests
            .iter()
            .map(|one| (one.name.as_str(), &*one.request))
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
                let (message, schema) = approval(
                    &self.tool,
                    arguments.as_deref(),
                    reason.as_deref(),
                    language,
                );
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
                        ClientAsked::Lacks(lacked(requests))
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
mod tests;
