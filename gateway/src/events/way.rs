//! The way of a stream to its follower: pieces that wait to be written, so many bytes of them, or one larger piece.

use std::{convert::Infallible, sync::Arc, task::ready};

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use tokio::sync::{
    OwnedSemaphorePermit, Semaphore,
    mpsc::{self, Sender},
};

use super::once::{LARGE, Once};

/// The most bytes that wait for a follower, unless a single event has more.
const WAITING_MAX: usize = 1024 * 1024;
/// The most pieces.
const PIECES: usize = 64;

/// What is said to a follower and not yet on its way. An event that is large is a piece of its own, which followers share.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pieces: Vec<Bytes>,
    text: BytesMut,
    bytes: usize,
}

/// The follower takes nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// Where pieces are put on their way.
#[derive(Debug, Clone)]
pub(super) struct Way {
    sender: Sender<Piece>,
    room: Arc<Semaphore>,
}

#[derive(Debug)]
struct Piece {
    bytes: Bytes,
    /// Until it is written.
    room: Option<OwnedSemaphorePermit>,
}

impl Said {
    /// Where what is short is written.
    pub(crate) const fn text(&mut self) -> &mut BytesMut {
        &mut self.text
    }

    /// Says an event.
    pub(crate) fn event(&mut self, event: String, events: &Once<String>) {
        if event.len() < LARGE {
            self.text.extend_from_slice(event.as_bytes());
            return;
        }
        self.cut();
        let event = events.of(event);
        self.bytes += event.len();
        self.pieces.push(Bytes::from_owner(Shared(event)));
    }

    /// Says behind this what another has.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.cut();
        for piece in other.take() {
            self.bytes += piece.len();
            self.pieces.push(piece);
        }
    }

    /// How many bytes it has.
    pub(super) fn len(&self) -> usize {
        self.bytes + self.text.len()
    }

    /// All of it, in pieces.
    pub(super) fn take(&mut self) -> Vec<Bytes> {
        self.cut();
        self.bytes = 0;
        std::mem::take(&mut self.pieces)
    }

    fn cut(&mut self) {
        if !self.text.is_empty() {
            self.bytes += self.text.len();
            self.pieces.push(self.text.split().freeze());
        }
    }
}

struct Shared(Arc<String>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// A way, and what comes out of it. A piece has its room until the next one is asked for: then it is written.
pub(super) fn way() -> (Way, impl Stream<Item = Result<Bytes, Infallible>>) {
    let (sender, mut pieces) = mpsc::channel::<Piece>(PIECES);
    let room = Arc::new(Semaphore::new(WAITING_MAX));
    let mut written = None;
    let out = stream::poll_fn(move |context| {
        drop(written.take());
        let piece = ready!(pieces.poll_recv(context));
        let piece = piece.map(|Piece { bytes, room }| {
            written = room;
            Ok(bytes)
        });
        std::task::Poll::Ready(piece)
    });
    (Way { sender, room }, out)
}

impl Way {
    /// Puts a piece on its way, as soon as there is room. Dropping the future loses the piece.
    ///
    /// # Errors
    ///
    /// Nobody takes it any more.
    pub(super) async fn send(&self, bytes: Bytes) -> Result<(), Gone> {
        let wanted = u32::try_from(bytes.len().min(WAITING_MAX)).expect("a MiB fits");
        let room = Arc::clone(&self.room).acquire_many_owned(wanted).await;
        let room = room.ok();
        let sent = self.sender.send(Piece { bytes, room }).await;
        sent.map_err(|_closed| Gone)
    }

    /// Puts a few bytes on their way, if they can be at once.
    pub(super) fn hint(&self, bytes: &'static [u8]) {
        let bytes = Bytes::from_static(bytes);
        // Where there is no room for it, there is something else on its way.
        drop(self.sender.try_send(Piece { bytes, room: None }));
    }

    /// Waits until nobody takes anything any more. Cancel-safe.
    pub(super) async fn closed(&self) {
        self.sender.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, StreamExt as _};

    use super::*;

    #[tokio::test]
    async fn so_many_bytes_wait_or_one_larger_piece() {
        let (way, out) = way();
        let mut out = Box::pin(out);
        let piece = |bytes: usize| Bytes::from(vec![b'x'; bytes]);
        let (half, most) = (600 * 1024, 5 * 1024 * 1024);
        way.send(piece(half)).await.unwrap();
        assert!(way.send(piece(half)).now_or_never().is_none());
        assert_eq!(out.next().await.unwrap().unwrap().len(), half);
        // It is with whoever writes it.
        assert!(way.send(piece(half)).now_or_never().is_none());
        let (sent, next) = tokio::join!(way.send(piece(most)), out.next());
        sent.unwrap();
        assert_eq!(next.unwrap().unwrap().len(), most);
        assert!(way.send(piece(1)).now_or_never().is_none());
        let (sent, next) = tokio::join!(way.send(piece(1)), out.next());
        sent.unwrap();
        assert_eq!(next.unwrap().unwrap().len(), 1);
        drop(out);
        way.closed().await;
        assert_eq!(way.send(piece(1)).await, Err(Gone));
    }

    #[test]
    fn a_large_event_is_a_piece_of_its_own_and_the_same_for_all() {
        let events = Once::default();
        let mut said = [Said::default(), Said::default()];
        let large = "x".repeat(LARGE);
        let told = said.each_mut().map(|said| {
            said.event("a".to_owned(), &events);
            said.text().extend_from_slice(b"b");
            said.event(large.clone(), &events);
            said.event("c".to_owned(), &events);
            assert_eq!(said.len(), LARGE + 3);
            said.take()
        });
        let [first, second] = told;
        assert_eq!(first, second);
        assert_eq!((&*first[0], &*first[2]), (&b"ab"[..], &b"c"[..]));
        assert_eq!(first[1].as_ptr(), second[1].as_ptr());
        assert_eq!(said[0].len(), 0);
    }
}
