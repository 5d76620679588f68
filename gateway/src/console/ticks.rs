//! Tells a page that what it shows has changed: what it was made from is asked for once a second, by all who look together, and where it is
//! something else, that is said.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, Uri, header::CONTENT_TYPE},
    response::Response,
};
use bytes::Bytes;
use fleet::wire::{code::Code, message::Message};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};

use super::{
    pages::{doubts, live, protection, story, waiting, workers},
    state::{Console, Looking, Pages},
    visitor::{Visitor, encoded, named_tenant},
};
use crate::{
    auth::principal::Principal,
    events::pipe::{PipeEnd, StreamPipe, streamed},
    follower::stream_from,
    refusal::Refused,
};

/// When a page has to come again, with the cookie of who has signed in.
const FOLLOWED_MAX: Duration = Duration::from_secs(3_600);
/// How often it is looked whether something has changed.
const EVERY: Duration = Duration::from_secs(1);

/// Follows a page.
pub(super) async fn ticks(
    State(console): Pages,
    Extension(visitor): Looking,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let query = visitor.query(&["page"])?;
    let page: Option<Uri> = query.text("page").and_then(|page| page.parse().ok());
    let page = page.ok_or_else(no_page)?;
    let (principal, peer) = (visitor.principal().clone(), visitor.peer().clone());
    let whom = stream_from(&console.gateway, peer.clone(), &principal)?;
    let tenant = named_tenant(&principal, &page)?;
    let followed = Visitor::new(principal, peer, &page, &headers, tenant);
    let asks = asks(&followed, page.path())?;
    // Before the answer begins: a page is read again when it does, and what changes from then on is told.
    let known = seen(&console, &followed, &asks).await;
    let (pipe, pieces) = StreamPipe::open(Arc::clone(&console.gateway), whom);
    let follow = Follow {
        console,
        followed,
        asks,
        known,
    };
    let gateway = Arc::clone(&follow.console.gateway);
    gateway.tasks.spawn(follow.tell(pipe));
    Ok(streamed(Body::from_stream(pieces)))
}

/// Follows a session or a turn: its events as the API tells them, as text that a browser shows while it comes.
pub(super) async fn events(
    State(console): Pages,
    Extension(visitor): Looking,
) -> Result<Response, Refused> {
    let query = visitor.query(&["session", "turn"])?;
    let path = match query.text("turn") {
        Some(turn) => format!("/v1/turns/{}/events", encoded(turn)),
        None => {
            let session = encoded(query.text("session").unwrap_or_default());
            format!("/v1/sessions/{session}/events?from=start")
        }
    };
    let mut response = console.api.stream(&visitor, &path, &[]).await?;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    Ok(response)
}

/// What a page is made from.
fn asks(visitor: &Visitor, path: &str) -> Result<Vec<String>, Refused> {
    let mut asks = match path {
        "/console" => vec![live::follows(visitor)?],
        "/console/doubts" => vec![doubts::asks()],
        "/console/waiting" => vec![waiting::asks()],
        "/console/workers" => vec![workers::asks(visitor)?],
        "/console/protection" => protection::asks(visitor)?.to_vec(),
        _other => {
            let call = path.strip_prefix("/console/calls/").ok_or_else(no_page)?;
            story::asks(call)
        }
    };
    asks.push("/v1/overview".to_owned());
    Ok(asks)
}

/// A page that is followed.
struct Follow {
    console: Arc<Console>,
    followed: Visitor,
    asks: Vec<String>,
    /// What it was when it was last told of.
    known: [u8; 32],
}

