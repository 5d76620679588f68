//! Breakers: `pass` is the gate's question whether a target may be tried, `desk` where that is asked, `permit` the answer that goes
//! with the call, `counts` what this worker has counted of attempts, and `reporter` tells it to the ledger.

pub(crate) mod counts;
pub(crate) mod desk;
pub(crate) mod pass;
pub(crate) mod permit;
pub(crate) mod reporter;
