//! Label values of metrics: bounded sets, so that no input can make series without end.

use std::{
    collections::HashSet,
    sync::{Arc, PoisonError, RwLock},
};

use opentelemetry::KeyValue;

use super::fields;
use crate::ids::ToolName;

/// How many tools have a label of their own; those first seen after that share `other`.
pub const TOOLS_MAX: usize = 500;

/// How many models have a label of their own.
pub const MODELS_MAX: usize = 200;

/// A label whose value is a word of the program.
pub(super) fn word(label: &'static str, word: &'static str) -> KeyValue {
    KeyValue::new(label, word)
}

/// The names of models come from manifests, too.
#[derive(Debug, Default)]
pub(super) struct ModelLabels(KnownNames);

impl ModelLabels {
    pub(super) fn label(&self, model: &str) -> KeyValue {
        let name = self.0.admitted(model, MODELS_MAX);
        KeyValue::new(fields::GEN_AI_REQUEST_MODEL, name)
    }
}

/// Tool names come from manifests; a fleet with ever new tools must not grow its metrics without end.
#[derive(Debug, Default)]
pub(super) struct ToolLabels(KnownNames);

impl ToolLabels {
    pub(super) fn label(&self, tool: &ToolName) -> KeyValue {
        self.label_of(tool.as_str())
    }

    /// The same for a name that was read from a row.
    pub(super) fn label_of(&self, tool: &str) -> KeyValue {
        KeyValue::new(fields::TOOL, self.0.admitted(tool, TOOLS_MAX))
    }
}

/// The first names of a kind.
#[derive(Debug, Default)]
struct KnownNames(RwLock<HashSet<Arc<str>>>);

impl KnownNames {
    /// The name; `other` for one that came after so many.
    fn admitted(&self, name: &str, most: usize) -> Arc<str> {
        let known = self
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned();
        known
            .or_else(|| self.admit(name, most))
            .unwrap_or_else(|| Arc::from("other"))
    }

    fn admit(&self, name: &str, most: usize) -> Option<Arc<str>> {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= most && !names.contains(name) {
            return None;
        }
        let name: Arc<str> = Arc::from(name);
        names.insert(Arc::clone(&name));
        Some(name)
    }
}
