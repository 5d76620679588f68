//! Starts a program under a guard and observes it until none of its processes is left.

use std::{
    fs::File,
    future,
    io::{self, PipeWriter, Read},
    iter, mem,
    os::{
        fd::{OwnedFd, RawFd},
        unix::net,
    },
    sync::Arc,
    time::Duration,
};

use fleet::{
    call::Effect,
    fencing::{Withdrawn, WorkerLock},
    ids::AttemptId,
    said,
    taken_back::TakenBack,
    wire::message::Message,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf, pipe},
    },
    process::{Child, Command},
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};

use super::{
    environment,
    fifo::{self, EventFifo},
    program::Program,
    verdict::{EndReason, Observed, ProgramEnd, STDERR_MAX},
};
use crate::{
    executors::{AttemptContext, StopReason, resources::lacks_resources},
    guard::{self, GuardReport, NotStarted, Registered, Start},
};

/// When a guard is given up, counted from the end of its tool or from the order to end it: two seconds of grace, and time to
/// kill processes that ignored TERM.
pub(super) const GUARD_MAX: Duration = Duration::from_millis(2_650);
/// The most bytes of one read.
const READ_SIZE: usize = 16 * 1024;
/// A write may finish, so that its effect is certain. It is ended only after so many bytes on stdout.
const WRITE_STDOUT_MAX: usize = 64 * 1024 * 1024;
/// How long a killed guard is waited for before what it has started is ended without it, and how long one round of the chase
/// may go on after that.
const REAP_MAX: Duration = Duration::from_millis(50);
const ROUND_MAX: Duration = Duration::from_secs(2);
/// The pause after a round that has left something: it doubles up to the second, at which one round is a look and a signal in
/// a minute.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long an answer waits for the chase of what a lost guard left behind. In sum less than [`LINGER_MAX`](crate::executors::LINGER_MAX).
const CHASE_WAIT_MAX: Duration = Duration::from_millis(300);
/// The most bytes of a guard's report; its messages name a program and a folder.
const REPORT_MAX: usize = 64 * 1024;
/// The most bytes of stderr that are read after the tool's end. A pipe holds less, but a process that lives on may go on
/// writing.
const STDERR_REST_MAX: usize = 1024 * 1024;

/// Runs the program once, and returns when all its processes are gone.
pub(super) async fn run(tool: &Program, context: &AttemptContext) -> Observed {
    let stopped = context.stop.asked().map(StopReason::taken_back);
    let late = || (Instant::now() >= context.until).then_some(TakenBack::StartedTooLate);
    if let Some(taken_back) = stopped.or_else(late) {
        let what = Message::fixed(
            "the attempt was over before the program could be started",
            "程序还没有启动，这次尝试就已结束",
        );
        return Observed::not_started(what, Some(taken_back));
    }
    let fifo = EventFifo::of(&context.progress);
    let running = order(tool, context, fifo.as_ref())
        .and_then(|order| Ok((order, RunningProgram::start(tool, context, fifo)?)));
    let (order, mut running) = match running {
        Ok(started) => started,
        Err(err) => {
            let what = said!(
                "its guard could not be started: {err}",
                "它的守护进程无法启动：{err}"
            );
            return Observed::not_started(what, whose_fault(&err));
        }
    };
    let end = running.watch(&order, context).await;
    let (stdout, stderr) = running.take_output();
    let all_gone = running.bury(context).await;
    Observed {
        end,
        overflow: stdout.len() > tool.output_limit,
        stdout,
        stderr,
        left_behind: !all_gone,
    }
}

/// Why a guard could not be started, where that was not because of the tool's own input.
fn whose_fault(err: &io::Error) -> Option<TakenBack> {
    if lacks_resources(err) {
        return Some(TakenBack::NoResources);
    }
    match err.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::ArgumentListTooLong => None,
        _ => Some(TakenBack::GuardFailed),
    }
}

