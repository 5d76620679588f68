//! Tells who operates a gateway what it has answered over MCP: a counter of all answers, and a line in the log for each that is no success.
//! Neither has anything of what was asked or answered.
//!
//! What is no answer is not counted: that a notification was taken, a stream that has its answer at the end, and a request whose client was
//! gone, or did not want it any more. A subscription is answered when it begins.

use axum::response::Response;
use fleet::{ids::Label, telemetry::metrics};

use super::{answer_code::AnswerCode, client::McpClient, methods::OTHER};
use crate::{auth::principal::Principal, refusal::Refused};

/// Notes the answer to a request. `method`: of [`super::methods::ServedMethod::counted_as`]. `principal`: by name.
pub(super) fn note(
    method: &'static str,
    code: AnswerCode,
    tenant: Option<&Label>,
    principal: Option<&str>,
) {
    let word = code.as_str();
    metrics().answered_over_mcp(method, word);
    if code != AnswerCode::Ok {
        let tenant = tenant.map(Label::as_str);
        tracing::debug!(
            method,
            code = word,
            tenant,
            principal,
            "a request over MCP was not answered with a success"
        );
    }
}

/// Notes an answer over HTTP, which may be none.
pub(super) fn note_response(
    method: &'static str,
    client: &McpClient,
    answered: &Result<Response, Refused>,
) {
    if let Some(code) = code_of(answered.as_ref()) {
        note(method, code, Some(&client.tenant), client.principal.name());
    }
}

/// Notes what was answered before the message was read: then nobody knows its method. `who`: asks.
pub(crate) fn note_unread(who: Option<&Principal>, answered: &Result<Box<Response>, Refused>) {
    if let Some(code) = code_of(answered.as_deref()) {
        note(OTHER, code, None, who.and_then(Principal::name));
    }
}

/// What an answer over HTTP comes to; `None`: it is none.
fn code_of(answered: Result<&Response, &Refused>) -> Option<AnswerCode> {
    match answered {
        Ok(response) => response.extensions().get().copied(),
        Err(refused) => Some(AnswerCode::Failed(refused.code())),
    }
}
