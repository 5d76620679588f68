//! What a worker keeps of each server between attempts: what it is, and the process of one on stdio that calls share.
//!
//! A server is learnt of by a task of its own, which every attempt that needs it waits for: one whose time is short neither ends that
//! nor holds up the others.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use fleet::{
    ids::ServerName,
    manifest::McpServer,
    outcome::ToolFailure,
    wire::{code::Code, message::Message},
};
use secrecy::SecretString;
use tokio::{sync::watch, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use super::{
    answer::cut_off,
    connection::{Connection, Greeting, SaidChanges},
    cut::AttemptEnd,
    hear::Hear,
    peer::{Carrier, Peer, not_connected},
    shared_program::{Serves, SharedProgram},
    standing::ServerTrouble,
    stdio::ServerProcess,
    way::{ProgramWay, ServerWay},
};
use crate::{executors::Stop, programs::Programs};

/// How long a worker believes what a server said of its tools.
const FRESH: Duration = Duration::from_secs(300);
/// How long it believes so at least, whatever answers to calls make it doubt: the model's own wrong argument must not have a list of
/// thousands of tools read for each call.
const BELIEVED_MIN: Duration = Duration::from_secs(10);
/// How long learning of a server may take in all.
const LEARN_MAX: Duration = Duration::from_secs(60);

/// How often a call looks for a program that takes it.
const LOOKS_MAX: u32 = 3;

/// The servers of a worker.
#[derive(Debug, Default)]
pub(super) struct ServerLinks {
    links: Mutex<HashMap<ServerName, Arc<ServerLink>>>,
    /// The tasks of programs, and those that learn of servers.
    pub(super) tasks: TaskTracker,
    /// Ends the latter.
    end: CancellationToken,
    /// The slots that programs take which live on beside another one; `None`: there is no bound.
    pub(super) programs: OnceLock<Programs>,
}

/// A server, as a worker reaches it.
#[derive(Debug)]
pub(super) struct ServerLink {
    pub(super) server: Arc<McpServer>,
    pub(super) ids: AtomicU64,
    /// Set when the server has said that its tools have changed, or may be another one.
    pub(super) stale: Arc<AtomicBool>,
    /// Whether its calls do not start.
    pub(super) trouble: ServerTrouble,
    /// The changes of its tools that the log has.
    pub(super) said: SaidChanges,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    connection: Option<Arc<Connection>>,
    program: SharedProgram,
    learning: Option<Learning>,
    /// How often something was begun to be learnt.
    begun: u64,
}

/// Something that is being learnt.
#[derive(Debug, Clone)]
struct Learning {
    number: u64,
    learnt: watch::Receiver<Option<Result<Learnt, ToolFailure>>>,
}

/// What was learnt: what the server is, reached over this carrier.
#[derive(Debug, Clone)]
struct Learnt {
    carrier: Carrier,
    connection: Arc<Connection>,
}

/// A server that is ready to be asked.
pub(super) struct Ready {
    pub(super) carrier: Carrier,
    pub(super) connection: Arc<Connection>,
    /// Whether the program is this attempt's own.
    pub(super) is_own: bool,
    /// The secrets that its answers may have.
    pub(super) masked: Vec<SecretString>,
}

/// How far a server is known.
enum Standing {
    Known(Learnt),
    Learning(Learning),
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
            trouble: ServerTrouble::default(),
            said: SaidChanges::default(),
            known: Mutex::default(),
        });
        links.insert(server.name.clone(), Arc::clone(&link));
        link
    }

    /// Forgets all of them, which ends their programs.
    pub(super) fn clear(&self) {
        self.end.cancel();
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
    /// A server that is ready to be asked, over HTTP or with a program that calls share: one that is known, unless what it said of its
    /// tools is old or it has said that they changed.
    ///
    /// # Errors
    ///
    /// It cannot be reached, or does not say what it is. Nothing of a call was sent.
    pub(super) async fn ready(
        self: &Arc<Self>,
        way: &ServerWay,
        masked: &[SecretString],
        links: &ServerLinks,
        cut: &AttemptEnd,
    ) -> Result<Ready, ToolFailure> {
        let mut looks = 0;
        let Learnt {
            carrier,
            connection,
        } = loop {
            let learnt = self.learnt(way, masked, links, cut).await?;
            looks += 1;
            // A write may have been taken back from the program while it was learnt of.
            match &learnt.carrier {
                Carrier::Stdio(process) if !process.takes_calls() && looks < LOOKS_MAX => {}
                Carrier::Stdio(_) | Carrier::Http(_) => break learnt,
            }
        };
        Ok(Ready {
            carrier: match way {
                // With its own headers.
                ServerWay::Http(target) => Carrier::Http(target.clone()),
                ServerWay::Stdio(_) => carrier,
            },
            connection,
            is_own: false,
            masked: self.masks(masked),
        })
    }

    /// What the server is, over a carrier that took calls when this was asked.
    async fn learnt(
        self: &Arc<Self>,
        way: &ServerWay,
        masked: &[SecretString],
        links: &ServerLinks,
        cut: &AttemptEnd,
    ) -> Result<Learnt, ToolFailure> {
        match self.standing(way, masked, links)? {
            Standing::Known(learnt) => Ok(learnt),
            Standing::Learning(Learning { mut learnt, .. }) => {
                let learnt = tokio::select! {
                    biased;
                    learnt = learnt.wait_for(Option::is_some) => learnt,
                    why = cut.told() => return Err(self.instead_of_an_answer(cut_off(why))),
                };
                let learnt = learnt.ok().and_then(|learnt| learnt.clone());
                learnt.unwrap_or_else(|| Err(given_up()))
            }
        }
    }

    /// The failure of a call that was over before the server said what it is, with what its program did instead.
    fn instead_of_an_answer(&self, failure: ToolFailure) -> ToolFailure {
        match self.known().program.story() {
            Some(process) => process.story.instead_of_an_answer(failure),
            None => failure,
        }
    }

    /// The secrets that what the server says may have.
    pub(super) fn masks(&self, own: &[SecretString]) -> Vec<SecretString> {
        self.known().program.masks(own)
    }

    /// This process takes no new calls, and ends with its last one.
    pub(super) fn retire(&self, process: &Arc<ServerProcess>) {
        self.known().program.retires(process);
    }

    /// The same with a program that is this attempt's own.
    ///
    /// # Errors
    ///
    /// The same.
    pub(super) async fn own(
        &self,
        way: &ProgramWay,
        masked: &[SecretString],
        tasks: &TaskTracker,
        cut: &AttemptEnd,
        hear: &Hear,
    ) -> Result<Ready, ToolFailure> {
        let process = self.start(way, tasks)?;
        let carrier = Carrier::Stdio(process);
        match self.connect(&carrier, cut, hear).await {
            Ok(connection) => Ok(Ready {
                carrier,
                connection,
                is_own: true,
                masked: masked.to_vec(),
            }),
            Err(failure) => {
                carrier.end().await;
                Err(carrier.instead_of_an_answer(failure))
            }
        }
    }

    /// How far the server is known. Begins to learn of it where that is needed and has not begun.
    fn standing(
        self: &Arc<Self>,
        way: &ServerWay,
        masked: &[SecretString],
        links: &ServerLinks,
    ) -> Result<Standing, ToolFailure> {
        let mut known = self.known();
        let carrier = match way {
            ServerWay::Http(target) => Carrier::Http(target.clone()),
            ServerWay::Stdio(way) => match known.program.serves(way, links.programs.get())? {
                Serves::Current(process) => Carrier::Stdio(process),
                Serves::Start => {
                    known.connection = None;
                    known.learning = None;
                    let process = self.start(way, &links.tasks)?;
                    known.program.started(Arc::clone(&process), way, masked);
                    Carrier::Stdio(process)
                }
            },
        };
        let is_stale = self.stale.load(Ordering::Acquire);
        let fresh = known.connection.as_ref().filter(|connection| {
            let is_fresh = connection.listed_at.elapsed() < FRESH;
            is_fresh && !is_stale
        });
        if let Some(connection) = fresh {
            return Ok(Standing::Known(Learnt {
                carrier,
                connection: Arc::clone(connection),
            }));
        }
        let learning = known.learning.as_ref();
        // One whose task is gone learns nothing any more.
        let learning = learning.filter(|learning| learning.learnt.has_changed().is_ok());
        if let Some(learning) = learning {
            return Ok(Standing::Learning(learning.clone()));
        }
        known.begun += 1;
        let (tell, learnt) = watch::channel(None);
        let learning = Learning {
            number: known.begun,
            learnt,
        };
        known.learning = Some(learning.clone());
        let greeting = known.connection.as_ref();
        let greeting = greeting.map(|connection| connection.greeting.clone());
        // Before it asks: what changes while it does is looked at again.
        self.stale.store(false, Ordering::Release);
        let learns = Learns {
            link: Arc::clone(self),
            number: learning.number,
            carrier,
            greeting,
            cut: AttemptEnd {
                until: Instant::now() + LEARN_MAX,
                stop: Stop::under(links.end.clone()),
            },
        };
        links.tasks.spawn(async move {
            let learnt = learns.learn().await;
            tell.send_replace(Some(learnt));
        });
        Ok(Standing::Learning(learning))
    }

    fn start(
        &self,
        way: &ProgramWay,
        tasks: &TaskTracker,
    ) -> Result<Arc<ServerProcess>, ToolFailure> {
        ServerProcess::start(&self.server.name, way, &self.stale, tasks)
    }

    async fn connect(
        &self,
        carrier: &Carrier,
        cut: &AttemptEnd,
        hear: &Hear,
    ) -> Result<Arc<Connection>, ToolFailure> {
        let peer = Peer {
            carrier,
            ids: &self.ids,
            cut,
            hear,
        };
        let (greeting, tools) = peer.connect().await?;
        Ok(Arc::new(Connection::of(greeting, tools)))
    }

    /// The server is asked again for its tools, unless that was done since.
    pub(super) fn outdated(&self, connection: &Arc<Connection>) {
        let known = self.known();
        let is_known = known.connection.as_ref();
        if is_known.is_some_and(|known| Arc::ptr_eq(known, connection)) && known.learning.is_none()
        {
            self.stale.store(true, Ordering::Release);
        }
    }

    /// Forgets what the server is: its session is gone.
    pub(super) fn forget(&self, connection: &Arc<Connection>) {
        let mut known = self.known();
        if known
            .connection
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, connection))
        {
            known.connection = None;
        }
    }

    /// The answer to a call may mean that the server has other tools now, or is another: it is looked at again, unless that was done
    /// just before.
    pub(super) fn doubt(&self, connection: &Connection) {
        if connection.listed_at.elapsed() >= BELIEVED_MIN {
            self.stale.store(true, Ordering::Release);
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known
            .lock()
            .expect("no thread panics while holding what is known")
    }
}

