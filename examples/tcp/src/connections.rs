//! The connections that are kept. An attempt has one to itself, so what goes wrong on it is nothing to the others.

use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::{Instant, timeout},
};
use worker::executors::{Code, ToolFailure};

use crate::failure;

/// How long a server may take to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The most connections that are kept. How many attempts run at a time is the worker's to say (`--concurrency`).
const KEPT_MAX: usize = 64;
/// How long one is kept without use. Shorter than a firewall forgets it: what is sent on a forgotten one leaves a write in doubt.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// Opens connections to one server and keeps those that may serve again.
pub(crate) struct Connections {
    address: String,
    /// The one that was used last is last.
    kept: Mutex<Vec<(Instant, Connection)>>,
}

/// A connection on which nothing is under way, or one attempt.
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connections {
    pub(crate) fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            kept: Mutex::default(),
        }
    }

    /// A kept connection, or a new one. Nothing was sent on it for this attempt. Cancel-safe.
    ///
    /// # Errors
    ///
    /// `unavailable`: the server cannot be reached.
    pub(crate) async fn open(&self) -> Result<Connection, ToolFailure> {
        // Lets the runtime look at its sockets, so a connection that the server has closed meanwhile is seen as closed.
        tokio::task::yield_now().await;
        if let Some(connection) = self.take() {
            return Ok(connection);
        }
        match timeout(CONNECT_MAX, TcpStream::connect(&self.address)).await {
            Ok(Ok(stream)) => Ok(Connection(BufReader::new(stream))),
            Ok(Err(_)) | Err(_) => Err(broken("no connection to its server")),
        }
    }

    fn take(&self) -> Option<Connection> {
        let mut kept = self.kept();
        while let Some((since, connection)) = kept.pop() {
            if since.elapsed() < KEPT_FOR && connection.is_quiet() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection for later attempts. Its last answer must have been read to the end.
    pub(crate) fn keep(&self, connection: Connection) {
        let mut kept = self.kept();
        if kept.len() < KEPT_MAX {
            kept.push((Instant::now(), connection));
        }
    }

    /// Closes what is kept.
    pub(crate) fn close(&self) {
        self.kept().clear();
    }

    fn kept(&self) -> MutexGuard<'_, Vec<(Instant, Connection)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Whether it is open, and the server has said nothing without being asked.
    fn is_quiet(&self) -> bool {
        let read = self.0.get_ref().try_read(&mut [0]);
        self.0.buffer().is_empty()
            && read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Sends the line and takes from it what was sent. Cancel-safe.
    ///
    /// # Errors
    ///
    /// `unavailable`: the connection broke; `line` has what did not leave.
    pub(crate) async fn send(&mut self, line: &mut &[u8]) -> Result<(), ToolFailure> {
        while !line.is_empty() {
            match self.0.write(line).await {
                Ok(sent) if sent > 0 => *line = &line[sent..],
                Ok(_) | Err(_) => return Err(broken("its connection broke")),
            }
        }
        Ok(())
    }

    /// Appends what the server says to `line`, without the newline at its end. May be called again for the rest. Cancel-safe.
    ///
    /// # Errors
    ///
    /// `output_too_large`: there is no newline within `most` bytes and one more. `unavailable`: the connection ended before
    /// the line did.
    pub(crate) async fn read_line(
        &mut self,
        line: &mut Vec<u8>,
        most: usize,
    ) -> Result<(), ToolFailure> {
        let left = (most + 1).saturating_sub(line.len());
        let mut bounded = (&mut self.0).take(left as u64);
        // Whatever it returns, the line tells: an error and the end of the connection are alike.
        drop(bounded.read_until(b'\n', line).await);
        if line.pop_if(|last| *last == b'\n').is_some() {
            Ok(())
        } else if line.len() > most {
            let why = "its answer exceeds output_limit";
            Err(failure(Code::OutputTooLarge, why))
        } else {
            Err(broken("its connection broke"))
        }
    }

    /// Says that nothing more is asked; the server may still answer. Cancel-safe.
    ///
    /// # Errors
    ///
    /// `unavailable`: the connection broke.
    pub(crate) async fn end(&mut self) -> Result<(), ToolFailure> {
        let ended = self.0.shutdown().await;
        ended.map_err(|_| broken("its connection broke"))
    }
}

fn broken(why: &str) -> ToolFailure {
    failure(Code::Unavailable, why)
}
