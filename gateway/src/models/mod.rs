//! Models for the vendors' own packages: a request of a vendor's API, whose `model` names a chat tool, is a call of that tool, and
//! its answer is the vendor's reply and nothing around it.
//!
//! - `protocol` is which path speaks whose requests; `request` takes a body apart;
//! - `ask` makes the call and waits for its end, `reply` is what the vendor's client gets of it, `kept` reads a reply that callers of the
//!   contract get a part of;
//! - `streamed` answers with a stream: `chunks` is what of the call's events goes to its client, `seen` what of them is looked at,
//!   `smallest` a reply as the smallest stream, whose events `whole` makes, `sse` how either is written;
//! - `error` is what goes wrong in the vendor's words, by the table in `fault`.

pub(crate) mod protocol;

pub(crate) mod request;

pub(crate) mod ask;
pub(crate) mod kept;
pub(crate) mod reply;

mod chunks;
mod seen;
pub(crate) mod smallest;
mod sse;
pub(crate) mod streamed;
mod whole;

pub(crate) mod error;
mod fault;
