//! The common part of the HTTP and the NATS service: the effects, their keys, and the switch that makes both fail.

use std::{
    collections::HashSet,
    io::{self, Write},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use fleet::call::Effect;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use super::{
    Did, File, LATE, http, nats,
    script::{Applies, Says, script},
    told::Told,
    tools,
};
use crate::login::Login;

/// Serves HTTP and NATS tools until the standard input ends. Says where it listens as soon as both can be asked.
///
/// # Errors
///
/// The file, the port or NATS is not to be had.
pub async fn serve(file: PathBuf, login: &Login) -> anyhow::Result<()> {
    let world = World::open(&file)?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let listening = nats::listen(Arc::clone(&world), login).await?;
    writeln!(io::stdout(), "listening address={address}")?;
    tokio::select! {
        served = http::serve(world, listener) => served.context("serve HTTP"),
        () = listening => anyhow::bail!("the connection to NATS has ended for good"),
        ended = parent_gone() => ended,
    }
}

/// What took place so far.
#[derive(Debug)]
pub(super) struct World {
    file: File,
    /// Tool and key of everything that took place.
    done: Mutex<HashSet<(String, String)>>,
    /// Numbers of what was booked.
    booked: Mutex<HashSet<u64>>,
    failing: AtomicBool,
    /// Whether the target of tools with a breaker fails.
    target_failing: AtomicBool,
    /// Those that apply when no worker waits any more.
    pub(super) late: TaskTracker,
}

/// How a tool's answer comes about, once its effect is dealt with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reply {
    pub(super) says: Says,
    /// For `was_booked`.
    pub(super) found: bool,
}

impl World {
    fn open(file: &std::path::Path) -> anyhow::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            file: File::open(file).context("open the file of effects")?,
            done: Mutex::default(),
            booked: Mutex::default(),
            failing: AtomicBool::new(false),
            target_failing: AtomicBool::new(false),
            late: TaskTracker::new(),
        }))
    }

    /// From now on everything is refused before anything is done, or nothing any more.
    pub(super) fn set_failing(&self, failing: bool) {
        self.failing.store(failing, Ordering::SeqCst);
    }

    /// The same for the target of tools with a breaker.
    pub(super) fn set_target_failing(&self, failing: bool) {
        self.target_failing.store(failing, Ordering::SeqCst);
    }

    /// Does what the tool is told, as far as that has an effect, and tells what it is to say. What is turned away at the
    /// door leaves no mark.
    pub(super) fn act(self: &Arc<Self>, told: &Told) -> anyhow::Result<Reply> {
        let tool = tools::tool(&told.tool).context("there is no such tool")?;
        let script = script(told.mode, told.attempt);
        let found = self.is_booked(told.n);
        let fails = self.failing.load(Ordering::SeqCst)
            || tool.is_guarded() && self.target_failing.load(Ordering::SeqCst);
        if fails || script.says == Says::NotNow {
            return Ok(Reply {
                says: Says::NotNow,
                found,
            });
        }
        self.file.note(told, Did::Started)?;
        match script.applies {
            Applies::Never => {}
            Applies::Now => self.apply(told, tool.effect)?,
            Applies::Late => self.apply_late(told.clone(), tool.effect),
        }
        Ok(Reply {
            says: script.says,
            found,
        })
    }

    /// Notes that the answer leaves.
    pub(super) fn replied(&self, told: &Told) -> anyhow::Result<()> {
        Ok(self.file.note(told, Did::Replied)?)
    }

    fn apply_late(self: &Arc<Self>, told: Told, effect: Effect) {
        let world = Arc::clone(self);
        self.late.spawn(async move {
            tokio::time::sleep(told.remaining + LATE).await;
            if let Err(problem) = world.apply(&told, effect) {
                complain(&problem);
            }
        });
    }

    fn apply(&self, told: &Told, effect: Effect) -> anyhow::Result<()> {
        // Held until the effect is on disk: a request with the same key finds all of it or nothing.
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let new = done.insert((told.tool.clone(), told.key.clone()));
        if told.tool == "book" {
            let mut booked = self.booked.lock().unwrap_or_else(PoisonError::into_inner);
            booked.insert(told.n);
        }
        match effect {
            Effect::Read => {}
            Effect::Idempotent if !new => self.file.note(told, Did::Recognised)?,
            Effect::Idempotent | Effect::Once | Effect::Transaction => {
                self.file.note(told, Did::Applied)?;
            }
        }
        Ok(())
    }

    fn is_booked(&self, n: u64) -> bool {
        let booked = self.booked.lock().unwrap_or_else(PoisonError::into_inner);
        booked.contains(&n)
    }
}

/// Says what went wrong where the run's log has it. A tool that cannot note what it does must not seem to be well.
pub(super) fn complain(problem: &anyhow::Error) {
    // If even this fails, it cannot be reported.
    writeln!(io::stderr(), "{problem:#}").unwrap_or_default();
}

/// Done when the standard input has ended: the process that started this one is gone.
async fn parent_gone() -> anyhow::Result<()> {
    let (gone, mut told) = tokio::sync::mpsc::channel::<()>(1);
    // A thread of its own: reading the standard input cannot be called off, and would keep a runtime from ending.
    std::thread::spawn(move || {
        // A standard input that cannot be read has ended as well.
        io::copy(&mut io::stdin().lock(), &mut io::sink()).unwrap_or_default();
        drop(gone);
    });
    // Nothing is ever said: the other end is dropped.
    told.recv().await;
    Ok(())
}

/// Longer than any tool's timeout, so that a request that hangs is given up and not answered.
pub(super) const FOR_EVER: Duration = Duration::from_secs(60);
