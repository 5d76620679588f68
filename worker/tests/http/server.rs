//! A real HTTP server on a real socket that can also misbehave, byte by byte.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// What the server does with one connection or request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// Answers with these bytes and waits for the next request.
    Bytes(Vec<u8>),
    /// Answers with these bytes and closes.
    BytesThenClose(Vec<u8>),
    /// Closes before it reads anything.
    CloseAtOnce,
    /// Reads the request and says nothing until the client goes.
    Hang,
    /// Answers with this head, then one byte of body after another until the client goes.
    Drip(Vec<u8>),
    /// Answers with this head, then body as fast as it is taken until the client goes.
    Flood(Vec<u8>),
}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// Request line and headers; header names in lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Received {
    /// All values of a header.
    pub(crate) fn header(&self, name: &str) -> Vec<&str> {
        let pairs = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "));
        pairs
            .filter(|(key, _)| *key == name)
            .map(|(_, value)| value)
            .collect()
    }

    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().expect("a head has a first line")
    }
}

/// What has happened so far.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    pub(crate) connections: usize,
    pub(crate) ended: usize,
    pub(crate) requests: Vec<Received>,
    /// How many bytes of a flood the client took.
    pub(crate) flooded: usize,
}

/// Ends with its value.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: watch::Receiver<Seen>,
    _accepting: JoinSet<()>,
}

impl Server {
    /// Listens on a free port; `script` is asked once per connection, with its number from 0.
    pub(crate) async fn start(script: impl Fn(usize) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let (tell, seen) = watch::channel(Seen::default());
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut serving = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("the listener lives");
                let reply = script(tell.borrow().connections);
                tell.send_modify(|seen| seen.connections += 1);
                let tell = tell.clone();
                serving.spawn(async move {
                    serve(stream, &reply, &tell).await;
                    tell.send_modify(|seen| seen.ended += 1);
                });
            }
        });
        Self {
            address,
            seen,
            _accepting: accepting,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    /// Waits for a fact, not for a time.
    pub(crate) async fn until(&self, fact: impl Fn(&Seen) -> bool) {
        let mut seen = self.seen.clone();
        let waited =
            tokio::time::timeout(Duration::from_secs(10), seen.wait_for(|seen| fact(seen))).await;
        waited.expect("it happens").expect("the server lives");
    }
}

async fn serve(mut stream: TcpStream, reply: &Reply, tell: &watch::Sender<Seen>) {
    if matches!(reply, Reply::CloseAtOnce) {
        return;
    }
    while let Some(request) = read_request(&mut stream).await {
        tell.send_modify(|seen| seen.requests.push(request));
        match reply {
            Reply::CloseAtOnce => return,
            Reply::Bytes(bytes) => {
                if stream.write_all(bytes).await.is_err() {
                    return;
                }
            }
            Reply::BytesThenClose(bytes) => {
                // The client may be gone already, which is its right.
                stream.write_all(bytes).await.ok();
                return;
            }
            Reply::Hang => client_goes(&mut stream).await,
            Reply::Drip(head) => {
                stream.write_all(head).await.ok();
                let mut tick = tokio::time::interval(Duration::from_millis(20));
                while stream.write_all(b" ").await.is_ok() {
                    tick.tick().await;
                }
            }
            Reply::Flood(head) => {
                stream.write_all(head).await.ok();
                let piece = vec![b'x'; 64 * 1024];
                while let Ok(taken) = stream.write(&piece).await {
                    tell.send_modify(|seen| seen.flooded += taken);
                }
            }
        }
    }
}

async fn client_goes(stream: &mut TcpStream) {
    let mut rest = [0; 1024];
    while matches!(stream.read(&mut rest).await, Ok(read) if read > 0) {}
}

async fn read_request(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).expect("a head is ASCII");
    let mut request = Received {
        head,
        body: String::new(),
    };
    let length: usize = request
        .header("content-length")
        .first()
        .map_or(0, |length| length.parse().expect("a length is a number"));
    let mut body = bytes.split_off(head_end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    request.body = String::from_utf8(body).expect("a body is JSON");
    Some(request)
}

/// A whole answer with these headers (each ending in CRLF).
pub(crate) fn answer(status: u16, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A whole JSON answer.
pub(crate) fn json(status: u16, body: &str) -> Vec<u8> {
    answer(status, "content-type: application/json\r\n", body)
}
