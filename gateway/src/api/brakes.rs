//! `GET /v1/interceptors`, `/v1/breakers` and `/v1/limits`: what may hold calls up, as the views have it.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use fleet::{
    ids::{Label, ToolName},
    said,
    wire::{code::Code, message::Message},
};
use fleet_history::{
    Row,
    pages::{self, BreakerPlace, BucketPlace, PageOf},
};

use super::LOOKERS_AT_CONTROLS;
use crate::{
    answer, asked::Asked, headers::Speaker, page, query::Query, refusal::Refused, state::Gateway,
    views::looked,
};

const ID: Message = Message::fixed("a breaker's id", "是熔断器的编号");

/// A page, and where it begins.
struct Wanted {
    tenant: Option<Label>,
    tool: Option<ToolName>,
    limit: i64,
    query: Query,
}

impl Wanted {
    /// `from`: the parameter with which the next page is asked for.
    fn read(asked: &Asked, from: &str) -> Result<Self, Refused> {
        let principal = asked.by(&LOOKERS_AT_CONTROLS)?;
        let tenant = asked.reach(principal)?;
        let query = asked.query(&["tool", from, "limit"])?;
        Ok(Self {
            tenant,
            tool: page::tool(&query, principal)?,
            limit: page::limit(&query)?,
            query,
        })
    }

    fn page(&self) -> PageOf<'_> {
        PageOf {
            tenant: self.tenant.as_ref(),
            tool: self.tool.as_ref(),
            limit: self.limit,
        }
    }

    /// The last row, where another page may follow.
    fn last<'a, T>(&self, rows: &'a [Row<T>]) -> Option<&'a Row<T>> {
        rows.last().filter(|_| page::is_full(rows, self.limit))
    }
}

/// The interceptors of workers' programs, by name.
pub(super) async fn interceptors(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
) -> Result<Response, Refused> {
    let wanted = Wanted::read(&asked, "after")?;
    let after = wanted.query.text("after");
    let found = looked(pages::interceptors(&gateway.views, wanted.page(), after)).await?;
    let last = wanted.last(&found).and_then(|row| row.read().ok());
    Ok(told(
        "interceptors",
        &found,
        "after",
        &last.map(|row| row.name),
    ))
}

/// The breakers, the newest first.
pub(super) async fn breakers(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
) -> Result<Response, Refused> {
    let wanted = Wanted::read(&asked, "before")?;
    let before = wanted.query.value("before", ID)?;
    let found = looked(pages::breakers(&gateway.views, wanted.page(), before)).await?;
    let last = wanted.last(&found).and_then(|row| row.read().ok());
    let before = last.map(|BreakerPlace { breaker_id }| breaker_id);
    Ok(told("breakers", &found, "before", &before))
}

/// The limits of start times, bucket by bucket.
pub(super) async fn limits(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
) -> Result<Response, Refused> {
    let wanted = Wanted::read(&asked, "after")?;
    let after = wanted.query.text("after").map(place).transpose()?;
    let found = looked(pages::limits(&gateway.views, wanted.page(), after.as_ref())).await?;
    let last = wanted.last(&found).and_then(|row| row.read().ok());
    let after = last.map(|last: BucketPlace| last.to_word());
    Ok(told("limits", &found, "after", &after))
}

fn place(word: &str) -> Result<BucketPlace, Refused> {
    BucketPlace::of_word(word).ok_or_else(|| {
        let rule = Message::fixed("what the page before has said", "是前一页给出的值");
        let what = said!("after must be {rule}", "after 必须{rule}", rule);
        Refused::new(Code::InvalidArguments, what)
    })
}

/// A page: its rows under this name, and with what the next one is asked for.
fn told<T>(name: &str, rows: &[Row<T>], from: &str, next: &impl serde::Serialize) -> Response {
    let rows = Row::json_of_all(rows);
    let next = serde_json::to_string(next).expect("a place is a number or a text");
    let listed = format!("{{\"{name}\":{rows},\"{from}\":{next}}}");
    answer::plain(listed, Speaker::Gateway, StatusCode::OK)
}
