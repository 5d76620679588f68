//! A session: its calls, its events as they come, and of a turn also what the speaker makes of them. Browsers show both as text that grows.

use axum::{Extension, extract::State, response::Response};
use fleet::ids::Label;
use maud::html;

use super::super::{
    frame::{Page, Place, Shown, framed},
    state::{Looking, Pages},
    text,
    visitor::{Visitor, encoded},
    words,
};

/// How sessions of turns are named.
const TURN: &str = "turn_";

/// The page.
pub(in super::super) async fn page(State(console): Pages, Extension(visitor): Looking) -> Response {
    let shown = shown(&visitor);
    framed(&console, &visitor, shown).await
}

fn shown(visitor: &Visitor) -> Shown {
    let query = visitor.query(&["session"])?;
    let session = query.text("session").unwrap_or_default();
    let is_named = session.parse::<Label>().is_ok();
    let main = html! {
        p.hint { (visitor.say(words::STREAMS_HINT)) }
        form.filters action="/console/streams" {
            @if let (true, Some(tenant)) = (visitor.may_choose_tenant(), visitor.tenant()) {
                input type="hidden" name="tenant" value=(tenant.as_str());
            }
            label { (visitor.say(words::SESSION_NAME)) " " input name="session" value=(text::visible(session)) autocomplete="off" required; }
            button { (visitor.say(words::SHOW)) }
        }
        @if is_named {
            ul {
                li { a href=(visitor.link(&format!("/console?session={}", encoded(session)))) { (visitor.say(words::CALLS)) } }
                li { a href=(visitor.link(&format!("/console/events?session={}", encoded(session)))) { (visitor.say(words::RAW_EVENTS)) } }
                @if session.starts_with(TURN) {
                    li { a href=(visitor.link(&format!("/console/events?turn={}", encoded(session)))) { (visitor.say(words::TOLD_EVENTS)) } }
                }
            }
        } @else {
            p { (visitor.say(words::NO_SESSION)) }
        }
    };
    Ok(Page {
        place: Place::Streams,
        title: visitor.say(words::STREAMS).to_owned(),
        is_live: false,
        main,
    })
}
