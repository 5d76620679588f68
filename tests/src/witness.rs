//! The world outside: an HTTP service that remembers every effect, and misbehaves when it is told to.
//!
//! A tool of [`Witness::tool`] posts its arguments here. The argument `what` names the effect; a test says by that name
//! how a request is answered, and waits for what it wants to have happened.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinSet, time::timeout};

use crate::wait::LONG;

/// How a request is answered.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Does it and says so.
    Done,
    /// Does it and answers with this body.
    Body(String),
    /// Does nothing and answers with this status.
    Status(u16),
    /// Does nothing, and says with this status how many seconds to wait.
    RetryAfter(u16, u32),
    /// Does nothing and says no, with this message.
    No(&'static str),
    /// Does nothing and says nothing.
    Hang,
    /// Does it and says nothing.
    DoneThenHang,
    /// Does it and breaks the connection in the middle of the answer.
    DoneThenClose,
    /// Does it, and says so when the test releases the effect.
    DoneWhenReleased,
    /// Does it, and says so after a while.
    DoneAfter(Duration),
    /// Does nothing, and answers with this status when the test releases the effect.
    StatusWhenReleased(u16),
    /// Does it, and says with 202 that its answer comes later.
    Later,
    /// The same, and says so when the test releases the effect.
    LaterWhenReleased,
}

/// One request as it arrived.
#[derive(Debug, Clone)]
pub struct Request {
    /// When, by the clock of this process.
    pub at: Instant,
    /// The effect's name.
    pub what: String,
    /// Whether the effect took place.
    pub applied: bool,
    /// The headers.
    pub headers: HeaderMap,
    /// The body's bytes.
    pub body: Bytes,
}

impl Request {
    /// A header's value, or nothing.
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}

/// What has happened so far.
#[derive(Debug, Default)]
pub struct Seen {
    /// Every request, in the order in which they came.
    pub requests: Vec<Request>,
    /// Requests that are being answered now.
    pub running: usize,
    /// The most there ever were at a time.
    pub running_max: usize,
    released: HashSet<String>,
}

impl Seen {
    /// How often this was asked for.
    pub fn asked(&self, what: &str) -> usize {
        self.requests
            .iter()
            .filter(|request| request.what == what)
            .count()
    }

    /// How often this took place.
    pub fn applied(&self, what: &str) -> usize {
        let of_name = self.requests.iter().filter(|request| request.what == what);
        of_name.filter(|request| request.applied).count()
    }
}

/// What comes next under a name.
#[derive(Debug, Default)]
struct Script {
    first: VecDeque<Reply>,
    then: Option<Reply>,
}

#[derive(Debug)]
struct Shared {
    seen: watch::Sender<Seen>,
    scripts: Mutex<HashMap<String, Script>>,
}

