//! Looks through the history that no index shortens: two at a time, one of each who asks, one through texts. Others that came in time wait,
//! in their order: nobody's looks keep the connections from all.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use fleet::wire::{code::Code, message::Message};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::{auth::principal::Principal, refusal::Refused};

/// How many there are at a time: with a connection each, and others are for what is quick.
const AT_A_TIME: usize = 2;
/// How long a look waits for its turn.
const WAIT_MAX: Duration = Duration::from_secs(2);

const BUSY: Message = Message::fixed(
    "this gateway looks through the history for others at the moment",
    "这个网关正在为其他请求查找历史记录",
);

/// The looks that are under way.
#[derive(Debug)]
pub(crate) struct Looks {
    all: Arc<Semaphore>,
    with_text: Arc<Semaphore>,
    each: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// The place of a look, until it is dropped.
#[derive(Debug)]
pub(crate) struct LookPlace {
    _places: Vec<OwnedSemaphorePermit>,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(AT_A_TIME)),
            with_text: Arc::new(Semaphore::new(1)),
            each: Mutex::default(),
        }
    }
}

impl Looks {
    /// Waits until it is the turn of this one's look. Cancel-safe.
    ///
    /// # Errors
    ///
    /// `overloaded`: it is not within two seconds.
    pub(crate) async fn begin(
        &self,
        principal: &Principal,
        has_text: bool,
    ) -> Result<LookPlace, Refused> {
        let busy = || Refused::later(Code::Overloaded, BUSY);
        // Its own first: whoever asks for many has one in the line of all.
        let own = [self.own(principal)];
        let text = has_text.then(|| Arc::clone(&self.with_text));
        let waiting = async {
            let mut places = Vec::new();
            for of in own.into_iter().chain(text).chain([Arc::clone(&self.all)]) {
                places.push(of.acquire_owned().await.ok()?);
            }
            Some(places)
        };
        let places = timeout(WAIT_MAX, waiting).await.ok().flatten();
        places
            .map(|places| LookPlace { _places: places })
            .ok_or_else(busy)
    }

    fn own(&self, principal: &Principal) -> Arc<Semaphore> {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that nobody uses are forgotten.
        each.retain(|_, places| Arc::strong_count(places) > 1);
        let its = each.entry(principal.token_id().to_owned());
        Arc::clone(its.or_insert_with(|| Arc::new(Semaphore::new(1))))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, future::join_all};

    use super::*;

    fn of(name: &str) -> Principal {
        Principal::Named(name.into())
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_for_many_has_one_and_another_has_the_other_place() {
        let looks = Looks::default();
        let (a, c) = (of("a"), of("c"));
        let first = looks.begin(&a, false).await.unwrap();
        let mut more = Box::pin(join_all((0..10).map(|_| looks.begin(&a, false))));
        assert!(more.as_mut().now_or_never().is_none());
        let other = looks.begin(&of("b"), true).await.unwrap();
        let third = looks.begin(&c, false);
        let (third, ()) = tokio::join!(third, async { drop(other) });
        drop((first, third.unwrap()));
        let more: Vec<_> = more.await;
        // Each is let go only with all of them.
        assert_eq!(more.iter().filter(|place| place.is_ok()).count(), 1);
        drop(more);
        assert_eq!(looks.own(&of("d")).available_permits(), 1);
        assert_eq!(looks.each.lock().unwrap().len(), 1, "others are forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn texts_are_looked_through_one_at_a_time() {
        let looks = Looks::default();
        let first = looks.begin(&of("a"), true).await.unwrap();
        let second = looks.begin(&of("b"), true).await;
        assert_eq!(second.unwrap_err().code(), Code::Overloaded);
        let list = looks.begin(&of("b"), false).await;
        assert!(list.is_ok(), "it needs no turn for texts");
        drop(first);
        assert!(looks.begin(&of("c"), true).await.is_ok());
    }
}
