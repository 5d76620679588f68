//! `POST /v1/turns/{turn}/outputs`: hands in what a client did for the calls of a turn that it runs, and what tools have asked for. Calls
//! that go on are told in the next response, which is streamed where the client accepts that.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    http::StatusCode,
    response::Response,
};
use fleet::{
    ids::{CallId, Label},
    tokens::Scope,
    wire::{code::Code, message::Message},
};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    named,
    turns::{may_see, no_turn, turn_name, wants_stream},
};
use crate::{
    answer,
    asked::Asked,
    body::{self, BATCH_MAX},
    edge::guard::language,
    events::keeper::Keeper,
    follower::{stream_for, unheard},
    headers::Speaker,
    refusal::{Refused, Repeatable},
    speaker::TurnHeader,
    state::Gateway,
    status::Column,
    turns::{
        hand_in::{self, HandedIn, HandingIn, OutputAnswer, hand_in},
        kept::{self, KeptTurn},
        name::TurnName,
        next::{ToldSoFar, header_behind, response_behind, tells, told_so_far},
        output_form::pointer,
        outputs::HandedInFor,
        tell::told,
        telling::TurnWanted,
    },
};

/// How often it is tried to say what the next response tells, where others do the same.
const TRIES: usize = 4;

/// Hands in.
pub(super) async fn hand_in_outputs(
    State(gateway): State<Arc<Gateway>>,
    turn: Result<Path<String>, PathRejection>,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    let principal = asked.by(&[Scope::Call])?;
    let name = turn_name(&named(turn))?;
    let tenant = asked.tenant(principal)?;
    asked.query(&[])?;
    let body = body::read(&gateway.bodies, &asked, body, BATCH_MAX).await?;
    let outputs = body::aside(body.len(), move || HandedInFor::all_of(&body)).await??;
    names_actors(principal.name(), &outputs)?;
    let keeper = gateway.sessions.keeper();
    let kept = kept::turn(keeper, &tenant, &name).await;
    let kept = kept.map_err(|error| unheard(&error))?;
    let (Some(first), Some(newest)) = (kept.headers.first(), kept.headers.last()) else {
        return Err(no_turn());
    };
    if !may_see(principal, first) {
        return Err(no_turn());
    }
    let is_of_turn = |call: CallId| first.calls.iter().any(|one| one.id() == Some(call));
    if let Some(place) = outputs.iter().position(|one| !is_of_turn(one.call)) {
        return Err(not_of_turn(place));
    }
    if kept.is_full {
        return Err(too_many());
    }
    // Before anything is changed: there may be no place for a stream.
    let whom = match wants_stream(&asked.headers) {
        true => Some(stream_for(&gateway, &asked, principal)?),
        false => None,
    };
    // Before anything happens because of what is handed in.
    let so_far = told_so_far(keeper, &tenant, &name, newest).await;
    let so_far = so_far.map_err(|error| unheard(&error))?;
    let handing_in = HandingIn {
        gateway: &gateway,
        tenant: &tenant,
        principal,
        name: &name,
        turn: &kept,
    };
    let handed_in = hand_in(handing_in, &outputs).await?;
    let taken = outputs.iter().zip(&handed_in.answers);
    let taken: Vec<&HandedInFor> = taken
        .filter(|(_, answer)| answer.is_taken())
        .map(|(output, _)| output)
        .collect();
    if taken.is_empty() {
        return all_refused(handed_in);
    }
    let known = if handed_in.is_new {
        None
    } else {
        known(&name, &kept.headers, &taken)
    };
    let response = match known {
        Some(known) => Some(known),
        None => {
            let turn = KeptTurn {
                last: handed_in.last.unwrap_or(kept.last),
                ..kept.clone()
            };
            let next = Next {
                keeper,
                tenant: &tenant,
                name: &name,
                taken: &taken,
                is_new: handed_in.is_new,
            };
            next.response(turn, so_far).await?
        }
    };
    if let (Some(whom), Some(response), true) = (whom, &response, taken.len() == outputs.len()) {
        let wanted = TurnWanted::all_of(tenant, response.clone());
        return told(Arc::clone(&gateway), whom, &name, wanted).await;
    }
    let language = language(&asked.headers);
    let items = outputs.iter().enumerate().zip(&handed_in.answers);
    let items = items.filter_map(|(output, answer)| answer.item(output, language));
    Ok(taken_answer(&name, response.as_deref(), items.collect()))
}

