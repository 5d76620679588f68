//! A part of a call as it is stored, however long it is: as text, which a browser shows while it comes.

use axum::{
    Extension,
    body::Body,
    extract::{Path, State},
    http::{HeaderValue, header::CONTENT_TYPE},
    response::Response,
};

use super::{
    super::state::{Looking, Pages},
    story::Story,
};
use crate::{edge::guard::nowhere, refusal::Refused};

/// The part of this name.
pub(in super::super) async fn whole(
    State(console): Pages,
    Path((call, part)): Path<(String, String)>,
    Extension(visitor): Looking,
) -> Result<Response, Refused> {
    let call = Story::get(&console, &visitor, &call).await?.call;
    let part = match part.as_str() {
        "arguments-sent" => call.original_args,
        "arguments-run" => call.args,
        "result-json" => call.result,
        "error-json" => call.error,
        _other => None,
    };
    let Some(part) = part else {
        return Err(nowhere().await);
    };
    let mut response = Response::new(Body::from(part.get().to_owned()));
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    Ok(response)
}
