//! The whole fleet, scenario by scenario, in the order in which one would explain it.
//!
//! Every test starts a fleet of its own, waits for facts, and ends with [`fleet_tests::invariants::hold`].

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

// In reading order.
mod life_of_a_call;

mod bad_input;
mod breakers;
mod content;
mod errors;
mod languages;
mod large_result;
mod references;

mod coercion;

mod batch;
mod brakes;
mod budgets;
mod bulk;
mod client_library;
mod client_tools;
mod clients;
mod dead_letters;
mod sensitive;

mod idempotency;
mod key_race;

mod repeats;
mod retry;
mod roles;
mod running;
mod timeouts;

mod in_doubt;
mod probe;

mod crash_points;
mod settle;

mod outages;
mod silence;
mod statements;
mod stranded;
mod stream;
mod sweep;

mod completion;
mod concurrency;
mod fairness;
mod pauses;

mod control;
mod fencing;
mod lacking;
mod mcp_looks;
mod mcp_servers;
mod model_calls;
mod model_context;
mod model_conversations;
mod model_edits;
mod model_routes;
mod models;
mod todos;

mod cache;
mod cancel;

mod events;
mod fallback;
mod files;
mod find_tools;
mod handover;
mod native;
mod own_executor;
mod own_tcp;
mod parts;

mod interceptors;
mod policies;
mod policies_by_key;
mod policies_waits;

mod drain;
mod upgrade;

mod approvals;
mod asking;
mod backpressure;
mod overload;
mod quota;
mod rate_keys;
mod rates;

mod tail;

mod registry;
mod retirement;

mod garbage;
mod malformed;
mod replies;

mod hostile;

mod clocks;
mod expiry;
mod late_commit;
mod leases;

mod pages;
mod transaction;
mod transfer;

mod prefix;
mod promotion;

mod nats;
