//! What every executor promises, as a suite that runs against real tools.
//!
//! The author of an executor, or of a native tool, supplies a [`Rig`]: for each [`Behaviour`] a tool that does just that, or
//! the reason why there can be none. [`exercise`] runs them all, under every effect class that the rig names, and reports which
//! promises were kept; [`table`] puts several reports side by side.
//!
//! ```
//! use conformance::{Behaviour, BoxFuture, Case, Rig};
//! use worker::{
//!     Effect,
//!     executors::{Executor, native::NativeExecutor},
//! };
//!
//! struct Nothing(NativeExecutor);
//!
//! impl Rig for Nothing {
//!     fn name(&self) -> &str {
//!         "nothing"
//!     }
//!     fn executor(&self) -> &dyn Executor {
//!         &self.0
//!     }
//!     fn tool(&self, _behaviour: Behaviour, _effect: Effect) -> BoxFuture<'_, Case> {
//!         Box::pin(async { Case::NotApplicable("it has no tools") })
//!     }
//! }
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let report = conformance::exercise(&Nothing(NativeExecutor::default())).await;
//! assert!(report.is_kept());
//! print!("{}", conformance::table(&[report]));
//! # });
//! ```
//!
//! The suite runs an executor by itself, without a ledger. The worker's own tests check that an executor's outcome is recorded
//! rightly.

mod behaviour;
mod rig;

mod report;

mod checks;
mod exercise;

pub use fleet::{call::Effect, manifest::Manifest, secrets::Secrets};
pub use futures_util::future::BoxFuture;

pub use self::{
    behaviour::Behaviour,
    checks::context,
    exercise::{exercise, exercise_one},
    report::{Cell, Report, table},
    rig::{
        Case, KEY_ARGUMENT, OUTPUT_LIMIT, REFUSAL, REFUSAL_CODE, Rig, SECRET, SECRET_NAME, Tool,
        Watch,
    },
};
