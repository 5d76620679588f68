//! Load against a fleet, the results, and whether every effect happened exactly once: the library of `toolfleet bench`. The
//! command has the options, the servers and the tables for people.
//!
//! ```text
//! plan        what is to be measured
//! workload    one thing that is measured, and its requests
//! tools       the tools that are called
//! serve       a worker that has them
//! effects     the ledger of what really happened, appended by that worker
//! answer      what an answer says
//! figures     rates, percentiles, ratios
//! tally       what callers were told against what happened
//! load        sends requests and reads answers
//! ledger      what is asked of Postgres
//! nats        what is asked of NATS
//! processes   CPU and memory of each process
//! floor       the bare program beside it
//! progress    how far it is
//! report      what was measured
//! measure     one workload, from its first request to the comparison
//! run         all of them
//! picture     curves and bars
//! ```

mod plan;

mod workload;

mod tools;

mod serve;

mod effects;

mod answer;

mod figures;

mod tally;

mod load;

mod ledger;

mod nats;

pub mod processes;

pub mod floor;

mod progress;

pub mod report;

mod measure;

mod run;

mod picture;

pub use self::{
    ledger::Ledger,
    picture::svg,
    plan::Plan,
    progress::Progress,
    run::{Site, apply, measure},
    serve::BenchWorker,
    tally::Verdict,
    tools::QUEUE,
    workload::Mode,
};
