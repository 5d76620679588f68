//! The clients, and what their errors prove.
//!
//! `NotStarted` rests on two facts about the HTTP library. First, the library repeats a request silently only when a *pooled*
//! connection turns out to be closed; a client that keeps no idle connections never repeats one. Second, an error of kind
//! *connect* arises while the name is resolved, the socket opened or TLS negotiated, before the request is given to the
//! connection. The test `a_write_is_sent_at_most_once_whatever_the_server_does` holds both.

use std::{error::Error, io, net::IpAddr, time::Duration};

use fleet::{
    egress::Egress,
    outcome::{Outcome, ToolFailure},
    said,
    taken_back::TakenBack,
    wire::{code::Code, message::Message},
};
use reqwest::{Client, ClientBuilder, Url, redirect, retry};

use super::resolve::{JudgedNames, NameDenied};
use crate::executors::resources::lacks_resources;

/// How long resolving, connecting and the TLS handshake may take together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Idle connections that reads keep to one host, and for how long.
const IDLE_MAX: usize = 8;
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Why no HTTP client can be made.
#[derive(Debug, thiserror::Error)]
pub enum HttpExecutorError {
    /// The program installs one before it starts a worker.
    #[error("no TLS provider is installed in this process")]
    NoTlsProvider,
    /// Most often the machine has no CA certificates.
    #[error(
        "the HTTP client cannot be built; are CA certificates installed (ca-certificates, or SSL_CERT_FILE)?"
    )]
    Client(#[source] reqwest::Error),
}

/// A client for reads: it may reuse connections.
pub(in crate::executors) fn reading(egress: &Egress) -> Result<Client, HttpExecutorError> {
    build(
        bounded(egress)?
            .pool_max_idle_per_host(IDLE_MAX)
            .pool_idle_timeout(IDLE_TIMEOUT),
    )
}

/// A client for writes: each request has a connection of its own.
pub(in crate::executors) fn writing(egress: &Egress) -> Result<Client, HttpExecutorError> {
    build(bounded(egress)?.pool_max_idle_per_host(0))
}

fn bounded(egress: &Egress) -> Result<ClientBuilder, HttpExecutorError> {
    // reqwest panics without a provider, so this is checked first.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        return Err(HttpExecutorError::NoTlsProvider);
    }
    let mut builder = Client::builder();
    if !egress.is_open() {
        builder = builder.dns_resolver(JudgedNames::under(egress.clone()));
    }
    Ok(builder
        .user_agent(concat!("toolfleet/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .no_proxy()
        .http1_only())
}

fn build(builder: ClientBuilder) -> Result<Client, HttpExecutorError> {
    builder.build().map_err(HttpExecutorError::Client)
}

/// The outcome of an attempt that ended without a status.
pub(in crate::executors) fn failed(error: reqwest::Error, origin: &str) -> Outcome {
    // The URL carries arguments and perhaps secrets.
    let error = error.without_url();
    if error.is_builder() {
        return Outcome::NotStarted(ToolFailure::new(
            Code::ToolError,
            Message::fixed("the rendered URL cannot be sent", "填好的 URL 无法发送"),
        ));
    }
    if let Some(NameDenied(address)) =
        causes(&error).find_map(|cause| cause.downcast_ref::<NameDenied>())
    {
        return Outcome::NotStarted(denied_at(origin, *address));
    }
    if error.is_connect() {
        let why = connect_cause(&error);
        let failure = ToolFailure::new(
            Code::Unavailable,
            said!(
                "{origin} cannot be reached: {why}",
                "无法连接 {origin}：{why}",
                why
            ),
        );
        return Outcome::NotStarted(if io_causes(&error).any(lacks_resources) {
            failure.taken_back(TakenBack::NoResources)
        } else {
            failure
        });
    }
    if error.is_timeout() {
        return Outcome::Unknown(ToolFailure::new(
            Code::Timeout,
            said!("{origin} stopped answering", "{origin} 停止了响应"),
        ));
    }
    let message = said!(
        "the connection to {origin} broke before the tool answered",
        "工具还没有响应，与 {origin} 的连接就断了"
    );
    Outcome::Unknown(ToolFailure::new(Code::Unavailable, message))
}

/// The failure of a request that may not go to this address. Nothing was sent.
pub(in crate::executors) fn denied(url: &Url, address: IpAddr) -> ToolFailure {
    denied_at(&url.origin().ascii_serialization(), address)
}

fn denied_at(origin: &str, address: IpAddr) -> ToolFailure {
    // What a model reads says nothing about the network behind the worker.
    tracing::debug!(origin, %address, "a request was not sent: WORKER_EGRESS does not allow its address");
    let what = said!(
        "{origin} is not at a public address, and this worker sends requests to no others",
        "{origin} 不在公网地址上，而这个 worker 只向公网地址发送请求"
    );
    ToolFailure::new(Code::EgressDenied, what)
}

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

/// The system's errors behind it, the outermost first.
fn io_causes(error: &reqwest::Error) -> impl Iterator<Item = &io::Error> {
    causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>())
}

fn connect_cause(error: &reqwest::Error) -> Message {
    if error.is_dns() {
        return Message::fixed("its name cannot be resolved", "无法解析它的名字");
    }
    if error.is_timeout() {
        return Message::fixed("no connection within 3 s", "3 秒内没有连上");
    }
    match io_causes(error).map(io::Error::kind).last() {
        Some(io::ErrorKind::ConnectionRefused) => {
            Message::fixed("connection refused", "连接被拒绝")
        }
        Some(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => {
            Message::fixed("no route to it", "没有通往它的路由")
        }
        Some(_) | None => Message::fixed(
            "the connection or its TLS handshake failed",
            "连接或 TLS 握手失败",
        ),
    }
}
