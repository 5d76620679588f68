//! What a worker keeps of each server between attempts: what it is, and the process of one on stdio that calls share.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use fleet::{
    ids::ServerName,
    manifest::{Lifetime, McpServer, McpTransport},
    outcome::ToolFailure,
    said,
    wire::code::Code,
};
use secrecy::SecretString;
use tokio::{sync::Mutex as AsyncMutex, time::Instant};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::{
    answer::cut_off,
    came::{Came, HttpStatus},
    cut::AttemptEnd,
    hear::Hear,
    http::HttpTarget,
    peer::{Carrier, Connection, FRESH, Peer, not_connected},
    stdio::ServerProcess,
};
use crate::executors::process::GuardCommand;

/// The pause before a program is started again: it doubles with every end, up to the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A program that lived for so long has not failed at its start.
const LIVED: Duration = Duration::from_secs(60);

/// The servers of a worker.
#[derive(Debug, Default)]
pub(super) struct ServerLinks {
    links: Mutex<HashMap<ServerName, Arc<ServerLink>>>,
    /// The tasks of programs.
    pub(super) tasks: TaskTracker,
}

/// A server, as a worker reaches it.
#[derive(Debug)]
pub(super) struct ServerLink {
    pub(super) server: Arc<McpServer>,
    pub(super) ids: AtomicU64,
    /// Set when the server has said that its tools have changed.
    pub(super) stale: Arc<AtomicBool>,
    known: AsyncMutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    connection: Option<Arc<Connection>>,
    process: Option<Arc<ServerProcess>>,
    started_at: Option<Instant>,
    /// How often in a row the program has ended soon.
    ends: u32,
    not_before: Option<Instant>,
}

/// How a server is reached by one attempt, with the secrets resolved.
pub(super) enum ServerWay {
    Http(Box<HttpTarget>),
    Stdio {
        guard: Arc<GuardCommand>,
        command: Vec<String>,
        env: BTreeMap<String, SecretString>,
    },
}

/// A server that is ready to be asked.
pub(super) struct Ready {
    pub(super) carrier: Carrier,
    pub(super) connection: Arc<Connection>,
    /// Whether the program is this attempt's own.
    pub(super) is_own: bool,
}

impl ServerLinks {
    /// The link to this version of the server. One to another version is given up: its program ends with its last attempt.
    pub(super) fn of(&self, server: &Arc<McpServer>) -> Arc<ServerLink> {
        let mut links = self
            .links
            .lock()
            .expect("no thread panics while holding the links");
        let link = links
            .get(&server.name)
            .filter(|link| link.server == *server);
        if let Some(link) = link {
            return Arc::clone(link);
        }
        let link = Arc::new(ServerLink {
            server: Arc::clone(server),
            ids: AtomicU64::new(first_id()),
            stale: Arc::default(),
            known: AsyncMutex::default(),
        });
        links.insert(server.name.clone(), Arc::clone(&link));
        link
    }

    /// Forgets all of them, which ends their programs.
    pub(super) fn clear(&self) {
        self.links
            .lock()
            .expect("no thread panics while holding the links")
            .clear();
    }
}

/// The first id of requests: drawn, for a request that goes on where another ended may go out from another worker, and its id must be
/// another. It and all that follow are whole numbers that every reader of JSON keeps.
fn first_id() -> u64 {
    let drawn = Uuid::new_v4().as_u128();
    u64::from(u32::try_from(drawn & u128::from(u32::MAX)).unwrap_or(1)) << 16
}

