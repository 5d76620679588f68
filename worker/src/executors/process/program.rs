//! A program that is ready to start, and the guard for it.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, sync::Arc};

use fleet::{
    fencing::WorkerLock,
    manifest::{ProcessSpec, Sandbox},
    secrets::Secrets,
};
use secrecy::SecretString;
use serde_json::Value;

use super::verdict::ExitRules;

/// How a guard is started, and which of the worker's variables every tool sees.
#[derive(Debug)]
pub(in crate::executors) struct GuardCommand {
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
    pub(super) inherited: Vec<(OsString, OsString)>,
    pub(super) lock: Arc<WorkerLock>,
}

/// A program with its secrets resolved.
pub(super) struct Program {
    pub(super) guard: Arc<GuardCommand>,
    pub(super) spec: ProcessSpec,
    /// What it may reach and use; `None`: all that the worker's user may.
    pub(super) sandbox: Option<Sandbox>,
    pub(super) env: BTreeMap<String, SecretString>,
    pub(super) arguments: Value,
    pub(super) key_argument: Option<String>,
    pub(super) output_limit: usize,
    pub(super) redact_results: bool,
    pub(super) rules: ExitRules,
}

impl Program {
    /// The secrets among its variables.
    pub(super) fn secrets(&self) -> Vec<SecretString> {
        let is_secret = |name: &String| {
            let value = self.spec.env.get(name);
            value.is_some_and(|value| value.starts_with(Secrets::SCHEME))
        };
        let secrets = self.env.iter().filter(|(name, _)| is_secret(name));
        secrets.map(|(_, secret)| secret.clone()).collect()
    }
}
