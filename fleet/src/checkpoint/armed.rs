//! What a test build does at a checkpoint. A production build has none of this.

use std::{
    future::poll_fn,
    io::Write,
    pin::pin,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    task::Poll,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::point::Checkpoint;

/// The variable that arms a process: `claimed`, or `claimed:3` for the third time that it gets there. With `claimed:3:stop` the
/// process is stopped there instead of ended, until it gets SIGCONT.
pub const VARIABLE: &str = "TOOLFLEET_CHECKPOINT";

struct Armed {
    at: Checkpoint,
    times_left: AtomicU32,
    stops: bool,
}

/// Reports that this process got here. An armed process goes no further: nothing is flushed, nothing is sent.
pub fn reached(point: Checkpoint) {
    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
    let Some(armed) = ARMED.get_or_init(arm) else {
        return;
    };
    // Other threads may count it below zero before the kernel has ended them.
    if armed.at == point && armed.times_left.fetch_sub(1, Ordering::SeqCst) == 1 {
        if armed.stops {
            kill(Pid::this(), Signal::SIGSTOP).expect("a process may stop itself");
        } else {
            end(point);
        }
    }
}

/// Sends a statement and reports that it is under way: it is written, and no answer has been acted on. On a machine with few
/// processors the answer may be there as soon as the statement is written.
///
/// The first statement on a connection is still being prepared then, so a test should stop at the second.
pub async fn under_way<F: Future>(point: Option<Checkpoint>, sending: F) -> F::Output {
    let mut sending = pin!(sending);
    let first = poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await;
    if let Some(point) = point {
        reached(point);
    }
    match first {
        Poll::Ready(answer) => answer,
        Poll::Pending => sending.await,
    }
}

fn arm() -> Option<Armed> {
    #[expect(
        clippy::disallowed_methods,
        reason = "not a setting: production builds do not know it"
    )]
    let text = std::env::var(VARIABLE).ok()?;
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default();
    let at = name
        .parse()
        .expect("TOOLFLEET_CHECKPOINT names a checkpoint");
    let times = parts
        .next()
        .map_or(Ok(1), str::parse)
        .expect("TOOLFLEET_CHECKPOINT counts from 1 behind the colon");
    let stops = match parts.next() {
        None => false,
        Some("stop") => true,
        Some(other) => panic!("TOOLFLEET_CHECKPOINT knows `stop` behind the count, not {other:?}"),
    };
    Some(Armed {
        at,
        times_left: AtomicU32::new(times),
        stops,
    })
}

/// Ends the process at once.
fn end(point: Checkpoint) -> ! {
    // For the test that started the process, because other things may kill a process too. If this line cannot be written, that
    // test fails.
    writeln!(std::io::stderr(), "stopped at checkpoint {point}").unwrap_or_default();
    kill(Pid::this(), Signal::SIGKILL).expect("a process may kill itself");
    // Not reached: the signal is delivered before the call returns.
    std::process::abort()
}
