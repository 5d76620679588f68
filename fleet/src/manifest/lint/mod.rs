//! Warnings: how a manifest can be clearer to a model. A warning refuses nothing.
//!
//! A manifest that is refused is linted too, as far as it can be read, so that its author sees everything at once.
//! `docs/lint.md` lists the rules.

mod linted;
mod warnings;

mod approval;
mod hidden;
mod keys;
mod keyword;
mod names;
mod sandbox;
mod schema;
mod tool;
mod values;

use self::{linted::Linted, warnings::Warnings};
use super::{document, problem::ManifestProblem, version::Manifest};

/// The warnings about a manifest; an operator can apply it all the same. At most 50, and the number of further ones.
pub fn lint(manifest: &Manifest) -> Vec<ManifestProblem> {
    all(&Linted::of(manifest))
}

/// The warnings about the text of a manifest with problems, as far as it can be read. None for a text that is no manifest at
/// all.
pub fn lint_text(text: &str) -> Vec<ManifestProblem> {
    let Ok(value) = document::read(text) else {
        return Vec::new();
    };
    all(&Linted::of_value(&value))
}

fn all(subject: &Linted<'_>) -> Vec<ManifestProblem> {
    let mut warnings = Warnings::default();
    tool::lint(subject, &mut warnings);
    approval::lint(subject, &mut warnings);
    sandbox::lint(subject, &mut warnings);
    schema::lint(subject, &mut warnings);
    hidden::lint(subject, &mut warnings);
    warnings.bounded()
}

#[cfg(test)]
mod tests;
