//! A client of a fleet: it sends requests over NATS and reads the answers, as a program in any language would.
//!
//! It uses only the promised subjects, headers and envelopes (`fleet::wire` writes them) and knows neither dispatcher nor
//! worker. The command line, the bench, the tests and every other program at the edge of a fleet use it.
//!
//! ```text
//! options     the options of a call, as headers
//! question    one request, and how long its answer may take
//! answer      one answer: its bytes, and their fields
//! error       the reasons for a missing answer
//! inbox       one subscription for the answers to all requests of a client
//! waiting     the requests that wait for an answer
//! client      sends a question
//! calls       submit, get, wait, cancel, output, settle, tools: an endpoint each
//! files       files beside calls: begun, sent in chunks, read
//! batch       many calls in one request
//! rounds      a batch sent until each of its calls has an answer
//! follow      the events of a session
//! ```

pub mod options;
pub mod question;

pub mod answer;

pub mod error;

pub mod inbox;

mod waiting;

pub mod client;

pub mod calls;

pub mod files;

pub mod batch;

pub mod rounds;

pub mod follow;

pub use self::{
    answer::{Answer, Head},
    client::FleetClient,
    error::AskError,
    options::Options,
    question::Question,
};
