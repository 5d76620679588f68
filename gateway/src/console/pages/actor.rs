//! Who decides, where the token does not say it.

use maud::{Markup, html};
use serde_json::{Value, json};

use super::super::{form::SentForm, visitor::Visitor, words};

/// Where nobody is asked for a token, whoever decides says who that is.
pub(super) fn field(visitor: &Visitor, call: &str) -> Markup {
    html! {
        @if visitor.name().is_none() {
            label for={ "actor-" (call) } { (visitor.say(words::ACTOR)) }
            input id={ "actor-" (call) } name="actor" required maxlength="100" autocomplete="name";
        }
    }
}

/// Names who decides where the token does not.
pub(super) fn name(wish: &mut Value, visitor: &Visitor, form: &SentForm) {
    if visitor.name().is_none()
        && let Some(actor) = form.text("actor")
    {
        wish["actor"] = json!(actor);
    }
}
