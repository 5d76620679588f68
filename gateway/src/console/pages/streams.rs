//! A session: its calls, its events as they come, and of a turn also what the speaker makes of them. Both are texts that grow, one
//! beside the other.

use axum::{Extension, extract::State, response::Response};
use fleet::ids::Label;
use maud::{Markup, html};

use super::super::{
    frame::{Page, Place, Shown, framed},
    state::{Looking, Pages},
    text,
    visitor::{Visitor, encoded},
    words::{self, Word},
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
            p { a href=(visitor.link(&format!("/console?session={}", encoded(session)))) { (visitor.say(words::CALLS)) } }
            div.streams {
                (stream(visitor, words::RAW_EVENTS, &format!("/console/events?session={}", encoded(session))))
                @if session.starts_with(TURN) {
                    (stream(visitor, words::TOLD_EVENTS, &format!("/console/events?turn={}", encoded(session))))
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

/// Events as they come: text that the script has grow here, and without it a page of its own.
fn stream(visitor: &Visitor, title: Word, path: &str) -> Markup {
    let link = visitor.link(path);
    html! {
        section {
            h2 { a href=(link) { (visitor.say(title)) } }
            pre.stream tabindex="0" role="region" aria-label=(visitor.say(title)) data-stream=(link) {}
        }
    }
}
