//! The search box: a call by its id, a session, a run, a trace, or a key behind the name of its tool.

use axum::{Extension, extract::State, response::Response};
use fleet::ids::{CallId, IdempotencyKey, Label, ToolName};
use maud::html;
use serde::Deserialize;

use super::super::{
    frame::{Page, Place, framed},
    state::{Console, Looking, Pages, see},
    visitor::{Visitor, encoded},
    words,
};
use crate::answer::Glimpse;

#[derive(Debug, Deserialize)]
struct FoundCalls {
    calls: Vec<serde::de::IgnoredAny>,
}

/// Leads to what was looked for.
pub(in super::super) async fn find(State(console): Pages, Extension(visitor): Looking) -> Response {
    let sought = match visitor.query(&["q"]) {
        Ok(query) => query.text("q").unwrap_or_default().trim().to_owned(),
        Err(refused) => return framed(&console, &visitor, Err(refused)).await,
    };
    match place(&console, &visitor, &sought).await {
        Some(place) => see(&visitor.link(&place)),
        None => {
            let page = Page {
                place: Place::Live,
                title: visitor.say(words::FIND).to_owned(),
                is_live: false,
                main: html! { p.hint { (visitor.say(words::FOUND_NOTHING)) } },
            };
            page.told(&console, &visitor).await
        }
    }
}

async fn place(console: &Console, visitor: &Visitor, sought: &str) -> Option<String> {
    if let Ok(call) = sought.parse::<CallId>() {
        return Some(format!("/console/calls/{call}"));
    }
    if let Some((tool, key)) = sought.split_once(' ') {
        let (Ok(tool), Ok(key)) = (
            tool.parse::<ToolName>(),
            key.trim().parse::<IdempotencyKey>(),
        ) else {
            return None;
        };
        let path = format!(
            "/v1/calls?tool={tool}&idempotency_key={}",
            encoded(key.as_str())
        );
        let found = console.api.get_own(visitor, &path).await.ok()?;
        let call = Glimpse::of(&found.body).call_id?;
        return Some(format!("/console/calls/{call}"));
    }
    let is_trace = sought.len() == 32 && sought.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_trace {
        return Some(format!("/console?text={}", sought.to_ascii_lowercase()));
    }
    let word: Label = sought.parse().ok()?;
    for by in ["session", "run"] {
        let path = format!("/v1/history?limit=1&{by}={word}");
        let found: FoundCalls = console.api.get(visitor, &path).await.ok()?;
        if !found.calls.is_empty() {
            return Some(format!("/console?{by}={word}"));
        }
    }
    None
}