/// The message that tells the guard what to run.
fn order(
    tool: &Program,
    context: &AttemptContext,
    fifo: Option<&EventFifo>,
) -> io::Result<Vec<u8>> {
    let input = serde_json::to_vec(&tool.arguments)?;
    let too_large = || {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "the arguments are too large for a program",
        )
    };
    let (program, args) = tool
        .spec
        .command
        .split_first()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "its command is empty"))?;
    let start = Start {
        program: program.clone(),
        args: args.to_vec(),
        cwd: tool.spec.cwd.clone(),
        sandbox: tool.sandbox.clone(),
        fifo: fifo.map(|fifo| (fifo.folder().to_owned(), fifo.path())),
        files: context.handed.folder().map(ToOwned::to_owned),
        stdin: None,
        attempt: context.attempt_id,
        input_bytes: u32::try_from(input.len()).map_err(|_too_large| too_large())?,
    };
    guard::encode(&start, &input).ok_or_else(too_large)
}

/// A guard, and the ends of its pipes. Dropping it releases the leash, and the guard then ends the tree by itself.
struct RunningProgram {
    guard: Child,
    registered: Registered,
    reports: OwnedReadHalf,
    leash: Option<OwnedWriteHalf>,
    report: Vec<u8>,
    stdout: Pipe,
    stderr: Pipe,
    /// Open until all its processes are gone.
    fifo: Option<EventFifo>,
    output_limit: usize,
    /// With more bytes than this on stdout it is ended.
    stdout_max: usize,
    give_up_at: Instant,
    lock: Arc<WorkerLock>,
}

/// A pipe from the tool, and what was read from it.
pub(super) struct Pipe {
    /// `None` after its end.
    end: Option<pipe::Receiver>,
    pub(super) read: Vec<u8>,
    /// Bytes that came, also those that were not kept.
    seen: usize,
}

impl RunningProgram {
    fn start(
        tool: &Program,
        context: &AttemptContext,
        fifo: Option<EventFifo>,
    ) -> io::Result<Self> {
        let (ours, theirs) = net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (stdout, stdout_writer) = Pipe::new()?;
        let (stderr, stderr_writer) = Pipe::new()?;
        let (reports, leash) = UnixStream::from_std(ours)?.into_split();
        let mut command = Command::new(&tool.guard.program);
        command.args(&tool.guard.args);
        command
            .stdin(OwnedFd::from(theirs))
            .stdout(stdout_writer)
            .stderr(stderr_writer);
        let path = fifo.as_ref().map(EventFifo::path);
        environment::set(
            &mut command,
            &tool.guard.inherited,
            &tool.env,
            context,
            path,
        );
        let start = |descriptor: RawFd| command.arg(descriptor.to_string()).spawn();
        let lock = &tool.guard.lock;
        let (guard, registered) = guard::register(|| lock.lend(start), Child::id)?;
        Ok(Self {
            guard,
            registered,
            reports,
            leash: Some(leash),
            report: Vec::new(),
            stdout,
            stderr,
            fifo,
            output_limit: tool.output_limit,
            stdout_max: match tool.rules.effect {
                Effect::Read => tool.output_limit,
                Effect::Idempotent | Effect::Once | Effect::Transaction => {
                    tool.output_limit.max(WRITE_STDOUT_MAX)
                }
            },
            give_up_at: context.until + GUARD_MAX,
            lock: Arc::clone(lock),
        })
    }

