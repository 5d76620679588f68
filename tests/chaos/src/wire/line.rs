//! The common part of all wires: a port, connections, and actions on all of them at once.

use std::{
    hash::Hash,
    io,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::BytesMut;
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::sleep,
};

use super::{
    Side,
    armed::Armed,
    ends::{Ends, Intake, Outlet, deliver},
};
use crate::moment::{Moment, as_ms, moment};

/// Connections of one wire at most; more are refused.
const CONNECTIONS_MAX: usize = 1_024;
/// After a connection could not be taken, for want of files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// What a wire understands.
pub trait Protocol: std::fmt::Debug + Default + Send + Sync + 'static {
    /// What a fault can strike.
    type Kind: std::fmt::Debug + Copy + Eq + Hash + Send;
    /// What happens to it.
    type Fault: std::fmt::Debug + Copy + Send;

    /// Carries what both ends say. Returns when the connection is to be cut; an end that closes in order tells the other.
    fn converse(line: &Line<Self>, ends: Ends<'_>) -> impl Future<Output = ()> + Send;

    /// No faults any more.
    fn heal(&self) {}
}

/// A wire to one server on this machine, for one process or several. Dropping it cuts it.
#[derive(Debug)]
pub struct Wire<P: Protocol> {
    port: u16,
    pub(super) line: Arc<Line<P>>,
    _tasks: JoinSet<()>,
}

/// What the connections of a wire share.
#[derive(Debug)]
pub struct Line<P: Protocol> {
    server_port: u16,
    switches: Arc<Switches>,
    pub(super) armed: Armed<P::Kind, P::Fault>,
    pub(super) protocol: P,
}

impl<P: Protocol> Line<P> {
    /// Cuts every connection, and refuses new ones for so long.
    pub(super) fn fail_for(&self, outage: Duration) {
        let until = moment() + as_ms(outage);
        self.switches.out_until.store(until, Ordering::SeqCst);
        self.switches.cuts.send_modify(|cuts| *cuts += 1);
    }
}

