//! A client of NATS that sends the bytes it is given: what a careful library would refuse to send.

use std::time::Duration;

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

/// Blocks of headers that no client can read, and what is wrong with each.
pub const BAD_HEADERS: [(&str, &[u8]); 9] = [
    ("not UTF-8", b"NATS/1.0\r\nA: \xff\xfe\r\n\r\n"),
    ("a line without a colon", b"NATS/1.0\r\nno colon\r\n\r\n"),
    ("another version", b"NATS/2.0\r\nA: b\r\n\r\n"),
    ("no version", b"A: b\r\n\r\n"),
    ("only line ends", b"\r\n\r\n"),
    ("a status that is no number", b"NATS/1.0 abc\r\n\r\n"),
    (
        "a no-break space in a name",
        b"NATS/1.0\r\nA\xc2\xa0B: c\r\n\r\n",
    ),
    ("a space in a name", b"NATS/1.0\r\nA B: c\r\n\r\n"),
    (
        "a carriage return in a value",
        b"NATS/1.0\r\nA: b\rc\r\n\r\n",
    ),
];

/// The client.
#[derive(Debug)]
pub struct RawClient {
    stream: BufReader<TcpStream>,
}

/// A message that it got, headers and body together.
#[derive(Debug)]
pub struct RawMessage {
    /// Where it was published to.
    pub subject: String,
    /// Where an answer is expected.
    pub reply: Option<String>,
    /// Headers, if there are any, and body.
    pub content: Vec<u8>,
}

const PATIENCE: Duration = Duration::from_secs(20);

