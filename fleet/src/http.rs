//! The HTTP side of every process: `/healthz`, `/readyz`, `/metrics`, and nothing else.
//!
//! It is for probes and scrapers: no request has a body, and a connection has one request and little time. Any user of the host
//! may connect. Connections that stay open lock no other user out: a new connection takes the place of the oldest.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io,
    pin::Pin,
    sync::{Arc, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{
        HeaderValue, StatusCode,
        header::{CONNECTION, CONTENT_TYPE},
    },
    middleware::map_response,
    response::{IntoResponse, Response},
    routing::get,
    serve::Listener,
};
use futures_util::{FutureExt, future::BoxFuture};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{Mutex, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::telemetry;

/// The header of `/readyz` that names the process.
pub const INSTANCE: &str = "toolfleet-instance";

/// The most connections at a time; one more closes the oldest.
pub const CONNECTIONS_MAX: usize = 64;

/// How long a connection lives, whatever it sends: many times what a scrape takes.
pub const LIFE_MAX: Duration = Duration::from_secs(10);

/// How long a scrape waits for the figures from Postgres before it goes on without them.
pub const SCRAPE_MAX: Duration = Duration::from_secs(2);

/// How long [`serve`] waits for open requests once it was told to stop.
pub const GRACE: Duration = Duration::from_secs(3);

/// Serves until `shutdown` resolves, then at most [`GRACE`] longer.
///
/// # Errors
///
/// Only an error of the listener; errors of single connections end those.
pub async fn serve(
    listener: TcpListener,
    state: HttpState,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let life_max = state.life_max;
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(scrape))
        .layer(map_response(last_answer))
        .with_state(state);
    let stop = CancellationToken::new();
    let limited = LimitedListener {
        listener,
        life_max,
        open: Arc::default(),
        accepted: 0,
    };
    let serving =
        axum::serve(limited, router).with_graceful_shutdown(stop.clone().cancelled_owned());
    let mut serving = std::pin::pin!(serving.into_future());
    tokio::select! {
        ended = &mut serving => return ended,
        () = shutdown => stop.cancel(),
    }
    // A request that is still open after the grace comes from a probe that does not read its answer.
    timeout(GRACE, serving).await.unwrap_or(Ok(()))
}

/// Reads the values for a scrape and hands them to [`telemetry::metrics()`].
///
/// It may be dropped after [`SCRAPE_MAX`], so it must be cancel-safe; one runs at a time.
pub type BeforeScrape = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// What the answers are made of.
#[derive(Clone)]
pub struct HttpState {
    readiness: Readiness,
    before_scrape: Option<BeforeScrape>,
    instance: Option<Uuid>,
    scraping: Arc<Mutex<()>>,
    life_max: Duration,
}

impl HttpState {
    /// Answers by these conditions.
    pub fn new(readiness: Readiness) -> Self {
        Self {
            readiness,
            before_scrape: None,
            instance: None,
            scraping: Arc::default(),
            life_max: LIFE_MAX,
        }
    }

    /// Closes a connection after this long, instead of [`LIFE_MAX`].
    #[must_use]
    pub fn life_max(mut self, life_max: Duration) -> Self {
        self.life_max = life_max;
        self
    }

    /// Names the process in the header [`INSTANCE`] of `/readyz`, if it has a name.
    #[must_use]
    pub fn instance(mut self, instance: Option<Uuid>) -> Self {
        self.instance = instance;
        self
    }

    /// Runs `hook` before metrics are written out.
    #[must_use]
    pub fn before_scrape(mut self, hook: BeforeScrape) -> Self {
        self.before_scrape = Some(hook);
        self
    }
}

