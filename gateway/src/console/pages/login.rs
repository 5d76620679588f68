//! Signing in and out, the language, and the links that sign in once.

use std::sync::Arc;

use axum::{
    extract::{Path, Request, State},
    http::{HeaderMap, StatusCode, header::SET_COOKIE},
    response::{IntoResponse, Response},
};
use fleet::wire::{code::Code, message::Message};
use maud::{Markup, html};
use serde_json::json;
use tokio::time::Instant;

use super::super::{
    form::SentForm,
    frame::{document, other_language},
    session::{is_loopback, kept_cookie, sealed, set_cookie},
    shown,
    state::{Console, see},
    visitor::{LANGUAGE_COOKIE, Visitor},
    words::{self, Word},
};
use crate::{
    answer, asked::Asked, auth::principal::Principal, edge::guard::peer, headers::Speaker,
    query::Query, refusal::Refused,
};

/// How long a language is kept, in seconds: a year.
const LANGUAGE_KEPT: i64 = 31_536_000;

/// Where one signs in.
pub(in super::super) async fn page(
    State(console): State<Arc<Console>>,
    request: Request,
) -> Response {
    if !console.gateway.authority.asks() {
        return see("/console");
    }
    let to = Query::of_form(request.uri().query(), &["to", "tenant"]);
    let to = to
        .ok()
        .and_then(|query| query.text("to").map(ToOwned::to_owned));
    told(&stranger(&request), to.as_deref(), request.headers(), None)
}

/// Signs in with a token.
pub(in super::super) async fn sign_in(
    State(console): State<Arc<Console>>,
    request: Request,
) -> Response {
    let visitor = stranger(&request);
    let (parts, body) = request.into_parts();
    let asked = asked(parts.clone()).await;
    let form = SentForm::read_short(&console.gateway, &asked, body).await;
    let to = form.as_ref().ok().and_then(|form| form.text("to"));
    let principal = form.as_ref().map_err(Clone::clone).and_then(|form| {
        let address = visitor.peer().address();
        console
            .gateway
            .authority
            .principal_of(form.text("token"), address)
    });
    match principal {
        Ok(Principal::Token(token)) => {
            entered(&console, &visitor, &token.token_id, to, &parts.headers).await
        }
        Ok(Principal::Anyone | Principal::Named(_)) => see("/console"),
        Err(refused) => told(
            &visitor,
            to,
            &parts.headers,
            Some(Trouble::Refused(&refused)),
        ),
    }
}

/// A page for whoever cannot be recognised at the moment.
pub(in super::super) fn not_now(request: &Request, refused: &Refused) -> Response {
    let visitor = stranger(request);
    let body = html! {
        div #away {
            @if refused.code() == Code::StoreUnavailable { p.away role="alert" { (visitor.say(words::POSTGRES_AWAY)) } }
        }
        main #main.login {
            h1 { (visitor.say(words::PROBLEM)) }
            (shown::refused(&visitor, words::NOT_DONE, refused))
        }
    };
    let mut response = document(&visitor, "login", visitor.say(words::PROBLEM), &body);
    *response.status_mut() = refused.http_status();
    response
}

/// Where a link leads that signs in once: to a page that says under which name, and a button.
///
/// To look at it changes nothing: else whoever gets somebody to follow a link would sign them in under a token of his own.
pub(in super::super) async fn enter(
    State(console): State<Arc<Console>>,
    Path(code): Path<String>,
    request: Request,
) -> Response {
    let visitor = stranger(&request);
    let token_id = console.links.peek(&code, Instant::now());
    let name = token_id.and_then(|id| {
        let principal = console.gateway.authority.principal_again(&id).ok()??;
        principal.name().map(ToOwned::to_owned)
    });
    let Some(name) = name else {
        return told(
            &visitor,
            None,
            request.headers(),
            Some(Trouble::Word(words::LINK_IS_OVER)),
        );
    };
    let body = html! {
        main #main.login {
            h1 { (visitor.say(words::SIGN_IN)) }
            form method="post" action={ "/console/enter/" (code) } {
                p { (visitor.say(words::SIGNS_IN_AS)) " " strong { (name) } }
                button { (visitor.say(words::SIGN_IN)) }
            }
        }
    };
    document(&visitor, "login", visitor.say(words::SIGN_IN), &body)
}

/// Signs in by a link, once.
pub(in super::super) async fn entered_by_link(
    State(console): State<Arc<Console>>,
    Path(code): Path<String>,
    request: Request,
) -> Response {
    let (visitor, headers) = (stranger(&request), request.headers().clone());
    match console.links.take(&code, Instant::now()) {
        Some(token_id) => entered(&console, &visitor, &token_id, None, &headers).await,
        None => told(
            &visitor,
            None,
            &headers,
            Some(Trouble::Word(words::LINK_IS_OVER)),
        ),
    }
}

/// Makes such a link, for who has a token and says so as the API is asked.
pub(in super::super) async fn link(
    State(console): State<Arc<Console>>,
    request: Request,
) -> Response {
    let address = peer(&request).address();
    match console
        .gateway
        .authority
        .principal(request.headers(), address)
    {
        Ok(Principal::Token(token)) => {
            let path = format!(
                "/console/enter/{}",
                console.links.create(&token.token_id, Instant::now())
            );
            path_told(&path)
        }
        Ok(Principal::Anyone | Principal::Named(_)) => path_told("/console"),
        Err(refused) => refused.into_response(),
    }
}

