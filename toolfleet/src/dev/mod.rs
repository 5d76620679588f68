//! Everything for one person: a private Postgres and nats-server, a dispatcher, workers, tools.
//!
//! Start: lock → leftovers of a killed predecessor → Postgres and NATS → migrations → deaths of the predecessor's workers →
//! tools → dispatchers → workers → gateways → `dev.json`. Stop is the reverse.
//!
//! Ports and passwords are those of the last run (`ports`, `private`); `ways` prints the addresses for people and their
//! programs. `running` is all of it, and each part has a file.
//!
//! Dispatchers, workers and gateways are this same program in processes of their own. A process that dies is started again (`keep`), on
//! the same port, and `dev.json` is rewritten; a dead worker is reported and fenced (`deaths`). They end by themselves when
//! this process is killed: their standard input is a pipe whose other end it holds. The two servers do not, so the next `dev`
//! on the same data ends them.

mod hooks;
mod layout;
mod options;
mod screen;

mod running;

mod lock;

pub(crate) mod private;

mod ports;

mod engines;

mod tools;

mod child;

mod keep;

mod ready;

mod deaths;

mod logs;

mod state;

mod ways;

mod console;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub use self::{
    hooks::DevHooks,
    options::DevOptions,
    running::Dev,
    screen::Screen,
    state::{DevEnded, DevState},
};
pub(crate) use self::{ready::is_ready, ways::FOUND as DATA_FOLDER};

/// Runs until `shutdown`, then stops everything in order; leaves no process behind.
///
/// A further Ctrl-C or SIGTERM after `shutdown` stops everything at once. A closed terminal counts as `shutdown`.
///
/// # Errors
///
/// Something could not be started; everything that ran is stopped again.
pub async fn run(
    options: DevOptions,
    hooks: DevHooks,
    screen: Screen,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let (stop, hurry) = (CancellationToken::new(), CancellationToken::new());
    let mut fleet = Box::pin(live(&options, hooks, &screen, &stop, &hurry));
    tokio::select! {
        ended = &mut fleet => return ended,
        () = shutdown => {}
        gone = terminal_gone() => gone?,
    }
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    stop.cancel();
    screen
        .line("stopping: workers finish what they run, at most 10 s (Ctrl-C again stops at once)");
    tokio::select! {
        ended = &mut fleet => return ended,
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    hurry.cancel();
    fleet.await
}

async fn live(
    options: &DevOptions,
    hooks: DevHooks,
    screen: &Screen,
    stop: &CancellationToken,
    hurry: &CancellationToken,
) -> anyhow::Result<()> {
    let Some(dev) = Dev::start(options, hooks, screen.clone(), stop, hurry).await? else {
        return Ok(());
    };
    for line in dev.summary() {
        screen.line(&line);
    }
    stop.cancelled().await;
    dev.stop().await;
    screen.line("stopped");
    Ok(())
}

/// Waits until the terminal is closed; for ever under `nohup`, which asks to outlive it.
async fn terminal_gone() -> anyhow::Result<()> {
    const HANGUP: u64 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    if ignored.is_none_or(|mask| mask & HANGUP != 0) {
        return std::future::pending().await;
    }
    let mut hangup = signal(SignalKind::hangup()).context("listen for a vanished terminal")?;
    hangup.recv().await;
    Ok(())
}
