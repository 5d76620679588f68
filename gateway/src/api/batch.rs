//! `POST /v1/batch`: many calls in one request. Each is answered at its own place, with what it would have been told alone.

use std::{borrow::Cow, sync::Arc};

use axum::{body::Body, extract::State, response::Response};
use fleet::{references, said, tokens::Scope, wire::code::Code};
use fleet_client::{Question, question::DECISION_MAX};
use serde_json::value::RawValue;

use crate::{
    answer,
    asked::Asked,
    auth::principal::Principal,
    body::{self, BATCH_MAX},
    form::{Fields, Listed, NoFields},
    forward::{self, with_principal},
    headers::PREFER,
    referents::may_stand,
    refusal::{Refused, Repeatable},
    state::Gateway,
};

/// The most calls of a batch, as at the door.
const CALLS_MAX: usize = 1_000;

/// Sends a batch to the door.
pub(super) async fn batch(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    let principal = asked.by(&[Scope::Call])?;
    let tenant = asked.tenant(principal)?;
    asked.query_of_call(&[])?;
    let preference = asked.preference()?;
    let mut headers = forward::headers(&asked.headers, principal.name())?;
    forward::own_names(&asked.headers)?;
    if let Some(said) = preference.said() {
        headers.insert(PREFER.as_str(), said);
    }
    let body = body::read(&gateway.bodies, &asked, body, BATCH_MAX).await?;
    let (sent, whose) = (body.clone(), principal.clone());
    let look = move || checked(&sent, &whose, Names::OfCaller);
    let checked = body::aside(body.len(), look).await??;
    let args = checked.referring.iter().map(|args| args.as_bytes());
    may_stand(&gateway.dispatchers, principal, &tenant, args).await?;
    let question = Question {
        headers,
        // Committing this many takes time.
        patience: 2 * DECISION_MAX,
        ..Question::new(
            gateway.dispatchers.subjects().batch(&tenant),
            checked.body.map_or(body, Into::into),
        )
    };
    let repeatable = if checked.has_keys {
        Repeatable::ByKey
    } else {
        Repeatable::Never
    };
    let answered = gateway.dispatchers.ask(question, repeatable).await?;
    Ok(answer::of_door(&answered))
}

/// What was found in a batch.
pub(crate) struct Checked {
    /// Whether every call has a key.
    pub(crate) has_keys: bool,
    /// The batch with who asks in it; `None`: it stays as it came.
    pub(crate) body: Option<String>,
    /// Arguments that may refer to answers which are not for who asks.
    pub(crate) referring: Vec<String>,
}

/// Who has given the calls their keys and sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// Whoever asks; those of turns are taken.
    OfCaller,
    /// The gateway, for a turn.
    OfTurn,
}

/// Looks at the tools that a batch names, and writes who asks where a call has data of its own for its tool.
///
/// # Errors
///
/// A tool is not for who asks, or a call writes itself who asks.
pub(crate) fn checked(
    body: &[u8],
    principal: &Principal,
    names: Names,
) -> Result<Checked, Refused> {
    let mut batch = Fields::read(body)?;
    let (mut has_keys, mut referring) = (true, Vec::new());
    let mut problem = None;
    let mut is_changed = false;
    batch.change("calls", |calls| {
        // Where it is no list, the door says what is wrong: it makes no call of this.
        let Listed { first, count } = Listed::of(calls.get(), CALLS_MAX)?;
        if count > CALLS_MAX {
            problem.get_or_insert_with(|| too_many(count));
            return None;
        }
        let mut written: Vec<Cow<'_, str>> = Vec::with_capacity(first.len());
        let mut is_changed_here = false;
        for (place, call) in first.into_iter().enumerate() {
            let mut fields = match Fields::of(call.get()) {
                Ok(fields) => fields,
                Err(NoFields::TooMany) => {
                    problem.get_or_insert_with(|| too_many_fields(place));
                    return None;
                }
                Err(NoFields::Other) => {
                    written.push(call.get().into());
                    continue;
                }
            };
            has_keys &= fields.has("idempotency_key");
            if !principal.has_all_tools() {
                let args = fields.values("args").map(|args| args.get().to_owned());
                referring.extend(args.filter(|args| references::may_be_in(args)));
            }
            let looked =
                named(&fields, names).and_then(|()| looked_at(&mut fields, principal, place));
            match looked {
                Ok(false) => written.push(call.get().into()),
                Ok(true) => {
                    is_changed_here = true;
                    written.push(fields.to_text().into());
                }
                Err(refused) => {
                    problem.get_or_insert(refused);
                    return None;
                }
            }
        }
        if !is_changed_here {
            return None;
        }
        is_changed = true;
        let text = format!("[{}]", written.join(","));
        RawValue::from_string(text).ok()
    });
    match problem {
        Some(refused) => Err(refused),
        None => Ok(Checked {
            has_keys,
            body: is_changed.then(|| batch.to_text()),
            referring,
        }),
    }
}

/// Refuses a key or a session of a turn that is not one of the turn's own calls.
fn named(fields: &Fields, names: Names) -> Result<(), Refused> {
    if names == Names::OfTurn {
        return Ok(());
    }
    let given = ["idempotency_key", "session"];
    let mut given = given.iter().flat_map(|name| fields.values(name));
    given.try_for_each(|name| {
        let name: Option<String> = serde_json::from_str(name.get()).ok();
        name.map_or(Ok(()), |name| forward::own_name(&name))
    })
}

/// What the door says of it, too, without having it all sent there.
fn too_many(count: usize) -> Refused {
    let what = said!(
        "the batch has {count} calls; at most {CALLS_MAX} are taken at once",
        "这一批有 {count} 个调用；一次最多接受 {CALLS_MAX} 个"
    );
    Refused::new(Code::PayloadTooLarge, what)
}

fn too_many_fields(place: usize) -> Refused {
    let what = said!(
        "/calls/{place} has too many fields",
        "/calls/{place} 的字段太多"
    );
    Refused::new(Code::InvalidArguments, what)
}

/// Whether the fields of a call were changed.
fn looked_at(fields: &mut Fields, principal: &Principal, place: usize) -> Result<bool, Refused> {
    if !principal.has_all_tools() {
        for tool in fields.values("tool") {
            let name: Option<String> = serde_json::from_str(tool.get()).ok();
            if !name.is_some_and(|name| principal.may_use(&name)) {
                let what = said!(
                    "the token is not for the tool of /calls/{place}",
                    "这个 token 不能用于 /calls/{place} 的工具"
                );
                return Err(Refused::new(Code::Forbidden, what));
            }
        }
    }
    let (mut is_changed, mut problem) = (false, None);
    fields.change("meta", |meta| {
        let written = with_principal(meta.get(), principal.name());
        match written {
            Ok(text) if text != meta.get() => {
                is_changed = true;
                RawValue::from_string(text).ok()
            }
            Ok(_same) => None,
            Err(refused) => {
                problem = Some(refused);
                None
            }
        }
    });
    problem.map_or(Ok(is_changed), Err)
}
