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

/// A label whose value is a word of the program.
pub(super) fn word(label: &'static str, word: &'static str) -> KeyValue {
    KeyValue::new(label, word)
}

/// Tool names come from manifests; a fleet with ever new tools must not grow its metrics without end.
#[derive(Debug, Default)]
pub(super) struct ToolLabels(RwLock<HashSet<Arc<str>>>);

impl ToolLabels {
    pub(super) fn label(&self, tool: &ToolName) -> KeyValue {
        self.label_of(tool.as_str())
    }

    /// The same for a name that was read from a row.
    pub(super) fn label_of(&self, tool: &str) -> KeyValue {
        let known = self
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(tool)
            .cloned();
        let name = known.or_else(|| self.admit(tool));
        name.map_or_else(
            || word(fields::TOOL, "other"),
            |name| KeyValue::new(fields::TOOL, name),
        )
    }

    fn admit(&self, tool: &str) -> Option<Arc<str>> {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= TOOLS_MAX && !names.contains(tool) {
            return None;
        }
        let name: Arc<str> = Arc::from(tool);
        names.insert(Arc::clone(&name));
        Some(name)
    }
}
