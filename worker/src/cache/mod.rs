//! Caches of tools: a call at the gate is answered by an equal one, follows it, or fetches the answer (`pass`); `counts` has how often.

pub(crate) mod counts;
pub(crate) mod pass;
