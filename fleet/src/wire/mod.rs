//! Everything that leaves the process. No other place writes a subject, a header, an envelope or a code.

pub mod cancel;
pub mod chunks;
pub mod code;
pub mod encoded;
pub mod envelope;
pub mod error;
pub mod event;
pub mod file_url;
pub mod headers;
pub mod part;
pub mod pointer;
pub mod proof;
pub mod subjects;
pub mod token;
pub mod trace;
pub mod words;

pub use ::arguments::message;
