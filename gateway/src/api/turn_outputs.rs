//! `POST /v1/turns/{turn}/outputs`: hands in what a client did for the calls of a turn that it runs, and what tools have asked for. Calls
//! that go on are told in the next response, which is streamed where the client accepts that.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    http::{HeaderMap, StatusCode, header::ACCEPT},
    response::Response,
};
use fleet::{
    ids::{CallId, Label},
    tokens::Scope,
    wire::{code::Code, message::Message},
};
use fleet_client::{Answer, Question};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    named,
    turn_events::told,
    turns::{may_see, no_turn, turn_name},
};
use crate::{
    answer::{self, Glimpse},
    asked::Asked,
    auth::principal::Principal,
    body::{self, BATCH_MAX},
    follower::{stream_for, unheard},
    headers::Speaker,
    refusal::{Refused, Repeatable},
    state::Gateway,
    status::Column,
    turns::{
        kept::{self, KeptHeader},
        name::TurnName,
        next::{header_behind, told_so_far},
        outputs::HandedInFor,
        telling::TurnWanted,
    },
};

/// The note of a decision that has none of its own.
const NOTE: &str = "decided in its turn";

/// Hands in.
pub(super) async fn hand_in(
    State(gateway): State<Arc<Gateway>>,
    turn: Result<Path<String>, PathRejection>,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    let principal = asked.by(&[Scope::Call])?;
    let name = turn_name(&named(turn))?;
    let tenant = asked.tenant(principal)?;
    asked.query(&[])?;
    let body = body::read(&asked.headers, body, BATCH_MAX).await?;
    let outputs = HandedInFor::all_of(&body)?;
    if principal.name().is_some() && outputs.iter().any(|one| one.has("actor")) {
        let what = Message::fixed(
            "the token says who decides: leave actor out",
            "token 已说明由谁决定：请去掉 actor",
        );
        return Err(Refused::new(Code::InvalidArguments, what));
    }
    let keeper = gateway.sessions.keeper();
    let headers = kept::headers(keeper, &tenant, &name).await;
    let headers = headers.map_err(|error| unheard(&error))?;
    let (Some(first), Some(newest)) = (headers.first(), headers.last()) else {
        return Err(no_turn());
    };
    let of_turn = |call: CallId| first.header.calls.iter().any(|one| one.id() == Some(call));
    if !may_see(principal, &first.header) || !outputs.iter().all(|one| of_turn(one.call)) {
        return Err(no_turn());
    }
    let (response, answers) = match repeated(&name, &headers, &outputs) {
        Some(response) => (Some(response), Vec::new()),
        None => {
            let so_far = told_so_far(keeper, &tenant, &name, newest).await;
            let so_far = so_far.map_err(|error| unheard(&error))?;
            let answers = submit(&gateway, &tenant, principal, &outputs).await?;
            let refused = |answer: &&Answer| Glimpse::of(answer.bytes()).is_refused();
            if let Some(refused) = answers.iter().find(refused) {
                return Ok(answer::of_call(refused, Column::Plain));
            }
            let next = header_behind(&name, &newest.header, &so_far, &outputs);
            let response = next.as_ref().map(|next| next.response_id.clone());
            if let Some(next) = next {
                let last = Some(newest.sequence);
                let stored = kept::keep(keeper, &tenant, &name, &next, last).await;
                stored.map_err(|_unknown| Refused::no_answer(Repeatable::Always))?;
            }
            (response, answers)
        }
    };
    if let Some(response) = response.clone().filter(|_| wants_stream(&asked.headers)) {
        let whom = stream_for(&gateway, &asked, principal)?;
        let wanted = TurnWanted {
            tenant,
            response,
            last: None,
            after: None,
            extensions: false,
            is_kept: true,
        };
        return told(Arc::clone(&gateway), whom, &name, wanted).await;
    }
    Ok(taken(&name, response.as_deref(), &answers))
}

/// The response that these answers have led to before.
fn repeated(name: &TurnName, headers: &[KeptHeader], outputs: &[HandedInFor]) -> Option<String> {
    let ids: Vec<CallId> = outputs.iter().map(|one| one.call).collect();
    let next = |kept: &KeptHeader| name.response_behind(&kept.header.response_id, &ids);
    let known = |response: &String| {
        headers
            .iter()
            .any(|kept| kept.header.response_id == *response)
    };
    headers.iter().map(next).find(known)
}

/// Hands in each answer, with the token of its call.
async fn submit(
    gateway: &Gateway,
    tenant: &Label,
    principal: &Principal,
    outputs: &[HandedInFor],
) -> Result<Vec<Answer>, Refused> {
    let dispatchers = &gateway.dispatchers;
    let subjects = dispatchers.subjects();
    let mut answers = Vec::with_capacity(outputs.len());
    for one in outputs {
        let body = format!("{{\"call_id\":\"{}\"}}", one.call);
        let question = Question::new(subjects.get(tenant), body);
        let standing = dispatchers.ask(question, Repeatable::Always).await?;
        let waits = Waits::of(&standing);
        if waits.token.is_none() && !one.has("token") {
            // It waits for nobody who has a token: how it stands says why.
            answers.push(standing);
            continue;
        }
        let mut further: Vec<(&str, &str)> = Vec::new();
        further.extend(waits.token.as_deref().map(|token| ("token", token)));
        let subject = if one.is_decision() {
            further.extend(principal.name().map(|name| ("actor", name)));
            further.push(("note", NOTE));
            subjects.approve(tenant)
        } else {
            subjects.output(tenant)
        };
        let question = Question::new(subject, one.to_body(&further));
        answers.push(dispatchers.ask(question, Repeatable::Always).await?);
    }
    Ok(answers)
}

/// What a call waits for.
#[derive(Debug, Default, Deserialize)]
struct Waits {
    token: Option<String>,
}

impl Waits {
    /// As its envelope says it; nothing where it waits for nobody.
    fn of(standing: &Answer) -> Self {
        #[derive(Deserialize)]
        struct StandingCall {
            awaiting: Waits,
        }

        let standing = standing.read::<StandingCall>();
        standing.map_or_else(|_other| Self::default(), |standing| standing.awaiting)
    }
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter();
    let mut accepted = accepted.filter_map(|line| line.to_str().ok());
    accepted.any(|line| line.contains("text/event-stream"))
}

fn taken(name: &TurnName, response: Option<&str>, answers: &[Answer]) -> Response {
    #[derive(Serialize)]
    struct HandedIn<'a> {
        turn_id: String,
        response_id: Option<&'a str>,
        items: Vec<&'a RawValue>,
    }

    let items = answers.iter().filter_map(|answer| answer.read().ok());
    let taken = HandedIn {
        turn_id: name.id(),
        response_id: response,
        items: items.collect(),
    };
    let taken = serde_json::to_vec(&taken).expect("an answer has only string keys");
    answer::plain(taken, Speaker::Gateway, StatusCode::ACCEPTED)
}
