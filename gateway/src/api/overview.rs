//! `GET /v1/overview`: how many calls there are in each state, and what became of those of the last ten minutes. `GET /v1/usage`: how tools
//! were used in the last hour.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use fleet::tokens::Scope;
use fleet_history::overview::{self, Counted, Overview};
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{
    answer, asked::Asked, headers::Speaker, refusal::Refused, state::Gateway, views::looked,
};

/// The counts of the tools that who asks may see.
pub(super) async fn overview(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&[Scope::Read])?;
    let tenant = asked.looks_at(principal)?;
    asked.query(&[])?;
    let found = looked(overview::overview(
        &gateway.views,
        tenant.as_ref(),
        principal.hidden_tenant(),
    ))
    .await?;
    let told = told(&found, |tool| principal.may_use(tool));
    Ok(answer::plain(
        told.to_string(),
        Speaker::Gateway,
        StatusCode::OK,
    ))
}

/// The usage of the tools that who asks may see.
pub(super) async fn usage(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&[Scope::Read])?;
    let tenant = asked.looks_at(principal)?;
    asked.query(&[])?;
    let mut found = looked(overview::usage(
        &gateway.views,
        tenant.as_ref(),
        principal.hidden_tenant(),
    ))
    .await?;
    found.retain(|used| principal.may_use(&used.tool));
    let told = json!({ "tools": found }).to_string();
    Ok(answer::plain(told, Speaker::Gateway, StatusCode::OK))
}

fn told(overview: &Overview, sees: impl Fn(&str) -> bool) -> Value {
    let open = overview
        .open
        .iter()
        .map(|count| (count.tool.as_str(), count.state.as_str(), count.calls));
    let open = overview::sums(open, &sees);
    let mut moments: Vec<OffsetDateTime> =
        overview.minutes.iter().map(|count| count.minute).collect();
    moments.dedup();
    let minutes: Vec<Value> = moments
        .into_iter()
        .map(|moment| {
            let of_it = overview
                .minutes
                .iter()
                .filter(|count| count.minute == moment);
            let counts =
                of_it.map(|count| (count.tool.as_str(), count.came_to.as_str(), count.calls));
            json!({ "from": rfc3339(moment), "calls": by_word(&overview::sums(counts, &sees)) })
        })
        .collect();
    json!({ "now": rfc3339(overview.now), "open": by_word(&open), "minutes": minutes })
}

fn by_word(counts: &[Counted]) -> Value {
    let members = counts
        .iter()
        .map(|count| (count.word.clone(), Value::from(count.calls)));
    Value::Object(members.collect())
}

fn rfc3339(moment: OffsetDateTime) -> String {
    moment
        .format(&Rfc3339)
        .expect("Postgres has no moment that RFC 3339 cannot say")
}
