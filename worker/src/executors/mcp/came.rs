//! What came of a request, whatever carried it.

use fleet::{
    outcome::{Outcome, ToolFailure},
    said,
    secrets::Secrets,
    wire::code::Code,
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
    /// The headers of the request whose values are secrets.
    pub(super) secret_headers: Vec<SecretHeader>,
}

/// A header of a server's manifest whose value is a secret: their names alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SecretHeader {
    pub(super) header: String,
    pub(super) secret: String,
}

/// The most headers that are named.
const NAMED_MAX: usize = 3;

impl HttpStatus {
    /// What is kept with a failure.
    pub(super) fn details(&self) -> Value {
        let mut details = json!({ "status": self.status });
        if let Some(excerpt) = &self.facts.excerpt {
            details["body"] = excerpt.as_str().into();
        }
        details
    }

    /// The failure of a request to a server that lets nobody in, with the headers of its manifest that an operator has to look at. A wrong
    /// secret does not mend itself, but a server that names a pause wants nothing else.
    pub(super) fn let_nobody_in(&self) -> ToolFailure {
        let status = self.status;
        let secrets = &self.facts.secret_headers;
        let of_secret = |SecretHeader { header, secret }: &SecretHeader| {
            format!("{header} ({}{secret})", Secrets::SCHEME)
        };
        let named: Vec<String> = secrets.iter().take(NAMED_MAX).map(of_secret).collect();
        let (headers, more) = (named.join(", "), secrets.len().saturating_sub(NAMED_MAX));
        let what = match (secrets.len(), more) {
            (0, _) => said!(
                "the MCP server let nobody in: it answered with status {status}; an operator has to look at transport.http.headers of its manifest, which has no secret",
                "MCP 服务器拒绝访问：它返回了状态码 {status}；需要运维人员检查清单中的 transport.http.headers，其中没有密钥"
            ),
            (1, _) => said!(
                "the MCP server let nobody in: it answered with status {status}; an operator has to look at this header of its manifest, and its secret: {headers}",
                "MCP 服务器拒绝访问：它返回了状态码 {status}；需要运维人员检查清单中的这个请求头和它的密钥：{headers}"
            ),
            (_, 0) => said!(
                "the MCP server let nobody in: it answered with status {status}; an operator has to look at these headers of its manifest, and their secrets: {headers}",
                "MCP 服务器拒绝访问：它返回了状态码 {status}；需要运维人员检查清单中的这些请求头和它们的密钥：{headers}"
            ),
            (_, more) => said!(
                "the MCP server let nobody in: it answered with status {status}; an operator has to look at these headers of its manifest, and their secrets: {headers} and {more} more",
                "MCP 服务器拒绝访问：它返回了状态码 {status}；需要运维人员检查清单中的这些请求头和它们的密钥：{headers} 以及另外 {more} 个"
            ),
        };
        let failure = ToolFailure::new(Code::Unavailable, what).with_details(self.details());
        match self.retry_after {
            None => failure.for_operators(),
            pause => failure.with_retry_after(pause),
        }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn came(headers: usize, retry_after: Option<Duration>) -> HttpStatus {
        let header = |number: usize| SecretHeader {
            header: format!("X-{number}"),
            secret: format!("S{number}"),
        };
        HttpStatus {
            status: 401,
            error: None,
            retry_after,
            of_session: false,
            facts: StatusFacts {
                excerpt: None,
                secret_headers: (1..=headers).map(header).collect(),
            },
        }
    }

    #[test]
    fn who_is_not_let_in_reads_which_secrets_to_look_at() {
        for (headers, said) in [
            (
                0,
                "transport.http.headers of its manifest, which has no secret",
            ),
            (
                1,
                "this header of its manifest, and its secret: X-1 (secret://S1)",
            ),
            (
                2,
                "these headers of its manifest, and their secrets: X-1 (secret://S1), X-2 (secret://S2)",
            ),
            (
                5,
                "their secrets: X-1 (secret://S1), X-2 (secret://S2), X-3 (secret://S3) and 2 more",
            ),
        ] {
            let failure = came(headers, None).let_nobody_in();
            let message = failure.message.english();
            assert!(message.ends_with(said), "{message}");
            assert!(failure.needs_operator(), "{message}");
        }
    }

    #[test]
    fn a_server_that_names_a_pause_is_asked_again_after_it() {
        let failure = came(1, Some(Duration::from_secs(3))).let_nobody_in();
        assert_eq!(failure.retry_after_ms, Some(3_000));
        assert!(!failure.needs_operator());
    }
}
