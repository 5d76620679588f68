//! Connections: how many of each address have not said yet who asks, and how many each token has.
//!
//! What a connection counts as is said by its last request: one with a token that holds makes it that token's, any other makes it a
//! stranger again. So nobody keeps a connection longer than their token lives, nor with a token that was said once.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fleet::tokens;
use tokio::{sync::Notify, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::auth::principal::Principal;

/// How long a connection waits for a place among the strangers of its sender: as long as a client's other connections need to say who asks.
const ENTER_MAX: Duration = Duration::from_secs(2);

/// Who is connected. Clones share the counts.
#[derive(Debug, Clone)]
pub(crate) struct Peers(Arc<SharedPeers>);

/// How many may be connected at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeersMax {
    /// Strangers of one sender: an address, or a network of IPv6.
    pub(crate) strangers: usize,
    /// Connections of one token.
    pub(crate) each: usize,
}

#[derive(Debug)]
struct SharedPeers {
    most: PeersMax,
    strangers: Mutex<HashMap<IpAddr, usize>>,
    /// Told when a stranger's place is free again.
    freed: Notify,
    known: Mutex<KnownConnections>,
}

#[derive(Debug, Default)]
struct KnownConnections {
    /// The next connection's.
    next: u64,
    /// Those of each token, by its id: what has each of them end.
    by_token: HashMap<String, HashMap<u64, CancellationToken>>,
}

/// One connection. Clones are about the same one.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    address: IpAddr,
    peers: Peers,
    closing: CancellationToken,
    ending: CancellationToken,
    standing: Arc<Mutex<PeerStanding>>,
}

/// A token has as many connections as it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany;

/// As what a connection counts.
#[derive(Debug)]
enum PeerStanding {
    /// Its last request did not say who asks, or there was none.
    Stranger(#[expect(dead_code, reason = "it is held")] Stranger),
    /// Its last request had this token.
    KnownPeer(KnownPeer),
    /// Nobody is asked who they are.
    Anyone,
}

/// The place of a stranger. Dropping it frees the place.
#[derive(Debug)]
struct Stranger {
    sender: IpAddr,
    peers: Peers,
}

/// The place of a token's connection. Dropping it frees the place.
#[derive(Debug)]
struct KnownPeer {
    token_id: String,
    number: u64,
    peers: Peers,
}

impl Peers {
    /// At most so many.
    pub(crate) fn new(most: PeersMax) -> Self {
        Self(Arc::new(SharedPeers {
            most,
            strangers: Mutex::default(),
            freed: Notify::new(),
            known: Mutex::default(),
        }))
    }

    /// One more connection; `None` where its sender has as many strangers as it may have.
    pub(crate) fn enter(&self, address: IpAddr) -> Option<Peer> {
        let stranger = self.stranger(address)?;
        Some(Peer {
            address: address.to_canonical(),
            peers: self.clone(),
            closing: CancellationToken::new(),
            ending: CancellationToken::new(),
            standing: Arc::new(Mutex::new(PeerStanding::Stranger(stranger))),
        })
    }

    /// The same, where a place is free within two seconds. Cancel-safe.
    pub(crate) async fn enter_soon(&self, address: IpAddr) -> Option<Peer> {
        let entering = async {
            loop {
                // Whoever leaves after this is heard.
                let freed = self.0.freed.notified();
                if let Some(peer) = self.enter(address) {
                    return peer;
                }
                freed.await;
            }
        };
        timeout(ENTER_MAX, entering).await.ok()
    }

    /// Has the connections end of the tokens of which this is true: those that are idle at once, others with their answers.
    pub(crate) fn let_go(&self, is_over: impl Fn(&str) -> bool) {
        for (token_id, connections) in &lock(&self.0.known).by_token {
            if is_over(token_id) {
                connections.values().for_each(CancellationToken::cancel);
            }
        }
    }

    fn stranger(&self, address: IpAddr) -> Option<Stranger> {
        let sender = tokens::sender(address);
        let mut strangers = lock(&self.0.strangers);
        let count = strangers.entry(sender).or_default();
        if *count >= self.0.most.strangers {
            return None;
        }
        *count += 1;
        Some(Stranger {
            sender,
            peers: self.clone(),
        })
    }

    fn known(&self, token_id: &str, ending: &CancellationToken) -> Option<KnownPeer> {
        let mut known = lock(&self.0.known);
        let of_token = known.by_token.get(token_id).map_or(0, HashMap::len);
        if of_token >= self.0.most.each {
            return None;
        }
        let number = known.next;
        known.next += 1;
        let connections = known.by_token.entry(token_id.to_owned()).or_default();
        connections.insert(number, ending.clone());
        Some(KnownPeer {
            token_id: token_id.to_owned(),
            number,
            peers: self.clone(),
        })
    }
}

impl Peer {
    /// It is known now who asks. What the connection counted as before does not count any more.
    ///
    /// # Errors
    ///
    /// The token has as many connections as it may have; this one stays what it was.
    pub(crate) fn becomes_known(&self, principal: &Principal) -> Result<(), TooMany> {
        match principal {
            Principal::Anyone | Principal::Named(_) => {
                *lock(&self.standing) = PeerStanding::Anyone;
                Ok(())
            }
            Principal::Token(token) => self.counts_for(&token.token_id),
        }
    }

    /// It has a signed URL: those that have one count together, as if they had one token.
    ///
    /// # Errors
    ///
    /// There are as many of them as one token may have.
    pub(crate) fn has_signed_url(&self) -> Result<(), TooMany> {
        // No token has this id.
        self.counts_for("")
    }

