//! The events of a session, for those who follow it over HTTP.
//!
//! Nothing of it is the record: what a follower gets is what the stream of events keeps, and what that has lost is said, and made good from
//! the rows of the history. So any gateway can go on where another one was, by the id of the last event.
//!
//! - `place` is the id of an event; `begin` decides, from an id and the state of the stream, where a follower begins and whether
//!   something is missing;
//! - `keeper` asks NATS for the stream, and `live` reads a session's new events from it, in order, or there is an `unheard`
//!   reason why not;
//! - `log` has the last events of a session, `follow` fills it, `sessions` has one of these for each session that somebody follows;
//! - `told` is what stands in it;
//! - `gap` says what is missing, with what the rows know;
//! - `reading` is what one follower still has to get, `raw` writes it as server-sent events, `once` has what is large in
//!   memory once for all who are told it, `way` bounds what waits for one follower, `pipe` sends it and finds out that nobody
//!   takes it, `deliver` sends what a follower is told, and ends where it has to end; `places` bounds how many there are.

pub(crate) mod place;

pub(crate) mod begin;

pub(crate) mod keeper;
mod live;
pub(crate) mod unheard;

mod log;
pub(crate) mod told;

mod gap;

mod follow;
pub(crate) mod sessions;

pub(crate) mod reading;

pub(crate) mod places;
pub(crate) mod raw;

pub(crate) mod once;
pub(crate) mod way;

pub(crate) mod pipe;

pub(crate) mod deliver;
