//! What pages are made with, and what their handlers get and give.

use std::sync::Arc;

use axum::{
    Extension,
    body::Body,
    extract::State,
    http::{HeaderValue, StatusCode, header::LOCATION},
    response::Response,
};

use super::{own_api::OwnApi, session::OnceLinks, visitor::Visitor};
use crate::state::Gateway;

/// What pages are made with.
#[derive(Debug)]
pub(super) struct Console {
    pub(super) gateway: Arc<Gateway>,
    pub(super) api: OwnApi,
    pub(super) links: OnceLinks,
}

/// What handlers of pages work on.
pub(super) type Pages = State<Arc<Console>>;
/// Who looks.
pub(super) type Looking = Extension<Visitor>;

/// To another page, which is asked for anew.
pub(super) fn see(path: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let place = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/console"));
    response.headers_mut().insert(LOCATION, place);
    response
}
