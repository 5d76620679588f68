//! What waits for somebody outside the fleet: a yes, a caller's own program, a tool that answers later.

use axum::{Extension, extract::State, response::Response};
use fleet::tokens::Scope;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::value::RawValue;
use time::OffsetDateTime;

use super::{
    super::{
        frame::{Page, Place, Shown, framed},
        json,
        moment::{self, TimeForm},
        shown,
        state::{Console, Looking, Pages},
        text,
        visitor::{Visitor, encoded},
        words,
    },
    actor,
    sent::{Act, Sent},
};
use crate::refusal::Refused;

/// Rows of a page.
const LIMIT: usize = 50;

/// A call that waits, as `GET /v1/waiting` has it.
#[derive(Debug, Deserialize)]
struct Wait {
    call_id: String,
    tenant: String,
    tool: String,
    effect: String,
    awaiting: String,
    #[serde(with = "time::serde::rfc3339")]
    since: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    until: OffsetDateTime,
    #[serde(default)]
    asked_by: Option<String>,
    arguments: Option<String>,
    arguments_length: Option<i64>,
    args_hash: Option<String>,
    approval_by: Option<String>,
    approvals_needed: Option<i64>,
    approvals: Option<i64>,
    approval_reason: Option<String>,
    #[serde(default)]
    approved_by: Vec<String>,
    #[serde(with = "time::serde::rfc3339")]
    now: OffsetDateTime,
}

#[derive(Debug, Deserialize)]
struct WaitingCalls {
    waiting: Vec<Wait>,
    more: bool,
}

impl Wait {
    /// Whether all of the arguments are shown.
    fn is_whole(&self) -> bool {
        let shown = self
            .arguments
            .as_deref()
            .map_or(0, |shown| shown.chars().count());
        self.arguments_length
            .is_none_or(|length| i64::try_from(shown) == Ok(length))
    }

    fn waits_for_operators(&self) -> bool {
        self.awaiting == "approval" && self.approval_by.as_deref() == Some("operator")
    }
}

/// The page.
pub(in super::super) async fn page(State(console): Pages, Extension(visitor): Looking) -> Response {
    let shown = shown(&console, &visitor).await;
    framed(&console, &visitor, shown).await
}

/// What the page is made from.
pub(in super::super) fn asks() -> String {
    format!("/v1/waiting?limit={LIMIT}")
}

/// What is asked for of one call.
pub(super) fn asks_of(call: &str) -> String {
    format!("/v1/waiting?call={}", encoded(call))
}

async fn shown(console: &Console, visitor: &Visitor) -> Shown {
    visitor.query(&[])?;
    let found: WaitingCalls = console.api.get(visitor, &asks()).await?;
    let main = html! {
        p.hint { (visitor.say(words::WAITING_HINT)) }
        p { a #news hidden href=(visitor.here()) {} }
        div #waiting data-live data-rows {
            @for wait in &found.waiting { (article(visitor, wait)) }
        }
        p #nothing data-live { @if found.waiting.is_empty() { (visitor.say(words::NO_WAITING)) } }
        @if found.more { p.hint { (visitor.say(words::MORE)) } }
    };
    Ok(Page {
        place: Place::Waiting,
        title: visitor.say(words::WAITING).to_owned(),
        is_live: true,
        main,
    })
}

fn article(all: &Visitor, wait: &Wait) -> Markup {
    let visitor = &all.of_tenant(&wait.tenant);
    let call = &wait.call_id;
    html! {
        article.waiting id={ "waiting-" (call) } data-key=(call) {
            h2 {
                a href=(visitor.link(&format!("/console/calls/{call}"))) { (text::stranger(&wait.tool)) }
                " " small { (visitor.say(words::AWAITS)) " " code { (text::stranger(&wait.awaiting)) } " · " (moment::span(wait.now - wait.since)) " · " code { (call) } }
                (shown::tenant(all, &wait.tenant))
            }
            (known(visitor, wait))
            @if wait.waits_for_operators() && visitor.may(Scope::Approve) {
                @if wait.is_whole() { (form(visitor, wait, None)) } @else {
                    p.hint { (visitor.say(words::SEE_CALL)) }
                }
            }
        }
    }
}

fn known(visitor: &Visitor, wait: &Wait) -> Markup {
    html! {
        dl.facts {
            dt { (visitor.say(words::ARGUMENTS)) }
            dd { @if let Some(arguments) = &wait.arguments { code.arguments { (json::visible(arguments)) @if !wait.is_whole() { " …" } } } }
            @if let Some(by) = &wait.asked_by { dt { (visitor.say(words::ASKED_BY)) } dd { (text::beginning(by, 80)) } }
            dt { (visitor.say(words::EFFECT)) } dd { code { (text::stranger(&wait.effect)) } }
            dt { (visitor.say(words::UNTIL)) } dd { (moment::at(wait.until, TimeForm::Date)) }
            @if let Some(hash) = &wait.args_hash { dt { (visitor.say(words::HASH)) } dd { code.hash { (hash) } } }
            @if let Some(reason) = &wait.approval_reason { dt { (visitor.say(words::REASON)) } dd { (text::stranger(reason)) } }
            @if wait.awaiting == "approval" {
                dt { (visitor.say(words::APPROVED_BY)) }
                dd {
                    (wait.approvals.unwrap_or_default()) " " (visitor.say(words::OF)) " " (wait.approvals_needed.unwrap_or(1))
                    @for actor in &wait.approved_by { " · " (text::beginning(actor, 80)) }
                }
                @if !wait.waits_for_operators() { dt { (visitor.say(words::BY)) } dd { (visitor.say(words::CALLERS_YES)) } }
            }
        }
    }
}

fn form(visitor: &Visitor, wait: &Wait, sent: Option<&Sent>) -> Markup {
    let sent = Sent::of(sent, Act::Decide);
    let call = &wait.call_id;
    let action = |verb: &str| visitor.link(&format!("/console/calls/{call}/{verb}"));
    html! {
        form.decide method="post" action=(action("approve")) {
            input type="hidden" name="args_hash" value=(wait.args_hash.as_deref().unwrap_or_default());
            label for={ "note-" (call) } { (visitor.say(words::REASON)) }
            input id={ "note-" (call) } name="note" required maxlength="2000" autocomplete="off" value=(Sent::text(sent, "note"));
            (actor::field(visitor, call))
            button { (visitor.say(words::APPROVE)) } " "
            button.danger formaction=(action("deny")) { (visitor.say(words::DENY)) }
        }
    }
}

/// What is decided about a call that waits for a yes, on its own page, under all of its arguments.
pub(super) async fn of_call(
    console: &Console,
    visitor: &Visitor,
    call: &str,
    arguments: Option<&RawValue>,
    sent: Option<&Sent>,
) -> Result<Markup, Refused> {
    let found: WaitingCalls = console.api.get(visitor, &asks_of(call)).await?;
    let wait = found.waiting.iter().find(|wait| wait.call_id == call);
    let may_decide = |wait: &Wait| wait.waits_for_operators() && visitor.may(Scope::Approve);
    Ok(html! {
        @if let Some(wait) = wait {
            section #decide.waiting {
                h2 { (visitor.say(words::DECIDE)) }
                (known(visitor, wait))
                @if !wait.is_whole() { @if let Some(all) = arguments {
                    pre.json tabindex="0" { (json::shown(all.get())) }
                } }
                @if may_decide(wait) { (form(visitor, wait, sent)) }
            }
        }
    })
}