    /// Follows the tool until its guard has reported, is gone, or must be given up.
    async fn watch(&mut self, order: &[u8], context: &AttemptContext) -> ProgramEnd {
        let mut unsent = order;
        let mut asked: Option<EndReason> = None;
        loop {
            let reason = tokio::select! {
                sent = write_some(&mut self.leash, unsent), if !unsent.is_empty() => {
                    // A guard that does not read is lost; the end of file on its socket shows it.
                    unsent = sent.map_or(&[], |sent| &unsent[sent..]);
                    None
                }
                report = read_report(&mut self.reports, &mut self.report) => {
                    return match (report, asked) {
                        (Some(GuardReport::Exited(ending)), _) => ProgramEnd::Exited(ending),
                        (Some(GuardReport::Exceeded(excess)), _) => ProgramEnd::Exceeded(excess),
                        (Some(GuardReport::NotStarted(NotStarted { why, taken_back })), _) => {
                            let chinese = format!("程序没有启动：{why}");
                            ProgramEnd::NotStarted(Message::new(why, chinese), taken_back)
                        }
                        (None, Some(reason)) => ProgramEnd::Ended(reason),
                        (None, None) => ProgramEnd::GuardLost,
                    };
                }
                () = self.stdout.fill(self.output_limit) => {
                    (self.stdout.seen > self.stdout_max).then_some(EndReason::Overflow)
                }
                () = self.stderr.fill_tail() => None,
                () = fifo::relay(&mut self.fifo) => None,
                () = sleep_until(context.until), if asked.is_none() => Some(EndReason::Deadline),
                why = context.stop.told(), if asked.is_none() => Some(EndReason::Stop(why)),
                () = sleep_until(self.give_up_at), if asked.is_some() => {
                    return asked.map_or(ProgramEnd::GuardLost, ProgramEnd::Ended);
                }
            };
            if let (Some(reason), None) = (reason, asked) {
                asked = Some(reason);
                self.give_up_at = Instant::now() + GUARD_MAX;
                unsent = &[];
                self.leash = None;
            }
        }
    }

    /// What the tool had written when it ended. Processes that it left behind may go on writing; that is not part of its
    /// answer.
    fn take_output(&mut self) -> (Vec<u8>, Vec<u8>) {
        let room = (self.output_limit + 1).saturating_sub(self.stdout.read.len());
        self.stdout.drain(room);
        self.fifo.iter_mut().for_each(EventFifo::finish);
        (mem::take(&mut self.stdout.read), self.stderr.last())
    }

    /// Waits until the guard's exit code says that the tree is empty; otherwise chases what is left. False if a process may be
    /// left.
    async fn bury(mut self, context: &AttemptContext) -> bool {
        self.leash = None;
        let give_up_at = self.give_up_at.min(Instant::now() + GUARD_MAX);
        let attempt = context.attempt_id;
        let all_gone = bury(self.guard, self.registered, &self.lock, attempt, give_up_at).await;
        if !all_gone {
            let call = context.call_id;
            tracing::error!(%call, "processes of a tool outlived call {call}; the worker goes on ending them: if they stay, look for its id in their environment");
        }
        all_gone
    }
}

/// Waits until a guard's exit code says that its tree is empty; otherwise chases what is left. False if a process may be left.
pub(super) async fn bury(
    mut guard: Child,
    registered: Registered,
    lock: &Arc<WorkerLock>,
    attempt: AttemptId,
    give_up_at: Instant,
) -> bool {
    let ended = timeout_at(give_up_at, guard.wait()).await;
    if ended.is_ok_and(|status| status.is_ok_and(|status| status.success())) {
        return true;
    }
    // Before the guard is gone: what it leaves behind may have no share of the lock.
    let withdrawn = lock.withdraw();
    // On a busy machine it may take longer than the answer can wait. It goes on in the background.
    #[expect(
        clippy::disallowed_methods,
        reason = "it may outlast its attempt, and ends by itself within bounds"
    )]
    let chase = tokio::spawn(chase(guard, registered, attempt, withdrawn));
    matches!(timeout(CHASE_WAIT_MAX, chase).await, Ok(Ok(true)))
}

/// Ends a lost guard and the processes that it left behind, however long that takes: one that is left may live on at the cost
/// of all others. Only when none is left does the worker's lock prove anything again. False where this process cannot know.
async fn chase(
    mut guard: Child,
    registered: Registered,
    attempt: AttemptId,
    withdrawn: Withdrawn,
) -> bool {
    let marker = environment::marker(attempt);
    let mut pauses = pauses();
    loop {
        // Fails only if the guard is gone, which is the aim.
        drop(guard.start_kill());
        // A machine may be so busy that a killed guard does not end: what it has started may be why.
        // An error says that it is no child of this process any more.
        let waited_for =
            timeout(REAP_MAX, guard.wait()).await.is_ok() || !matches!(guard.try_wait(), Ok(None));
        let lost = guard::Lost {
            pid: registered.pid(),
            waited_for,
        };
        let marker = marker.clone();
        let round = move || guard::end_orphans(lost, &marker, ROUND_MAX);
        let none_left = tokio::task::spawn_blocking(round).await.unwrap_or(false);
        // Until the guard is waited for, its orphans need not be handed to this process.
        if waited_for && none_left {
            break;
        }
        sleep(pauses.next().unwrap_or(PAUSE_MAX)).await;
    }
    let knows = guard::is_adopting();
    if knows {
        withdrawn.restore_without_guard(attempt);
    }
    knows
}

