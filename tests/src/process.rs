//! A dispatcher or a worker inside this process: asking it things, stopping it, killing it.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::wait::{LONG, until};

/// How often one is started to which Postgres does not answer in time, and what such a one says last.
const STARTS_MAX: usize = 10;
const BUSY: &str = "Postgres did not answer: no answer in time";

/// A dispatcher or worker that runs in this process. Dropping it is a kill.
#[derive(Debug)]
pub struct Process {
    name: String,
    address: SocketAddr,
    stop: CancellationToken,
    running: JoinSet<Result<(), String>>,
}

impl Process {
    pub(crate) async fn start<R>(
        name: &str,
        run: impl FnOnce(TcpListener, CancellationToken) -> R,
    ) -> Self
    where
        R: Future<Output = Result<(), String>> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a port is free");
        let address = listener.local_addr().expect("a bound port has an address");
        let stop = CancellationToken::new();
        let mut running = JoinSet::new();
        running.spawn(run(listener, stop.clone()));
        Self {
            name: name.to_owned(),
            address,
            stop,
            running,
        }
    }

    /// Its label, as in the view `workers`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Asks it to stop, as SIGTERM does, and does not wait.
    pub fn ask_to_stop(&self) {
        self.stop.cancel();
    }

    /// Asks it to stop and waits until it has.
    ///
    /// # Panics
    ///
    /// It fails, or does not stop in time.
    pub async fn drain(&mut self) {
        self.ask_to_stop();
        self.until_left().await;
    }

    /// Waits until it has stopped.
    ///
    /// # Panics
    ///
    /// It fails, or does not stop in time.
    pub async fn until_left(&mut self) {
        let left = timeout(LONG, self.running.join_next()).await;
        let left = left.unwrap_or_else(|_| panic!("{} does not stop", self.name));
        if let Some(ended) = left {
            ended
                .expect("a process does not panic")
                .unwrap_or_else(|error| panic!("{} failed: {error}", self.name));
        }
    }

    /// Ends it without a word.
    pub async fn kill(mut self) {
        self.running.shutdown().await;
    }

    /// Waits until it has ended by itself, and returns what it said.
    ///
    /// # Panics
    ///
    /// It does not end in time, or was asked to.
    pub async fn until_failed(&mut self) -> String {
        let ended = timeout(LONG, self.running.join_next()).await;
        let ended = ended.unwrap_or_else(|_| panic!("{} goes on", self.name));
        let ended = ended.expect("it has not been waited for");
        let said = ended.expect("a process does not panic");
        said.expect_err("it was not asked to end")
    }

    /// What it answers to a GET: status and body. `None` while nothing answers.
    pub async fn get(&self, path: &str) -> Option<(u16, String)> {
        get(self.address, path).await
    }

    /// Waits until it says that it is ready.
    ///
    /// # Panics
    ///
    /// It ends, or is not ready in time.
    pub async fn ready(&mut self) {
        if let Err(said) = self.starts().await {
            panic!("{} ended while it started: {said}", self.name);
        }
    }

    /// Starts a process and waits until it is ready. One to which Postgres did not answer in time is started again, as a supervisor
    /// does: a machine may be that busy.
    ///
    /// # Panics
    ///
    /// It ends for another reason, or again and again for this one, or is not ready in time.
    pub async fn supervised(start: impl AsyncFn() -> Self) -> Self {
        for _ in 1..STARTS_MAX {
            let mut process = start().await;
            match process.starts().await {
                Ok(()) => return process,
                Err(said) if said.ends_with(BUSY) => {}
                Err(said) => panic!("{} ended while it started: {said}", process.name),
            }
        }
        let mut process = start().await;
        process.ready().await;
        process
    }

    /// Waits until it says that it is ready, or has ended before that: then with what it said.
    ///
    /// # Errors
    ///
    /// It has ended.
    ///
    /// # Panics
    ///
    /// It does neither in time.
    pub async fn starts(&mut self) -> Result<(), String> {
        let what = format!("{} to be ready", self.name);
        until(&what, async || {
            if let Some(ended) = self.running.try_join_next() {
                return Some(ended.expect("a process does not panic"));
            }
            let said = self.get("/readyz").await;
            said.is_some_and(|(status, _)| status == 200)
                .then_some(Ok(()))
        })
        .await
    }
}

/// What a process answers to a GET: status and body. `None` while nothing answers.
pub async fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut connection = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}
