//! Takes connections and serves requests on each.
//!
//! What `fleet::http` has for probes closes a connection after seconds; here one may wait minutes for its answer. So the bounds are
//! others: the head of a request has ten seconds, and as long may a connection be idle between two; a body has its own
//! (`crate::body`); the number of connections is bounded, in all, of strangers by address, and of each token.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{Router, body::Body, http::Request, serve::Listener};
use fleet::telemetry::metrics;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::{
    peers::{Peer, Peers},
    stall::Unstalled,
};

/// Of all connections, this part may wait for a stranger's place.
const WAITING_PART: usize = 8;
/// How long the head of a request may take, and how long a connection may be idle.
pub(crate) const HEAD_MAX: Duration = Duration::from_secs(10);
/// The most header lines of a request. More are refused with 431.
const LINES_MAX: usize = 100;
/// The most bytes of a request's head; what is larger is refused with 431.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// The most bytes that are kept of a connection before they are asked for.
const BUFFER_MAX: usize = 64 * 1024;

/// What is served, and to how many.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) router: Router,
    pub(crate) peers: Peers,
    pub(crate) connections_max: usize,
}

impl Serving {
    /// Takes connections until `stop` is cancelled. Then no further one is taken, those that are idle are closed, and those with a
    /// request are served until it is answered. Dropping the future closes all of them at once.
    pub(crate) async fn serve(self, mut listener: TcpListener, stop: CancellationToken) {
        let places = Arc::new(Semaphore::new(self.connections_max));
        let waiting = Arc::new(Semaphore::new(self.connections_max / WAITING_PART));
        let mut connections = JoinSet::new();
        loop {
            // What fails to be accepted is tried again, with a pause where the process has no file left.
            let (stream, address) = tokio::select! {
                accepted = Listener::accept(&mut listener) => accepted,
                () = stop.cancelled() => break,
            };
            while connections.try_join_next().is_some() {}
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                refused("all");
                continue;
            };
            // An answer is one write, which need not wait for more.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "a connection is gone already");
            }
            let router = self.router.clone();
            if let Some(peer) = self.peers.enter(address.ip()) {
                connections.spawn(connection(stream, router, peer, place, stop.clone()));
                continue;
            }
            let Ok(turn) = Arc::clone(&waiting).try_acquire_owned() else {
                refused("address");
                continue;
            };
            let (peers, stop) = (self.peers.clone(), stop.clone());
            connections.spawn(async move {
                let entering = stop.run_until_cancelled(peers.enter_soon(address.ip()));
                let entered = entering.await;
                drop(turn);
                match entered {
                    Some(Some(peer)) => connection(stream, router, peer, place, stop).await,
                    Some(None) => refused("address"),
                    None => {}
                }
            });
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }
}

/// A connection was closed: there are as many as may be.
fn refused(reason: &'static str) {
    metrics().refused_connection(reason);
    tracing::debug!(
        reason,
        "a connection was closed: there are as many as may be"
    );
}

/// Serves one connection until it is over. `_place` is free again then.
async fn connection(
    stream: TcpStream,
    router: Router,
    peer: Peer,
    _place: OwnedSemaphorePermit,
    stop: CancellationToken,
) {
    let closing = peer.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let mut router = router.clone();
        async move {
            let answered = Service::call(&mut router, request.map(Body::new));
            answered.await.map_err(|never: Infallible| never)
        }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .max_headers(LINES_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(BUFFER_MAX);
    let serving = builder.serve_connection(TokioIo::new(Unstalled::new(stream)), service);
    let mut serving = std::pin::pin!(serving);
    let serving = async {
        tokio::select! {
            ended = &mut serving => ended,
            () = stop.cancelled() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
            () = closing.ends() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        }
    };
    let ended = tokio::select! {
        biased;
        () = closing.closes() => return,
        ended = serving => ended,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