/// The worker ends, or the task failed.
fn given_up() -> ToolFailure {
    let what = Message::fixed(
        "the worker has given up asking the MCP server what it is",
        "worker 已放弃询问 MCP 服务器的情况",
    );
    ToolFailure::new(Code::Unavailable, what)
}

/// Learns what a server is.
struct Learns {
    link: Arc<ServerLink>,
    number: u64,
    carrier: Carrier,
    /// As which it was known.
    greeting: Option<Greeting>,
    cut: AttemptEnd,
}

impl Learns {
    async fn learn(self) -> Result<Learnt, ToolFailure> {
        let learnt = self.look().await;
        let mut known = self.link.known();
        // Another program may serve by now.
        let is_newest = known
            .learning
            .as_ref()
            .is_some_and(|learning| learning.number == self.number);
        if is_newest {
            known.learning = None;
            match &learnt {
                Ok(connection) => known.connection = Some(Arc::clone(connection)),
                Err(_) => self.link.stale.store(true, Ordering::Release),
            }
        }
        drop(known);
        let carrier = self.carrier;
        learnt.map(|connection| Learnt {
            carrier,
            connection,
        })
    }

    async fn look(&self) -> Result<Arc<Connection>, ToolFailure> {
        let hear = Hear {
            stale: Arc::clone(&self.link.stale),
            ..Hear::default()
        };
        let peer = Peer {
            carrier: &self.carrier,
            ids: &self.link.ids,
            cut: &self.cut,
            hear: &hear,
        };
        if let Some(greeting) = &self.greeting {
            match (peer.list(greeting).await, &self.carrier) {
                (Ok(tools), _) => return Ok(Arc::new(Connection::of(greeting.clone(), tools))),
                // It has forgotten the session, or is another server now: a new handshake.
                (Err(came), Carrier::Http(_)) if came.may_be_of_another_server() => {}
                (Err(came), Carrier::Http(_)) => return Err(not_connected(came)),
                (Err(came), Carrier::Stdio(process)) => {
                    // It answers nothing any more, or nonsense, and is started again; where others wait for it, it may only be busy.
                    if process.is_idle() {
                        process.give_up();
                    }
                    return Err(not_connected(came));
                }
            }
        }
        let connected = self.link.connect(&self.carrier, &self.cut, &hear).await;
        connected.map_err(|failure| {
            // A program that does not say what it is may be half dead.
            if let Carrier::Stdio(process) = &self.carrier {
                process.give_up();
            }
            self.carrier.instead_of_an_answer(failure)
        })
    }
}
