//! What is asked of every request before anything of its body is read: whom it wants to reach, from which page it comes, who asks. And what
//! every answer gets: words where the gateway refuses, and what browsers of listed pages need.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, Method, StatusCode,
        header::{
            ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
            ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
            ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, CONNECTION, VARY,
        },
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use fleet::{
    call::Language,
    telemetry::metrics,
    wire::{code::Code, message::Message},
};

use super::{
    hosts::{AskedFrom, Unexpected},
    peers::{Peer, TooMany},
};
use crate::{
    auth::principal::Principal,
    headers::{ANSWER, LANGUAGE, Speaker},
    mcp,
    models::{
        error::{self, NEVER, SHOULD_RETRY},
        protocol::spoken_at,
    },
    refusal::Refused,
    room::RoomOf,
    state::Gateway,
};

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
/// What a page may send.
const SENT: HeaderValue = HeaderValue::from_static(
    "Authorization, Content-Type, Idempotency-Key, Prefer, Cache-Control, Content-Digest, Content-Disposition, Range, If-Range, \
     Repr-Digest, traceparent, tracestate, baggage, \
     Anthropic-Beta, Anthropic-Version, Last-Event-ID, Mcp-Method, Mcp-Name, MCP-Protocol-Version, Mcp-Session-Id, Toolfleet-Deadline-Ms, Toolfleet-File-Name, Toolfleet-Files, Toolfleet-Language, Toolfleet-Meta, Toolfleet-On-Disconnect, Toolfleet-Priority, Toolfleet-Run, \
     Toolfleet-Run-Deadline, Toolfleet-Session, Toolfleet-Tenant, Toolfleet-Tool-Version, X-Api-Key",
);
/// What a page may read.
const SHOWN: HeaderValue = HeaderValue::from_static(
    "Accept-Ranges, Content-Disposition, Content-Range, ETag, Location, Mcp-Session-Id, Repr-Digest, Retry-After, Request-Id, Toolfleet-Answer, Toolfleet-Call-Id, Toolfleet-Cost, Toolfleet-Degraded, Toolfleet-Outcome, Toolfleet-Route, Toolfleet-State, X-Request-Id, X-Should-Retry",
);
/// How long a browser remembers what it was told, in seconds.
const REMEMBERED: HeaderValue = HeaderValue::from_static("600");

/// Ends a connection with its answer.
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// Stands in an answer where the request said truly who asks.
#[derive(Debug, Clone)]
struct SaidWho(RoomOf);

/// Around every request, whatever it asks for.
pub(crate) async fn outermost(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    let language = language(request.headers());
    let expected = &gateway.expected;
    let from = expected.check(request.version(), request.uri(), request.headers());
    let (page, unexpected) = match from {
        Ok(AskedFrom::Own) => (None, None),
        Ok(AskedFrom::Page(origin)) => (HeaderValue::from_str(origin).ok(), None),
        Err(unexpected) => (None, Some(unexpected)),
    };
    let is_question = request.method() == Method::OPTIONS
        && request
            .headers()
            .contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let is_message = request.method() == Method::POST && request.uri().path() == mcp::PATH;
    let spoken = spoken_at(request.uri().path());
    let peer = peer(&request);
    let mut response = if let Some(unexpected) = unexpected {
        refused(unexpected).into_response()
    } else if is_question && page.is_some() {
        allowed()
    } else {
        next.run(request).await
    };
    let who = response.extensions_mut().remove::<SaidWho>();
    response = worded(response, |refused| match (is_message, spoken) {
        (true, _) => mcp::refusal(refused, language),
        (false, Some(protocol)) => error::refusal(refused, protocol, language),
        (false, None) => refused.told(language),
    });
    if spoken.is_some() && !response.status().is_success() {
        response.headers_mut().insert(SHOULD_RETRY, NEVER);
    }
    if who.is_none() && gateway.authority.asks() && !peer.becomes_stranger() {
        response.headers_mut().insert(CONNECTION, CLOSE);
    }
    let headers = response.headers_mut();
    headers.append(VARY, HeaderValue::from_static("origin"));
    if let Some(page) = page {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, page);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, SHOWN);
    }
    counted(&response);
    let reader = who.map_or(RoomOf::Stranger, |SaidWho(reader)| reader);
    gateway.unread.keep(response, reader, peer)
}

/// Around every endpoint that wants to know who asks.
pub(crate) async fn known(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    let (headers, peer) = (request.headers(), peer(&request));
    let asking = gateway.authority.principal(headers, peer.address());
    answered(asking, request, next).await
}

