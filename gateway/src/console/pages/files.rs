//! A file of the fleet, to keep: never shown in a page.

use axum::{
    Extension,
    extract::{Path, State},
    http::{HeaderValue, header::CONTENT_DISPOSITION},
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
    response
        .headers_mut()
        .entry(CONTENT_DISPOSITION)
        .or_insert(to_keep);
    Ok(response)
}
