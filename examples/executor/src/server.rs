//! The server: one program for all calls of a worker. Requests go out as lines of JSON, and replies come back in any order.

use std::{
    collections::HashMap,
    io,
    process::Stdio,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::timeout,
};
use worker::executors::{WorkerLock, output};

/// Lines that wait for the server to read them; after that a request is refused.
const LINES_MAX: usize = 256;
/// The most bytes of a reply: the largest `output_limit`, and a little around it.
const REPLY_MAX: u64 = 8 * 1024 * 1024 + 4096;
/// How long the server may take to end by itself when its input is closed.
const END_MAX: Duration = Duration::from_secs(3);

/// A server that runs, or can be started. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Server(Arc<Inner>);

struct Inner {
    program: String,
    args: Vec<String>,
    numbers: AtomicU64,
    /// `None` before its worker starts: then no lock is lent.
    lock: Mutex<Option<Arc<WorkerLock>>>,
    running: tokio::sync::Mutex<Option<Running>>,
}

/// Its input, and the task that owns the program. Dropping it kills the program.
struct Running {
    lines: mpsc::Sender<Vec<u8>>,
    waiting: Waiting,
    task: JoinSet<()>,
}

/// The attempts that wait for a reply, by number; `None` once the server has ended.
type Waiting = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<Reply>>>>>;

/// A reply line.
#[derive(Debug, Deserialize)]
pub(crate) struct Reply {
    id: u64,
    pub(crate) result: Option<Box<RawValue>>,
    pub(crate) error: Option<No>,
    /// The request was called off, and nothing of it is at work any more.
    #[serde(default)]
    pub(crate) ended: bool,
    /// It broke off.
    #[serde(default)]
    pub(crate) crashed: bool,
    /// Characters of the line had to be replaced.
    #[serde(skip)]
    pub(crate) mended: bool,
}

/// The tool says no.
#[derive(Debug, Deserialize)]
pub(crate) struct No {
    pub(crate) message: String,
    pub(crate) code: Option<String>,
}

/// A request that was sent. Dropping it forgets the reply.
pub(crate) struct Asked {
    id: u64,
    reply: oneshot::Receiver<Reply>,
    lines: mpsc::Sender<Vec<u8>>,
    waiting: Waiting,
}

impl Asked {
    /// The reply; `None` where the server ends without one. Cancel-safe.
    pub(crate) async fn reply(&mut self) -> Option<Reply> {
        (&mut self.reply).await.ok()
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(waiting) = lock(&self.waiting).as_mut() {
            waiting.remove(&self.id);
        }
    }
}

impl Server {
    pub(crate) fn new(program: &str, args: &[&str]) -> Self {
        Self(Arc::new(Inner {
            program: program.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            numbers: AtomicU64::new(1),
            lock: Mutex::default(),
            running: tokio::sync::Mutex::default(),
        }))
    }

    /// Starts the program, which gets a share in the worker's lock: as long as it lives, the worker is not proven gone.
    pub(crate) async fn start(&self, held: Arc<WorkerLock>) -> io::Result<()> {
        *lock(&self.0.lock) = Some(held);
        self.lines().await.map(drop)
    }

    /// Sends a request, to a new program if the one before has ended.
    ///
    /// # Errors
    ///
    /// A sentence; nothing was sent.
    pub(crate) async fn ask(&self, mut request: Value) -> Result<Asked, String> {
        let running = self.lines().await;
        let (lines, waiting) = running.map_err(|error| format!("no server: {error}"))?;
        let id = self.0.numbers.fetch_add(1, Ordering::Relaxed);
        request["id"] = id.into();
        let (answer, reply) = oneshot::channel();
        match lock(&waiting).as_mut() {
            Some(waiting) => waiting.insert(id, answer),
            None => return Err("the server has just ended".to_owned()),
        };
        // From here on dropping it cleans up.
        let asked = Asked {
            id,
            reply,
            lines,
            waiting,
        };
        let sent = asked.lines.try_send(line(&request));
        sent.map_err(|_full_or_closed| "the server does not read its requests".to_owned())?;
        Ok(asked)
    }

    /// Tells the server to end a request.
    pub(crate) fn cancel(&self, asked: &Asked) {
        // One that does not read will not hear it either; its attempt says that something is left behind.
        drop(asked.lines.try_send(line(&json!({ "cancel": asked.id }))));
    }

    /// Closes the program's input and waits until it has ended; kills it when it takes too long.
    pub(crate) async fn stop(&self) {
        if let Some(Running {
            lines, mut task, ..
        }) = self.0.running.lock().await.take()
        {
            drop(lines);
            drop(timeout(END_MAX, task.join_next()).await);
        }
        // The program had a share of its own.
        lock(&self.0.lock).take();
    }

    async fn lines(&self) -> io::Result<(mpsc::Sender<Vec<u8>>, Waiting)> {
        let mut running = self.0.running.lock().await;
        let now = match running.take() {
            Some(now) if lock(&now.waiting).is_some() => now,
            Some(_) | None => self.spawn()?,
        };
        let now = running.insert(now);
        Ok((now.lines.clone(), Arc::clone(&now.waiting)))
    }

    fn spawn(&self) -> io::Result<Running> {
        let mut command = Command::new(&self.0.program);
        // The worker's own environment holds the ledger's password.
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.args(&self.0.args).env_clear().env("PATH", path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.kill_on_drop(true);
        let held = lock(&self.0.lock).clone();
        let mut child = match held {
            Some(held) => held.lend(|_inherited| command.spawn())?,
            None => command.spawn()?,
        };
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or(io::ErrorKind::BrokenPipe)?;
        let (lines, unsent) = mpsc::channel(LINES_MAX);
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let mut task = JoinSet::new();
        task.spawn(serve(child, input, unsent, output, Arc::clone(&waiting)));
        Ok(Running {
            lines,
            waiting,
            task,
        })
    }
}

/// Serves until the program has ended or says what it should not.
async fn serve(
    mut child: Child,
    input: ChildStdin,
    unsent: mpsc::Receiver<Vec<u8>>,
    output: ChildStdout,
    waiting: Waiting,
) {
    let writing = async {
        write(input, unsent).await;
        // What was sent may still be answered.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = writing => {}
        () = read(output, &waiting) => {}
    }
    // Attempts hear that there is no reply only when the program can act no more.
    drop(child.kill().await);
    lock(&waiting).take();
}

/// Writes whole lines; ends, and closes the program's input, when no more can come or the program does not take them.
async fn write(mut input: ChildStdin, mut unsent: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = unsent.recv().await {
        if input.write_all(&line).await.is_err() {
            return;
        }
    }
}

async fn read(output: ChildStdout, waiting: &Waiting) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut bounded = (&mut output).take(REPLY_MAX);
        let read = bounded.read_until(b'\n', &mut line).await;
        if read.is_err() || line.pop() != Some(b'\n') {
            return;
        }
        // Without NUL and broken characters. A line that is no reply is ignored: it does not say of which request it is.
        let (text, mended) = output::text(&line);
        if let Ok(reply) = serde_json::from_str::<Reply>(&text)
            && let Some(waiting) = lock(waiting).as_mut()
            && let Some(answer) = waiting.remove(&reply.id)
        {
            // Fails where the attempt has just ended.
            drop(answer.send(Reply { mended, ..reply }));
        }
    }
}

fn line(value: &Value) -> Vec<u8> {
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
