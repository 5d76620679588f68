//! What the product's sources meet here instead of tokio, Postgres and NATS.

pub(crate) mod calls;
pub(crate) mod delay;
pub(crate) mod expiry;
pub(crate) mod ledger;
pub(crate) mod nats;
pub(crate) mod running;
pub(crate) mod stream;
pub(crate) mod time;
pub(crate) mod tokio;

use std::cell::Cell;

use shuttle::rand::{Rng as _, thread_rng};

thread_local! {
    /// One schedule after the other runs on a thread, all its tasks included.
    static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Plants a mistake for what runs on this thread from now on.
pub(crate) fn plant(mistake: Option<&'static str>) {
    PLANTED.set(mistake);
}

/// Whether this mistake is planted.
pub(crate) fn planted(mistake: &str) -> bool {
    PLANTED.get() == Some(mistake)
}

/// Whether any is.
pub(crate) fn mistaken() -> bool {
    PLANTED.get().is_some()
}

/// A new world, in which time passes.
pub(crate) fn begin() {
    time::begin();
}

/// Whether something happens that happens once in so many times.
pub(crate) fn once_in(times: u32) -> bool {
    thread_rng().gen_range(0..times) == 0
}
