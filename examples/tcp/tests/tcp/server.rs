//! A server that does to every line what its test says, and counts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use conformance::{Effect, Manifest};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::sleep,
};

/// What happens to a line.
#[derive(Clone)]
pub(crate) enum Act {
    /// It is answered by the word and the value, as they are.
    Answer(&'static str, String),
    /// Likewise, and then the connection is closed.
    AnswerAndClose(&'static str, String),
    /// It is answered by this, whatever it is.
    Say(String),
    /// It is answered by this without an end; `true`: then by more for as long as it is read.
    Begin(String, bool),
    /// It is answered after a second.
    AnswerSlowly,
    /// It is not answered before the input ends, and then `true`: it is; `false`: the connection is closed.
    Hang(bool),
    /// The connection is closed.
    Close,
}

/// It ends when it is dropped.
pub(crate) struct Server {
    pub(crate) address: String,
    seen: Arc<Seen>,
    _accepting: JoinSet<()>,
}

#[derive(Default)]
struct Seen {
    connected: AtomicUsize,
    begun: AtomicUsize,
    working: AtomicUsize,
}

impl Server {
    /// `act` gets each line, read as JSON.
    pub(crate) async fn start(act: impl Fn(&Value) -> Act + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::<Seen>::default();
        let mut accepting = JoinSet::new();
        let counted = Arc::clone(&seen);
        accepting.spawn(async move {
            let mut serving = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.connected.fetch_add(1, SeqCst);
                serving.spawn(serve(stream, act.clone(), Arc::clone(&counted)));
            }
        });
        Self {
            address,
            seen,
            _accepting: accepting,
        }
    }

    pub(crate) fn connected(&self) -> usize {
        self.seen.connected.load(SeqCst)
    }

    pub(crate) fn lines(&self) -> usize {
        self.seen.begun.load(SeqCst)
    }

    pub(crate) fn is_at_rest(&self) -> bool {
        self.seen.working.load(SeqCst) == 0
    }
}

/// An address at which nothing listens.
pub(crate) fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

async fn serve(stream: TcpStream, act: impl Fn(&Value) -> Act, seen: Arc<Seen>) {
    let (mut stream, mut line) = (BufReader::new(stream), String::new());
    while matches!(stream.read_line(&mut line).await, Ok(read) if read > 0) {
        let request: Value = serde_json::from_str(&line).unwrap();
        seen.begun.fetch_add(1, SeqCst);
        seen.working.fetch_add(1, SeqCst);
        let goes_on = obey(act(&request), &request["id"], &mut stream).await;
        seen.working.fetch_sub(1, SeqCst);
        if !goes_on {
            return;
        }
        line.clear();
    }
}

/// Whether the connection stays.
async fn obey(act: Act, id: &Value, stream: &mut BufReader<TcpStream>) -> bool {
    let (said, stays) = match act {
        Act::Answer(word, value) => (format!("[{id}, \"{word}\", {value}]\n"), true),
        Act::AnswerAndClose(word, value) => (format!("[{id}, \"{word}\", {value}]\n"), false),
        Act::Say(said) => (format!("{said}\n"), true),
        Act::Begin(beginning, goes_on) => {
            let mut sent = stream
                .write_all(beginning.replace("ID", &id.to_string()).as_bytes())
                .await;
            while goes_on && sent.is_ok() {
                sent = stream.write_all(&[b'x'; 4096]).await;
            }
            return false;
        }
        Act::AnswerSlowly => {
            sleep(Duration::from_secs(1)).await;
            (format!("[{id}, \"done\", 1]\n"), true)
        }
        Act::Hang(answers) => {
            // Until the input ends.
            drop(stream.read_to_end(&mut Vec::new()).await);
            let said = if answers {
                format!("[{id}, \"done\", 1]\n")
            } else {
                String::new()
            };
            (said, false)
        }
        Act::Close => return false,
    };
    stream.write_all(said.as_bytes()).await.is_ok() && stays
}

/// A manifest that was not applied.
pub(crate) fn manifest(effect: Effect, spec: &Value, more: &Value) -> Manifest {
    let mut manifest = json!({
        "name": "t", "version": 1, "description": "d", "effect": effect.as_str(),
        "input_schema": {"type": "object"}, "executor": {"own": {"kind": "tcp", "spec": spec}},
    });
    let more = more.as_object().unwrap().clone();
    manifest.as_object_mut().unwrap().extend(more);
    serde_json::from_value(manifest).unwrap()
}
