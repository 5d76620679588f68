//! The history of a fleet, read from its documented views (docs/history.md) as any user of the history reads it.
//!
//! It reads and judges, and knows neither dispatcher nor worker. A role that may only read the views is enough. Rows come as
//! the JSON that Postgres makes of them ([`Row`]); callers that look into a row decode it.
//!
//! ```text
//! row        a row of a view, as JSON and as a type
//! instant    a moment in the form that people read
//! last_code  what their last attempts came to, as a person looks for it
//! filter     which calls a person means
//! calls      the list of them
//! look       those that no index leads to, window by window
//! overview   how many there are, and what became of the newest
//! bulk       what many calls are, page by page, and which of them a bulk operation leaves alone
//! dead       the dead letters, in groups of one cause
//! story      everything about one call: its row, its attempts, its moves
//! marks      what was done about a call after its end, and for which one it was made
//! attempts_max  how many attempts a call has at most
//! original   the request of a call, to repeat it
//! inbox      which of the calls that need somebody are listed
//! doubts     the calls in doubt
//! waiting    the calls that wait for somebody's yes
//! approvals  what was decided about such a call
//! timeouts   what the fleet has learned of a tool's timeout
//! models     what models were asked and what that has cost
//! tools      the versions of tools
//! slots      the calls that have a place of a limited tool
//! workers    the workers, alive or gone
//! controls   the controls that hold, and every change of one
//! tokens     the tokens of clients over HTTP, without what proves them
//! interceptors  those of workers' programs: who has them, and what they did
//! pages      controls, interceptors, breakers and limits page by page, as all may be seen or as one tenant sees them
//! news       moves after a given one, call by call
//! explain    the one reason why a call is not running, or how it ended
//! ```

mod row;

mod instant;

pub mod last_code;

pub mod filter;

mod attempts_max;

pub mod calls;

pub mod look;

pub mod overview;

pub mod bulk;

pub mod dead;

pub mod story;

pub mod marks;

pub mod original;

pub mod inbox;

pub mod doubts;

pub mod waiting;

pub mod approvals;

pub mod timeouts;

pub mod models;

pub mod tools;

pub mod mcp_servers;

pub mod slots;

pub mod workers;

pub mod controls;

pub mod tokens;

pub mod interceptors;

pub mod pages;

pub mod news;

pub mod explain;

pub use self::{instant::instant, row::Row};