/// The conditions under which this process may be sent work. Cheap to clone; clones share the state.
#[derive(Debug, Clone)]
pub struct Readiness(Arc<watch::Sender<BTreeMap<&'static str, bool>>>);

impl Readiness {
    /// These conditions, none of them met.
    pub fn new(conditions: impl IntoIterator<Item = &'static str>) -> Self {
        let conditions = conditions
            .into_iter()
            .map(|condition| (condition, false))
            .collect();
        Self(Arc::new(watch::Sender::new(conditions)))
    }

    /// Sets whether a condition is met. A new condition is added.
    pub fn set(&self, condition: &'static str, met: bool) {
        self.0
            .send_if_modified(|conditions| conditions.insert(condition, met) != Some(met));
    }

    /// The conditions that are not met, in alphabetical order.
    pub fn unmet(&self) -> Vec<&'static str> {
        unmet(&self.0.borrow())
    }

    /// Waits until every condition is met. Cancel-safe; the caller bounds it.
    pub async fn ready(&self) {
        let met = |conditions: &BTreeMap<_, _>| unmet(conditions).is_empty();
        self.0
            .subscribe()
            .wait_for(met)
            .await
            .expect("self holds the sender");
    }
}

fn unmet(conditions: &BTreeMap<&'static str, bool>) -> Vec<&'static str> {
    conditions
        .iter()
        .filter(|(_, met)| !**met)
        .map(|(condition, _)| *condition)
        .collect()
}

async fn readyz(State(state): State<HttpState>) -> Response {
    let mut answer = readiness(&state.readiness);
    if let Some(instance) = state.instance {
        let name = HeaderValue::try_from(instance.to_string()).expect("an id is plain text");
        answer.headers_mut().insert(INSTANCE, name);
    }
    answer
}

fn readiness(readiness: &Readiness) -> Response {
    let unmet = readiness.unmet();
    if unmet.is_empty() {
        return "ready\n".into_response();
    }
    let lines = unmet.iter().fold(String::new(), |mut lines, condition| {
        writeln!(lines, "{condition}: not ready").expect("a String takes everything");
        lines
    });
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}

async fn scrape(State(state): State<HttpState>) -> Response {
    if let Some(hook) = &state.before_scrape {
        let figures = async {
            let _one_at_a_time = state.scraping.lock().await;
            hook().await;
        };
        if timeout(SCRAPE_MAX, figures).await.is_err() {
            tracing::warn!(
                "figures from Postgres were not ready in time; this scrape goes without them"
            );
        }
    }
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        telemetry::metrics_text(),
    )
        .into_response()
}

/// A connection has one request: what idles after it would take the place of another.
async fn last_answer(mut answer: Response) -> Response {
    let close = HeaderValue::from_static("close");
    answer.headers_mut().insert(CONNECTION, close);
    answer
}

/// The open connections, by the order in which they came. Cancelling a token closes its connection.
type OpenConnections = Arc<std::sync::Mutex<BTreeMap<u64, CancellationToken>>>;

/// A listener that takes every connection, and closes the oldest when there are too many.
struct LimitedListener {
    listener: TcpListener,
    life_max: Duration,
    open: OpenConnections,
    /// How many connections came so far.
    accepted: u64,
}

impl Listener for LimitedListener {
    type Io = Connection;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, address) = Listener::accept(&mut self.listener).await;
        self.accepted += 1;
        let closed = CancellationToken::new();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= CONNECTIONS_MAX
            && let Some((_, oldest)) = open.pop_first()
        {
            oldest.cancel();
        }
        open.insert(self.accepted, closed.clone());
        let ends = timeout(self.life_max, closed.cancelled_owned()).map(drop);
        let connection = Connection {
            stream,
            ends: Some(Box::pin(ends)),
            number: self.accepted,
            open: Arc::clone(&self.open),
        };
        (connection, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A connection that fails when its time is over or its place is another's.
struct Connection {
    stream: TcpStream,
    /// `None` once that is so.
    ends: Option<BoxFuture<'static, ()>>,
    number: u64,
    open: OpenConnections,
}

impl Connection {
    /// An error once it is over; else the waker of this task is called then.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Some(ends) = &mut self.ends
            && ends.as_mut().poll(cx).is_pending()
        {
            return Ok(());
        }
        self.ends = None;
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&self.number);
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_open(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_open(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_open(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