/// Around every endpoint that a vendor's client asks.
pub(crate) async fn known_by_key(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    let (headers, peer) = (request.headers(), peer(&request));
    let asking = gateway.authority.principal_by_key(headers, peer.address());
    answered(asking, request, next).await
}

/// Around an endpoint that tells some things to everybody: who says who it is has to say it truly.
pub(crate) async fn known_if_told(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    if gateway.authority.asks() && !request.headers().contains_key(AUTHORIZATION) {
        return next.run(request).await;
    }
    let (headers, peer) = (request.headers(), peer(&request));
    let asking = gateway.authority.principal(headers, peer.address());
    answered(asking, request, next).await
}

/// Has who asks answered, where that is known, and what it asks on counted for it.
pub(crate) async fn answered(
    asking: Result<Principal, Refused>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = peer(&request);
    let asking = asking.and_then(|principal| {
        let known = peer.becomes_known(&principal);
        known.map_err(|TooMany| too_many()).map(|()| principal)
    });
    match asking {
        Ok(principal) => {
            let reader = RoomOf::of(Some(&principal));
            request.extensions_mut().insert(principal);
            let mut response = next.run(request).await;
            response.extensions_mut().insert(SaidWho(reader));
            response
        }
        Err(refused) => refused.into_response(),
    }
}

/// On which connection it is asked.
pub(crate) fn peer(request: &Request) -> Peer {
    let peer = request.extensions().get::<Peer>().cloned();
    peer.expect("the listener says of every request where it comes from")
}

pub(crate) fn too_many() -> Refused {
    let what = Message::fixed(
        "as many connections of this token are open as may be (GATEWAY_CONNECTIONS_EACH_MAX)",
        "这个 token 打开的连接已达上限（GATEWAY_CONNECTIONS_EACH_MAX）",
    );
    Refused::later(Code::RateLimited, what).with(CONNECTION, CLOSE)
}

/// What no endpoint answers.
pub(crate) async fn nowhere() -> Refused {
    let what = Message::fixed(
        "there is no such endpoint; docs/gateway.md lists them, none ends in /, and names in a path are percent-encoded",
        "没有这个接口；docs/gateway.md 列出了所有接口，路径不以 / 结尾，路径中的名称需要百分号编码",
    );
    Refused::misdirected(StatusCode::NOT_FOUND, what)
}

/// What the endpoint is not asked like.
pub(crate) async fn not_like_this() -> Refused {
    let what = Message::fixed(
        "this endpoint has another method; the header Allow of this answer names it",
        "这个接口使用其他方法；参见这个回答的 Allow 头",
    );
    Refused::misdirected(StatusCode::METHOD_NOT_ALLOWED, what)
}

fn refused(unexpected: Unexpected) -> Refused {
    let what = match unexpected {
        Unexpected::Host => Message::fixed(
            "this gateway is not asked by that Host; GATEWAY_ALLOWED_HOSTS names those by which it is",
            "不能以这个 Host 访问网关；GATEWAY_ALLOWED_HOSTS 列出了可用的名称",
        ),
        Unexpected::Origin => Message::fixed(
            "pages of this Origin may not ask; GATEWAY_CORS_ORIGINS names those that may",
            "这个 Origin 的页面不能访问；GATEWAY_CORS_ORIGINS 列出了可以访问的页面",
        ),
    };
    Refused::new(Code::Forbidden, what)
}

/// The answer to a browser that asks whether a listed page may ask.
fn allowed() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, SENT);
    headers.insert(ACCESS_CONTROL_MAX_AGE, REMEMBERED);
    response
}

/// Gives a refusal of the gateway its words.
fn worded(response: Response, told: impl FnOnce(&Refused) -> Response) -> Response {
    let Some(refused) = response.extensions().get::<Refused>() else {
        return response;
    };
    let mut told = told(refused);
    // Such as `Allow`.
    for (name, value) in response.headers() {
        if !told.headers().contains_key(name) {
            told.headers_mut().insert(name, value.clone());
        }
    }
    told.headers_mut()
        .remove(axum::http::header::CONTENT_LENGTH);
    told
}

fn counted(response: &Response) {
    let says = |speaker: &&Speaker| response.headers().get(ANSWER) == Some(&speaker.value());
    let speaker = [Speaker::Call, Speaker::Door].iter().find(says).copied();
    let speaker = speaker.unwrap_or(Speaker::Gateway);
    metrics().answered_over_http(speaker.as_str(), response.status().as_u16());
}

pub(crate) fn language(headers: &HeaderMap) -> Language {
    let asked = headers.get(LANGUAGE);
    let asked = asked.and_then(|asked| asked.to_str().ok()?.trim().parse().ok());
    asked.unwrap_or(Language::En)
}
