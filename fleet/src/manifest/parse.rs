//! Reads one manifest file and reports everything that is wrong with it at once.
//!
//! Three steps, each reporting all it finds: the text must be YAML, the value must fit `schemas/manifest.json`, and its fields
//! must fit together (`check`).

use std::sync::LazyLock;

use super::{advice, check, document, problem::ManifestProblem, version::Manifest};
use crate::arguments::Schema;

/// The most bytes of one manifest.
const BYTES_MAX: usize = 256 * 1024;

/// The schema of a manifest, a promise to operators.
static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let schema = serde_json::from_str(include_str!("../../../schemas/manifest.json"))
        .expect("our schema is JSON");
    Schema::compile(&schema).expect("our schema compiles")
});

/// Reads one manifest, YAML or JSON.
///
/// # Errors
///
/// Every problem found, in a stable order.
pub fn parse(text: &str) -> Result<Manifest, Vec<ManifestProblem>> {
    if text.len() > BYTES_MAX {
        let message = format!(
            "the file has {} bytes; at most {BYTES_MAX} are allowed",
            text.len()
        );
        return Err(vec![ManifestProblem::new("", message)]);
    }
    let value = document::read(text).map_err(|message| vec![ManifestProblem::new("", message)])?;
    let unfit = SCHEMA.validate(&value);
    if !unfit.is_empty() {
        let mut problems: Vec<_> = unfit
            .items()
            .iter()
            .map(|violation| {
                let message = advice::sentence(violation, &value, SCHEMA.source());
                ManifestProblem::new(violation.path.clone(), message)
            })
            .collect();
        if unfit.left_out() > 0 {
            let message = format!(
                "{} more problems are not shown; fix these first",
                unfit.left_out()
            );
            problems.push(ManifestProblem::new("", message));
        }
        return Err(problems);
    }
    let manifest: Manifest = serde_json::from_value(value)
        .map_err(|error| vec![ManifestProblem::new("", error.to_string())])?;
    let problems = check::check(&manifest);
    if problems.is_empty() {
        Ok(manifest)
    } else {
        Err(problems)
    }
}

#[cfg(test)]
mod tests;
