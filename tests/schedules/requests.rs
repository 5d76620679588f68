//! The slots of a dispatcher: never more calls in hand than slots, and every slot comes back, also from who is sent away.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use shuttle::{
    future::{block_on, spawn, yield_now},
    rand::{Rng as _, thread_rng},
};

use crate::{
    check::{finds, holds, saw},
    world::{once_in, tokio::select},
    woven::slots::{RequestPermit, Slots},
};

const SLOTS: usize = 4;
/// What one tenant has of them at most.
const OF_ONE: usize = 3;

/// One request after the other comes in, of one call or of several, while others are in hand.
fn requests() {
    block_on(async {
        let (slots, in_hand) = (Slots::new(SLOTS, 0), Arc::new(AtomicUsize::new(0)));
        // Two of them are of one tenant.
        let doors =
            [("a", [1, 3, 1]), ("b", [2, 1, 9]), ("a", [1, 2, 1])].map(|(tenant, calls)| {
                let (slots, in_hand) = (slots.clone(), Arc::clone(&in_hand));
                spawn(async move {
                    for calls in calls {
                        let Ok(mut slot) = slots.one(tenant, 0) else {
                            saw("a request was sent away");
                            continue;
                        };
                        let life = if once_in(4) {
                            thread_rng().gen_range(0..4)
                        } else {
                            u32::MAX
                        };
                        select! {
                            biased;
                            () = handle(&mut slot, calls, &in_hand) => {}
                            () = steps(life) => saw("a request was given up"),
                        }
                        drop(slot);
                        yield_now().await;
                    }
                })
            });
        for door in doors {
            door.await.unwrap();
        }
        assert_eq!(in_hand.load(Ordering::SeqCst), 0, "a call is left");
        assert_eq!(slots.free(), SLOTS, "a slot did not come back");
    });
}

async fn handle(slot: &mut RequestPermit, calls: usize, in_hand: &AtomicUsize) {
    if calls > 1 {
        if slot.further(calls).is_err() {
            saw("a batch was sent away");
            return;
        }
        saw("a batch was taken");
    }
    let these = InHand::begin(in_hand, calls.min(OF_ONE));
    steps(thread_rng().gen_range(0..6)).await;
    drop(these);
}

/// Counts calls for as long as it lives.
struct InHand<'a>(&'a AtomicUsize, usize);

impl<'a> InHand<'a> {
    fn begin(in_hand: &'a AtomicUsize, calls: usize) -> Self {
        let before = in_hand.fetch_add(calls, Ordering::SeqCst);
        assert!(before + calls <= SLOTS, "more calls than slots");
        Self(in_hand, calls)
    }
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::SeqCst);
    }
}

async fn steps(count: u32) {
    for _ in 0..count {
        yield_now().await;
    }
}

#[test]
fn slots_bound_the_calls_in_hand_and_come_back() {
    let sights = [
        "a request was sent away",
        "a request was given up",
        "a batch was sent away",
        "a batch was taken",
    ];
    holds("requests", &sights, requests);
}

#[test]
fn mistakes_about_requests_are_found() {
    finds("a full house lets one in", "slot", requests);
    finds(
        "what a batch took beyond its first is forgotten",
        "slot",
        requests,
    );
    // A permit of which the count was lost gives back more than is taken.
    finds("what a tenant has is read too early", "subtract", requests);
}
