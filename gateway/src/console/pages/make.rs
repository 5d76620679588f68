//! Makes a call in the name of who looks.

use axum::http::HeaderValue;
use maud::{Markup, html};
use uuid::Uuid;

use super::super::{
    shown::Refusal,
    state::Console,
    visitor::{Visitor, encoded},
    words,
};
use crate::{
    answer::Glimpse,
    headers::{IDEMPOTENCY_KEY, PREFER},
    refusal::Refused,
};

/// A key that no other call has.
pub(super) fn new_key() -> String {
    format!("console-{}", Uuid::new_v4().simple())
}

/// Makes the call, and says under which id; `Err`: why there is none.
pub(super) async fn make(
    console: &Console,
    visitor: &Visitor,
    tool: &str,
    arguments: String,
    key: &str,
) -> Result<Result<String, Markup>, Refused> {
    let Ok(key) = HeaderValue::try_from(key) else {
        return Ok(Err(
            html! { p.problem role="alert" { (visitor.say(words::KEY_HINT)) } },
        ));
    };
    let headers = [
        (IDEMPOTENCY_KEY, key),
        (PREFER, HeaderValue::from_static("respond-async")),
    ];
    let path = format!("/v1/call/{}", encoded(tool));
    let answered = console
        .api
        .post(visitor, &path, arguments, &headers)
        .await?;
    let made = Glimpse::of(&answered.body).call_id;
    Ok(match (made, Refusal::of(&answered)) {
        (Some(call), _) => Ok(call.to_string()),
        (None, Some(refusal)) => Err(refusal.shown(visitor, words::NOT_DONE)),
        (None, None) => Err(html! { p.problem role="alert" { (visitor.say(words::NOT_DONE)) } }),
    })
}
