//! The door: what answering a request needs, as data. Its behaviour is in the files of the verbs (`endpoints.rs` lists them).

use fleet::{
    bus::{connect::Bus, events::Events, publish::Publisher},
    ids::DispatcherId,
    registry::Registry,
    store::{
        PgPool,
        files::FileQuota,
        ledger::{Accepting, Completing},
    },
    wire::token::Tokens,
};

use crate::{
    expiry::Expiry, files::room::FileRoom, meter::Meter, quota::Quota, rates::Rates,
    repeats::Repeats, replies::Replies, running::Running, waiters::Waiters,
};

/// Everything that a request may need.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) bus: Bus,
    pub(crate) replies: Replies,
    pub(crate) rates: Rates,
    pub(crate) pool: PgPool,
    pub(crate) registry: Registry,
    pub(crate) accepting: Accepting,
    pub(crate) completing: Completing,
    pub(crate) tokens: Tokens,
    pub(crate) quota: Quota,
    pub(crate) file_quota: FileQuota,
    pub(crate) file_room: FileRoom,
    pub(crate) publisher: Publisher,
    pub(crate) events: Events,
    pub(crate) waiters: Waiters,
    pub(crate) meter: Meter,
    pub(crate) running: Running,
    pub(crate) repeats: Repeats,
    pub(crate) expiry: Expiry,
    pub(crate) dispatcher: DispatcherId,
}

#[cfg(test)]
mod tests;
