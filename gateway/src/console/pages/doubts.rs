//! The calls in doubt: what was sent, what is known, and the form with which a person says what it was.

use axum::{Extension, extract::State, response::Response};
use fleet::tokens::Scope;
use maud::{Markup, html};

use super::{
    super::{
        frame::{Page, Place, Shown, framed},
        moment, shown,
        state::{Console, Looking, Pages},
        text,
        visitor::Visitor,
        words,
    },
    doubt::{self, Doubt, Doubts},
    settle,
};

/// Rows of a page.
const LIMIT: usize = 50;

/// The page.
pub(in super::super) async fn page(State(console): Pages, Extension(visitor): Looking) -> Response {
    let shown = shown(&console, &visitor).await;
    framed(&console, &visitor, shown).await
}

/// What the page is made from.
pub(in super::super) fn asks() -> String {
    format!("/v1/doubts?limit={LIMIT}")
}

async fn shown(console: &Console, visitor: &Visitor) -> Shown {
    visitor.query(&[])?;
    let found: Doubts = console.api.get(visitor, &asks()).await?;
    let main = html! {
        p.hint { (visitor.say(words::DOUBTS_HINT)) }
        @if !visitor.may(Scope::Settle) { p.hint { (visitor.say(words::MAY_NOT_SETTLE)) } }
        p { a #news hidden href=(visitor.here()) {} }
        div #doubts data-live data-rows {
            @for doubt in &found.doubts { (article(visitor, doubt)) }
        }
        p #nothing data-live { @if found.doubts.is_empty() { (visitor.say(words::NO_DOUBTS)) } }
        @if found.more { p.hint { (visitor.say(words::MORE)) } }
    };
    Ok(Page {
        place: Place::Doubts,
        title: visitor.say(words::DOUBTS).to_owned(),
        is_live: true,
        main,
    })
}

fn article(all: &Visitor, doubt: &Doubt) -> Markup {
    let visitor = &all.of_tenant(&doubt.tenant);
    let call = &doubt.call_id;
    html! {
        article.doubt id={ "doubt-" (call) } data-key=(call) {
            h2 {
                a href=(visitor.link(&format!("/console/calls/{call}"))) { (text::stranger(&doubt.tool)) }
                " " small { (moment::span(doubt.now - doubt.since)) " · " code { (call) } }
                (shown::tenant(all, &doubt.tenant))
            }
            (doubt::known(visitor, doubt))
            @if visitor.may(Scope::Settle) {
                details id={ "settle-" (call) } {
                    summary { (visitor.say(words::SETTLE)) }
                    (settle::form(visitor, doubt, None))
                }
            }
        }
    }
}
