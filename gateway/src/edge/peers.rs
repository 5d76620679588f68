//! Connections by address: how many of each have not said yet who asks.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

/// The addresses that strangers are connected from. Clones share the counts.
#[derive(Debug, Clone)]
pub(crate) struct Peers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    strangers_max: usize,
    strangers: Mutex<HashMap<IpAddr, usize>>,
}

/// One connection. Clones are about the same one.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    address: IpAddr,
    closing: CancellationToken,
    /// Until it has said who asks.
    stranger: Arc<Mutex<Option<Stranger>>>,
}

/// The place of a connection that has not said who asks. Dropping it frees the place.
#[derive(Debug)]
struct Stranger {
    address: IpAddr,
    peers: Peers,
}

impl Peers {
    /// At most so many strangers from an address.
    pub(crate) fn new(strangers_max: usize) -> Self {
        Self(Arc::new(Shared {
            strangers_max,
            strangers: Mutex::default(),
        }))
    }

    /// One more connection; `None` where its address has as many strangers as it may have.
    pub(crate) fn enter(&self, address: IpAddr) -> Option<Peer> {
        let address = address.to_canonical();
        let mut strangers = lock(&self.0.strangers);
        let count = strangers.entry(address).or_default();
        if *count >= self.0.strangers_max {
            return None;
        }
        *count += 1;
        drop(strangers);
        let stranger = Stranger {
            address,
            peers: self.clone(),
        };
        Some(Peer {
            address,
            closing: CancellationToken::new(),
            stranger: Arc::new(Mutex::new(Some(stranger))),
        })
    }
}

impl Peer {
    /// It is known now who asks, so the connection takes no stranger's place any more.
    pub(crate) fn becomes_known(&self) {
        drop(lock(&self.stranger).take());
    }

    /// Has the connection closed at once, whatever is still to be written.
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    /// Waits until the connection has to be closed. Cancel-safe.
    pub(super) async fn closes(&self) {
        self.closing.cancelled().await;
    }

    /// Where it comes from.
    pub(crate) const fn address(&self) -> IpAddr {
        self.address
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut strangers = lock(&self.peers.0.strangers);
        if let Some(count) = strangers.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                strangers.remove(&self.address);
            }
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn an_address_has_so_many_strangers_and_any_number_of_known_ones() {
        let peers = Peers::new(2);
        let first = peers.enter(address(1)).unwrap();
        let second = peers.enter(address(1)).unwrap();
        assert!(peers.enter(address(1)).is_none());
        // The same address as IPv6 has it.
        assert!(peers.enter("::ffff:10.0.0.1".parse().unwrap()).is_none());
        assert!(peers.enter(address(2)).is_some());
        let clone = first.clone();
        clone.becomes_known();
        let third = peers.enter(address(1)).unwrap();
        assert!(peers.enter(address(1)).is_none());
        drop((first, clone, second, third));
        assert!(lock(&peers.0.strangers).is_empty());
    }
}
