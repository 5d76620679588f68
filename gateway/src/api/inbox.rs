//! `GET /v1/doubts` and `GET /v1/waiting`: the calls that need somebody, those first that have waited longest or end first.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use fleet::{
    ids::{CallId, Label},
    tokens::Scope,
    wire::message::Message,
};
use fleet_history::{Row, doubts, inbox::InboxOf, waiting};

use crate::{
    answer, asked::Asked, headers::Speaker, page, refusal::Refused, state::Gateway, views::looked,
};

const ID: Message = Message::fixed("a call id", "是 call_id");
/// Who may look at calls in doubt.
const LOOKERS_AT_DOUBTS: [Scope; 2] = [Scope::Read, Scope::Settle];
/// Who may look at calls that wait.
const LOOKERS_AT_WAITS: [Scope; 2] = [Scope::Read, Scope::Approve];

/// The calls in doubt, the longest in doubt first.
pub(super) async fn doubts(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
) -> Result<Response, Refused> {
    let seen = Seen::of(&asked, &LOOKERS_AT_DOUBTS)?;
    let found = looked(doubts::inbox(&gateway.views, seen.wanted())).await?;
    Ok(seen.told("doubts", &found))
}

/// The calls that wait for somebody outside the fleet, the one whose wait ends first before others.
pub(super) async fn waiting(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
) -> Result<Response, Refused> {
    let seen = Seen::of(&asked, &LOOKERS_AT_WAITS)?;
    let found = looked(waiting::all(&gateway.views, seen.wanted())).await?;
    Ok(seen.told("waiting", &found))
}

/// What somebody asks for, and may see of it.
struct Seen {
    tenant: Option<Label>,
    but_of: Option<&'static str>,
    tools_like: Option<Vec<String>>,
    call: Option<CallId>,
    limit: i64,
}

impl Seen {
    fn of(asked: &Asked, lookers: &[Scope]) -> Result<Self, Refused> {
        let principal = asked.by(lookers)?;
        let tenant = asked.looks_at(principal)?;
        let query = asked.query(&["call", "limit"])?;
        Ok(Self {
            but_of: principal.hidden_tenant(),
            tenant,
            tools_like: principal.tools_like(),
            call: query.value("call", ID)?,
            limit: page::limit(&query)?,
        })
    }

    fn wanted(&self) -> InboxOf<'_> {
        InboxOf {
            tenant: self.tenant.as_ref(),
            but_of: self.but_of,
            tools_like: self.tools_like.as_deref(),
            call: self.call,
            limit: self.limit,
        }
    }

    /// `more`: there are further ones, for which a higher limit has room.
    fn told<T>(&self, name: &str, rows: &[Row<T>]) -> Response {
        let more = page::is_full(rows, self.limit);
        let rows = Row::json_of_all(rows);
        let listed = format!("{{\"{name}\":{rows},\"more\":{more}}}");
        answer::plain(listed, Speaker::Gateway, StatusCode::OK)
    }
}
