//! The requests of a session that are being answered, or whose client is gone, as far as a message may cancel their calls. Pure.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sha2::{Digest, Sha256};

use crate::when_left::CancelSwitch;

/// The most requests of a session that can be cancelled: of more the oldest cannot.
const REQUESTS_MAX: usize = 64;

/// The requests of a session, the oldest first.
#[derive(Debug, Default)]
pub(super) struct SessionRequests(Mutex<VecDeque<SessionRequest>>);

#[derive(Debug)]
struct SessionRequest {
    /// Of its id, which has any length.
    hash: [u8; 32],
    switch: Arc<CancelSwitch>,
}

impl SessionRequests {
    /// Notes a request with this id, JSON text. An id that is used again is that of the newer request.
    pub(super) fn begin(&self, id: &str) -> Arc<CancelSwitch> {
        let (hash, switch) = (hash(id.as_bytes()), Arc::default());
        let mut requests = self.requests();
        requests.retain(|known| known.hash != hash);
        if requests.len() >= REQUESTS_MAX {
            requests.pop_front();
        }
        let request = SessionRequest {
            hash,
            switch: Arc::clone(&switch),
        };
        requests.push_back(request);
        switch
    }

    /// Forgets a request that is answered: it cannot be cancelled any more.
    pub(super) fn end(&self, switch: &Arc<CancelSwitch>) {
        let is_other = |known: &SessionRequest| !Arc::ptr_eq(&known.switch, switch);
        self.requests().retain(is_other);
    }

    /// Takes out the request with this id, JSON text, which its client cancels; `None`: it is answered, or was never there.
    pub(super) fn take(&self, id: &[u8]) -> Option<Arc<CancelSwitch>> {
        let hash = hash(id);
        let mut requests = self.requests();
        let place = requests.iter().position(|known| known.hash == hash)?;
        requests.remove(place).map(|request| request.switch)
    }

    fn requests(&self) -> MutexGuard<'_, VecDeque<SessionRequest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hash(id: &[u8]) -> [u8; 32] {
    Sha256::digest(id.trim_ascii()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_found_by_its_id_until_it_is_answered_or_cancelled() {
        let requests = SessionRequests::default();
        let (one, two) = (requests.begin("1"), requests.begin("\"1\""));
        let taken = requests.take(b" 1 ").unwrap();
        assert!(Arc::ptr_eq(&taken, &one) && requests.take(b"1").is_none());
        requests.end(&two);
        assert!(requests.take(b"\"1\"").is_none());
        // The same id again: the older request ends without taking the newer one along.
        let (older, newer) = (requests.begin("2"), requests.begin("2"));
        requests.end(&older);
        assert!(Arc::ptr_eq(&requests.take(b"2").unwrap(), &newer));
    }

    #[test]
    fn there_are_so_many_and_the_oldest_goes_first() {
        let requests = SessionRequests::default();
        for id in 0..=REQUESTS_MAX {
            requests.begin(&id.to_string());
        }
        assert!(requests.take(b"0").is_none() && requests.take(b"1").is_some());
        assert_eq!(requests.requests().len(), REQUESTS_MAX - 1);
    }
}
