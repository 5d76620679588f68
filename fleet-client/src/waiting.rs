//! Which request waits for which answer. A request that gives up, in whatever way, leaves nothing behind.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_nats::Message;
use tokio::sync::oneshot;

use crate::error::AskError;

/// The most requests of one client that may wait at a time.
const WAITING_MAX: usize = 65_536;

/// All requests of a client that wait for their answers.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<Requests>);

#[derive(Debug, Default)]
struct Requests {
    next: u64,
    waiters: HashMap<u64, oneshot::Sender<Message>>,
    /// No answer will come any more.
    is_closed: bool,
}

/// The place of one request. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Waiter {
    token: u64,
    answer: oneshot::Receiver<Message>,
    of: Arc<Waiting>,
}

impl Waiting {
    /// A place for one more request.
    ///
    /// # Errors
    ///
    /// [`AskError::TooMany`], [`AskError::Closed`].
    pub(crate) fn enter(self: &Arc<Self>) -> Result<Waiter, AskError> {
        let mut requests = self.lock();
        if requests.is_closed {
            return Err(AskError::Closed);
        }
        let waiting = requests.waiters.len();
        if waiting >= WAITING_MAX {
            return Err(AskError::TooMany { waiting });
        }
        let token = requests.next;
        requests.next += 1;
        let (sender, answer) = oneshot::channel();
        requests.waiters.insert(token, sender);
        Ok(Waiter {
            token,
            answer,
            of: Arc::clone(self),
        })
    }

    /// Hands an answer to the request that waits for it, if it still does.
    pub(crate) fn answer(&self, token: &str, message: Message) {
        let Ok(token) = token.parse() else { return };
        let waiter = self.lock().waiters.remove(&token);
        if let Some(waiter) = waiter {
            // An error means that the request is giving up at this moment.
            drop(waiter.send(message));
        }
    }

    /// Wakes every request, for no answer will come any more.
    pub(crate) fn close(&self) {
        let mut requests = self.lock();
        requests.is_closed = true;
        requests.waiters.clear();
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().waiters.len()
    }

    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter {
    /// The last token of its reply subject.
    pub(crate) const fn token(&self) -> u64 {
        self.token
    }

    /// Waits for the answer. Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`AskError::Closed`].
    pub(crate) async fn answered(&mut self) -> Result<Message, AskError> {
        (&mut self.answer)
            .await
            .map_err(|_dropped| AskError::Closed)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.of.lock().waiters.remove(&self.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &'static str) -> Message {
        Message {
            subject: "_INBOX.x.0".into(),
            reply: None,
            payload: text.into(),
            headers: None,
            status: None,
            description: None,
            length: 0,
        }
    }

    #[tokio::test]
    async fn an_answer_goes_to_its_own_request_whatever_the_order() {
        let waiting = Arc::new(Waiting::default());
        let (mut first, mut second) = (waiting.enter().unwrap(), waiting.enter().unwrap());
        waiting.answer(&second.token().to_string(), message("second"));
        waiting.answer(&first.token().to_string(), message("first"));
        assert_eq!(&second.answered().await.unwrap().payload[..], b"second");
        assert_eq!(&first.answered().await.unwrap().payload[..], b"first");
        assert_eq!(waiting.len(), 0);
    }

    #[test]
    fn a_request_that_gives_up_leaves_nothing_and_its_late_answer_goes_nowhere() {
        let waiting = Arc::new(Waiting::default());
        let given_up = waiting.enter().unwrap();
        let token = given_up.token().to_string();
        drop(given_up);
        assert_eq!(waiting.len(), 0);
        for late in [token.as_str(), "x", ""] {
            waiting.answer(late, message("late"));
        }
    }

    #[test]
    fn only_so_many_wait_at_a_time() {
        let waiting = Arc::new(Waiting::default());
        let all: Vec<Waiter> = (0..WAITING_MAX).map(|_| waiting.enter().unwrap()).collect();
        assert!(matches!(
            waiting.enter(),
            Err(AskError::TooMany { waiting }) if waiting == WAITING_MAX
        ));
        drop(all);
        assert!(waiting.enter().is_ok());
    }

    #[tokio::test]
    async fn a_closed_connection_lets_everybody_go() {
        let waiting = Arc::new(Waiting::default());
        let mut waiter = waiting.enter().unwrap();
        waiting.close();
        assert!(matches!(waiter.answered().await, Err(AskError::Closed)));
        assert!(matches!(waiting.enter(), Err(AskError::Closed)));
    }
}
