//! Sends one follower what it is told, and ends its stream where that has to end: when the follower is gone, too slow, or may not follow
//! any more, and when the gateway stops.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{body::Body, http::StatusCode, response::Response};
use bytes::Bytes;
use fleet::telemetry::metrics;
use futures_util::{StreamExt as _, stream};
use tokio::{sync::oneshot, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    pipe::{PipeEnd, PipedPieces, StreamFor, StreamPipe, streamed},
    raw::COME_BACK,
    reading::{Reading, ReadingEnd},
    told::Told,
    way::Said,
};
use crate::{
    headers::{ANSWER, Speaker},
    state::Gateway,
};

/// After how long without anything to tell it is looked whether something was missed.
const IDLE: Duration = Duration::from_secs(30);
/// How long it may take to find out that there is nothing more to say to somebody who comes back.
const SAID_MAX: Duration = Duration::from_secs(1);
/// With so many bytes a piece takes no further event.
const PIECE_BYTES: usize = 64 * 1024;

/// How a follower's stream is written.
pub(crate) trait Wording: Send + 'static {
    /// Writes what this is for the follower, if it is something. Dropping the future may lose what it was.
    fn say(&mut self, told: Arc<Told>, to: &mut Said) -> impl Future<Output = StreamGoes> + Send;

    /// Writes what there is to say after [`IDLE`] in which nothing was told. Dropping the future is harmless.
    fn idle(&mut self, _to: &mut Said) -> impl Future<Output = StreamGoes> + Send {
        std::future::ready(StreamGoes::On)
    }
}

/// Whether a stream goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamGoes {
    /// More may come.
    On,
    /// Everything is said.
    Over,
}

/// Why a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamEnd {
    /// Everything is said.
    Over,
    /// Its follower is gone.
    Gone,
    /// Its follower takes too little.
    Slow,
    /// Its follower may not follow any more.
    Revoked,
    /// What was told before cannot be gone on with here.
    Lost,
    /// The gateway stops.
    Stopping,
}

impl StreamEnd {
    /// The word for it in a metric.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Over => "over",
            Self::Gone => "gone",
            Self::Slow => "slow",
            Self::Revoked => "revoked",
            Self::Lost => "lost",
            Self::Stopping => "stopping",
        }
    }
}

/// A stream that was begun: a task of the gateway's writes it.
pub(crate) struct BegunStream {
    pieces: PipedPieces,
    end: oneshot::Receiver<StreamEnd>,
}

impl BegunStream {
    /// As an answer.
    pub(crate) fn stream(self) -> Response {
        streamed(Body::from_stream(self.pieces))
    }

    /// As an answer to somebody who has had something: 204 where there is nothing more to say and never will be, for a reader of
    /// server-sent events comes back after every other end. Waits a little for that, or for the first that is said.
    pub(crate) async fn unless_all_is_said(mut self) -> Response {
        match timeout(SAID_MAX, self.pieces.next()).await {
            Ok(None) => match self.end.await {
                Ok(StreamEnd::Over) => nothing_more(),
                Ok(_) | Err(_) => streamed(Body::empty()),
            },
            Ok(Some(first)) => {
                let first = stream::iter([first]);
                streamed(Body::from_stream(first.chain(self.pieces)))
            }
            Err(_elapsed) => self.stream(),
        }
    }
}

/// Begins a stream, which a task of the gateway's writes.
pub(crate) fn answer(
    gateway: Arc<Gateway>,
    whom: StreamFor,
    reading: Reading,
    wording: impl Wording,
) -> BegunStream {
    let (ended, end) = oneshot::channel();
    let (tasks, stopping) = (gateway.tasks.clone(), gateway.stopping.clone());
    let (pipe, pieces) = StreamPipe::open(gateway, whom);
    let delivery = Delivery { pipe, stopping };
    tasks.spawn(delivery.run(reading, wording, ended));
    BegunStream { pieces, end }
}

fn nothing_more() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
        .headers_mut()
        .insert(ANSWER, Speaker::Gateway.value());
    response
}

/// One stream on its way.
struct Delivery {
    pipe: StreamPipe,
    stopping: CancellationToken,
}

impl Delivery {
    async fn run(
        mut self,
        mut reading: Reading,
        mut wording: impl Wording,
        ended: oneshot::Sender<StreamEnd>,
    ) {
        let Err(end) = self.tell(&mut reading, &mut wording).await;
        // Before the pieces end. Hardly anybody waits for it.
        ended.send(end).ok();
        drop(reading);
        tracing::debug!(?end, "a stream ends");
        metrics().ended_stream(end.as_str());
        match end {
            StreamEnd::Stopping => {
                if !self.pipe.send_last(Bytes::from_static(COME_BACK)).await {
                    tracing::debug!("a follower that takes nothing is not told to come back");
                }
            }
            StreamEnd::Slow => self.pipe.cut(),
            StreamEnd::Over | StreamEnd::Gone | StreamEnd::Revoked | StreamEnd::Lost => {}
        }
    }

    async fn tell(
        &mut self,
        reading: &mut Reading,
        wording: &mut impl Wording,
    ) -> Result<Infallible, StreamEnd> {
        loop {
            let mut said = Said::default();
            let next = timeout(IDLE, reading.next());
            let Ok(told) = self.meanwhile(next).await? else {
                let goes = self.meanwhile(wording.idle(&mut said)).await?;
                self.send(&mut said).await?;
                if goes == StreamGoes::Over {
                    return Err(StreamEnd::Over);
                }
                continue;
            };
            let mut told = told.map_err(|end| match end {
                ReadingEnd::Lagging => StreamEnd::Slow,
                ReadingEnd::Lost => StreamEnd::Lost,
            })?;
            loop {
                if matches!(&*told, Told::Gap(_)) {
                    metrics().told_gap();
                }
                let saying = wording.say(told, &mut said);
                let goes = self.meanwhile(saying).await?;
                if goes == StreamGoes::Over {
                    self.send(&mut said).await?;
                    return Err(StreamEnd::Over);
                }
                match reading.ready() {
                    Some(next) if said.len() < PIECE_BYTES => told = next,
                    Some(next) => {
                        self.send(&mut said).await?;
                        told = next;
                    }
                    None => break,
                }
            }
            self.send(&mut said).await?;
        }
    }

    /// Waits for something, and ends where the stream has to end meanwhile.
    async fn meanwhile<T>(&mut self, waited: impl Future<Output = T>) -> Result<T, StreamEnd> {
        let waited = self.pipe.meanwhile(waited);
        unless_stopping(&self.stopping, waited).await
    }

    /// Sends what was said, which may take a while.
    async fn send(&mut self, said: &mut Said) -> Result<(), StreamEnd> {
        let sending = self.pipe.send(said);
        unless_stopping(&self.stopping, sending).await
    }
}

async fn unless_stopping<T>(
    stopping: &CancellationToken,
    waited: impl Future<Output = Result<T, PipeEnd>>,
) -> Result<T, StreamEnd> {
    tokio::select! {
        biased;
        () = stopping.cancelled() => Err(StreamEnd::Stopping),
        done = waited => done.map_err(|end| match end {
            PipeEnd::Gone => StreamEnd::Gone,
            PipeEnd::Slow => StreamEnd::Slow,
            PipeEnd::Revoked => StreamEnd::Revoked,
        }),
    }
}
