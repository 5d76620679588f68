//! Answers that are made and not yet read by their clients: so many bytes of each who asks, and of all together.
//!
//! A call that is answered is over, and its answer can be had again by its id or its key. So an answer is never refused for want of
//! room: the connection is closed whose answer waits for the longest, of who has too many of them.

use std::{
    collections::{BTreeMap, HashMap},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use fleet::telemetry::metrics;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::peers::Peer;
use crate::room::{FREE, RoomOf};

/// What is not read yet. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct UnreadAnswers(Arc<SharedUnread>);

#[derive(Debug)]
struct SharedUnread {
    bytes_max: usize,
    unread: Mutex<Unread>,
}

#[derive(Debug, Default)]
struct Unread {
    /// The next piece's.
    next: u64,
    /// Of all.
    bytes: usize,
    /// Never without a piece.
    by_reader: HashMap<RoomOf, UnreadPieces>,
}

/// Those of one who asks.
#[derive(Debug, Default)]
struct UnreadPieces {
    bytes: usize,
    /// By number: the oldest first.
    pieces: BTreeMap<u64, UnreadPiece>,
}

#[derive(Debug)]
struct UnreadPiece {
    bytes: usize,
    /// The connection that it waits at.
    peer: Peer,
}

/// The bytes of a piece. Dropping them, which is done when they were written, frees their room.
struct HeldPiece {
    bytes: Bytes,
    number: u64,
    reader: RoomOf,
    answers: UnreadAnswers,
}

/// The body of an answer, which takes room piece by piece.
#[derive(Debug)]
struct KeptAnswer {
    body: Body,
    peer: Peer,
    reader: RoomOf,
    answers: UnreadAnswers,
}

impl UnreadAnswers {
    /// So many MiB, shared as [`RoomOf::share`] says.
    pub(crate) fn new(mib: usize) -> Self {
        Self(Arc::new(SharedUnread {
            bytes_max: mib * 1024 * 1024,
            unread: Mutex::default(),
        }))
    }

    /// The same answer, whose bytes take room as long as they are not written to this connection.
    pub(super) fn keep(&self, response: Response, reader: RoomOf, peer: Peer) -> Response {
        let is_small = |bytes: u64| bytes <= FREE as u64;
        if response.body().size_hint().exact().is_some_and(is_small) {
            return response;
        }
        response.map(|body| {
            Body::new(KeptAnswer {
                body,
                peer,
                reader,
                answers: self.clone(),
            })
        })
    }

    /// Takes room for a piece, and closes the connections of the oldest ones where there is none.
    fn hold(&self, bytes: Bytes, reader: &RoomOf, peer: &Peer) -> Bytes {
        if bytes.len() <= FREE {
            return bytes;
        }
        let all = self.0.bytes_max;
        let mut unread = self.unread();
        let number = unread.add(bytes.len(), reader, peer);
        while unread.of(reader) > reader.share(all) && unread.close_oldest(reader, number) {}
        while unread.bytes > all
            && let Some(greediest) = unread.greediest()
            && unread.close_oldest(&greediest, number)
        {}
        drop(unread);
        Bytes::from_owner(HeldPiece {
            bytes,
            number,
            reader: reader.clone(),
            answers: self.clone(),
        })
    }

    fn unread(&self) -> MutexGuard<'_, Unread> {
        let unread = &self.0.unread;
        unread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unread {
    fn add(&mut self, bytes: usize, reader: &RoomOf, peer: &Peer) -> u64 {
        let number = self.next;
        self.next += 1;
        self.bytes += bytes;
        let own = self.by_reader.entry(reader.clone()).or_default();
        own.bytes += bytes;
        let peer = peer.clone();
        own.pieces.insert(number, UnreadPiece { bytes, peer });
        number
    }

    fn of(&self, reader: &RoomOf) -> usize {
        self.by_reader.get(reader).map_or(0, |own| own.bytes)
    }

    /// Who has most.
    fn greediest(&self) -> Option<RoomOf> {
        let most = self.by_reader.iter().max_by_key(|(_, own)| own.bytes);
        most.map(|(reader, _)| reader.clone())
    }

    /// Closes the connection of the oldest piece of this one. `false` where that is the newest of all: it stays.
    fn close_oldest(&mut self, reader: &RoomOf, newest: u64) -> bool {
        let pieces = self.by_reader.get(reader).map(|own| &own.pieces);
        let oldest = pieces.and_then(BTreeMap::first_key_value);
        let Some((&number, piece)) = oldest.filter(|(number, _)| **number != newest) else {
            return false;
        };
        piece.peer.close();
        metrics().refused_connection("unread");
        self.remove(number, reader);
        true
    }

    /// What was taken out before is not there any more.
    fn remove(&mut self, number: u64, reader: &RoomOf) {
        let Some(own) = self.by_reader.get_mut(reader) else {
            return;
        };
        let Some(piece) = own.pieces.remove(&number) else {
            return;
        };
        own.bytes -= piece.bytes;
        self.bytes -= piece.bytes;
        if own.pieces.is_empty() {
            self.by_reader.remove(reader);
        }
    }
}

impl AsRef<[u8]> for HeldPiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for HeldPiece {
    fn drop(&mut self) {
        self.answers.unread().remove(self.number, &self.reader);
    }
}

impl HttpBody for KeptAnswer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        let hold = |bytes| self.answers.hold(bytes, &self.reader, &self.peer);
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(hold))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::peers::{Peers, PeersMax},
        *,
    };

    const MIB: usize = 1024 * 1024;

    fn peer(peers: &Peers) -> Peer {
        peers.enter([127, 0, 0, 1].into()).unwrap()
    }

    fn peers() -> Peers {
        Peers::new(PeersMax {
            strangers: 1_000,
            each: 1_000,
        })
    }

    fn token(id: &str) -> RoomOf {
        RoomOf::Token(id.to_owned())
    }

    #[test]
    fn the_oldest_answer_goes_of_who_has_too_many() {
        let (answers, peers) = (UnreadAnswers::new(64), peers());
        let all: Vec<Peer> = (0..34).map(|_| peer(&peers)).collect();
        let piece = || Bytes::from(vec![b' '; MIB]);
        let other = answers.hold(piece(), &token("b"), &all[33]);
        let mut held: Vec<Bytes> = all[..32]
            .iter()
            .map(|peer| answers.hold(piece(), &token("a"), peer))
            .collect();
        let closed = || all.iter().filter(|peer| peer.is_closing()).count();
        assert_eq!((closed(), answers.unread().bytes), (0, 33 * MIB));
        held.push(answers.hold(piece(), &token("a"), &all[32]));
        assert!(all[0].is_closing());
        assert_eq!((closed(), answers.unread().of(&token("a"))), (1, 32 * MIB));
        // It was taken out before.
        drop(held.remove(0));
        assert_eq!(answers.unread().of(&token("a")), 32 * MIB);
        // What was written leaves room.
        drop(held.pop());
        held.push(answers.hold(piece(), &token("a"), &all[32]));
        assert_eq!(closed(), 1);
        drop((held, other));
        assert!(answers.unread().by_reader.is_empty());
        assert_eq!(answers.unread().bytes, 0);
    }

    #[test]
    fn where_all_have_too_many_it_is_of_who_has_most() {
        let (answers, peers) = (UnreadAnswers::new(16), peers());
        let all: Vec<Peer> = (0..4).map(|_| peer(&peers)).collect();
        let held = [("a", 6, 0), ("b", 4, 1), ("c", 5, 2), ("d", 5, 3)].map(|(id, mib, at)| {
            answers.hold(Bytes::from(vec![b' '; mib * MIB]), &token(id), &all[at])
        });
        let closing: Vec<bool> = all.iter().map(Peer::is_closing).collect();
        assert_eq!(closing, [true, false, false, false]);
        drop(held);
    }

    #[test]
    fn one_answer_has_room_however_large_and_small_ones_take_none() {
        let (answers, peers) = (UnreadAnswers::new(1), peers());
        let (large, small) = (peer(&peers), peer(&peers));
        let held = answers.hold(Bytes::from(vec![b' '; 9 * MIB]), &RoomOf::Stranger, &large);
        let free = answers.hold(Bytes::from(vec![b' '; FREE]), &RoomOf::Stranger, &small);
        assert!(!large.is_closing() && !small.is_closing());
        assert_eq!(answers.unread().bytes, held.len());
        drop((held, free));
    }
}
