//! Load against a fleet, the results, and whether every effect happened exactly once: the library of `toolfleet bench`. The
//! command has the options, the servers and the tables for people.
//!
//! ```text
//! plan        the options of a run
//! workload    one kind of load, and its requests
//! tools       the tools that are called
//! serve       a worker that has these tools
//! effects     the file of effects, which that worker appends to
//! answer      reads an answer
//! figures     rates, percentiles, ratios
//! tally       compares the answers with the effects
//! way         NATS or HTTP: how a request goes out and an answer comes back
//! mcp         requests and answers in the Model Context Protocol
//! load        sends requests and reads answers
//! ledger      the questions to Postgres
//! nats        the questions to NATS
//! processes   CPU and memory of each process
//! floor       the bare program, for comparison
//! progress    the progress of a run
//! report      the results
//! measure     one workload, from its first request to the comparison
//! run         all workloads of a plan
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

mod mcp;

mod way;

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
    tools::{Brake, QUEUE},
    way::GatewayPlace,
    workload::{Mode, Via},
};