impl RawClient {
    /// Connects to the server on this port of 127.0.0.1, as the user of these fields of `CONNECT`, if there are any:
    /// `"user":"a","pass":"b"`.
    ///
    /// # Panics
    ///
    /// The server does not take the connection.
    pub async fn connect(port: u16, login: &str) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await;
        let stream = stream.expect("connect to nats-server");
        // A small message does not wait until the one before is acknowledged.
        stream.set_nodelay(true).expect("it is a TCP connection");
        let stream = BufReader::new(stream);
        let mut client = Self { stream };
        let greeting = client.line().await;
        assert!(greeting.starts_with("INFO "), "{greeting}");
        let more = if login.is_empty() { "" } else { "," };
        let options = format!("\"verbose\":false,\"headers\":true{more}{login}");
        client
            .send(format!("CONNECT {{{options}}}\r\n").as_bytes())
            .await;
        client.round_trip().await;
        client
    }

    /// Sends these bytes.
    ///
    /// # Panics
    ///
    /// The server has closed the connection.
    pub async fn send(&mut self, bytes: &[u8]) {
        let sent = self.stream.get_mut().write_all(bytes).await;
        sent.expect("nats-server reads");
    }

    /// Subscribes, and waits until the server knows.
    ///
    /// # Panics
    ///
    /// The server refuses it.
    pub async fn subscribe(&mut self, subject: &str) {
        self.send(format!("SUB {subject} 1\r\n").as_bytes()).await;
        self.round_trip().await;
    }

    /// Sends these bytes; whether the server refused them for lack of a permission, and the connection goes on.
    ///
    /// # Panics
    ///
    /// The server says something else, or closes the connection.
    pub async fn is_denied(&mut self, bytes: &[u8]) -> bool {
        self.send(&[bytes, b"PING\r\n"].concat()).await;
        let mut denied = false;
        loop {
            let line = self.line().await;
            match line.split(' ').next().unwrap_or_default() {
                "PONG" => return denied,
                "PING" => self.send(b"PONG\r\n").await,
                "INFO" | "+OK" => {}
                // What is delivered here is its own, and empty.
                "" | "MSG" => {}
                "-ERR" if line.contains("Permissions Violation") => denied = true,
                // A pattern; the permission is asked for all the same.
                "-ERR" if line.contains("Invalid Publish Subject") => {}
                _ => panic!("nats-server says {line:?}"),
            }
        }
    }

    /// Whether the server took what was sent, and did not end the connection for its size.
    ///
    /// # Panics
    ///
    /// It says something else.
    pub async fn is_kept(&mut self) -> bool {
        // It may have closed the connection by now.
        let asked = self.stream.get_mut().write_all(b"PING\r\n").await;
        if asked.is_err() {
            return false;
        }
        loop {
            let line = self.line().await;
            match line.as_str() {
                "PONG" => return true,
                "" => return false,
                _ if line.contains("Maximum Payload Violation") => return false,
                _ if line.starts_with("INFO ") || line == "PING" => {}
                _ => panic!("nats-server says {line:?}"),
            }
        }
    }

    /// Sends these bytes; whether the server took them and goes on. It may close the connection before it has read them all.
    ///
    /// # Panics
    ///
    /// It says something else.
    pub async fn is_taken(&mut self, bytes: &[u8]) -> bool {
        self.stream.get_mut().write_all(bytes).await.is_ok() && self.is_kept().await
    }

    /// Whether the server has delivered nothing here of what it was told until now.
    ///
    /// # Panics
    ///
    /// It has.
    pub async fn heard_nothing(&mut self) {
        self.send(b"PING\r\n").await;
        let heard = self.operation().await;
        assert!(heard.is_none(), "{heard:?}");
    }

    /// Waits until the server has read what was sent. Messages that come meanwhile are lost.
    ///
    /// # Panics
    ///
    /// The server refuses something, or does not answer.
    pub async fn round_trip(&mut self) {
        self.send(b"PING\r\n").await;
        while self.operation().await.is_some() {}
    }

    /// The next message.
    ///
    /// # Panics
    ///
    /// None comes within 20 s, or the server refuses something.
    pub async fn next(&mut self) -> RawMessage {
        loop {
            if let Some(message) = self.operation().await {
                return message;
            }
        }
    }

    /// A message, or `None` for a `PONG`.
    async fn operation(&mut self) -> Option<RawMessage> {
        loop {
            let line = self.line().await;
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            match words.as_slice() {
                ["PING"] => self.send(b"PONG\r\n").await,
                ["PONG"] => return None,
                ["INFO", ..] | ["+OK"] => {}
                [verb @ ("MSG" | "HMSG"), subject, _sid, rest @ .., size] => {
                    let size: usize = size.parse().expect("a size");
                    let sizes = if *verb == "MSG" { 0 } else { 1 };
                    let reply = (rest.len() > sizes).then(|| rest[0].to_owned());
                    let mut content = vec![0; size + 2];
                    let reading = self.stream.read_exact(&mut content);
                    let read = timeout(PATIENCE, reading).await;
                    let read = read.expect("nats-server says all of it");
                    read.expect("nats-server stays");
                    content.truncate(size);
                    return Some(RawMessage {
                        subject: (*subject).to_owned(),
                        reply,
                        content,
                    });
                }
                _ => panic!("nats-server says {line:?}"),
            }
        }
    }

    async fn line(&mut self) -> String {
        let mut line = Vec::new();
        let reading = self.stream.read_until(b'\n', &mut line);
        let read = timeout(PATIENCE, reading).await;
        let read = read.expect("nats-server says something");
        read.expect("nats-server stays");
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }
}

/// A publication with these headers, whatever they are; an empty `reply` is none.
pub fn with_headers(subject: &[u8], reply: &[u8], headers: &[u8], body: &[u8]) -> Vec<u8> {
    let sizes = format!(" {} {}\r\n", headers.len(), headers.len() + body.len());
    let space: &[u8] = if reply.is_empty() { b"" } else { b" " };
    [
        b"HPUB ",
        subject,
        space,
        reply,
        sizes.as_bytes(),
        headers,
        body,
        b"\r\n",
    ]
    .concat()
}

/// A publication without headers; an empty `reply` is none.
pub fn without_headers(subject: &[u8], reply: &[u8], body: &[u8]) -> Vec<u8> {
    let size = format!(" {}\r\n", body.len());
    let space: &[u8] = if reply.is_empty() { b"" } else { b" " };
    [
        b"PUB ",
        subject,
        space,
        reply,
        size.as_bytes(),
        body,
        b"\r\n",
    ]
    .concat()
}
