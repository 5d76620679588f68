//! The named pipe into which a program writes parts of its answer and how far it is, one JSON value a line.
//!
//! Whatever the program does with it is harmless: this end is open before the program starts and until its processes are gone,
//! so opening it never waits and writing never kills. It is always read, after a bound more slowly and without a look at what
//! it has.

use std::{
    fs::File,
    future,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use fleet::wire::part::JSON_MAX;
use nix::{fcntl::OFlag, sys::stat::Mode, unistd::mkfifo};
use tokio::{
    net::unix::pipe,
    time::{Instant, sleep_until},
};

use super::lines::Lines;
use crate::{executors::Progress, guard::Tmp};

/// The most bytes of one read: what the kernel keeps for a pipe.
const READ_SIZE: usize = 64 * 1024;
/// The most bytes of an attempt that are looked at: parts have fewer, and their lines are not much longer.
const LOOKED_AT_MAX: usize = 16 * 1024 * 1024;
/// The pause between two reads beyond it.
const PAUSE: Duration = Duration::from_millis(10);
/// The most bytes that are read after the program's end. A pipe holds less, but a process that lives on may go on writing.
const REST_MAX: u64 = 1024 * 1024;

/// The pipe of one attempt. Dropping it removes it.
pub(super) struct EventFifo {
    folder: Tmp,
    end: pipe::Receiver,
    /// The same end, past the runtime.
    file: File,
    lines: Lines,
    progress: Progress,
    read: Vec<u8>,
    /// Bytes that came.
    seen: usize,
    next_read: Instant,
}

impl EventFifo {
    /// Makes it where anybody may hear what is written. A program without one runs as well.
    pub(super) fn of(progress: &Progress) -> Option<Self> {
        if !progress.is_heard() {
            return None;
        }
        let made = Self::make(progress.clone());
        made.inspect_err(|error| {
            tracing::warn!(
                %error,
                "the pipe for a program's parts could not be made; its result alone speaks"
            );
        })
        .ok()
    }

    fn make(progress: Progress) -> io::Result<Self> {
        let folder = Tmp::make("toolfleet-events")?;
        let path = path_in(&folder);
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)?;
        // Also for writing: without a writer, reading would say that the pipe has ended.
        let mut options = File::options();
        options.read(true).write(true);
        options.custom_flags(OFlag::O_NONBLOCK.bits());
        let file = options.open(&path)?;
        Ok(Self {
            end: pipe::Receiver::from_file(file.try_clone()?)?,
            folder,
            file,
            lines: Lines::up_to(JSON_MAX),
            progress,
            read: Vec::with_capacity(READ_SIZE),
            seen: 0,
            next_read: Instant::now(),
        })
    }

    /// The folder in which it alone is.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where the program finds it.
    pub(super) fn path(&self) -> PathBuf {
        path_in(&self.folder)
    }

    /// Waits for what the program writes and tells it. Never fails. Cancel-safe.
    async fn relay(&mut self) {
        sleep_until(self.next_read).await;
        let ready = self.end.readable().await;
        self.read.clear();
        match ready.and_then(|()| self.end.try_read_buf(&mut self.read)) {
            Ok(_) => self.tell(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Not expected of a pipe: the next look comes later.
            Err(_) => self.next_read = Instant::now() + Duration::from_secs(1),
        }
    }

    fn tell(&mut self) {
        let Self {
            lines,
            progress,
            read,
            ..
        } = self;
        if self.seen <= LOOKED_AT_MAX {
            lines.feed(read, |line| progress.relay(line));
        } else {
            self.next_read = Instant::now() + PAUSE;
        }
        self.seen = self.seen.saturating_add(self.read.len());
    }

    /// Tells what the program had written when it ended.
    pub(super) fn finish(&mut self) {
        // What the runtime knows about readiness may be older than the program's end. Ends where nothing is left.
        let mut rest = Vec::new();
        drop((&self.file).take(REST_MAX).read_to_end(&mut rest));
        self.read = rest;
        self.tell();
        let progress = &self.progress;
        self.lines.finish(|line| progress.relay(line));
    }
}

/// The same; without a pipe it never returns.
pub(super) async fn relay(fifo: &mut Option<EventFifo>) {
    match fifo {
        Some(fifo) => fifo.relay().await,
        None => future::pending().await,
    }
}

/// Its place in its folder. Guards know it, too.
fn path_in(folder: &Tmp) -> PathBuf {
    folder.path().join("events")
}
