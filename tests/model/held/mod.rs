//! What waits, and what it waits for: held calls, permits, places, over several calls and dispatchers.
//!
//! The other model looks at all that one call can meet. Here attempts are simpler, and calls stand beside each other: they
//! share the room in the stream, the places of their tool, and the dispatchers that release them.
//!
//! Read `state`, `actions`, `dispatcher`, `worker`, `ledger`, `properties`; `places` is compared with SQL by the ledger's tests.

mod actions;
mod canonical;
mod dispatcher;
mod ledger;
mod model;
mod mutants;
mod places;
mod properties;
mod report;
mod rules;
mod state;
mod worker;
mod worlds;
