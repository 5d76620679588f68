//! Fallbacks: an answer that stands in for that of a tool that cannot. `after` looks for one when an attempt has ended its call,
//! `other` asks another tool, `kept` has what no tool is asked for; `counts` has how often.

pub(crate) mod after;
pub(crate) mod counts;
pub(crate) mod kept;
mod other;
