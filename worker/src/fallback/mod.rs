//! Fallbacks: an answer that stands in for that of a tool that cannot. `after` looks for one when an attempt has ended its call,
//! `other` asks another tool, `kept` has what no tool is asked for.

pub(crate) mod after;
pub(crate) mod kept;
mod other;

use std::time::Duration;

use fleet::store::sweep::OVERDUE_AFTER_MS;

/// So long after the attempt's own time everything ends that is done to find what stands in. Three seconds later the sweep would take
/// the attempt for lost.
const OVERTIME_MAX: Duration =
    Duration::from_millis(OVERDUE_AFTER_MS.unsigned_abs().saturating_sub(3_000));