    fn counts_for(&self, token_id: &str) -> Result<(), TooMany> {
        let mut standing = lock(&self.standing);
        if matches!(&*standing, PeerStanding::KnownPeer(known) if known.token_id == token_id) {
            return Ok(());
        }
        let known = self.peers.known(token_id, &self.ending);
        *standing = PeerStanding::KnownPeer(known.ok_or(TooMany)?);
        Ok(())
    }

    /// It is not known any more who asks. Whether there is a stranger's place for it: where there is none, it has to be closed, and
    /// counts as before until it is.
    pub(crate) fn becomes_stranger(&self) -> bool {
        let mut standing = lock(&self.standing);
        match &*standing {
            PeerStanding::Stranger(_) | PeerStanding::Anyone => true,
            PeerStanding::KnownPeer(_) => match self.peers.stranger(self.address) {
                Some(stranger) => {
                    *standing = PeerStanding::Stranger(stranger);
                    true
                }
                None => false,
            },
        }
    }

    /// Has the connection closed at once, whatever is still to be written.
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    #[cfg(test)]
    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Waits until the connection has to be closed. Cancel-safe.
    pub(super) async fn closes(&self) {
        self.closing.cancelled().await;
    }

    /// Waits until the connection has to end with the request in hand, if there is one. Cancel-safe.
    pub(super) async fn ends(&self) {
        self.ending.cancelled().await;
    }

    /// Where it comes from.
    pub(crate) const fn address(&self) -> IpAddr {
        self.address
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut strangers = lock(&self.peers.0.strangers);
        if let Some(count) = strangers.get_mut(&self.sender) {
            *count -= 1;
            if *count == 0 {
                strangers.remove(&self.sender);
            }
        }
        self.peers.0.freed.notify_waiters();
    }
}

impl Drop for KnownPeer {
    fn drop(&mut self) {
        let mut known = lock(&self.peers.0.known);
        if let Some(connections) = known.by_token.get_mut(&self.token_id) {
            connections.remove(&self.number);
            if connections.is_empty() {
                known.by_token.remove(&self.token_id);
            }
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use fleet::tokens::TokenRow;

    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn token(id: &str) -> Principal {
        Principal::Token(Arc::new(TokenRow {
            token_id: id.to_owned(),
            name: "ann".to_owned(),
            hash: [0; 32],
            tenant: None,
            scopes: Vec::new(),
            tools: Vec::new(),
            expires_at: None,
        }))
    }

    fn peers(strangers: usize, each: usize) -> Peers {
        Peers::new(PeersMax { strangers, each })
    }

    #[test]
    fn an_address_has_so_many_strangers_and_any_number_of_known_ones() {
        let peers = peers(2, 9);
        let first = peers.enter(address(1)).unwrap();
        let second = peers.enter(address(1)).unwrap();
        assert!(peers.enter(address(1)).is_none());
        // The same address as IPv6 has it.
        assert!(peers.enter("::ffff:10.0.0.1".parse().unwrap()).is_none());
        assert!(peers.enter(address(2)).is_some());
        let clone = first.clone();
        clone.becomes_known(&Principal::Anyone).unwrap();
        let third = peers.enter(address(1)).unwrap();
        assert!(peers.enter(address(1)).is_none());
        drop((first, clone, second, third));
        assert!(lock(&peers.0.strangers).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_waits_a_moment_for_a_strangers_place() {
        let peers = peers(1, 9);
        let first = peers.enter(address(1)).unwrap();
        let leaving = async {
            tokio::task::yield_now().await;
            first.becomes_known(&token("a")).unwrap();
        };
        let (entered, ()) = tokio::join!(peers.enter_soon(address(1)), leaving);
        let entered = entered.unwrap();
        assert!(peers.enter_soon(address(1)).await.is_none());
        drop((first, entered));
        assert!(lock(&peers.0.strangers).is_empty());
    }

    #[test]
    fn a_network_of_one_machine_is_one_sender() {
        let peers = peers(1, 9);
        let _first = peers.enter("2001:db8::1".parse().unwrap()).unwrap();
        assert!(peers.enter("2001:db8::ffff:2".parse().unwrap()).is_none());
        assert!(peers.enter("2001:db8:0:1::1".parse().unwrap()).is_some());
    }

    #[test]
    fn a_token_has_so_many_connections_and_each_is_its_last_requests() {
        let peers = peers(3, 2);
        let all: Vec<Peer> = (0..3).map(|_| peers.enter(address(1)).unwrap()).collect();
        assert_eq!(all[0].becomes_known(&token("a")), Ok(()));
        assert_eq!(all[0].becomes_known(&token("a")), Ok(()));
        assert_eq!(all[1].becomes_known(&token("a")), Ok(()));
        assert_eq!(all[2].becomes_known(&token("a")), Err(TooMany));
        assert_eq!(all[2].becomes_known(&token("b")), Ok(()));
        // The other token's from now on.
        assert_eq!(all[1].becomes_known(&token("b")), Ok(()));
        assert_eq!(all[1].becomes_known(&token("a")), Ok(()));
        let strangers: Vec<Peer> = (0..2).map(|_| peers.enter(address(1)).unwrap()).collect();
        assert!(all[0].becomes_stranger() && all[0].becomes_stranger());
        assert!(!all[1].becomes_stranger(), "there is no place for it");
        assert_eq!(all[2].becomes_known(&token("a")), Ok(()));
        drop(strangers);
        assert!(all[1].becomes_stranger());
        peers.let_go(|id| id == "a");
        let ends = |peer: &Peer| peer.ending.is_cancelled();
        assert!(!ends(&all[0]) && !ends(&all[1]) && ends(&all[2]));
        drop(all);
        assert!(lock(&peers.0.known).by_token.is_empty());
    }
}
