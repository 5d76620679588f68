//! The guard process: starts the tool, watches it and the worker, and leaves no process behind.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, ChildStdin, Command, ExitCode, Stdio},
    sync::mpsc::{self, Receiver, SyncSender},
    thread,
    time::{Duration, Instant},
};

use fleet::{
    fencing::{self, Unended},
    manifest::Sandbox,
    taken_back::TakenBack,
};
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, FdFlag, fcntl},
    sys::{
        signal,
        wait::{WaitStatus, waitpid},
    },
    unistd::Pid,
};
use tokio::signal::unix::SignalKind;

use super::{
    THIS_PROGRAM,
    frame::{self, Ending, GuardReport, NotStarted, Start},
    output,
    sandbox::{self, Excess, Launch, Tmp},
    tree,
};
use crate::executors::resources::lacks_resources;

/// How long a tool that is asked to end may take before it is killed.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// The same for processes that a tool left behind when it ended by itself. Shorter, because the answer waits for it.
const LEFTOVER_GRACE: Duration = Duration::from_millis(500);

/// The whole life of a guard process. The program calls it for its hidden `guard` command, before anything else.
///
/// The one argument after that is the number of the descriptor that holds the worker's lock. The exit code is 0 when no process
/// of the tool is left.
pub fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if std::env::args_os()
        .nth(2)
        .is_some_and(|word| word == sandbox::WORD)
    {
        return sandbox::launch();
    }
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        // No message: stderr belongs to the tool, and the worker reads the exit code.
        Err(_) => ExitCode::FAILURE,
    }
}

/// What may happen while a tool runs.
enum Event {
    /// The worker asks for the end, or is gone.
    EndAsked,
    /// The tool used more than its sandbox gives.
    Exceeded(Excess),
    /// A descendant ended.
    Gone(Pid, Ending),
    /// A descendant ended by a signal that the library cannot name, and took its pid with it.
    GoneUnnamed,
    /// No descendant is left.
    AllGone,
}

/// The most events that wait; further senders block.
const EVENTS_MAX: usize = 64;
/// How long the kernel may take to say that a tool left nothing behind, before we scan ourselves.
const SETTLE: Duration = Duration::from_millis(3);
/// Enough for a thread that only reads, writes or waits.
const THREAD_STACK: usize = 64 * 1024;
/// How long the worker may take to read an answer that is complete.
const READ_MAX: Duration = Duration::from_secs(1);
/// The pause between two rounds of killing, and how long it stays so short.
const KILL_PAUSE: Duration = Duration::from_millis(5);
const KILL_SOON: Duration = Duration::from_secs(30);
const KILL_PAUSE_LATER: Duration = Duration::from_secs(1);

/// Runs one tool until none of its processes is left.
fn serve() -> io::Result<()> {
    let kept = close_inherited(worker_lock());
    let mut control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let started = kept.map_err(NotStarted::from).and_then(|lock| {
        isolate()?;
        // The tool gets the lent share and may close it. This one lasts until the process ends.
        std::mem::forget(fencing::own_share(lock)?);
        let (start, input) = order(&mut control)?;
        let unended = Unended::write(lock, start.attempt)?;
        match begin(&start, input, &control) {
            Ok(started) => Ok((started, unended)),
            Err(problem) => {
                unended.remove();
                Err(problem)
            }
        }
    });
    // The folders go when no process is left that could write there.
    let ((tool, inbox, _folders), unended) = match started {
        Ok(started) => started,
        Err(problem) => return report(&mut control, &GuardReport::NotStarted(problem)),
    };
    until_all_gone(tool, &inbox, &mut control);
    // Only here: a guard that ends in another way has not seen it.
    unended.remove();
    Ok(())
}

/// Returns when no process of the tool is left.
fn until_all_gone(tool: Pid, inbox: &Receiver<Event>, control: &mut UnixStream) {
    let ending = match wait_for_tool(tool, inbox) {
        Ended::ByItself(ending) => ending,
        Ended::Asked => {
            tree::term(tool);
            return finish(tool, inbox, TERM_GRACE);
        }
        Ended::Exceeded(excess) => {
            // First the end: what grows too fast to be told of must not grow on.
            tree::kill(tool);
            drop(report(control, &GuardReport::Exceeded(excess)));
            return finish(tool, inbox, Duration::ZERO);
        }
    };
    // A worker that died meanwhile reads nothing; the tool's processes are ended all the same.
    drop(report(control, &GuardReport::Exited(ending)));
    // Processes that are left must not write into the answer when they are told to end, so the worker reads it first.
    if !all_gone_or_let_go_within(inbox, READ_MAX) && !all_gone_within(inbox, SETTLE) {
        tree::term(tool);
        finish(tool, inbox, LEFTOVER_GRACE);
    }
}

