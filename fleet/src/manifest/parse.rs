//! Reads one manifest file and says everything that is wrong with it at once.

use super::Manifest;

/// One thing that is wrong with a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestProblem {
    /// JSON pointer to the field; empty for the whole file.
    pub path: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

/// Reads one manifest, YAML or JSON.
///
/// # Errors
///
/// Every problem found, in a stable order.
pub fn parse(_text: &str) -> Result<Manifest, Vec<ManifestProblem>> {
    unimplemented!()
}
