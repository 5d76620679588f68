//! What an executor's author supplies: for each behaviour a tool, and a way to observe it.

use std::fmt;

use fleet::{call::Effect, manifest::Manifest, secrets::Secrets};
use futures_util::future::BoxFuture;
use serde_json::Value;
use worker::executors::{AttemptContext, Executor};

use crate::behaviour::Behaviour;

/// The name of the secret that the tool of [`Behaviour::VeilsSecrets`] is given.
pub const SECRET_NAME: &str = "CONFORMANCE";
/// Its value, which no outcome may contain.
pub const SECRET: &str = "conformance-secret-2f61c0d5a7";
/// What the tool of [`Behaviour::PassesOnRefusals`] says.
pub const REFUSAL: &str = "it is sold out";
/// The code that goes with it, where the tool has codes.
pub const REFUSAL_CODE: &str = "E_SOLD_OUT";
/// The `output_limit` of the tool of [`Behaviour::BoundsAnswers`].
pub const OUTPUT_LIMIT: usize = 64 * 1024;
/// The argument that carries the key of [`Behaviour::PutsTheKeyIntoAnArgument`].
pub const KEY_ARGUMENT: &str = "key";

/// What an executor's author supplies.
pub trait Rig: Send + Sync {
    /// The column's heading.
    fn name(&self) -> &str;

    /// The executor under test.
    fn executor(&self) -> &dyn Executor;

    /// A new tool that behaves as [`Behaviour::tool`] says, with this effect, ready to run.
    fn tool(&self, behaviour: Behaviour, effect: Effect) -> BoxFuture<'_, Case>;

    /// The effect classes that it runs under.
    fn effects(&self) -> &[Effect] {
        &[Effect::Read, Effect::Once]
    }

    /// Called before every run, with the context that it will get. Where the executor ends the call together with the tool's
    /// effect, a call with these ids must exist.
    fn claim<'a>(&'a self, _context: &'a AttemptContext) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// The tool's own value in a result, without what the executor puts around it.
    fn answer(&self, result: Value) -> Value {
        result
    }

    /// Whether a run that is stopped still answers, with proof that it had no effect: a database that says that it rolled back.
    /// Then it may be a definite failure instead of an unknown one.
    fn ends_with_proof(&self) -> bool {
        false
    }

    /// Whether the executor learns that a tool broke off. If not, the tool's time runs out.
    fn hears_of_crashes(&self) -> bool {
        true
    }
}

/// A rig's answer for a behaviour.
#[derive(Debug)]
pub enum Case {
    /// A tool.
    Tool(Box<Tool>),
    /// There can be none, for this reason.
    NotApplicable(&'static str),
}

/// A tool, its arguments, and a way to observe it.
pub struct Tool {
    /// Its manifest.
    pub manifest: Manifest,
    /// Its arguments.
    pub arguments: Value,
    /// Its secrets.
    pub secrets: Secrets,
    /// Observes it without the executor.
    pub watch: Box<dyn Watch>,
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool")
            .field("manifest", &self.manifest)
            .finish_non_exhaustive()
    }
}

/// Observes a tool by other means than the executor.
pub trait Watch: Send + Sync {
    /// How many of its runs have begun so far.
    fn begun(&self) -> BoxFuture<'_, usize>;

    /// Whether none of them runs any more, nor anything that they started.
    fn at_rest(&self) -> BoxFuture<'_, bool>;
}