impl ServerLink {
    /// A server that is ready to be asked: one that is known, unless what it said of its tools is old or it has said that they changed.
    ///
    /// # Errors
    ///
    /// It cannot be reached, or does not say what it is. Nothing of a call was sent.
    pub(super) async fn ready(
        &self,
        way: &ServerWay,
        tasks: &TaskTracker,
        cut: &AttemptEnd,
        hear: &Hear,
    ) -> Result<Ready, ToolFailure> {
        let hear = Hear {
            stale: Arc::clone(&self.stale),
            ..hear.clone()
        };
        if let ServerWay::Stdio {
            guard,
            command,
            env,
        } = way
            && matches!(
                self.server.transport,
                McpTransport::Stdio {
                    lifetime: Lifetime::Call,
                    ..
                }
            )
        {
            let process = ServerProcess::start(guard, command, env, &self.stale, tasks)?;
            let carrier = Carrier::Stdio(process);
            let connection = self.connect(&carrier, cut, &hear).await;
            return match connection {
                Ok(connection) => Ok(Ready {
                    carrier,
                    connection,
                    is_own: true,
                }),
                Err(failure) => {
                    carrier.end().await;
                    Err(failure)
                }
            };
        }
        let mut known = tokio::select! {
            biased;
            known = self.known.lock() => known,
            why = cut.told() => return Err(cut_off(why)),
        };
        let carrier = match way {
            ServerWay::Http(target) => Carrier::Http(target.clone()),
            ServerWay::Stdio {
                guard,
                command,
                env,
            } => {
                let open = known.process.as_ref().filter(|process| process.is_open());
                match open {
                    Some(process) => Carrier::Stdio(Arc::clone(process)),
                    None => {
                        known.connection = None;
                        known.may_start()?;
                        let process =
                            ServerProcess::start(guard, command, env, &self.stale, tasks)?;
                        known.started_at = Some(Instant::now());
                        known.process = Some(Arc::clone(&process));
                        Carrier::Stdio(process)
                    }
                }
            }
        };
        if let Some(connection) = &known.connection {
            let is_fresh = connection.listed_at.elapsed() < FRESH;
            if is_fresh && !self.stale.load(Ordering::Acquire) {
                return Ok(Ready {
                    carrier,
                    connection: Arc::clone(connection),
                    is_own: false,
                });
            }
            // Before it asks: what changes while it does is looked at again.
            self.stale.store(false, Ordering::Release);
            let peer = Peer {
                carrier: &carrier,
                ids: &self.ids,
                cut,
                hear: &hear,
            };
            let greeting = connection.greeting.clone();
            match peer.list(&greeting).await {
                Ok(definitions) => {
                    let connection = Arc::new(Connection::of(greeting, &definitions));
                    known.connection = Some(Arc::clone(&connection));
                    return Ok(Ready {
                        carrier,
                        connection,
                        is_own: false,
                    });
                }
                // It has forgotten the session, or is another server now: a new handshake.
                Err(Came::Status(HttpStatus {
                    status: 400 | 404, ..
                })) => known.connection = None,
                Err(came) => {
                    self.stale.store(true, Ordering::Release);
                    return Err(not_connected(came));
                }
            }
        }
        let connection = self
            .connect(&carrier, cut, &hear)
            .await
            .inspect_err(|_failure| {
                // A program that does not say what it is may be half dead.
                if let Carrier::Stdio(process) = &carrier {
                    process.close();
                }
            })?;
        known.connection = Some(Arc::clone(&connection));
        Ok(Ready {
            carrier,
            connection,
            is_own: false,
        })
    }

    async fn connect(
        &self,
        carrier: &Carrier,
        cut: &AttemptEnd,
        hear: &Hear,
    ) -> Result<Arc<Connection>, ToolFailure> {
        self.stale.store(false, Ordering::Release);
        let peer = Peer {
            carrier,
            ids: &self.ids,
            cut,
            hear,
        };
        let (greeting, definitions) = peer.connect().await?;
        Ok(Arc::new(Connection::of(greeting, &definitions)))
    }

    /// Forgets what the server is: its session is gone.
    pub(super) async fn forget(&self, connection: &Arc<Connection>) {
        let mut known = self.known.lock().await;
        if known
            .connection
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, connection))
        {
            known.connection = None;
        }
    }
}

impl Known {
    /// Whether the program may be started now: after an end it rests, and longer after each.
    fn may_start(&mut self) -> Result<(), ToolFailure> {
        let now = Instant::now();
        if let Some(started) = self.started_at.take() {
            self.ends = if started.elapsed() > LIVED {
                1
            } else {
                self.ends + 1
            };
            let pause = PAUSE_FIRST * 2_u32.saturating_pow((self.ends - 1).min(16));
            self.not_before = Some(now + pause.min(PAUSE_MAX));
        }
        let left = self.not_before.map(|at| at.saturating_duration_since(now));
        match left.filter(|left| !left.is_zero()) {
            None => Ok(()),
            Some(left) => {
                let what = said!(
                    "the MCP server has ended, and is started again after a pause",
                    "MCP 服务器已经结束，稍后会重新启动"
                );
                Err(ToolFailure::new(Code::Unavailable, what).with_retry_after(Some(left)))
            }
        }
    }
}

impl Carrier {
    /// Ends a program, and waits until all its processes are gone; false: one may be left.
    pub(super) async fn end(&self) -> bool {
        match self {
            Self::Http(_) => true,
            Self::Stdio(process) => process.end().await,
        }
    }
}