/// The service. It ends when it is dropped.
#[derive(Debug)]
pub struct Witness {
    address: SocketAddr,
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

impl Witness {
    /// Starts it on a free port.
    ///
    /// # Panics
    ///
    /// There is none.
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a port is free");
        let address = listener.local_addr().expect("a bound port has an address");
        let shared = Arc::new(Shared {
            seen: watch::Sender::default(),
            scripts: Mutex::default(),
        });
        let router = Router::new()
            .route("/effects", post(answer))
            .with_state(Arc::clone(&shared));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            axum::serve(listener, router)
                .await
                .expect("serving does not end by itself");
        });
        Self {
            address,
            shared,
            _serving: serving,
        }
    }

    /// Where effects are posted to.
    pub fn url(&self) -> String {
        format!("http://{}/effects", self.address)
    }

    /// The manifest of a tool whose effects take place here. Add lines for what is not the default.
    pub fn tool(&self, name: &str, effect: &str) -> String {
        let url = self.url();
        let mut manifest = format!(
            "name: {name}\nversion: 1\ndescription: Leaves a trace at the witness.\neffect: {effect}\n\
             input_schema: {{type: object, properties: {{what: {{type: string}}}}, required: [what]}}\n\
             executor: {{http: {{method: POST, url: \"{url}\"}}}}\n"
        );
        if effect == "idempotent" {
            manifest.push_str("idempotency: {header: Idempotency-Key}\n");
        }
        manifest
    }

    /// The next requests for this are answered so; the ones after that as ever.
    pub fn first(&self, what: &str, replies: impl IntoIterator<Item = Reply>) {
        self.script(what, |script| script.first.extend(replies));
    }

    /// From now on this is answered so.
    pub fn always(&self, what: &str, reply: Reply) {
        self.script(what, |script| script.then = Some(reply));
    }

    /// Answers every request that waits for this, now or later.
    pub fn release(&self, what: &str) {
        self.shared.seen.send_modify(|seen| {
            seen.released.insert(what.to_owned());
        });
    }

    /// Looks at what has happened so far.
    pub fn look<T>(&self, at: impl FnOnce(&Seen) -> T) -> T {
        at(&self.shared.seen.borrow())
    }

    /// How often this took place.
    pub fn applied(&self, what: &str) -> usize {
        self.look(|seen| seen.applied(what))
    }

    /// How often this was asked for.
    pub fn asked(&self, what: &str) -> usize {
        self.look(|seen| seen.asked(what))
    }

    /// Waits for a fact.
    ///
    /// # Panics
    ///
    /// It does not come about; the message names it.
    pub async fn until(&self, fact: &str, is_so: impl Fn(&Seen) -> bool) {
        let mut seen = self.shared.seen.subscribe();
        let waited = timeout(LONG, seen.wait_for(|seen| is_so(seen))).await;
        let waited = waited.unwrap_or_else(|_| panic!("the witness waited {LONG:?} for {fact}"));
        waited.expect("the witness lives");
    }

    /// Waits until this was asked for so often.
    ///
    /// # Panics
    ///
    /// It is not.
    pub async fn until_asked(&self, what: &str, times: usize) {
        let fact = format!("{times} requests for {what}");
        self.until(&fact, |seen| seen.asked(what) >= times).await;
    }

    fn script(&self, what: &str, change: impl FnOnce(&mut Script)) {
        let mut scripts = lock(&self.shared.scripts);
        change(scripts.entry(what.to_owned()).or_default());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a request while it is being answered, and no longer than its caller stays.
struct Running<'a>(&'a Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.seen.send_modify(|seen| seen.running -= 1);
    }
}

async fn answer(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let what = serde_json::from_slice::<Value>(&body)
        .ok()
        .and_then(|args| args["what"].as_str().map(str::to_owned))
        .unwrap_or_default();
    let reply = next_reply(&shared, &what);
    let applied = !matches!(
        reply,
        Reply::Status(_)
            | Reply::StatusWhenReleased(_)
            | Reply::RetryAfter(..)
            | Reply::No(_)
            | Reply::Hang
    );
    shared.seen.send_modify(|seen| {
        seen.requests.push(Request {
            at: Instant::now(),
            what: what.clone(),
            applied,
            headers,
            body,
        });
        seen.running += 1;
        seen.running_max = seen.running_max.max(seen.running);
    });
    let _running = Running(&shared);
    let done = || json_response(json!({ "done": what }).to_string());
    match reply {
        Reply::Done => done(),
        Reply::Body(body) => json_response(body),
        Reply::Status(status) => code(status).into_response(),
        Reply::RetryAfter(status, seconds) => {
            (code(status), [("retry-after", seconds.to_string())]).into_response()
        }
        Reply::No(message) => {
            let body = json!({ "error": { "message": message } }).to_string();
            (StatusCode::CONFLICT, json_response(body)).into_response()
        }
        Reply::Hang | Reply::DoneThenHang => std::future::pending().await,
        Reply::DoneThenClose => {
            let broken = futures_util::stream::once(async {
                Err::<Bytes, _>(io::Error::other("the connection breaks here"))
            });
            Response::new(Body::from_stream(broken))
        }
        Reply::DoneWhenReleased => {
            released(&shared, &what).await;
            done()
        }
        Reply::StatusWhenReleased(status) => {
            released(&shared, &what).await;
            code(status).into_response()
        }
        Reply::Later => StatusCode::ACCEPTED.into_response(),
        Reply::LaterWhenReleased => {
            released(&shared, &what).await;
            StatusCode::ACCEPTED.into_response()
        }
        Reply::DoneAfter(while_) => {
            tokio::time::sleep(while_).await;
            done()
        }
    }
}

async fn released(shared: &Shared, what: &str) {
    let mut seen = shared.seen.subscribe();
    let released = seen.wait_for(|seen| seen.released.contains(what)).await;
    drop(released.expect("the witness lives"));
}

fn next_reply(shared: &Shared, what: &str) -> Reply {
    let mut scripts = lock(&shared.scripts);
    let script = scripts.get_mut(what);
    let reply = script.and_then(|script| script.first.pop_front().or_else(|| script.then.clone()));
    reply.unwrap_or(Reply::Done)
}

fn code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).expect("a test names a status")
}

fn json_response(body: String) -> Response {
    ([("content-type", "application/json")], body).into_response()
}
