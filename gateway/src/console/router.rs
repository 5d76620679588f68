//! The paths of the console, and what stands around each: who has signed in, from which site a form comes, and what a page may load.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri,
        header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_FRAME_OPTIONS},
    },
    middleware::{Next, from_fn, from_fn_with_state, map_response},
    response::Response,
    routing::{get, post},
};
use tower_http::csrf::CsrfLayer;

use super::{
    assets, frame,
    own_api::OwnApi,
    pages::{
        acts, call, doubts, files, find, live, login, protection, streams, tool, tools, waiting,
        whole, workers,
    },
    session::{self, OnceLinks},
    state::{Console, Pages, see},
    ticks,
    visitor::{Visitor, encoded, named_tenant},
};
use crate::{
    auth::principal::Principal,
    edge::guard::{answered, nowhere, peer},
    refusal::Refused,
    state::Gateway,
};

/// What a page may load and do: what the gateway itself serves, and nothing that stands in a page.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; \
     base-uri 'none'; frame-ancestors 'none'",
);

/// No page of another site holds one of the console's, or loads what it serves.
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The pages. `endpoints`: those of the API, without what asks for a token before them.
pub(crate) fn router(gateway: &Arc<Gateway>, endpoints: Router) -> Router {
    let console = Arc::new(Console {
        gateway: Arc::clone(gateway),
        api: OwnApi::new(endpoints),
        links: OnceLinks::default(),
    });
    let signed_in = from_fn_with_state(Arc::clone(&console), signed_in);
    let pages = Router::new()
        .route("/console", get(live::page))
        .route("/console/calls/{call}", get(call::page))
        .route(
            "/console/calls/{call}/cancel",
            post(acts::cancel).get(call::of_form),
        )
        .route(
            "/console/calls/{call}/retry",
            post(acts::retry).get(call::of_form),
        )
        .route("/console/calls/{call}/whole/{part}", get(whole::whole))
        .route(
            "/console/calls/{call}/settle",
            post(acts::settle).get(call::of_form),
        )
        .route(
            "/console/calls/{call}/approve",
            post(acts::approve).get(call::of_form),
        )
        .route(
            "/console/calls/{call}/deny",
            post(acts::deny).get(call::of_form),
        )
        .route("/console/doubts", get(doubts::page))
        .route("/console/waiting", get(waiting::page))
        .route("/console/tools", get(tools::page))
        .route("/console/tools/{tool}", get(tool::page).post(tool::run))
        .route("/console/workers", get(workers::page))
        .route(
            "/console/protection",
            get(protection::page).post(protection::change),
        )
        .route("/console/streams", get(streams::page))
        .route("/console/find", get(find::find))
        .route("/console/files/{file}", get(files::download))
        .route("/console/ticks", get(ticks::ticks))
        .route("/console/events", get(ticks::events))
        .route("/console/{*nowhere}", get(nowhere))
        .route_layer(signed_in);
    Router::new()
        .route("/", get(to_the_console))
        .route("/console/", get(to_the_console))
        .route("/console/login", get(login::page).post(login::sign_in))
        .route("/console/logout", post(login::sign_out))
        .route("/console/language", post(login::choose_language))
        .route(
            "/console/enter/{code}",
            get(login::enter).post(login::entered_by_link),
        )
        .route("/console/links", post(login::link))
        .merge(pages)
        .layer(from_fn(of_own_pages))
        .layer(CsrfLayer::new())
        .layer(map_response(with_policy))
        // Kept for ever: outside what is said of pages.
        .route(assets::PATH, get(assets::asset))
        .with_state(console)
}

async fn to_the_console() -> Response {
    see("/console")
}

/// Lets in who has signed in; sends others to where that is done.
async fn signed_in(State(console): Pages, mut request: Request, next: Next) -> Response {
    let value = session::value(request.headers()).map(ToOwned::to_owned);
    let principal = match who(&console, value).await {
        Ok(Some(principal)) => principal,
        Ok(None) => return see(&to_sign_in(request.uri())),
        Err(refused) => return login::not_now(&request, &refused),
    };
    let peer = peer(&request);
    let named = named_tenant(&principal, request.uri());
    let (tenant, mut trouble) = match named {
        Ok(tenant) => (tenant, None),
        Err(refused) => (None, Some(refused)),
    };
    let (uri, headers) = (request.uri(), request.headers());
    let visitor = Visitor::new(principal.clone(), peer, uri, headers, tenant);
    // A form has its fields in its body: what else stands in its query would mean nothing, and look as if it did.
    if request.method() == Method::POST && trouble.is_none() {
        trouble = visitor.query(&[]).err();
    }
    if let Some(refused) = trouble {
        return frame::problem(&console, &visitor, &refused).await;
    }
    request.extensions_mut().insert(visitor.clone());
    let mut response = answered(Ok(principal), request, next).await;
    match response.extensions_mut().remove::<Refused>() {
        Some(refused) => frame::problem(&console, &visitor, &refused).await,
        None => response,
    }
}

fn to_sign_in(uri: &Uri) -> String {
    let here = uri
        .path_and_query()
        .map_or("/console", |here| here.as_str());
    format!("/console/login?to={}", encoded(here))
}

/// Who has signed in.
async fn who(console: &Console, value: Option<String>) -> Result<Option<Principal>, Refused> {
    let gateway = &console.gateway;
    if !gateway.authority.asks() {
        return Ok(Some(Principal::Anyone));
    }
    let Some(value) = value else {
        return Ok(None);
    };
    let keys = gateway.desk.state_keys.get(false).await;
    let (keys, now) = keys.ok_or_else(login::no_keys)?;
    match session::opened(&value, &keys, now) {
        Some(token_id) => gateway.authority.principal_again(&token_id),
        None => Ok(None),
    }
}

/// Lets a page of another site lead here, as a link does, and load nothing: it would look through the history with the reader's
/// cookie, and learn from how long that takes.
async fn of_own_pages(request: Request, next: Next) -> Response {
    if may_load(request.headers()) {
        return next.run(request).await;
    }
    let mut response = Response::default();
    *response.status_mut() = StatusCode::FORBIDDEN;
    response
}

/// What a browser says of where a request comes from and what for (Fetch Metadata). Other programs say nothing of it.
fn may_load(headers: &HeaderMap) -> bool {
    let said = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    let is = |name, word: &[u8]| said(name) == Some(word);
    match said("sec-fetch-site") {
        None | Some(b"same-origin" | b"none") => true,
        Some(_other_site) => is("sec-fetch-mode", b"navigate") && is("sec-fetch-dest", b"document"),
    }
}

async fn with_policy(mut response: Response) -> Response {
    let headers = response.headers_mut();
    // A file brings a stricter one.
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(POLICY);
    headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    response
}
