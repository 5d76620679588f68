//! The endpoints: a row each, and a file for what stands behind it.

pub(crate) mod batch;
mod brakes;
mod call;
mod calls;
mod cancel;
mod check;
mod completion;
mod control;
mod decide;
mod events;
mod files;
mod history;
mod inbox;
mod mcp;
mod models;
mod openapi;
mod output;
mod overview;
mod settle;
mod shown;
mod tools;
mod turn_events;
mod turn_outputs;
mod turns;
mod versions;
mod workers;

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, rejection::PathRejection},
    handler::Handler,
    http::Method,
    middleware::{from_fn_with_state, map_response},
    response::Response,
    routing::{self, MethodRouter},
};
use fleet::tokens::Scope;

use crate::{
    console,
    edge::guard::{known, known_by_key, known_if_told, not_like_this, nowhere, outermost},
    models::protocol::{CHAT_COMPLETIONS, MESSAGES, RESPONSES},
    state::Gateway,
};

/// Who may look at tools, and have arguments looked at.
const LOOKERS_AT_TOOLS: [Scope; 2] = [Scope::Call, Scope::Read];
/// Who may look at what changes what may run.
const LOOKERS_AT_CONTROLS: [Scope; 2] = [Scope::Read, Scope::Admin];

/// An endpoint: a row of the table.
struct Route {
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a test compares it with the document")
    )]
    method: Method,
    path: &'static str,
    asks: Asks,
    answers: MethodRouter<Arc<Gateway>>,
}

/// Whether an endpoint wants to know who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// It does.
    Token,
    /// It does, and a vendor's client may say it in its own way.
    TokenOrKey,
    /// Where the request says so.
    TokenIfTold,
    /// It does not.
    Nobody,
}

/// All of them. `schemas/openapi.json` describes each.
fn routes() -> Vec<Route> {
    vec![
        post("/v1/call/{tool}", call::call),
        post("/v1/batch", batch::batch),
        get("/v1/calls", calls::by_key),
        get("/v1/calls/{call}", calls::by_id),
        post("/v1/calls/{call}/cancel", cancel::cancel),
        post("/v1/calls/{call}/settle", settle::settle),
        post("/v1/calls/{call}/output", output::output),
        post("/v1/calls/{call}/approve", decide::approve),
        post("/v1/calls/{call}/deny", decide::deny),
        get("/v1/sessions/{session}/events", events::session),
        post("/v1/turns", turns::submit),
        get("/v1/turns/{turn}", turns::one),
        get("/v1/turns/{turn}/events", turn_events::follow),
        post("/v1/turns/{turn}/outputs", turn_outputs::hand_in_outputs),
        post("/v1/files", files::upload_one),
        get("/v1/files/{file}", files::download_one),
        delete("/v1/files/{file}", files::delete_one),
        // The signature in the query is the right.
        get("/v1/files/{file}/signed", files::signed).asking(Asks::Nobody),
        get("/v1/history", history::list),
        get("/v1/history/{call}", history::one),
        get("/v1/history/{call}/why", history::why),
        get("/v1/overview", overview::overview),
        get("/v1/usage", overview::usage),
        get("/v1/doubts", inbox::doubts),
        get("/v1/waiting", inbox::waiting),
        get("/v1/workers", workers::workers),
        get("/v1/servers", versions::servers),
        get("/v1/tools", tools::list),
        get("/v1/tools/{tool}", tools::one),
        get("/v1/tools/{tool}/versions", versions::versions),
        post("/v1/tools/{tool}/check", check::check),
        get("/v1/control", control::list),
        post("/v1/control", control::change),
        get("/v1/interceptors", brakes::interceptors),
        get("/v1/breakers", brakes::breakers),
        get("/v1/limits", brakes::limits),
        // The token in the path is the right.
        post("/v1/completions/{token}", completion::complete).asking(Asks::Nobody),
        post(CHAT_COMPLETIONS, models::chat_completions).asking(Asks::TokenOrKey),
        post(RESPONSES, models::responses).asking(Asks::TokenOrKey),
        post(MESSAGES, models::messages).asking(Asks::TokenOrKey),
        post(crate::mcp::PATH, mcp::message),
        delete(crate::mcp::PATH, mcp::end),
        // Without the tools it is the same in every copy of the program.
        get("/v1/openapi.json", openapi::document).asking(Asks::TokenIfTold),
    ]
}

