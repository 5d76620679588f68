//! Who sends a message, whatever carries it.

use axum::http::HeaderMap;
use fleet::{call::Language, ids::Label};

use crate::auth::principal::Principal;

/// What is known of who sends a message.
#[derive(Debug)]
pub(crate) struct McpClient {
    pub(crate) principal: Principal,
    /// For whom it asks.
    pub(crate) tenant: Label,
    /// What goes to every call where it begins with `Toolfleet-`: over HTTP the headers of the request.
    pub(crate) headers: HeaderMap,
    pub(crate) language: Language,
}