/// Where a token says who decides, no output says it.
fn names_actors(principal: Option<&str>, outputs: &[HandedInFor]) -> Result<(), Refused> {
    for (place, output) in outputs.iter().enumerate() {
        let what = match (principal, output.has("actor")) {
            (Some(_), true) => Message::fixed(
                "the token says who decides: leave actor out",
                "token 已说明由谁决定：请去掉 actor",
            ),
            (None, false) if output.is_decision() => Message::fixed(
                "without a token for the gateway a decision says by actor who decides",
                "没有网关的 token 时，decision 要用 actor 说明由谁决定",
            ),
            (Some(_), false) | (None, _) => continue,
        };
        let refused = Refused::new(Code::InvalidArguments, what);
        return Err(refused.at(pointer(place, "actor")));
    }
    Ok(())
}

/// The response that these outputs have led to before, the newest one.
fn known(name: &TurnName, headers: &[TurnHeader], taken: &[&HandedInFor]) -> Option<String> {
    let known = |response: &String| headers.iter().any(|header| header.response_id == *response);
    let next = |header: &TurnHeader| response_behind(name, header, taken);
    headers.iter().rev().map(next).find(known)
}

/// Says in the stream what the next response tells.
struct Next<'a> {
    keeper: &'a Keeper,
    tenant: &'a Label,
    name: &'a TurnName,
    taken: &'a [&'a HandedInFor],
    /// Whether one of them was taken just now.
    is_new: bool,
}

impl Next<'_> {
    /// The response that tells what becomes of the calls; `None`: nothing is left to tell of them.
    async fn response(
        &self,
        mut turn: KeptTurn,
        mut so_far: ToldSoFar,
    ) -> Result<Option<String>, Refused> {
        for _ in 0..TRIES {
            let Some(newest) = turn.headers.last() else {
                break;
            };
            if !so_far.is_over() {
                return Ok(tells(newest, self.taken).then(|| newest.response_id.clone()));
            }
            // What was handed in before has its response, unless its gateway was killed before it could say so.
            if !self.is_new && !so_far.goes_on(self.taken) {
                let mut later = turn.headers.iter().skip(1).rev();
                let told = later.find(|header| tells(header, self.taken));
                return Ok(told.map(|header| header.response_id.clone()));
            }
            let Some(next) = header_behind(self.name, newest, &so_far, self.taken) else {
                return Ok(None);
            };
            let last = Some(turn.last);
            let stored = kept::keep(self.keeper, self.tenant, self.name, &next, last).await;
            if stored.map_err(|_unknown| Refused::no_answer(Repeatable::Always))? {
                return Ok(Some(next.response_id));
            }
            // Somebody else has handed in something meanwhile.
            let again = kept::turn(self.keeper, self.tenant, self.name).await;
            turn = again.map_err(|_unheard| Refused::no_answer(Repeatable::Always))?;
            let is_there = |header: &TurnHeader| header.response_id == next.response_id;
            if turn.headers.iter().any(is_there) {
                return Ok(Some(next.response_id));
            }
            if let Some(newest) = turn.headers.last() {
                let told = told_so_far(self.keeper, self.tenant, self.name, newest).await;
                so_far = told.map_err(|_unheard| Refused::no_answer(Repeatable::Always))?;
            }
        }
        Err(Refused::no_answer(Repeatable::Always))
    }
}

/// None was taken: the first refusal stands for all.
fn all_refused(handed_in: HandedIn) -> Result<Response, Refused> {
    let first = handed_in.answers.into_iter().enumerate().next();
    match first {
        Some((place, OutputAnswer::Door(answer))) => {
            let mut response = answer::of_call(&answer, Column::Plain);
            if let Some(named) = hand_in::named(&answer, place) {
                *response.body_mut() = named.to_bytes().into();
            }
            Ok(response)
        }
        Some((_, OutputAnswer::Gateway(refused))) => Err(refused),
        Some((_, OutputAnswer::Taken(_))) | None => Err(no_turn()),
    }
}

fn not_of_turn(place: usize) -> Refused {
    let what = Message::fixed(
        "the turn has no such call; GET of the turn lists those it has",
        "这个 turn 中没有这个调用；对该 turn 使用 GET 可列出它的调用",
    );
    Refused::new(Code::NotFound, what).at(pointer(place, "call_id"))
}

fn too_many() -> Refused {
    let what = Message::fixed(
        "as much was handed in for this turn as may be: hand in for its calls by their ids",
        "为这个 turn 提交的内容已达上限：请通过各调用的 id 提交",
    );
    Refused::new(Code::Conflict, what)
}

fn taken_answer(name: &TurnName, response: Option<&str>, items: Vec<Box<RawValue>>) -> Response {
    #[derive(Serialize)]
    struct TakenOutputs<'a> {
        turn_id: String,
        response_id: Option<&'a str>,
        items: Vec<Box<RawValue>>,
    }

    let taken = TakenOutputs {
        turn_id: name.id(),
        response_id: response,
        items,
    };
    let taken = serde_json::to_vec(&taken).expect("an answer has only string keys");
    answer::plain(taken, Speaker::Gateway, StatusCode::ACCEPTED)
}
