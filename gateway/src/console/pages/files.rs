//! A file of the fleet, to keep: never shown in a page.

use axum::{
    Extension,
    extract::{Path, State},
    http::{
        HeaderValue,
        header::{CONTENT_DISPOSITION, CONTENT_TYPE},
    },
    response::Response,
};

use super::super::{
    state::{Looking, Pages},
    visitor::encoded,
};
use crate::refusal::Refused;

/// Brings a file.
pub(in super::super) async fn download(
    State(console): Pages,
    Path(file): Path<String>,
    Extension(visitor): Looking,
) -> Result<Response, Refused> {
    let path = format!("/v1/files/{}", encoded(&file));
    let mut response = console.api.stream(&visitor, &path, &[]).await?;
    let to_keep = HeaderValue::from_static("attachment");
    let headers = response.headers_mut();
    headers.entry(CONTENT_DISPOSITION).or_insert(to_keep);
    // As bytes: what a caller has uploaded as a script is none for a page of the console.
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    Ok(response)
}