impl<P: Protocol> Wire<P> {
    /// A wire from a free port to this one, both on 127.0.0.1.
    ///
    /// # Errors
    ///
    /// No port can be had.
    pub async fn to(server_port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let line = Arc::new(Line {
            server_port,
            switches: Arc::default(),
            armed: Armed::new(),
            protocol: P::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(listener, Arc::clone(&line)));
        Ok(Self {
            port,
            line,
            _tasks: tasks,
        })
    }

    /// The port to connect to.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// A fault for the nth of its kind since the wire was made, from 1. One that has passed already is not struck.
    pub fn arm(&self, kind: P::Kind, nth: u64, fault: P::Fault) {
        self.line.armed.arm(kind, nth, fault);
    }

    /// How many of this kind have passed, struck or not.
    pub fn passed(&self, kind: P::Kind) -> u64 {
        self.line.armed.passed(kind)
    }

    /// What was really done, in its order.
    pub fn struck(&self) -> Vec<(P::Kind, u64, P::Fault)> {
        self.line.armed.struck()
    }

    /// The same, with the moment of each.
    pub fn struck_at(&self) -> Vec<(P::Kind, P::Fault, Moment)> {
        self.line.armed.struck_at()
    }

    /// Cuts every connection there is, at both ends. New ones work.
    pub fn cut(&self) {
        self.line.switches.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// From now on nothing that this side says arrives, or nothing at all; a new connection is taken and leads nowhere.
    /// Switched off, every connection is cut: what was swallowed is missing in all of them.
    pub fn silence(&self, side: Option<Side>, on: bool) {
        let switches = &self.line.switches;
        let sides = [Side::Client, Side::Server];
        let sides = sides
            .iter()
            .filter(|one| side.is_none_or(|side| side == **one));
        let mut was = false;
        for side in sides {
            was |= switches.silent[*side as usize].swap(on, Ordering::SeqCst);
        }
        if was && !on {
            self.cut();
        }
    }

    /// From now on every piece arrives late by this.
    pub fn slow(&self, by: Option<Duration>) {
        let micros = by.map_or(0, |by| u64::try_from(by.as_micros()).unwrap_or(u64::MAX));
        self.line
            .switches
            .slow_micros
            .store(micros, Ordering::SeqCst);
    }

    /// From now on new connections are closed at once, or no longer so.
    pub fn refuse(&self, on: bool) {
        self.line.switches.refuses.store(on, Ordering::SeqCst);
    }

    /// No faults any more: nothing armed strikes, no connection is refused, slow or silent.
    pub fn healed(&self) {
        self.line.armed.heal();
        self.line.protocol.heal();
        self.slow(None);
        self.refuse(false);
        self.line.switches.out_until.store(0, Ordering::SeqCst);
        self.silence(None, false);
    }
}

/// What is done to all connections.
#[derive(Debug, Default)]
pub(super) struct Switches {
    cuts: watch::Sender<u64>,
    /// By [`Side`].
    silent: [AtomicBool; 2],
    slow_micros: AtomicU64,
    refuses: AtomicBool,
    out_until: AtomicI64,
}

impl Switches {
    /// Whether what this side says is swallowed.
    pub(super) fn is_silent(&self, side: Side) -> bool {
        self.silent[side as usize].load(Ordering::SeqCst)
    }

    /// How late everything is.
    pub(super) fn slowness(&self) -> Option<Duration> {
        let micros = self.slow_micros.load(Ordering::SeqCst);
        (micros > 0).then(|| Duration::from_micros(micros))
    }
}

async fn listen<P: Protocol>(listener: TcpListener, line: Arc<Line<P>>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = listener.accept().await;
        while connections.try_join_next().is_some() {}
        match accepted {
            Err(_no_files_left) => sleep(ACCEPT_PAUSE).await,
            Ok((client, _)) => {
                let refuses = line.switches.refuses.load(Ordering::SeqCst)
                    || line.switches.out_until.load(Ordering::SeqCst) > moment();
                if refuses || connections.len() >= CONNECTIONS_MAX {
                    reset(client);
                    continue;
                }
                // Before the task runs: a cut from now on is a cut of this one too.
                let cuts = line.switches.cuts.subscribe();
                connections.spawn(carry(client, cuts, Arc::clone(&line)));
            }
        }
    }
}

/// One connection, from beginning to end.
async fn carry<P: Protocol>(
    mut client: TcpStream,
    mut cuts: watch::Receiver<u64>,
    line: Arc<Line<P>>,
) {
    let switches = &line.switches;
    if switches.is_silent(Side::Client) || switches.is_silent(Side::Server) {
        // No connection comes about over a silent wire: the server does not hear of it.
        tokio::select! {
            () = swallow(&mut client) => {}
            _cut = cuts.changed() => {}
        }
        return reset(client);
    }
    let connecting = TcpStream::connect((Ipv4Addr::LOCALHOST, line.server_port));
    let connected = tokio::select! {
        connected = connecting => connected,
        _cut = cuts.changed() => return reset(client),
    };
    let Ok(mut server) = connected else {
        return reset(client);
    };
    for end in [&client, &server] {
        // Where it is refused, small pieces are only slower.
        drop(end.set_nodelay(true));
    }
    let in_order = {
        let (from_client, client_end) = client.split();
        let (from_server, server_end) = server.split();
        let (to_client, client_pieces) = Outlet::new(Arc::clone(switches));
        let (to_server, server_pieces) = Outlet::new(Arc::clone(switches));
        let ends = Ends {
            from_client: Intake::new(from_client, Side::Client, Arc::clone(switches)),
            from_server: Intake::new(from_server, Side::Server, Arc::clone(switches)),
            to_client,
            to_server,
        };
        tokio::select! {
            biased;
            _cut = cuts.changed() => false,
            () = P::converse(&line, ends) => false,
            ended = deliver(client_pieces, client_end) => ended.is_ok(),
            ended = deliver(server_pieces, server_end) => ended.is_ok(),
        }
    };
    if !in_order {
        reset(client);
        reset(server);
    }
}

/// Hears a client until it is gone.
async fn swallow(client: &mut TcpStream) {
    let mut nothing = BytesMut::new();
    while matches!(client.read_buf(&mut nothing).await, Ok(1..)) {
        nothing.clear();
    }
}

/// Closes a connection so that its peer sees it break.
fn reset(connection: TcpStream) {
    // Where it is refused, it is closed in order.
    drop(connection.set_zero_linger());
}
