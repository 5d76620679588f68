//! Carries requests over HTTP: one POST each, its answer as JSON or as a stream of events (`stream`). No redirect is followed and nothing
//! is sent again.

use std::time::Duration;

use fleet::{
    egress::Egress,
    outcome::ToolFailure,
    said,
    wire::{code::Code, message::Message},
};
use reqwest::{
    Client, Response, Url,
    header::{ACCEPT, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
};

use secrecy::SecretString;
use tokio::time::Instant;

use super::{
    aside,
    came::{Came, HttpStatus, SecretHeader, StatusFacts},
    cut::AttemptEnd,
    headers,
    hear::Hear,
    message::{self, Incoming, Request, Revision, RpcAnswer, is_id, no_answer},
    skim::Skim,
};
use crate::executors::http::{transport, words};

/// The most bytes around an answer, and of one that is no success.
pub(super) const ENVELOPE_MAX: usize = 64 * 1024;
/// The most bytes of an answer that are read to know whether it is one: a write may have been done.
pub(super) const SKIMMED_MAX: usize = 64 * 1024 * 1024;
/// How long a message that nobody answers may take.
const NOTICE_MAX: Duration = Duration::from_secs(2);

/// The clients of a worker.
#[derive(Debug, Clone)]
pub(super) struct Clients {
    /// May keep connections.
    pub(super) reads: Client,
    /// Each request has a connection of its own.
    pub(super) writes: Client,
    pub(super) egress: Egress,
}

/// Where a server is, and what every request to it carries.
#[derive(Debug, Clone)]
pub(super) struct HttpTarget {
    pub(super) clients: Clients,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    /// Those of them whose values are secrets.
    pub(super) secret_headers: Vec<SecretHeader>,
    /// The secrets.
    pub(super) masked: Vec<SecretString>,
}

/// One request's own part of its headers.
#[derive(Debug, Default)]
pub(super) struct RequestHeaders {
    /// Of the older revision.
    pub(super) session: Option<HeaderValue>,
    /// `Mcp-Param-*`.
    pub(super) mirrored: Vec<(HeaderName, HeaderValue)>,
    /// Whether a second copy of it would be an effect too many.
    pub(super) is_write: bool,
}

/// What came of a request, and the session that its answer names.
pub(super) struct Exchanged {
    pub(super) came: Came,
    pub(super) session: Option<HeaderValue>,
}

impl HttpTarget {
    /// Sends a request once and reads its answer, until `cut` ends it. Dropping it closes the connection.
    pub(super) async fn exchange(
        &self,
        request: &Request,
        revision: Revision,
        own: RequestHeaders,
        limit: usize,
        cut: &AttemptEnd,
        hear: &Hear,
    ) -> Exchanged {
        let none = |came| Exchanged {
            came,
            session: None,
        };
        if let Some(address) = self.clients.egress.forbidden_literal(self.url.as_str()) {
            return none(Came::NotSent(transport::denied(&self.url, address)));
        }
        let client = if own.is_write {
            &self.clients.writes
        } else {
            &self.clients.reads
        };
        let mut headers = self.protocol_headers(revision, own.session.as_ref());
        if revision == Revision::Modern {
            headers.insert("mcp-method", HeaderValue::from_static(request.method));
            if let Some(name) = &request.name {
                headers.insert("mcp-name", headers::value(name));
            }
            headers.extend(own.mirrored);
        }
        let mut told = Box::pin(cut.told());
        let message = self.message(headers, request.body.clone());
        let sent = tokio::select! {
            biased;
            sent = client.execute(message) => sent,
            why = &mut told => return none(Came::CutOff(why)),
        };
        let response = match sent {
            Ok(response) => response,
            Err(error) => {
                let origin = self.url.origin().ascii_serialization();
                return none(Came::without_status(transport::failed(error, &origin)));
            }
        };
        let session = response.headers().get("mcp-session-id").cloned();
        let of_session = own.session.is_some();
        let reading = Reading {
            target: self,
            revision,
            session: own.session,
            id: request.id,
            limit,
            hear,
            until: cut.until,
        };
        let came = tokio::select! {
            biased;
            came = reading.answer(response, of_session) => came,
            why = told => Came::CutOff(why),
        };
        Exchanged { came, session }
    }

    /// Sends a message that nobody answers. What becomes of it is not known.
    pub(super) async fn tell(
        &self,
        body: Vec<u8>,
        method: &'static str,
        revision: Revision,
        session: Option<&HeaderValue>,
    ) {
        let mut headers = self.protocol_headers(revision, session);
        if revision == Revision::Modern && !method.is_empty() {
            headers.insert("mcp-method", HeaderValue::from_static(method));
        }
        let sent = self.clients.reads.execute(self.message(headers, body));
        drop(tokio::time::timeout(NOTICE_MAX, sent).await);
    }

    /// Asks for a stream behind the event with this id: nothing is done again by it.
    pub(super) async fn behind(
        &self,
        event: HeaderValue,
        revision: Revision,
        session: Option<&HeaderValue>,
    ) -> reqwest::Result<Response> {
        let mut headers = self.protocol_headers(revision, session);
        headers.remove(CONTENT_TYPE);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert("last-event-id", event);
        let mut asked = reqwest::Request::new(reqwest::Method::GET, self.url.clone());
        *asked.headers_mut() = headers;
        self.clients.reads.execute(asked).await
    }

    fn protocol_headers(&self, revision: Revision, session: Option<&HeaderValue>) -> HeaderMap {
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let accept = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(ACCEPT, accept);
        headers.insert(
            "mcp-protocol-version",
            HeaderValue::from_static(revision.as_str()),
        );
        if let Some(session) = session {
            headers.insert("mcp-session-id", session.clone());
        }
        headers
    }

    fn message(&self, headers: HeaderMap, body: Vec<u8>) -> reqwest::Request {
        let mut message = reqwest::Request::new(reqwest::Method::POST, self.url.clone());
        *message.headers_mut() = headers;
        *message.body_mut() = Some(body.into());
        message
    }
}

/// Reads the answer to one request.
pub(super) struct Reading<'a> {
    pub(super) target: &'a HttpTarget,
    pub(super) revision: Revision,
    pub(super) session: Option<HeaderValue>,
    pub(super) id: u64,
    pub(super) limit: usize,
    pub(super) hear: &'a Hear,
    /// When the attempt must end at the latest.
    pub(super) until: Instant,
}

