//! HTTP tools, over a server that can do whatever a server can do.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use conformance::{Behaviour, Case, REFUSAL, REFUSAL_CODE, Rig, SECRET_NAME, Tool, Watch};
use fleet::{call::Effect, egress::Egress, secrets::Secrets};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use worker::executors::{Executor, http::HttpExecutor};

struct Http {
    executor: HttpExecutor,
    secrets: Secrets,
    _folder: TempDir,
}

impl Http {
    fn new() -> Self {
        super::provider();
        let (folder, secrets) = super::secrets();
        Self {
            executor: HttpExecutor::new(Egress::default()).unwrap(),
            secrets,
            _folder: folder,
        }
    }
}

impl Rig for Http {
    fn name(&self) -> &'static str {
        "http"
    }

    fn executor(&self) -> &dyn Executor {
        &self.executor
    }

    fn tool(&self, behaviour: Behaviour, effect: Effect) -> BoxFuture<'_, Case> {
        Box::pin(async move {
            if behaviour == Behaviour::LeavesNothing {
                return Case::NotApplicable("a request starts nothing on this machine");
            }
            let server = Server::start(behaviour, |_, status, body| (status, body)).await;
            let executor = json!({"http": {
                "method": "POST", "url": server.url, "headers": {"X-Token": format!("secret://{SECRET_NAME}")},
            }});
            Case::Tool(Box::new(Tool {
                manifest: super::manifest(effect, &executor, &super::fields(behaviour)),
                arguments: super::exact(),
                secrets: self.secrets.clone(),
                watch: Box::new(server),
            }))
        })
    }
}

/// What a server of another kind makes of a status and a body.
type Shape = fn(Behaviour, u16, String) -> (u16, String);

/// A server that treats every request alike; it ends with its value.
pub(crate) struct Server {
    pub(crate) url: String,
    seen: Arc<Seen>,
    _accepting: JoinSet<()>,
}

#[derive(Default)]
struct Seen {
    begun: AtomicUsize,
    working: AtomicUsize,
}

impl Server {
    pub(crate) async fn start(behaviour: Behaviour, shape: Shape) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/run", listener.local_addr().unwrap());
        let seen = Arc::<Seen>::default();
        let mut accepting = JoinSet::new();
        // Otherwise the listener goes, and with it the service.
        if behaviour != Behaviour::ProvesNotStarted {
            let seen = Arc::clone(&seen);
            accepting.spawn(async move {
                let mut serving = JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    serving.spawn(serve(stream, behaviour, shape, Arc::clone(&seen)));
                }
            });
        }
        Self {
            url,
            seen,
            _accepting: accepting,
        }
    }
}

impl Watch for Server {
    fn begun(&self) -> BoxFuture<'_, usize> {
        Box::pin(async { self.seen.begun.load(Ordering::SeqCst) })
    }

    fn at_rest(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { self.seen.working.load(Ordering::SeqCst) == 0 })
    }
}

async fn serve(mut stream: TcpStream, behaviour: Behaviour, shape: Shape, seen: Arc<Seen>) {
    while let Some((head, body)) = read(&mut stream).await {
        seen.begun.fetch_add(1, Ordering::SeqCst);
        seen.working.fetch_add(1, Ordering::SeqCst);
        let goes_on = answer(&mut stream, behaviour, shape, &head, &body).await;
        seen.working.fetch_sub(1, Ordering::SeqCst);
        if !goes_on {
            return;
        }
    }
}

/// Whether the connection stays.
async fn answer(
    stream: &mut TcpStream,
    behaviour: Behaviour,
    shape: Shape,
    head: &str,
    body: &str,
) -> bool {
    let token = header(head, "x-token").unwrap_or_default();
    let (status, body) = match behaviour {
        Behaviour::CarriesValuesExactly
        | Behaviour::PutsTheKeyIntoAnArgument
        | Behaviour::PreparesQuietly => (200, body.to_owned()),
        Behaviour::TellsTheFacts | Behaviour::KeepsTheKey => (200, facts(head).to_string()),
        Behaviour::PassesOnRefusals => (
            409,
            json!({"error": {"message": REFUSAL, "code": REFUSAL_CODE}}).to_string(),
        ),
        Behaviour::VeilsSecrets => (
            400,
            json!({"error": {"message": format!("the token {token} is wrong")}}).to_string(),
        ),
        Behaviour::ProvesNotStarted | Behaviour::LeavesNothing => unreachable!("nobody is asked"),
        Behaviour::DoubtsCrashes => return false,
        Behaviour::KeepsTheDeadline | Behaviour::ObeysCancel | Behaviour::ObeysDrain => {
            let mut rest = [0; 64];
            while matches!(stream.read(&mut rest).await, Ok(read) if read > 0) {}
            return false;
        }
        Behaviour::WaitsForSlowAnswers => {
            tokio::time::sleep(Duration::from_secs(1)).await;
            (200, "{}".to_owned())
        }
        Behaviour::BoundsAnswers => {
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n\"";
            let piece = vec![b'x'; 64 * 1024];
            let mut sent = stream.write_all(head.as_bytes()).await;
            while sent.is_ok() {
                sent = stream.write_all(&piece).await;
            }
            return false;
        }
        Behaviour::FlagsGarbage => (200, "{oops".to_owned()),
        Behaviour::TakesSilence => (200, String::new()),
        Behaviour::MendsText => (200, r#"{"a": "x\u0000y", "b": ["\ud800z"]}"#.to_owned()),
        Behaviour::HidesTheWorker => (200, json!({"head": head, "body": body}).to_string()),
    };
    let (status, body) = shape(behaviour, status, body);
    let answer = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await.is_ok()
}

fn facts(head: &str) -> Value {
    let told = |name: &str| header(head, name);
    json!({
        "call_id": told("toolfleet-call-id"), "attempt": told("toolfleet-attempt"),
        "tenant": told("toolfleet-tenant"), "session": told("toolfleet-session"),
        "deadline_ms": told("toolfleet-deadline-ms"), "traceparent": told("traceparent"),
        "idempotency_key": told("idempotency-key"),
    })
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    let mut of_name = lines.filter(|(header, _)| header.eq_ignore_ascii_case(name));
    of_name.next().map(|(_, value)| value)
}

/// Head and body of one request; none when the client has gone.
async fn read(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let length: usize =
                header(&head, "content-length").map_or(0, |text| text.parse().unwrap());
            let mut body = bytes.split_off(end + 4);
            while body.len() < length {
                if stream.read_buf(&mut body).await.ok()? == 0 {
                    return None;
                }
            }
            return Some((head, String::from_utf8(body).unwrap()));
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_tools_keep_every_promise() {
    let report = conformance::exercise(&Http::new()).await;
    super::kept(&report, 36);
}
