//! What came of a request, whatever carried it.

use fleet::{
    outcome::{Outcome, ToolFailure},
    said,
    wire::message::Message,
};
use serde_json::{Value, json};

use super::{
    message::{RpcAnswer, RpcError},
    skim::Skimmed,
};
use crate::executors::StopReason;

/// What came of a request.
#[derive(Debug)]
pub(super) enum Came {
    /// An answer.
    Answer(RpcAnswer),
    /// An answer that is larger than it may be: what it is, as far as that was seen, and its beginning.
    TooLarge(Skimmed, Vec<u8>),
    /// A status of HTTP that is no success, and the error of the protocol in its body, if there is one.
    Status(HttpStatus),
    /// Something else than an answer, or an end without one.
    NoAnswer(ToolFailure),
    /// It is proven that nothing was sent.
    NotSent(ToolFailure),
    /// The attempt had to end before an answer came.
    CutOff(CutOff),
}

/// A status of HTTP that is no success.
#[derive(Debug)]
pub(super) struct HttpStatus {
    pub(super) status: u16,
    pub(super) error: Option<RpcError>,
    pub(super) retry_after: Option<std::time::Duration>,
    /// Whether the request named a session.
    pub(super) of_session: bool,
    /// What else is known of it.
    pub(super) facts: StatusFacts,
}

/// What is told of a status beside it.
#[derive(Debug, Default)]
pub(super) struct StatusFacts {
    /// The beginning of the body, without secrets.
    pub(super) excerpt: Option<String>,
    /// The headers of the request whose values are secrets: names alone.
    pub(super) secret_headers: Vec<String>,
}

impl HttpStatus {
    /// What is kept with a failure.
    pub(super) fn details(&self) -> Value {
        let mut details = json!({ "status": self.status });
        if let Some(excerpt) = &self.facts.excerpt {
            details["body"] = excerpt.as_str().into();
        }
        details
    }

    /// That the server lets nobody in, and where its secrets are.
    pub(super) fn let_nobody_in(&self) -> Message {
        let status = self.status;
        let headers = self.facts.secret_headers.join(", ");
        if headers.is_empty() {
            return said!(
                "the MCP server let nobody in: it answered with status {status}, and its manifest has no secret in a header",
                "MCP 服务器拒绝访问：它返回了状态码 {status}，而它的清单没有带密钥的请求头"
            );
        }
        said!(
            "the MCP server let nobody in: it answered with status {status}; the secrets of its manifest are in {headers}",
            "MCP 服务器拒绝访问：它返回了状态码 {status}；清单中的密钥在请求头 {headers} 中"
        )
    }
}

/// Why an attempt had to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CutOff {
    TimedOut,
    Stopped(StopReason),
}

/// Whether a status says that the request is not one for this server, and neither who may ask nor how often.
const fn is_refusal(status: u16) -> bool {
    matches!(status, 400..=499) && !matches!(status, 401 | 403 | 408 | 429)
}

impl Came {
    /// The error of the protocol that it has.
    pub(super) fn error(&self) -> Option<&RpcError> {
        match self {
            Self::Answer(RpcAnswer::Error(error)) => Some(error),
            Self::Status(status) => status.error.as_ref(),
            Self::Answer(RpcAnswer::Result(..))
            | Self::TooLarge(..)
            | Self::NoAnswer(_)
            | Self::NotSent(_)
            | Self::CutOff(_) => None,
        }
    }

    /// Whether the server is not what it was when this worker first asked it: it has forgotten the session, or speaks another revision.
    pub(super) fn is_of_another_server(&self) -> bool {
        let forgot = matches!(self, Self::Status(came) if came.status == 404 && came.of_session);
        forgot
            || self
                .error()
                .is_some_and(|error| (-32022..=-32020).contains(&error.code))
    }

    /// Whether it may be of a server that is not what it was: it answers, and knows neither the tool nor this way of asking. Tools that
    /// say no do so with a result.
    pub(super) fn may_be_of_another_server(&self) -> bool {
        match self {
            Self::Answer(RpcAnswer::Error(_)) => true,
            Self::Status(came) => is_refusal(came.status),
            Self::Answer(RpcAnswer::Result(..))
            | Self::TooLarge(..)
            | Self::NoAnswer(_)
            | Self::NotSent(_)
            | Self::CutOff(_) => false,
        }
    }

    /// Of an outcome of the HTTP client that has no status.
    pub(super) fn without_status(outcome: Outcome) -> Self {
        match outcome {
            Outcome::NotStarted(failure) => Self::NotSent(failure),
            Outcome::Unknown(failure) | Outcome::DefiniteFailure(failure) => {
                Self::NoAnswer(failure)
            }
            Outcome::Applied { .. } => unreachable!("a request without a status has no result"),
        }
    }
}