/// How long to wait between the rounds of a chase.
fn pauses() -> impl Iterator<Item = Duration> {
    iter::successors(Some(PAUSE_FIRST), |pause| Some((*pause * 2).min(PAUSE_MAX)))
}

impl Pipe {
    /// A pipe whose other end the tool gets.
    pub(super) fn new() -> io::Result<(Self, PipeWriter)> {
        let (reader, writer) = io::pipe()?;
        let end = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
        Ok((
            Self {
                end: Some(end),
                read: Vec::new(),
                seen: 0,
            },
            writer,
        ))
    }

    /// Waits for data and reads it; never returns after the end. Keeps one byte more than `limit`, which shows that there was
    /// more. Cancel-safe.
    pub(super) async fn fill(&mut self, limit: usize) {
        let Some(end) = &self.end else {
            return future::pending().await;
        };
        let ready = end.readable().await;
        self.read.reserve(READ_SIZE);
        match ready.and_then(|()| end.try_read_buf(&mut self.read)) {
            Ok(read) if read > 0 => {
                self.seen = self.seen.saturating_add(read);
                self.read.truncate(limit.saturating_add(1));
            }
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => {}
            Ok(_) | Err(_) => self.end = None,
        }
    }

    /// Whether nobody can write into it any more.
    pub(super) const fn has_ended(&self) -> bool {
        self.end.is_none()
    }

    /// Waits for data and reads it; keeps only the last bytes. Cancel-safe.
    pub(super) async fn fill_tail(&mut self) {
        self.fill(usize::MAX).await;
        if self.read.len() > READ_SIZE {
            self.keep_tail(STDERR_MAX);
        }
    }

    /// The last bytes of it and of what is in it now. Closes it.
    pub(super) fn last(&mut self) -> Vec<u8> {
        self.drain(STDERR_REST_MAX);
        self.keep_tail(STDERR_MAX);
        mem::take(&mut self.read)
    }

    fn keep_tail(&mut self, len: usize) {
        self.read.drain(..self.read.len().saturating_sub(len));
    }

    /// Reads at most `max` bytes of what is in the pipe now, and closes it.
    ///
    /// Bypasses the runtime: what the runtime knows about readiness may be older than the guard's report.
    fn drain(&mut self, max: usize) {
        if let Some(Ok(fd)) = self.end.take().map(pipe::Receiver::into_nonblocking_fd) {
            let max = u64::try_from(max).unwrap_or(u64::MAX);
            // Ends with WouldBlock where a process still holds the other end. Bytes that were read before are kept.
            drop(File::from(fd).take(max).read_to_end(&mut self.read));
        }
    }
}

/// Sends a part of the order. Cancel-safe.
pub(super) async fn write_some(
    leash: &mut Option<OwnedWriteHalf>,
    bytes: &[u8],
) -> io::Result<usize> {
    match leash {
        Some(leash) => leash.write(bytes).await,
        None => future::pending().await,
    }
}

/// The guard's one line; `None` when it ended without one. Cancel-safe: bytes that were read stay in `read`.
pub(super) async fn read_report(
    reports: &mut OwnedReadHalf,
    read: &mut Vec<u8>,
) -> Option<GuardReport> {
    loop {
        if let Some(line) = read.strip_suffix(b"\n") {
            return serde_json::from_slice(line).ok();
        }
        let received = reports.read_buf(read).await;
        if !received.is_ok_and(|bytes| bytes > 0) || read.len() > REPORT_MAX {
            return None;
        }
    }
}
