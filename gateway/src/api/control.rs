//! `GET /v1/control`: the controls that hold, as the views have them. `POST /v1/control`: changes one, as `admin.control` does: on the
//! subject of the tenant that is asked for, or of all tenants, on that of the fleet.

use std::sync::Arc;

use axum::{body::Body, extract::State, http::StatusCode, response::Response};
use fleet::{
    tokens::Scope,
    wire::{code::Code, message::Message},
};
use fleet_client::Question;
use fleet_history::{
    Row,
    pages::{self, ControlPlace, PageOf},
};

use super::LOOKERS_AT_CONTROLS;
use crate::{
    answer,
    asked::Asked,
    auth::principal::Principal,
    body::{self, CONTROL_MAX},
    form::Fields,
    headers::Speaker,
    page,
    refusal::{Refused, Repeatable},
    state::Gateway,
    views::looked,
};

const ID: Message = Message::fixed("a control's id", "是控制的编号");

/// The controls that hold.
pub(super) async fn list(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&LOOKERS_AT_CONTROLS)?;
    let tenant = asked.reach(principal)?;
    let query = asked.query(&["tool", "before", "limit"])?;
    let tool = page::tool(&query, principal)?;
    let wanted = PageOf {
        tenant: tenant.as_ref(),
        tool: tool.as_ref(),
        limit: page::limit(&query)?,
    };
    let before = query.value("before", ID)?;
    let found = looked(pages::controls(&gateway.views, wanted, before)).await?;
    let last = found.last().and_then(|row| row.read().ok());
    let last = last.filter(|_| page::is_full(&found, wanted.limit));
    let before = last.map(|ControlPlace { control_id }| control_id);
    let before = before.map_or_else(|| "null".to_owned(), |id| id.to_string());
    let rows = Row::json_of_all(&found);
    let listed = format!("{{\"controls\":{rows},\"before\":{before}}}");
    Ok(answer::plain(listed, Speaker::Gateway, StatusCode::OK))
}

/// Changes one, in the name of who asks.
pub(super) async fn change(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    let principal = asked.by(&[Scope::Admin])?;
    let tenant = asked.reach(principal)?;
    asked.query(&[])?;
    let body = body::read(&gateway.bodies, &asked, body, CONTROL_MAX).await?;
    let mut wish = Fields::read(&body)?;
    if !is_a_look(&wish) {
        is_for(&wish, principal)?;
        wish.name_actor(principal.name())?;
    } else if !principal.has_all_tools() {
        return Err(too_wide());
    }
    let subjects = gateway.dispatchers.subjects();
    let subject = match &tenant {
        Some(tenant) => subjects.control(tenant),
        None => subjects.control_of_all(),
    };
    let question = Question::new(subject, wish.to_text());
    let answered = gateway
        .dispatchers
        .ask(question, Repeatable::Always)
        .await?;
    Ok(answer::of_door(&answered))
}

/// Refuses a change that reaches beyond the tools of a token: one that names no tool, or a control by its number alone.
fn is_for(wish: &Fields, principal: &Principal) -> Result<(), Refused> {
    if principal.has_all_tools() {
        return Ok(());
    }
    let mut tools = wish.values("tool");
    let tool = tools.next().filter(|_| tools.next().is_none());
    let tool: Option<String> = tool.and_then(|tool| serde_json::from_str(tool.get()).ok());
    let is_for = tool.is_some_and(|tool| principal.may_use(&tool)) && !wish.has("control_id");
    if is_for { Ok(()) } else { Err(too_wide()) }
}

fn too_wide() -> Refused {
    let what = Message::fixed(
        "a token of some tools changes only controls that name one of them as tool; GET /v1/control?tool= has them",
        "仅限部分工具的 token 只能更改以 tool 指明其中一个工具的控制；用 GET /v1/control?tool= 查看",
    );
    Refused::new(Code::Forbidden, what)
}

/// Whether nothing is to be changed, so that nobody has done it.
fn is_a_look(wish: &Fields) -> bool {
    let mut verbs = wish.values("do");
    let is_list =
        |verb: &str| serde_json::from_str::<String>(verb).is_ok_and(|verb| verb == "list");
    verbs.next().is_some_and(|verb| is_list(verb.get())) && verbs.next().is_none()
}