/// The descriptor of the share of the worker's lock that the tool inherits.
fn worker_lock() -> Option<i32> {
    std::env::args_os().nth(2)?.to_str()?.parse().ok()
}

/// Closes the descriptors that the worker inherited without close-on-exec: no tool is to hold a lock or a pipe of the worker's
/// parent. Comes first, while this process has opened nothing itself. Only the share of the lock stays open.
fn close_inherited(lock: Option<i32>) -> io::Result<i32> {
    let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open.into_iter().filter(|fd| *fd > 2 && Some(*fd) != lock) {
        // The listing itself was one of them, and is closed by now.
        nix::unistd::close(fd).unwrap_or(());
    }
    let kept = lock.filter(|lock| *lock > 2 && is_open(*lock));
    let none = || io::Error::other("its guard has no share in the worker's lock");
    kept.ok_or_else(none)
}

fn is_open(fd: i32) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok()
}

/// Makes this process the root of all that the tool starts, and ignores signals that are meant for the tool or the worker.
fn isolate() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        nix::sys::prctl::set_child_subreaper(true)?;
        // The tool has our user id: without this it could take our descriptors and release a lock that is not its own.
        nix::sys::prctl::set_dumpable(false)?;
    }
    nix::unistd::setsid()?;
    // As handlers: an ignored or blocked signal would stay so in the tool, while exec resets a handler. Tokio installs them
    // without unsafe code of ours. They stay after the runtime is dropped here.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let _context = runtime.enter();
    for kind in [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ] {
        drop(tokio::signal::unix::signal(kind)?);
    }
    Ok(())
}

/// A failure of the guard itself is not the tool's fault.
impl From<io::Error> for NotStarted {
    fn from(error: io::Error) -> Self {
        let lacking = lacks_resources(&error);
        Self {
            why: error.to_string(),
            taken_back: Some(if lacking {
                TakenBack::NoResources
            } else {
                TakenBack::GuardFailed
            }),
        }
    }
}

/// What to start, and its standard input.
fn order(control: &mut UnixStream) -> Result<(Start, Vec<u8>), NotStarted> {
    let order_taken_back = || NotStarted {
        why: "the worker took its order back before the program was started".to_owned(),
        taken_back: Some(TakenBack::OrderTakenBack),
    };
    let order = frame::read(&mut *control).map_err(|_incomplete| order_taken_back())?;
    // On a busy machine the guard may come this late: the worker may have given up already, and then nothing is started.
    if has_let_go(control)? {
        return Err(order_taken_back());
    }
    Ok(order)
}

/// Starts the tool and the threads that watch it.
fn begin(
    start: &Start,
    input: Vec<u8>,
    control: &UnixStream,
) -> Result<(Pid, Receiver<Event>, Folders), NotStarted> {
    let leash = control.try_clone()?;
    let (events, inbox) = mpsc::sync_channel(EVENTS_MAX);
    let (to_feeder, stdin) = mpsc::sync_channel(1);
    let (to_reaper, go) = mpsc::sync_channel(1);
    // The threads start first and wait: once the tool runs, nothing here may fail any more.
    spawn(move || feed(&stdin, &input))?;
    spawn({
        let events = events.clone();
        move || reap(&go, &events)
    })?;
    let to_count = start_counting(start, &events)?;
    spawn(move || watch(leash, &events))?;
    let tmp = match &start.sandbox {
        Some(sandbox) if sandbox.tmp => Some(Tmp::make("toolfleet-tool")?),
        Some(_) | None => None,
    };
    let (tool, stdin) = start_tool(start, tmp.as_ref())?;
    // The worker removes both, too, unless it is gone by then.
    let fifo = start.fifo.clone().map(|(folder, _)| Tmp::made(folder));
    let files = start.files.clone().map(Tmp::made);
    let input = start.stdin.clone().map(|(folder, _)| Tmp::made(folder));
    if input.is_some() {
        output::let_go();
    }
    if let Some(stdin) = stdin {
        to_feeder.send(stdin).expect("the feeder waits for it");
    }
    to_reaper.send(()).expect("the reaper waits for it");
    if let Some(to_count) = to_count {
        to_count.send(()).expect("the counter waits for it");
    }
    Ok((tool, inbox, [tmp, fifo, files, input]))
}

