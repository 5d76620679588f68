//! What might be meant otherwise: how a manifest can be clearer to a model. Nothing here refuses one.
//!
//! What is refused for another reason is looked at as far as it can be read, so that an author sees everything at once.
//! `docs/lint.md` lists the rules.

mod linted;
mod warnings;

mod keys;
mod keyword;
mod names;
mod schema;
mod tool;
mod values;

use self::{linted::Linted, warnings::Warnings};
use super::{document, problem::ManifestProblem, version::Manifest};

/// What might be meant otherwise; an operator can apply the manifest all the same. At most 50 and how many more there are.
pub fn lint(manifest: &Manifest) -> Vec<ManifestProblem> {
    all(&Linted::of(manifest))
}

/// The same of the text of a manifest that has problems, as far as it can be read. Nothing of a text that is no manifest
/// at all.
pub fn lint_text(text: &str) -> Vec<ManifestProblem> {
    let Ok(value) = document::read(text) else {
        return Vec::new();
    };
    all(&Linted::of_value(&value))
}

fn all(subject: &Linted<'_>) -> Vec<ManifestProblem> {
    let mut warnings = Warnings::default();
    tool::lint(subject, &mut warnings);
    schema::lint(subject, &mut warnings);
    warnings.bounded()
}

#[cfg(test)]
mod tests;