impl Follow {
    async fn tell(mut self, mut pipe: StreamPipe) {
        let until = Instant::now() + FOLLOWED_MAX;
        let stopping = self.console.gateway.stopping.clone();
        let ended = loop {
            let looking = pipe.meanwhile(self.look());
            let seen = tokio::select! {
                seen = looking => seen,
                () = stopping.cancelled() => return,
            };
            let seen = match seen {
                Ok(seen) => seen,
                Err(ended) => break ended,
            };
            if self.known != seen {
                let said = format!("event: changed\ndata: {}\n\n", hex::encode(&seen[..8]));
                if let Err(ended) = pipe.send_piece(Bytes::from(said)).await {
                    break ended;
                }
            }
            self.known = seen;
            if Instant::now() > until {
                return;
            }
        };
        match ended {
            PipeEnd::Revoked => {
                // Where that cannot be known the page stays, and asks again.
                if self.is_over() {
                    pipe.send_last(Bytes::from_static(b"event: over\ndata: -\n\n"))
                        .await;
                }
                pipe.cut();
            }
            PipeEnd::Slow => pipe.cut(),
            PipeEnd::Gone => {}
        }
    }

    /// Whether the reader has to sign in again.
    fn is_over(&self) -> bool {
        let authority = &self.console.gateway.authority;
        match self.followed.principal() {
            Principal::Token(token) => authority.is_over(&token.token_id),
            Principal::Anyone | Principal::Named(_) => false,
        }
    }

    /// What it is a second later.
    async fn look(&self) -> [u8; 32] {
        sleep(EVERY).await;
        seen(&self.console, &self.followed, &self.asks).await
    }
}

/// The hash of what a page is made from.
async fn seen(console: &Console, visitor: &Visitor, asks: &[String]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for path in asks {
        match console.api.get_bytes(visitor, path).await {
            Ok(answered) => {
                for piece in without_moments(&answered.body) {
                    hash.update(piece);
                }
            }
            // That it cannot be read is a change, too.
            Err(refused) => hash.update(refused.code().as_str()),
        }
    }
    // Every page says what is away.
    hash.update([u8::from(console.gateway.dispatchers.are_reachable())]);
    hash.finalize().into()
}

/// An answer without what time it is and how far a look came in its time: the members `now` and `before`. In a text their quotation marks
/// would have backslashes before them.
fn without_moments(body: &[u8]) -> Vec<&[u8]> {
    const MEMBERS: [&[u8]; 2] = [b"\"now\":\"", b"\"before\":\""];
    let mut pieces = Vec::new();
    let mut rest = body;
    let behind_member = |(place, byte): (usize, &u8), rest: &[u8]| {
        let is_here = |member: &&&[u8]| *byte == b'"' && rest[place..].starts_with(member);
        let member = MEMBERS.iter().find(is_here)?;
        Some(place + member.len())
    };
    let next = |rest: &[u8]| {
        let mut bytes = rest.iter().enumerate();
        bytes.find_map(|at| behind_member(at, rest))
    };
    while let Some(place) = next(rest) {
        let (before, behind) = rest.split_at(place);
        pieces.push(before);
        let end = behind.iter().position(|byte| *byte == b'"');
        rest = &behind[end.unwrap_or(behind.len())..];
    }
    pieces.push(rest);
    pieces
}

fn no_page() -> Refused {
    let what = Message::fixed(
        "page must be the path of a page that changes",
        "page 必须是会变化的页面的路径",
    );
    Refused::new(Code::InvalidArguments, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_time_it_is_and_how_far_a_look_came_is_no_change() {
        let of = |text: &str| without_moments(text.as_bytes()).concat();
        assert_eq!(
            of(r#"{"now":"2026","a":"1"}"#),
            of(r#"{"now":"2027-01","a":"1"}"#)
        );
        assert_ne!(
            of(r#"{"now":"2026","a":"1"}"#),
            of(r#"{"now":"2026","a":"2"}"#)
        );
        assert_eq!(
            of(r#"{"calls":[{"now":"1"}],"before":"a"}"#),
            of(r#"{"calls":[{"now":"2"}],"before":"b"}"#)
        );
        // In a text it is one.
        let said =
            |word: &str| serde_json::json!({ "a": format!("\"now\":\"{word}\"") }).to_string();
        assert_ne!(of(&said("x")), of(&said("y")));
    }
}
