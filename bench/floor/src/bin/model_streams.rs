//! `model_streams`: the server of `bench/models.py`, a model that answers at once or streams at an even pace; a bare relay; and the
//! clients that read streams over it.
//!
//! It shares no code with the product, and reads of HTTP no more than the bench sends.

use std::{
    io::Write as _,
    net::SocketAddr,
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, bail, ensure};
use clap::{Parser, Subcommand};
use tokio::{
    io::{
        AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional,
    },
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::interval,
};

/// The longest body of a request, in bytes.
const BODY_MAX: usize = 1 << 20;
/// What a stream ends with: why the model stopped, and the tokens.
const LAST: &str = concat!(
    r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"#,
    r#""usage":{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18}}"#
);
/// A plain reply.
const REPLY: &str = concat!(
    r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","#,
    r#""choices":[{"index":0,"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}],"#,
    r#""usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}"#
);

/// The other side of bench/models.py
#[derive(Debug, Parser)]
struct Options {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// A model: it answers a request with `"stream":true` with a stream, and any other one at once
    Serve {
        /// Chunks of a stream
        #[arg(long, default_value_t = 500)]
        chunks: u32,
        /// Milliseconds between two of them
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
        every: u64,
    },
    /// Passes bytes on, both ways
    Relay {
        /// Where to
        to: SocketAddr,
    },
    /// Reads so many streams from there at the same time, and says how many bytes came
    Read {
        /// From where
        from: SocketAddr,
        /// How many
        #[arg(long, default_value_t = 500)]
        streams: usize,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Options::parse().role {
        Role::Serve { chunks, every } => serve(chunks, Duration::from_millis(every)).await,
        Role::Relay { to } => relay(to).await,
        Role::Read { from, streams } => read_all(from, streams).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            drop(writeln!(std::io::stderr(), "{problem:#}"));
            ExitCode::FAILURE
        }
    }
}

/// A port that the system picks, which is told on the first line.
async fn listen() -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    say(listener.local_addr()?.port())?;
    Ok(listener)
}

fn say(what: impl std::fmt::Display) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{what}")?;
    Ok(out.flush()?)
}

async fn serve(chunks: u32, every: Duration) -> anyhow::Result<()> {
    let listener = listen().await?;
    let mut clients = JoinSet::new();
    loop {
        let (client, _from) = listener.accept().await?;
        client.set_nodelay(true)?;
        // A client that is gone is no concern of the others.
        clients.spawn(async move { drop(answer_all(client, chunks, every).await) });
        while clients.try_join_next().is_some() {}
    }
}

/// Answers what comes on a connection until its client is gone.
async fn answer_all(client: TcpStream, chunks: u32, every: Duration) -> anyhow::Result<()> {
    let mut client = BufReader::new(client);
    while let Some(body) = request(&mut client).await? {
        let is_stream = body
            .windows(b"\"stream\":true".len())
            .any(|part| part == b"\"stream\":true");
        let to = client.get_mut();
        if is_stream {
            stream(to, chunks, every).await?;
        } else {
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                REPLY.len()
            );
            to.write_all(format!("{head}{REPLY}").as_bytes()).await?;
        }
    }
    Ok(())
}

/// The body of the next request; `None`: there is none.
async fn request(client: &mut BufReader<TcpStream>) -> anyhow::Result<Option<Vec<u8>>> {
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        if client.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        let field = line.trim_end();
        if field.is_empty() {
            break;
        }
        if let Some((name, value)) = field.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().context("a length of a body")?;
        }
    }
    ensure!(length <= BODY_MAX, "a body of {length} bytes");
    let mut body = vec![0; length];
    client.read_exact(&mut body).await?;
    Ok(Some(body))
}

/// The chunks, one at each tick. Each says when it left, in microseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "another process on this machine subtracts it from its own clock"
)]
async fn stream(to: &mut TcpStream, chunks: u32, every: Duration) -> anyhow::Result<()> {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    to.write_all(head.as_bytes()).await?;
    let mut ticks = interval(every);
    for _ in 0..chunks {
        ticks.tick().await;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
        let data = format!(
            r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{{"content":"{now} "}},"finish_reason":null}}]}}"#
        );
        event(to, &data).await?;
    }
    event(to, LAST).await?;
    event(to, "[DONE]").await?;
    Ok(to.write_all(b"0\r\n\r\n").await?)
}

async fn event(to: &mut TcpStream, data: &str) -> anyhow::Result<()> {
    let length = "data: \n\n".len() + data.len();
    let framed = format!("{length:x}\r\ndata: {data}\n\n\r\n");
    Ok(to.write_all(framed.as_bytes()).await?)
}

async fn relay(to: SocketAddr) -> anyhow::Result<()> {
    let listener = listen().await?;
    let mut clients = JoinSet::new();
    loop {
        let (mut client, _from) = listener.accept().await?;
        clients.spawn(async move {
            let mut server = TcpStream::connect(to).await?;
            server.set_nodelay(true)?;
            client.set_nodelay(true)?;
            copy_bidirectional(&mut client, &mut server).await
        });
        while clients.try_join_next().is_some() {}
    }
}

async fn read_all(from: SocketAddr, streams: usize) -> anyhow::Result<()> {
    let mut clients = JoinSet::new();
    for _ in 0..streams {
        clients.spawn(read(from));
    }
    let mut bytes = 0;
    while let Some(read) = clients.join_next().await {
        bytes += read??;
    }
    say(bytes)
}

/// Reads a stream to its end; its bytes.
async fn read(from: SocketAddr) -> anyhow::Result<usize> {
    const END: &[u8] = b"0\r\n\r\n";
    let mut server = TcpStream::connect(from).await?;
    let body = r#"{"stream":true}"#;
    let asked = format!(
        "POST / HTTP/1.1\r\nhost: model\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    server.write_all(asked.as_bytes()).await?;
    let (mut all, mut piece, mut last) = (0, vec![0; 1 << 16], Vec::new());
    loop {
        let read = server.read(&mut piece).await?;
        if read == 0 {
            bail!("a stream broke off after {all} bytes");
        }
        all += read;
        last.extend_from_slice(&piece[..read]);
        last.drain(..last.len().saturating_sub(END.len()));
        if last == END {
            return Ok(all);
        }
    }
}
