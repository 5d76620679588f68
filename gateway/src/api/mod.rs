//! The endpoints: a row each, and a file for what stands behind it.

mod batch;
mod call;
mod calls;
mod cancel;
mod completion;
mod decide;
mod history;
mod output;
mod settle;
mod tools;

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, rejection::PathRejection},
    middleware::{from_fn_with_state, map_response},
    response::Response,
    routing::{get, post},
};

use crate::{
    edge::guard::{known, not_like_this, nowhere, outermost},
    state::Gateway,
};

/// All of them.
pub(crate) fn router(gateway: Arc<Gateway>) -> Router {
    let known = from_fn_with_state(Arc::clone(&gateway), known);
    let outermost = from_fn_with_state(Arc::clone(&gateway), outermost);
    Router::new()
        .route("/v1/call/{tool}", post(call::call))
        .route("/v1/batch", post(batch::batch))
        .route("/v1/calls", get(calls::by_key))
        .route("/v1/calls/{call}", get(calls::by_id))
        .route("/v1/calls/{call}/cancel", post(cancel::cancel))
        .route("/v1/calls/{call}/settle", post(settle::settle))
        .route("/v1/calls/{call}/output", post(output::output))
        .route("/v1/calls/{call}/approve", post(decide::approve))
        .route("/v1/calls/{call}/deny", post(decide::deny))
        .route("/v1/history", get(history::list))
        .route("/v1/history/{call}", get(history::one))
        .route("/v1/tools", get(tools::list))
        .route("/v1/tools/{tool}", get(tools::one))
        .route_layer(known)
        // The token in the path is the right.
        .route("/v1/completions/{token}", post(completion::complete))
        .fallback(nowhere)
        .method_not_allowed_fallback(not_like_this)
        .layer(map_response(unstored))
        .layer(outermost)
        .with_state(gateway)
}

/// No proxy keeps an answer, and no browser guesses what it is.
async fn unstored(mut response: Response) -> Response {
    use axum::http::{
        HeaderValue,
        header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS},
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The name in a path; empty where it is no text, which no name is.
fn named(path: Result<Path<String>, PathRejection>) -> String {
    path.map(|Path(name)| name).unwrap_or_default()
}