/// What is removed when the tool's processes are gone: its own folder, those of its pipes, and that with the files of its call.
type Folders = [Option<Tmp>; 4];

/// The thread that counts what a tool with a sandbox uses; it waits for a word.
fn start_counting(start: &Start, events: &SyncSender<Event>) -> io::Result<Option<SyncSender<()>>> {
    let Some(limits) = start.sandbox.clone() else {
        return Ok(None);
    };
    let (to_count, go) = mpsc::sync_channel(1);
    let events = events.clone();
    spawn(move || {
        if go.recv().is_ok() {
            #[cfg(target_os = "linux")]
            drop(events.send(Event::Exceeded(sandbox::watch(&limits))));
            #[cfg(not(target_os = "linux"))]
            drop((events, limits));
        }
    })?;
    Ok(Some(to_count))
}

/// Whether the worker has released its leash already. It writes nothing after its order.
fn has_let_go(control: &mut UnixStream) -> io::Result<bool> {
    control.set_nonblocking(true)?;
    let read = control.read(&mut [0]);
    control.set_nonblocking(false)?;
    match read {
        Ok(bytes) => Ok(bytes == 0),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Never joined: the threads end with the process, and the process ends when the tree is empty.
fn spawn(body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .stack_size(THREAD_STACK)
        .spawn(body)
        .map(drop)
}

fn start_tool(start: &Start, tmp: Option<&Tmp>) -> Result<(Pid, Option<ChildStdin>), NotStarted> {
    if let Some(folder) = &start.cwd {
        // Here and not in the child, so that a relative program and a relative PATH keep their meaning.
        let missing = |err| NotStarted {
            why: format!("its folder {folder} cannot be entered: {err}"),
            taken_back: None,
        };
        std::env::set_current_dir(folder).map_err(missing)?;
    }
    if let Some(sandbox) = &start.sandbox {
        return start_launcher(start, sandbox, tmp);
    }
    let stdin = match &start.stdin {
        None => Stdio::piped(),
        // Also for writing: it waits for nobody, and the input never ends before the program does.
        Some((_, pipe)) => File::options().read(true).write(true).open(pipe)?.into(),
    };
    let mut child = Command::new(&start.program)
        .args(&start.args)
        .stdin(stdin)
        .process_group(0)
        .spawn()
        .map_err(|err| NotStarted {
            why: why_not_started(&start.program, &err),
            taken_back: lacks_resources(&err).then_some(TakenBack::NoResources),
        })?;
    Ok(started(&mut child))
}

/// Starts this program once more, which restricts itself and becomes the tool, and waits until it is the tool.
fn start_launcher(
    start: &Start,
    sandbox: &Sandbox,
    tmp: Option<&Tmp>,
) -> Result<(Pid, Option<ChildStdin>), NotStarted> {
    let launch = Launch {
        sandbox: sandbox.clone(),
        tmp: tmp.map(|tmp| tmp.path().to_owned()),
        fifo: start.fifo.clone().map(|(_, fifo)| fifo),
        files: start.files.clone(),
        cwd: start.cwd.clone(),
    };
    let launch = serde_json::to_string(&launch).map_err(io::Error::other)?;
    let (mut from_launcher, to_guard) = io::pipe()?;
    fcntl(&to_guard, FcntlArg::F_SETFD(FdFlag::empty())).map_err(io::Error::from)?;
    let mut child = Command::new(THIS_PROGRAM)
        .args(["guard", sandbox::WORD])
        .arg(to_guard.as_raw_fd().to_string())
        .args([&launch, &start.program])
        .args(&start.args)
        .stdin(Stdio::piped())
        .process_group(0)
        .spawn()?;
    drop(to_guard);
    let mut why = String::new();
    from_launcher.read_to_string(&mut why)?;
    if !why.is_empty() {
        child.wait()?;
        let taken_back = None;
        return Err(NotStarted { why, taken_back });
    }
    Ok(started(&mut child))
}

fn started(child: &mut Child) -> (Pid, Option<ChildStdin>) {
    let stdin = child.stdin.take();
    let pid = i32::try_from(child.id()).expect("a pid is a positive i32");
    (Pid::from_raw(pid), stdin)
}

/// For people: why a program could not be started.
pub(super) fn why_not_started(program: &str, err: &io::Error) -> String {
    match err.kind() {
        io::ErrorKind::NotFound => {
            format!(
                "the program {program} was not found: give its path, or put it on the tool's PATH"
            )
        }
        io::ErrorKind::PermissionDenied => format!("the program {program} may not be executed"),
        _ => format!("the program {program} could not be started: {err}"),
    }
}

/// Writes the tool's stdin. A tool may leave it unread and may close it.
fn feed(stdin: &Receiver<ChildStdin>, input: &[u8]) {
    if let Ok(mut pipe) = stdin.recv() {
        drop(pipe.write_all(input));
    }
}

/// Watches the worker's leash until it is released.
fn watch(mut leash: UnixStream, events: &SyncSender<Event>) {
    let mut ignored = [0; 64];
    while leash.read(&mut ignored).is_ok_and(|read| read > 0) {}
    // There is nothing to tell the worker: the guard is ending.
    drop(events.send(Event::EndAsked));
}

/// Waits for every descendant. The kernel hands a dying process's children over before it can be waited for, so
/// `ECHILD` means that no descendant is left and none can come.
fn reap(go: &Receiver<()>, events: &SyncSender<Event>) {
    if go.recv().is_err() {
        return;
    }
    loop {
        let event = match waitpid(None::<Pid>, None) {
            Ok(WaitStatus::Exited(pid, code)) => Event::Gone(pid, Ending::Code(code)),
            Ok(WaitStatus::Signaled(pid, signal, _)) => {
                Event::Gone(pid, Ending::Signal(signal as i32))
            }
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(Errno::ECHILD) => Event::AllGone,
            Err(_) => Event::GoneUnnamed,
        };
        let last = matches!(event, Event::AllGone);
        if events.send(event).is_err() || last {
            return;
        }
    }
}

/// What came first.
enum Ended {
    ByItself(Ending),
    /// The worker asks for the end, or is gone.
    Asked,
    Exceeded(Excess),
}

fn wait_for_tool(tool: Pid, inbox: &Receiver<Event>) -> Ended {
    loop {
        match inbox.recv().expect("the reaper outlives the tool") {
            Event::Gone(pid, ending) if pid == tool => return Ended::ByItself(ending),
            Event::GoneUnnamed if signal::kill(tool, None) == Err(Errno::ESRCH) => {
                return Ended::ByItself(Ending::Signal(0));
            }
            Event::Gone(..) | Event::GoneUnnamed => {}
            Event::Exceeded(excess) => return Ended::Exceeded(excess),
            Event::EndAsked | Event::AllGone => return Ended::Asked,
        }
    }
}

/// After the TERM: gives the rest `grace`, then kills until none is left, however long that takes.
///
/// Some processes cannot be killed: by us, because they have another user's rights, or by any process, while they wait for a
/// disk. If the guard left them, it would release the worker's lock and they would be taken for gone. A living worker waits for
/// less.
fn finish(tool: Pid, inbox: &Receiver<Event>, grace: Duration) {
    if all_gone_within(inbox, grace) {
        return;
    }
    let since = Instant::now();
    loop {
        tree::kill(tool);
        let pause = if since.elapsed() < KILL_SOON {
            KILL_PAUSE
        } else {
            KILL_PAUSE_LATER
        };
        if all_gone_within(inbox, pause) {
            return;
        }
    }
}

/// Waits until the worker has released its leash, which it does after it has read the answer; true if no descendant is left.
fn all_gone_or_let_go_within(inbox: &Receiver<Event>, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    loop {
        match inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Event::AllGone) => return true,
            Ok(Event::Gone(..) | Event::GoneUnnamed) => {}
            Ok(Event::EndAsked | Event::Exceeded(_)) | Err(_) => return false,
        }
    }
}

fn all_gone_within(inbox: &Receiver<Event>, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    loop {
        match inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Event::AllGone) => return true,
            Ok(Event::EndAsked | Event::Exceeded(_) | Event::Gone(..) | Event::GoneUnnamed) => {}
            Err(_timed_out) => return false,
        }
    }
}

fn report(control: &mut UnixStream, report: &GuardReport) -> io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    control.write_all(&line)
}