impl Reading<'_> {
    async fn answer(&self, response: Response, of_session: bool) -> Came {
        let status = response.status();
        if !status.is_success() {
            return self.status(response, of_session).await;
        }
        if is_stream(&response) {
            self.stream(response).await
        } else {
            self.body(response).await
        }
    }

    async fn status(&self, mut response: Response, of_session: bool) -> Came {
        let header = |name| response.headers().get(name)?.to_str().ok();
        let retry_after = words::pause(header(RETRY_AFTER), header(DATE));
        let status = response.status().as_u16();
        let mut body = Vec::new();
        while let Ok(Some(chunk)) = response.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() > ENVELOPE_MAX {
                break;
            }
        }
        let facts = StatusFacts {
            excerpt: words::excerpt(&body, &self.target.masked),
            secret_headers: self.target.secret_headers.clone(),
        };
        let error = match message::read(&body) {
            // An error without an id is about this request: there is no other on the connection.
            Ok(Incoming::Answer {
                id,
                answer: RpcAnswer::Error(error),
            }) if id.as_ref().is_none_or(|id| is_id(id.get(), self.id)) => Some(error),
            Ok(_) | Err(_) => None,
        };
        Came::Status(HttpStatus {
            status,
            error,
            retry_after,
            of_session,
            facts,
        })
    }

    async fn body(&self, mut response: Response) -> Came {
        let other_kind = other_kind(&response);
        let most = self.limit.saturating_add(ENVELOPE_MAX);
        let (mut body, mut seen, mut skim) = (Vec::new(), 0_usize, Skim::default());
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) => {
                    seen += chunk.len();
                    skim.feed(&chunk);
                    let room = most.saturating_sub(body.len());
                    body.extend_from_slice(&chunk[..chunk.len().min(room)]);
                    if seen > most.max(SKIMMED_MAX) {
                        return Came::TooLarge(skim.came(), body);
                    }
                }
                Ok(None) if seen > most => return Came::TooLarge(skim.came(), body),
                Ok(None) => break,
                Err(_broken) => return Came::NoAnswer(broke_off()),
            }
        }
        match aside::read(body).await {
            Ok(Incoming::Answer { id, answer })
                if id.as_ref().is_some_and(|id| is_id(id.get(), self.id))
                    || (id.is_none() && matches!(answer, RpcAnswer::Error(_))) =>
            {
                Came::Answer(answer)
            }
            Ok(_) => Came::NoAnswer(no_answer(Message::fixed(
                "it is not an answer to this request",
                "它不是对这个请求的回答",
            ))),
            Err(why) => Came::NoAnswer(match other_kind {
                Some(kind) => answered_with(&kind),
                None => no_answer(why),
            }),
        }
    }
}

/// What an answer says that it is, where that is no message of MCP.
fn other_kind(response: &Response) -> Option<String> {
    let kind = response.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is_type = |letter: char| letter.is_ascii_alphanumeric() || "/+-._".contains(letter);
    let is_told = (1..=80).contains(&kind.len()) && kind.chars().all(is_type);
    let is_json = kind.eq_ignore_ascii_case("application/json");
    (is_told && !is_json).then(|| kind.to_owned())
}

fn answered_with(kind: &str) -> ToolFailure {
    let what = said!(
        "the MCP server answered with {kind}, which is no MCP",
        "MCP 服务器返回了 {kind}，这不是 MCP"
    );
    ToolFailure::new(Code::OutputInvalid, what)
}

/// Whether an answer comes as a stream of events.
pub(super) fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("text/event-stream")
}

pub(super) fn broke_off() -> ToolFailure {
    let why = Message::fixed(
        "the MCP server's answer broke off in the middle",
        "MCP 服务器返回结果时中途断开",
    );
    ToolFailure::new(Code::Unavailable, why)
}
