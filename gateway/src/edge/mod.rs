//! The edge: connections, who may open them, and which of their requests are looked at.
//!
//! `listener` takes connections, `stall` ends those whose other end takes nothing, `unread` bounds what waits for that, `peers`
//! counts them by address and by token, `revoked` ends those of tokens that are over, `hosts` says which names and pages may ask,
//! `guard` asks all of that of every request before its body is read.

pub(crate) mod hosts;

pub(crate) mod peers;

pub(crate) mod guard;
pub(crate) mod listener;
pub(crate) mod revoked;
mod stall;
pub(crate) mod unread;