fn get<H, T>(path: &'static str, handler: H) -> Route
where
    H: Handler<T, Arc<Gateway>>,
    T: 'static,
{
    Route {
        method: Method::GET,
        path,
        asks: Asks::Token,
        answers: routing::get(handler),
    }
}

fn post<H, T>(path: &'static str, handler: H) -> Route
where
    H: Handler<T, Arc<Gateway>>,
    T: 'static,
{
    Route {
        method: Method::POST,
        path,
        asks: Asks::Token,
        answers: routing::post(handler),
    }
}

fn delete<H, T>(path: &'static str, handler: H) -> Route
where
    H: Handler<T, Arc<Gateway>>,
    T: 'static,
{
    Route {
        method: Method::DELETE,
        path,
        asks: Asks::Token,
        answers: routing::delete(handler),
    }
}

impl Route {
    fn asking(self, asks: Asks) -> Self {
        Self { asks, ..self }
    }
}

/// What serves all of them.
pub(crate) fn router(gateway: Arc<Gateway>) -> Router {
    let known = from_fn_with_state(Arc::clone(&gateway), known);
    let known_by_key = from_fn_with_state(Arc::clone(&gateway), known_by_key);
    let known_if_told = from_fn_with_state(Arc::clone(&gateway), known_if_told);
    let outermost = from_fn_with_state(Arc::clone(&gateway), outermost);
    let mut router = Router::new();
    for route in routes() {
        let answers = match route.asks {
            Asks::Token => route.answers.route_layer(known.clone()),
            Asks::TokenOrKey => route.answers.route_layer(known_by_key.clone()),
            Asks::TokenIfTold => route.answers.route_layer(known_if_told.clone()),
            Asks::Nobody => route.answers,
        };
        router = router.route(route.path, answers);
    }
    router
        .with_state(Arc::clone(&gateway))
        .merge(console::router(
            &gateway,
            endpoints().with_state(Arc::clone(&gateway)),
        ))
        .fallback(nowhere)
        .method_not_allowed_fallback(not_like_this)
        .layer(outermost)
        // Around what the edge says itself, too.
        .layer(map_response(unstored))
}

/// The endpoints alone, for who is known already.
fn endpoints() -> Router<Arc<Gateway>> {
    let routes = routes().into_iter();
    routes.fold(Router::new(), |router, route| {
        router.route(route.path, route.answers)
    })
}

/// No proxy keeps an answer that does not say so itself, and no browser guesses what it is.
async fn unstored(mut response: Response) -> Response {
    use axum::http::{
        HeaderValue,
        header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS},
    };
    let headers = response.headers_mut();
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The name in a path; empty where it is no text, which no name is.
fn named(path: Result<Path<String>, PathRejection>) -> String {
    path.map(|Path(name)| name).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::openapi::bundle;

    use super::*;

    #[test]
    fn the_document_has_every_route_and_no_other() {
        let table: BTreeSet<(String, String)> = routes()
            .into_iter()
            .map(|route| (route.method.as_str().to_lowercase(), route.path.to_owned()))
            .collect();
        let paths = bundle::document()["paths"].as_object().unwrap();
        let described: BTreeSet<(String, String)> = paths
            .iter()
            .flat_map(|(path, item)| {
                let methods = item.as_object().unwrap().keys();
                methods.map(move |method| (method.clone(), path.clone()))
            })
            .collect();
        assert_eq!(described, table);
        for route in routes() {
            let method = route.method.as_str().to_lowercase();
            let operation = &bundle::document()["paths"][route.path][&method];
            let security = match route.asks {
                Asks::Token => serde_json::Value::Null,
                Asks::TokenOrKey => serde_json::json!([{ "token": [] }, { "key": [] }]),
                Asks::TokenIfTold => serde_json::json!([{}, { "token": [] }]),
                Asks::Nobody => serde_json::json!([]),
            };
            assert_eq!(operation["security"], security, "{method} {}", route.path);
        }
    }
}
