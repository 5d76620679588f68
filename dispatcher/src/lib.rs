//! The dispatcher: accept, validate, commit, publish, answer; and the sweep.
//!
//! The modules stand in the order in which a call meets them:
//!
//! - `service` hears NATS and makes a `request` of each message that may be answered where it asks for it (`replies`); `rates`
//!   bound what a tenant sends, `slots` the requests in hand, and share them among tenants; `endpoints` is the table of verbs,
//!   `door` the data that all of them work on;
//! - `accept` is the verb `call`: `check` checks it, and `arguments` what its tool gets, `admission` decides whether the call comes
//!   in and whether it waits (by `repeats`, which `repetition` counts, `quota`, `running` and `meter`), `commit` writes its row
//!   (`key` hashes its key, `pending` reads the ledger's reply), `publish` rings the bell, `hand_over` tells who has to run it
//!   where no worker does, `replay` answers for calls that exist already;
//! - `waiters` are the callers that wait, `expiry` knows which calls expire soon, `answer` and `refusal` are what callers get,
//!   `respond` sends it;
//! - the other verbs: `batch` brings many calls to the same door, `examine` says what it would say of arguments, `get`, `listing`,
//!   `cancel`, `settle`, `output` and `control` read a short `form`; `preview` asks another tool before somebody decides, with the
//!   arguments that `question` makes of a template, as the sweep's probes do; `news` publishes what they decide;
//! - `sweep` runs beside all of this and finds what was lost.

mod config;

// A request comes in.
mod service;

mod rates;
mod replies;
mod request;
mod slots;
mod work;

mod endpoints;

mod door;

// `call`.
mod accept;
mod arguments;
mod check;

mod admission;
mod meter;
mod quota;
mod repeats;
mod repetition;
mod running;

mod commit;
mod key;
mod pending;
mod publish;
mod replay;
mod starts;

// Callers that wait, and what they get.
mod waiters;

mod expiry;
mod hand_over;

mod answer;
mod approve;
mod refusal;
mod respond;

// The other verbs.
mod batch;

mod examine;

mod files;

mod form;
mod get;
mod listing;
mod preview;

mod cancel;
mod control;
mod output;
mod settle;

mod news;
mod question;

// Lost calls are found.
mod sweep;

// The process.
mod error;
mod gauges;
mod run;

pub use config::Config;
pub use error::RunError;
pub use quota::{BadQuotas, TenantQuotas};
pub use replies::{BadReplies, Replies};
pub use run::run;
