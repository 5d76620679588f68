//! What is done about a call: it is taken back, made again, settled, approved or denied. Each is a request to its endpoint, and
//! what came of it stands above the page of the call.

use axum::{
    Extension,
    body::Body,
    extract::{Path, State},
    response::Response,
};
use maud::{Markup, html};
use serde_json::{Value, json, value::RawValue};

use super::{
    super::{
        form::SentForm,
        frame::framed,
        shown::Refusal,
        state::{Console, Looking, Pages, see},
        visitor::{Visitor, encoded},
        words,
    },
    actor, call, details,
    make::{make, new_key},
    sent::{Act, Sent},
    story::{Story, StoryMove},
};
use crate::{asked::Asked, refusal::Refused};

/// Takes a call back.
pub(in super::super) async fn cancel(
    State(console): Pages,
    Path(call): Path<String>,
    Extension(visitor): Looking,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    let form = SentForm::read(&console.gateway, &asked, body).await?;
    let mut wish = json!({});
    if let Some(reason) = form.text("reason") {
        wish["reason"] = json!(reason);
    }
    actor::name(&mut wish, &visitor, &form);
    let path = format!("/v1/calls/{}/cancel", encoded(&call));
    let answered = console
        .api
        .post(&visitor, &path, wish.to_string(), &[])
        .await?;
    match Refusal::of(&answered) {
        None => Ok(see(
            &visitor.link(&format!("/console/calls/{}", encoded(&call)))
        )),
        Some(refusal) => {
            let told = refusal.shown(&visitor, words::NOT_DONE);
            Ok(refused(&console, &visitor, &call, Act::Cancel, form, told).await)
        }
    }
}

/// The page of the call with a form that was refused, and what stood in it.
async fn refused(
    console: &Console,
    visitor: &Visitor,
    call: &str,
    act: Act,
    form: SentForm,
    told: Markup,
) -> Response {
    let sent = Sent { act, form, told };
    let shown = call::shown(console, visitor, call, Some(sent)).await;
    framed(console, visitor, shown).await
}

/// Makes the call again, as a new one with its own key.
pub(in super::super) async fn retry(
    State(console): Pages,
    Path(call): Path<String>,
    Extension(visitor): Looking,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    let form = SentForm::read(&console.gateway, &asked, body).await?;
    let story = Story::get(&console, &visitor, &call).await?;
    // It may have gone in doubt while the form was looked at.
    if story.call.finished_at.is_none() {
        let told = html! { p.problem role="alert" { (visitor.say(words::RETRY_NOT)) } };
        return Ok(refused(&console, &visitor, &call, Act::Retry, form, told).await);
    }
    let arguments = form.text("arguments").unwrap_or("{}").to_owned();
    let key = form.text("key").map_or_else(new_key, ToOwned::to_owned);
    match make(&console, &visitor, &story.call.tool, arguments, &key).await? {
        Ok(new) => Ok(see(&visitor.link(&format!("/console/calls/{new}")))),
        Err(told) => Ok(refused(&console, &visitor, &call, Act::Retry, form, told).await),
    }
}

/// Settles a call, and shows the verdict as it is.
pub(in super::super) async fn settle(
    State(console): Pages,
    Path(call): Path<String>,
    Extension(visitor): Looking,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    let form = SentForm::read(&console.gateway, &asked, body).await?;
    let mut wish = json!({
        "outcome": form.text("outcome").unwrap_or_default(),
        "note": form.text("note").unwrap_or_default(),
    });
    if form.is_ticked("by_time_only") {
        wish["by_time_only"] = json!(true);
    }
    actor::name(&mut wish, &visitor, &form);
    let told = match with_result(&wish, form.text("result")) {
        Some(wish) => {
            let path = format!("/v1/calls/{}/settle", encoded(&call));
            let answered = console.api.post(&visitor, &path, wish, &[]).await?;
            let Some(refusal) = Refusal::of(&answered) else {
                return Ok(see(
                    &visitor.link(&format!("/console/calls/{}?did=settled", encoded(&call)))
                ));
            };
            html! {
                (refusal.shown(&visitor, words::NOT_DONE))
                (decided(&console, &visitor, &call).await.unwrap_or_default())
            }
        }
        None => html! {
            div.problem role="alert" { h2 { (visitor.say(words::NOT_DONE)) } p { (visitor.say(words::RESULT_IS_NO_JSON)) } }
        },
    };
    Ok(refused(&console, &visitor, &call, Act::Settle, form, told).await)
}

/// Who has decided a call before, and how, for who comes second; `None`: it is not over.
async fn decided(console: &Console, visitor: &Visitor, call: &str) -> Option<Markup> {
    let story = Story::get(console, visitor, call).await.ok()?;
    story.call.finished_at?;
    let is_move = |moved: &&StoryMove| moved.from_state.as_deref() != Some(&moved.to_state);
    let last = story.events.iter().rfind(is_move)?;
    Some(html! {
        p.first {
            (visitor.say(words::WAS_FIRST)) " " (details::decision(last))
        }
    })
}

/// The wish with the result as it was written, every digit kept. `None`: that is no JSON.
fn with_result(wish: &Value, result: Option<&str>) -> Option<String> {
    let Some(result) = result else {
        return Some(wish.to_string());
    };
    let result: &RawValue = serde_json::from_str(result).ok()?;
    let wish = wish.to_string();
    let open = wish.strip_suffix('}')?;
    Some(format!("{open},\"result\":{}}}", result.get()))
}

/// Says yes.
pub(in super::super) async fn approve(
    state: Pages,
    call: Path<String>,
    visitor: Looking,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    decide(state, call, visitor, asked, body, "approve").await
}

/// Says no.
pub(in super::super) async fn deny(
    state: Pages,
    call: Path<String>,
    visitor: Looking,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    decide(state, call, visitor, asked, body, "deny").await
}

async fn decide(
    State(console): Pages,
    Path(call): Path<String>,
    Extension(visitor): Looking,
    asked: Asked,
    body: Body,
    verb: &str,
) -> Result<Response, Refused> {
    let sent = SentForm::read(&console.gateway, &asked, body).await?;
    let mut wish = json!({
        "args_hash": sent.text("args_hash").unwrap_or_default(),
        "note": sent.text("note").unwrap_or_default(),
    });
    actor::name(&mut wish, &visitor, &sent);
    let path = format!("/v1/calls/{}/{verb}", encoded(&call));
    let answered = console
        .api
        .post(&visitor, &path, wish.to_string(), &[])
        .await?;
    match Refusal::of(&answered) {
        Some(refusal) => {
            let told = html! {
                (refusal.shown(&visitor, words::NOT_DONE))
                (decided(&console, &visitor, &call).await.unwrap_or_default())
            };
            Ok(refused(&console, &visitor, &call, Act::Decide, sent, told).await)
        }
        None => Ok(see(
            &visitor.link(&format!("/console/calls/{}?did=decided", encoded(&call)))
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_sent_with_every_digit_and_no_other_member() {
        let wish = json!({"note": "n"});
        assert_eq!(
            with_result(&wish, Some("{\"n\": 9007199254740993.10}")).unwrap(),
            "{\"note\":\"n\",\"result\":{\"n\": 9007199254740993.10}}"
        );
        for bad in ["{", "1,\"outcome\":\"applied\"", "x"] {
            assert_eq!(with_result(&wish, Some(bad)), None, "{bad}");
        }
    }
}
