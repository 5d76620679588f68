//! The product's sources as `weave` has left them.

#[allow(
    unused,
    unreachable_pub,
    missing_docs,
    reason = "only a part of each source is used here"
)]
pub(crate) mod lane {
    include!(concat!(env!("OUT_DIR"), "/lane.rs"));
}

#[allow(
    unused,
    missing_docs,
    reason = "only a part of each source is used here"
)]
pub(crate) mod waiters {
    include!(concat!(env!("OUT_DIR"), "/waiters.rs"));
}

#[allow(
    unused,
    unreachable_pub,
    missing_docs,
    reason = "only a part of each source is used here"
)]
pub(crate) mod pull {
    include!(concat!(env!("OUT_DIR"), "/pull.rs"));
}

#[allow(
    unused,
    unreachable_pub,
    missing_docs,
    reason = "only a part of each source is used here"
)]
pub(crate) mod intake {
    include!(concat!(env!("OUT_DIR"), "/intake.rs"));
}

#[allow(
    unused,
    missing_docs,
    reason = "only a part of each source is used here"
)]
pub(crate) mod slots {
    include!(concat!(env!("OUT_DIR"), "/slots.rs"));
}

#[allow(
    unused,
    unreachable_pub,
    missing_docs,
    reason = "only a part of each source is used here"
)]
pub(crate) mod counts {
    include!(concat!(env!("OUT_DIR"), "/counts.rs"));
}

#[allow(
    unused,
    unreachable_pub,
    missing_docs,
    reason = "only a part of each source is used here"
)]
pub(crate) mod reporter {
    include!(concat!(env!("OUT_DIR"), "/reporter.rs"));
}

#[allow(
    unused,
    unreachable_pub,
    missing_docs,
    reason = "only a part of each source is used here"
)]
pub(crate) mod retry_budgets {
    include!(concat!(env!("OUT_DIR"), "/retry_budgets.rs"));
}
