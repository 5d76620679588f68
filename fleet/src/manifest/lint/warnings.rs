//! A bounded list of warnings.

use std::mem;

use crate::manifest::problem::ManifestProblem;

/// The most warnings about one manifest.
pub(super) const WARNINGS_MAX: usize = 50;

/// Warnings in the order in which they were found.
#[derive(Default)]
pub(super) struct Warnings {
    found: Vec<ManifestProblem>,
    left_out: usize,
    /// Places of required texts that may be empty. They are reported together, for many alike would bury the rest.
    pub(super) may_be_empty: Vec<String>,
}

impl Warnings {
    pub(super) fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        if self.found.len() < WARNINGS_MAX {
            self.found.push(ManifestProblem::new(path, message));
        } else {
            self.left_out += 1;
        }
    }

    pub(super) fn bounded(mut self) -> Vec<ManifestProblem> {
        if let [first, others @ ..] = &mem::take(&mut self.may_be_empty)[..] {
            let others = match others.len() {
                0 => String::new(),
                1 => format!(", and so is {}", others[0]),
                more => format!(", and so are {} and {} more", others[0], more - 1),
            };
            self.add(
                first,
                format!("the property is required but may be empty{others}; add minLength: 1 where it has to say something"),
            );
        }
        if self.left_out > 0 {
            let message = format!("and {} more; change these first", self.left_out);
            self.found.push(ManifestProblem::new("", message));
        }
        self.found
    }
}
