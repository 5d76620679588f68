//! A wire to a server on this machine that can swallow what it carries, and be cut.
//!
//! Swallowed bytes were accepted by the wire and never arrive: what a sender saw of a peer that died with them.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// The wire. It is cut for good when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    wire: Arc<Wire>,
    _tasks: JoinSet<()>,
}

/// One direction.
#[derive(Debug, Default)]
struct Direction {
    swallows: AtomicBool,
    swallowed: AtomicUsize,
}

#[derive(Debug)]
struct Wire {
    to_server: Direction,
    to_client: Direction,
    cuts: watch::Sender<u64>,
}

/// Whose bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// Statements, requests.
    Client,
    /// Answers.
    Server,
}

impl Proxy {
    /// Listens on a free port and connects to this one on 127.0.0.1.
    ///
    /// # Panics
    ///
    /// No port can be had.
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a port for the proxy");
        let own = listener.local_addr().expect("a bound port").port();
        let wire = Arc::new(Wire {
            to_server: Direction::default(),
            to_client: Direction::default(),
            cuts: watch::Sender::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(listener, port, Arc::clone(&wire)));
        Self {
            port: own,
            wire,
            _tasks: tasks,
        }
    }

    /// The port to connect to.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// From now on these bytes never arrive.
    pub fn swallow(&self, from: From) {
        self.direction(from).swallowed.store(0, Ordering::SeqCst);
        self.direction(from).swallows.store(true, Ordering::SeqCst);
    }

    /// How many of these bytes were swallowed since then.
    pub fn swallowed(&self, from: From) -> usize {
        self.direction(from).swallowed.load(Ordering::SeqCst)
    }

    /// Cuts every connection there is, at both ends. New ones work.
    pub fn cut(&self) {
        for direction in [&self.wire.to_client, &self.wire.to_server] {
            direction.swallows.store(false, Ordering::SeqCst);
        }
        self.wire.cuts.send_modify(|cuts| *cuts += 1);
    }

    fn direction(&self, from: From) -> &Direction {
        match from {
            From::Client => &self.wire.to_server,
            From::Server => &self.wire.to_client,
        }
    }
}

async fn listen(listener: TcpListener, port: u16, wire: Arc<Wire>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(carry(client, port, Arc::clone(&wire)));
        while connections.try_join_next().is_some() {}
    }
}

async fn carry(client: TcpStream, port: u16, wire: Arc<Wire>) {
    let mut cuts = wire.cuts.subscribe();
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // Whichever ends first ends the connection: both halves are dropped.
    tokio::select! {
        _ended = copy(from_client, to_server, &wire.to_server) => {}
        _ended = copy(from_server, to_client, &wire.to_client) => {}
        _cut = cuts.changed() => {}
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    direction: &Direction,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        if direction.swallows.load(Ordering::SeqCst) {
            direction.swallowed.fetch_add(count, Ordering::SeqCst);
        } else {
            to.write_all(&buffer[..count]).await?;
        }
    }
}