fn path_told(path: &str) -> Response {
    let told = json!({ "path": path }).to_string();
    answer::plain(told, Speaker::Gateway, StatusCode::OK)
}

/// Signs out.
pub(in super::super) async fn sign_out(headers: HeaderMap) -> Response {
    let mut response = see("/console/login");
    response
        .headers_mut()
        .insert(SET_COOKIE, set_cookie(None, &headers));
    response
}

/// Chooses a language.
pub(in super::super) async fn choose_language(
    State(console): State<Arc<Console>>,
    request: Request,
) -> Result<Response, Refused> {
    let (parts, body) = request.into_parts();
    let asked = asked(parts.clone()).await;
    let form = SentForm::read_short(&console.gateway, &asked, body).await?;
    let language = if form.text("language") == Some("zh") {
        "zh"
    } else {
        "en"
    };
    let mut response = see(own_path(form.text("back")));
    let cookie = kept_cookie(LANGUAGE_COOKIE, language, LANGUAGE_KEPT, &parts.headers);
    response.headers_mut().insert(SET_COOKIE, cookie);
    Ok(response)
}

/// Where the keys cannot be read with which it is signed who has signed in.
pub(in super::super) fn no_keys() -> Refused {
    let what = Message::fixed(
        "Postgres does not answer, so it cannot be seen who has signed in",
        "Postgres 没有响应，因此无法确认登录者",
    );
    Refused::later(Code::StoreUnavailable, what)
}

enum Trouble<'a> {
    Refused(&'a Refused),
    Word(Word),
}

async fn entered(
    console: &Console,
    visitor: &Visitor,
    token_id: &str,
    to: Option<&str>,
    headers: &HeaderMap,
) -> Response {
    let Some((keys, now)) = console.gateway.desk.state_keys.get(false).await else {
        return told(visitor, to, headers, Some(Trouble::Refused(&no_keys())));
    };
    let mut response = see(own_path(to));
    let value = sealed(token_id, &keys, now);
    response
        .headers_mut()
        .insert(SET_COOKIE, set_cookie(Some(&value), headers));
    response
}

/// A path of the console, whatever a form or a link says.
fn own_path(path: Option<&str>) -> &str {
    let own = path.filter(|path| {
        let is_plain = path
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        let place = path.split(['?', '#']).next().unwrap_or_default();
        let mut steps = place.split('/').skip(1);
        let is_console = place.starts_with('/') && steps.next() == Some("console");
        // Neither up and out of it, nor to where one signs in under another name.
        let leads_away = steps.any(|step| {
            let step = step.to_ascii_lowercase().replace("%2e", ".");
            matches!(
                step.as_str(),
                "" | "." | ".." | "enter" | "login" | "logout"
            )
        });
        is_plain && is_console && !leads_away
    });
    own.unwrap_or("/console")
}

/// Somebody of whom nothing is known yet.
fn stranger(request: &Request) -> Visitor {
    Visitor::new(
        Principal::Anyone,
        peer(request),
        request.uri(),
        request.headers(),
        None,
    )
}

async fn asked(mut parts: axum::http::request::Parts) -> Asked {
    use axum::extract::FromRequestParts;
    let Ok(asked) = Asked::from_request_parts(&mut parts, &()).await;
    asked
}

fn told(
    visitor: &Visitor,
    to: Option<&str>,
    headers: &HeaderMap,
    trouble: Option<Trouble<'_>>,
) -> Response {
    let (problem, status) = match trouble {
        None => (Markup::default(), StatusCode::OK),
        Some(Trouble::Word(word)) => (
            html! { p.problem role="alert" { (visitor.say(word)) } },
            StatusCode::FORBIDDEN,
        ),
        Some(Trouble::Refused(refused)) => (
            shown::refused(visitor, words::NOT_DONE, refused),
            refused.http_status(),
        ),
    };
    let body = html! {
        header { span.brand { "Toolfleet" }
            form method="post" action="/console/language" {
                input type="hidden" name="back" value="/console/login";
                button.link name="language" value=(other_language(visitor)) { (visitor.say(words::OTHER_LANGUAGE)) }
            }
        }
        main #main.login {
            h1 { (visitor.say(words::SIGN_IN)) }
            (problem)
            form method="post" action="/console/login" {
                @if let Some(to) = to { input type="hidden" name="to" value=(to); }
                label for="token" { (visitor.say(words::TOKEN)) }
                input #token name="token" type="password" required autocomplete="current-password" aria-describedby="token-hint";
                p #token-hint.hint { (visitor.say(words::TOKEN_HINT)) }
                @if !is_loopback(headers) { p.hint { (visitor.say(words::PLAIN_HTTP)) } }
                button { (visitor.say(words::SIGN_IN)) }
            }
            // Who follows a link of another site comes without the cookie, which only the console's own pages are given.
            @if to.is_some() { p { a href=(own_path(to)) { (visitor.say(words::GO_ON)) } } }
        }
    };
    let mut response = document(visitor, "login", visitor.say(words::SIGN_IN), &body);
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_another_site() {
        for own in [
            "/console",
            "/console/doubts?tenant=a",
            "/console?state=failed",
        ] {
            assert_eq!(own_path(Some(own)), own);
        }
        for other in [
            "//evil.example",
            "https://evil.example",
            "/console\\@evil",
            "/consoles",
            "/v1/tools",
            "/console/\n",
            "/console/../v1/tools",
            "/console/%2e%2E/v1/tools",
            "/console/enter/x",
            "/console//enter/x",
        ] {
            assert_eq!(own_path(Some(other)), "/console", "{other:?}");
        }
    }
}
