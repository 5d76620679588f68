//! What the suite needs of an executor's author: for each behaviour a tool, and a way to see what it does.

use std::fmt;

use fleet::{call::Effect, manifest::Manifest, secrets::Secrets};
use futures_util::future::BoxFuture;
use serde_json::Value;
use worker::executors::{AttemptContext, Executor};

use crate::behaviour::Behaviour;

/// The name of the secret that the tool of [`Behaviour::VeilsSecrets`] is given.
pub const SECRET_NAME: &str = "CONFORMANCE";
/// Its value: what no outcome may show.
pub const SECRET: &str = "conformance-secret-2f61c0d5a7";
/// What the tool of [`Behaviour::PassesOnRefusals`] says.
pub const REFUSAL: &str = "it is sold out";
/// The code that goes with it, where the tool can say one.
pub const REFUSAL_CODE: &str = "E_SOLD_OUT";
/// The `output_limit` of the tool of [`Behaviour::BoundsAnswers`].
pub const OUTPUT_LIMIT: usize = 64 * 1024;
/// The argument that carries the key of [`Behaviour::PutsTheKeyIntoAnArgument`].
pub const KEY_ARGUMENT: &str = "key";

/// What an executor's author supplies.
pub trait Rig: Send + Sync {
    /// The column's heading.
    fn name(&self) -> &str;

    /// What is put to the test.
    fn executor(&self) -> &dyn Executor;

    /// A fresh tool that behaves as [`Behaviour::tool`] says, with this effect, ready to be run.
    fn tool(&self, behaviour: Behaviour, effect: Effect) -> BoxFuture<'_, Case>;

    /// The effect classes that it runs under.
    fn effects(&self) -> &[Effect] {
        &[Effect::Read, Effect::Once]
    }

    /// Called before every run, with what it will be told: where the executor ends the call together with the tool's effect,
    /// there has to be one that runs under these ids.
    fn claim<'a>(&'a self, _context: &'a AttemptContext) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// The tool's own value in a result; where the executor puts something around it, the rig takes that off.
    fn answer(&self, result: Value) -> Value {
        result
    }

    /// Whether a run that is ended before its time still answers, with proof that it had no effect: a database that says
    /// that it rolled back. Then it may be a definite failure instead of an unknown one.
    fn ends_with_proof(&self) -> bool {
        false
    }

    /// Whether anybody tells the executor that a tool broke off. If not, the tool's time runs out.
    fn hears_of_crashes(&self) -> bool {
        true
    }
}

/// What a rig has for a behaviour.
#[derive(Debug)]
pub enum Case {
    /// A tool.
    Tool(Box<Tool>),
    /// There cannot be one, and this is why.
    NotApplicable(&'static str),
}

/// A tool, what to call it with, and how to see what it does.
pub struct Tool {
    /// What would be applied.
    pub manifest: Manifest,
    /// What it is called with.
    pub arguments: Value,
    /// Where its secrets are.
    pub secrets: Secrets,
    /// What can be seen of it without the executor.
    pub watch: Box<dyn Watch>,
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool")
            .field("manifest", &self.manifest)
            .finish_non_exhaustive()
    }
}

/// Sees what a tool does, by other means than the executor.
pub trait Watch: Send + Sync {
    /// How many of its runs have begun so far.
    fn begun(&self) -> BoxFuture<'_, usize>;

    /// Whether none of them is at work any more, nor anything that they started.
    fn at_rest(&self) -> BoxFuture<'_, bool>;
}
