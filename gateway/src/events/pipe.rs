//! The way of a stream to whom it is for: what is said is sent in pieces, and whoever is silent for a while hears that it still goes on. It
//! ends when its reader is gone, too slow, or may not read any more.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, header::CONTENT_TYPE},
    response::Response,
};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream::BoxStream};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout};

use super::{
    places::StreamPlace,
    raw::KEEP,
    way::{Gone, Said, Way, way},
};
use crate::{
    auth::principal::Principal,
    edge::peers::Peer,
    headers::{ANSWER, Speaker},
    state::Gateway,
};

/// Has a proxy such as nginx pass on what comes when it comes.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// How often somebody is heard of through whose stream nothing comes.
const KEEP_EVERY: Duration = Duration::from_secs(15);
/// How often it is looked whether the reader's token still holds: with the time in which a revoked one is known, less than two seconds.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a reader may take nothing.
const BEHIND_MAX: Duration = Duration::from_secs(10);
/// How long a reader may take to get the last that is said.
const LAST_MAX: Duration = Duration::from_secs(1);

/// What comes out of a pipe.
pub(crate) type PipedPieces = BoxStream<'static, Result<Bytes, Infallible>>;

/// Whom a stream is for.
#[derive(Debug)]
pub(crate) struct StreamFor {
    pub(crate) principal: Principal,
    pub(crate) peer: Peer,
    /// Free again when the stream has ended.
    pub(crate) _place: StreamPlace,
}

/// Why nothing more can be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PipeEnd {
    /// The reader is gone.
    Gone,
    /// The reader takes too little.
    Slow,
    /// The reader may not read any more.
    Revoked,
}

/// One stream on its way.
pub(crate) struct StreamPipe {
    gateway: Arc<Gateway>,
    whom: StreamFor,
    way: Way,
    /// When the reader last heard something.
    told_at: Instant,
    looks: Interval,
}

impl StreamPipe {
    /// A pipe for this reader, and what comes out of it.
    pub(crate) fn open(gateway: Arc<Gateway>, whom: StreamFor) -> (Self, PipedPieces) {
        let (way, pieces) = way();
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let pipe = Self {
            gateway,
            whom,
            way,
            told_at: Instant::now(),
            looks,
        };
        (pipe, pieces.boxed())
    }

    /// Waits for something. Cancel-safe where that is.
    ///
    /// # Errors
    ///
    /// Nothing more can be said.
    pub(crate) async fn meanwhile<T>(
        &mut self,
        waited: impl Future<Output = T>,
    ) -> Result<T, PipeEnd> {
        let mut waited = std::pin::pin!(waited);
        loop {
            tokio::select! {
                biased;
                () = self.way.closed() => return Err(PipeEnd::Gone),
                _ = self.looks.tick() => {
                    if !self.gateway.authority.still_knows(&self.whom.principal) {
                        return Err(PipeEnd::Revoked);
                    }
                    if self.told_at.elapsed() >= KEEP_EVERY {
                        self.told_at = Instant::now();
                        self.way.hint(KEEP);
                    }
                }
                done = &mut waited => return Ok(done),
            }
        }
    }

    /// Sends what was said, which may take a while. Dropping the future loses what was not sent yet.
    ///
    /// # Errors
    ///
    /// Nothing more can be said.
    pub(crate) async fn send(&mut self, said: &mut Said) -> Result<(), PipeEnd> {
        for piece in said.take() {
            self.send_piece(piece).await?;
        }
        Ok(())
    }

    /// The same with one piece.
    ///
    /// # Errors
    ///
    /// Nothing more can be said.
    pub(crate) async fn send_piece(&mut self, piece: Bytes) -> Result<(), PipeEnd> {
        let way = self.way.clone();
        let sent = self.meanwhile(timeout(BEHIND_MAX, way.send(piece)));
        match sent.await? {
            Ok(Ok(())) => {
                self.told_at = Instant::now();
                Ok(())
            }
            Ok(Err(Gone)) => Err(PipeEnd::Gone),
            Err(_elapsed) => Err(PipeEnd::Slow),
        }
    }

    /// Sends the last that is said, if the reader takes it soon; whether it did.
    pub(crate) async fn send_last(&self, piece: Bytes) -> bool {
        matches!(timeout(LAST_MAX, self.way.send(piece)).await, Ok(Ok(())))
    }

    /// Cuts the connection: what is written already would wait for its reader.
    pub(crate) fn cut(&self) {
        self.whom.peer.close();
    }
}

/// An answer of server-sent events.
pub(crate) fn streamed(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    headers.insert(ANSWER, Speaker::Gateway.value());
    response
}
