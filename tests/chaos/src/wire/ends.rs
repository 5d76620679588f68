//! The four ends of one connection: what is read, what is written, and when.
//!
//! What is written goes through a bounded queue, in order, each piece with the moment before which it does not arrive: a
//! slow wire is late without being narrow.

use std::{future::pending, io, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::tcp::{ReadHalf, WriteHalf},
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{Side, line::Switches};

/// Bytes of one read at most.
const PIECE: usize = 64 * 1024;
/// With less room than this a buffer is renewed.
const ROOM_MIN: usize = 8 * 1024;
/// Pieces on their way at most; then the wire reads no more.
const QUEUE: usize = 64;

/// The ends of one connection.
#[derive(Debug)]
pub struct Ends<'a> {
    pub(super) from_client: Intake<'a>,
    pub(super) from_server: Intake<'a>,
    pub(super) to_client: Outlet,
    pub(super) to_server: Outlet,
}

/// Where one side is read.
#[derive(Debug)]
pub(super) struct Intake<'a> {
    half: ReadHalf<'a>,
    side: Side,
    switches: Arc<Switches>,
    /// Once something was swallowed, what follows makes no sense any more.
    swallows: bool,
}

impl<'a> Intake<'a> {
    pub(super) const fn new(half: ReadHalf<'a>, side: Side, switches: Arc<Switches>) -> Self {
        Self {
            half,
            side,
            switches,
            swallows: false,
        }
    }

    /// Reads more; false: the side has ended in order. Of a silent side nothing is heard, not even its end. Cancel-safe.
    pub(super) async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<bool> {
        loop {
            let before = buffer.len();
            if buffer.capacity() - buffer.len() < ROOM_MIN {
                buffer.reserve(PIECE);
            }
            let read = self.half.read_buf(buffer).await;
            self.swallows |= self.switches.is_silent(self.side);
            if !self.swallows {
                return read.map(|count| count > 0);
            }
            if !matches!(read, Ok(1..)) {
                return pending().await;
            }
            buffer.truncate(before);
        }
    }
}

/// Where one side is written to.
#[derive(Debug, Clone)]
pub(super) struct Outlet {
    queue: mpsc::Sender<Piece>,
    switches: Arc<Switches>,
}

/// What is on its way.
#[derive(Debug)]
pub(super) enum Piece {
    Bytes { at: Option<Instant>, bytes: Bytes },
    End,
}

impl Outlet {
    /// An outlet, and what [`deliver`] takes.
    pub(super) fn new(switches: Arc<Switches>) -> (Self, mpsc::Receiver<Piece>) {
        let (queue, pieces) = mpsc::channel(QUEUE);
        (Self { queue, switches }, pieces)
    }

    /// Sends bytes behind all others.
    pub(super) async fn send(&self, bytes: Bytes) {
        self.send_late(bytes, None).await;
    }

    /// Sends bytes that do not arrive sooner than after this time.
    pub(super) async fn send_late(&self, bytes: Bytes, late: Option<Duration>) {
        let slow = self.switches.slowness();
        let at = match (late, slow) {
            (None, None) => None,
            (late, slow) => {
                Some(Instant::now() + late.unwrap_or_default() + slow.unwrap_or_default())
            }
        };
        if !bytes.is_empty() {
            self.put(Piece::Bytes { at, bytes }).await;
        }
    }

    /// Ends the connection in order, once everything has arrived.
    pub(super) async fn end(&self) {
        self.put(Piece::End).await;
    }

    async fn put(&self, piece: Piece) {
        if self.queue.send(piece).await.is_err() {
            // The connection is over, and so is the wait here.
            pending().await
        }
    }
}

/// Writes what is sent, each piece when it is due. Returns after the end.
pub(super) async fn deliver(
    mut pieces: mpsc::Receiver<Piece>,
    mut to: WriteHalf<'_>,
) -> io::Result<()> {
    while let Some(piece) = pieces.recv().await {
        match piece {
            Piece::Bytes { at, bytes } => {
                if let Some(at) = at {
                    sleep_until(at).await;
                }
                to.write_all(&bytes).await?;
            }
            Piece::End => return to.shutdown().await,
        }
    }
    Ok(())
}
