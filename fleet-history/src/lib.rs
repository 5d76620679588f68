//! The history of a fleet, read from its documented views (docs/history.md) as any user of the history reads it.
//!
//! It reads and judges, and knows neither dispatcher nor worker. A role that may only read the views is enough. Rows come as
//! the JSON that Postgres makes of them ([`Row`]); callers that look into a row decode it.
//!
//! ```text
//! row        a row of a view, as JSON and as a type
//! instant    a moment in the form that people read
//! calls      the filter for calls, and the list of them
//! story      everything about one call: its row, its attempts, its moves
//! original   the request of a call, to repeat it
//! doubts     the calls in doubt
//! timeouts   what the fleet has learned of a tool's timeout
//! tools      the versions of tools
//! slots      the calls that have a place of a limited tool
//! workers    the workers, alive or gone
//! controls   the controls that hold, and every change of one
//! interceptors  those of workers' programs: who has them, and what they did
//! news       moves after a given one, call by call
//! explain    the one reason why a call is not running, or how it ended
//! ```

mod row;

mod instant;

pub mod calls;

pub mod story;

pub mod original;

pub mod doubts;

pub mod timeouts;

pub mod tools;

pub mod slots;

pub mod workers;

pub mod controls;

pub mod interceptors;

pub mod news;

pub mod explain;

pub use self::{instant::instant, row::Row};
