//! `toolfleet tools lint`.

use std::{path::PathBuf, process::ExitCode};

use fleet::manifest::{ManifestProblem, lint};
use serde_json::{Value, json};

use super::files::{self, ManifestFile};
use crate::commands::output;

/// What `tools lint` is told.
#[derive(Debug, clap::Args)]
pub struct Lint {
    /// Manifest files, or folders of them
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Print JSON: an array with an object per file
    #[arg(long)]
    json: bool,
}

impl Lint {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let files = files::read_all(&self.paths)?;
        let found: Vec<Found> = files.iter().map(Found::new).collect();
        if self.json {
            output::print_json(&found.iter().map(Found::to_json).collect::<Value>())?;
        } else {
            for line in found.iter().flat_map(Found::lines) {
                output::print(&line)?;
            }
            output::print(&summary(&found))?;
        }
        let broken = found.iter().any(|found| !found.problems.is_empty());
        Ok(ExitCode::from(u8::from(broken)))
    }
}

/// What there is to say about a file.
struct Found {
    file: String,
    problems: Vec<ManifestProblem>,
    warnings: Vec<ManifestProblem>,
}

impl Found {
    fn new(file: &ManifestFile) -> Self {
        let (problems, warnings) = match &file.manifest {
            Ok(manifest) => (Vec::new(), lint(manifest)),
            Err(problems) => (problems.clone(), Vec::new()),
        };
        Self {
            file: file.path.display().to_string(),
            problems,
            warnings,
        }
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = files::sentences(&self.file, &self.problems);
        let warnings = self.warnings.iter().map(|warning| ManifestProblem {
            path: warning.path.clone(),
            message: format!("warning: {}", warning.message),
        });
        lines.extend(files::sentences(&self.file, &warnings.collect::<Vec<_>>()));
        lines
    }

    fn to_json(&self) -> Value {
        let list = |found: &[ManifestProblem]| -> Value {
            let item = |one: &ManifestProblem| json!({"path": one.path, "message": one.message});
            found.iter().map(item).collect()
        };
        json!({"file": self.file, "problems": list(&self.problems), "warnings": list(&self.warnings)})
    }
}

fn summary(found: &[Found]) -> String {
    let count =
        |many: usize, what: &str| format!("{many} {what}{}", if many == 1 { "" } else { "s" });
    let problems = found.iter().map(|found| found.problems.len()).sum();
    let warnings = found.iter().map(|found| found.warnings.len()).sum();
    format!(
        "{}: {}, {}",
        count(found.len(), "file"),
        count(problems, "problem"),
        count(warnings, "warning")
    )
}
