//! A wire to a server on this machine that can swallow what it carries, and be cut.
//!
//! Swallowed bytes were accepted by the wire and never arrive: what a sender saw of a peer that died with them.
//! In front of Postgres it can also break at the worst moments there are: around a COMMIT.

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

/// The wire. Dropping it cuts it.
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
    connections: AtomicUsize,
    to_server: Direction,
    to_client: Direction,
    cuts: watch::Sender<u64>,
    commits: Commits,
}

/// What becomes of the COMMITs that pass.
#[derive(Debug, Default)]
struct Commits {
    /// Every how-manieth is broken; 0: none.
    every: AtomicUsize,
    seen: AtomicUsize,
    /// By [`Broken`].
    broken: [AtomicUsize; 3],
}

/// Where a connection breaks around a COMMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// It never arrives.
    Before,
    /// It arrives, and is executed or not, and nothing waits for the answer.
    During,
    /// It was executed, and its answer never arrives.
    After,
}

impl Broken {
    /// All of them; they are taken in turn.
    pub const ALL: [Self; 3] = [Self::Before, Self::During, Self::After];
}

/// As a message of the simple protocol, which is how transactions are ended.
const COMMIT: &[u8] = b"; COMMIT;";

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
            connections: AtomicUsize::new(0),
            to_server: Direction::default(),
            to_client: Direction::default(),
            cuts: watch::Sender::new(0),
            commits: Commits::default(),
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

    /// How many connections were made through it so far.
    pub fn connections(&self) -> usize {
        self.wire.connections.load(Ordering::SeqCst)
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

    /// From now on bytes arrive again, on the connections there are too.
    pub fn heal(&self) {
        for direction in [&self.wire.to_client, &self.wire.to_server] {
            direction.swallows.store(false, Ordering::SeqCst);
        }
    }

    /// Cuts every connection there is, at both ends. New ones work.
    pub fn cut(&self) {
        self.heal();
        self.wire.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// From now on every so many COMMITs break their connection, in each of the ways in turn.
    pub fn break_commits(&self, every: usize) {
        self.wire.commits.every.store(every, Ordering::SeqCst);
    }

    /// How many COMMITs have broken their connection so.
    pub fn broken(&self, how: Broken) -> usize {
        self.wire.commits.broken[how as usize].load(Ordering::SeqCst)
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
        wire.connections.fetch_add(1, Ordering::SeqCst);
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
    let answer_is_lost = AtomicBool::new(false);
    let spoils = |bytes: &[u8]| wire.commits.spoil(bytes, &answer_is_lost);
    let loses = |_: &[u8]| wire.commits.lose(&answer_is_lost);
    // Whichever ends first ends the connection: both halves are dropped.
    // A cut first: what comes after it is not carried.
    tokio::select! {
        biased;
        _cut = cuts.changed() => {}
        _ended = copy(from_client, to_server, &wire.to_server, spoils) => {}
        _ended = copy(from_server, to_client, &wire.to_client, loses) => {}
    }
}

/// What becomes of bytes, and of their connection.
enum Fate {
    Arrive,
    /// They arrive, and nothing else does.
    ArriveLast,
    Never,
}

impl Commits {
    /// The fate of what a client says. `answer_is_lost` is set when it is that of the answer that counts.
    fn spoil(&self, bytes: &[u8], answer_is_lost: &AtomicBool) -> Fate {
        let every = self.every.load(Ordering::SeqCst);
        // It is written at once, after the answer to what was before: a piece of the wire holds all of it.
        if every == 0 || !bytes.windows(COMMIT.len()).any(|bytes| bytes == COMMIT) {
            return Fate::Arrive;
        }
        let number = self.seen.fetch_add(1, Ordering::SeqCst) + 1;
        if !number.is_multiple_of(every) {
            return Fate::Arrive;
        }
        match Broken::ALL[number / every % Broken::ALL.len()] {
            Broken::Before => {
                self.count(Broken::Before);
                Fate::Never
            }
            Broken::During => {
                self.count(Broken::During);
                Fate::ArriveLast
            }
            Broken::After => {
                answer_is_lost.store(true, Ordering::SeqCst);
                Fate::Arrive
            }
        }
    }

    /// The fate of what a server says.
    fn lose(&self, answer_is_lost: &AtomicBool) -> Fate {
        if answer_is_lost.load(Ordering::SeqCst) {
            self.count(Broken::After);
            return Fate::Never;
        }
        Fate::Arrive
    }

    fn count(&self, how: Broken) {
        self.broken[how as usize].fetch_add(1, Ordering::SeqCst);
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    direction: &Direction,
    fate: impl Fn(&[u8]) -> Fate,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        if direction.swallows.load(Ordering::SeqCst) {
            direction.swallowed.fetch_add(count, Ordering::SeqCst);
            continue;
        }
        match fate(&buffer[..count]) {
            Fate::Arrive => to.write_all(&buffer[..count]).await?,
            Fate::ArriveLast => return to.write_all(&buffer[..count]).await,
            Fate::Never => return Ok(()),
        }
    }
}
