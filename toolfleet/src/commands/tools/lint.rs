//! `toolfleet tools lint`.

use std::{path::PathBuf, process::ExitCode};

use fleet::{
    config::EgressArgs,
    ids::Prefix,
    manifest::{ManifestProblem, McpServer, lint, lint_text},
};
use serde_json::{Value, json};

use super::{
    files::{self, ManifestFile, ManifestFiles},
    servers,
};
use crate::commands::output;

/// The rules, for `--help`.
const RULES: &str = "\
Problems are what `tools apply` refuses. Warnings, at most 50 for each file:
  the tool      a vague name; a short description, one that repeats the name, or one of more than 1,024 characters;
                a union at the top; a probe without not_applied_when; key: from_arguments of a read,
                or of a write with a default
  a property    no description, or one that hardly says more than the name; no type; required and possibly empty;
                required with a default; required and not declared
  its name      a word in which models wrap arguments; anything but letters, digits and _; like a sibling but for
                case or separators; camelCase beside snake_case
  its values    an object that may hold anything; an array without items; a format or pattern without an example;
                enum values of another type, or equal but for case or space, or such as True and False
  its server    a tool of an MCP server that is among the files, and of another queue (mcp_queue_differs)
  of a write    an object at any level without additionalProperties: false; a number without bounds; an array without
                maxItems
docs/lint.md has the reasons, and what to write instead.";

/// What `tools lint` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = RULES)]
pub struct Lint {
    /// Manifest files, or folders of them
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// The first token of the fleet's subjects, on which no tool may speak
    #[arg(long, env = "TOOLFLEET_PREFIX", default_value = "toolfleet")]
    prefix: Prefix,
    #[command(flatten)]
    egress: EgressArgs,
    /// Print JSON: an array with an object per file
    #[arg(long)]
    json: bool,
}

impl Lint {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let ManifestFiles {
            mut tools,
            mut servers,
        } = files::read_all(&self.paths)?;
        let egress = self.egress.egress();
        files::refuse_own_names(&mut tools);
        files::refuse_own_subjects(&mut tools, &self.prefix);
        files::refuse_forbidden_addresses(&mut tools, &egress);
        files::refuse_forbidden_servers(&mut servers, &egress);
        let found = tools.iter().map(|file| Found::new(file, &servers));
        let found: Vec<Found> = found.chain(servers.iter().map(Found::of_server)).collect();
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

/// The findings about a file.
struct Found {
    file: String,
    problems: Vec<ManifestProblem>,
    warnings: Vec<ManifestProblem>,
}

impl Found {
    fn new(file: &ManifestFile, servers: &[ManifestFile<McpServer>]) -> Self {
        let (problems, warnings) = match &file.manifest {
            Ok(manifest) => {
                let mut warnings = lint(manifest);
                warnings.extend(servers::elsewhere(manifest, servers));
                (Vec::new(), warnings)
            }
            Err(problems) => {
                // An unreadable file is one of the problems.
                let text = files::text(&file.path).unwrap_or_default();
                (problems.clone(), lint_text(&text))
            }
        };
        Self {
            file: file.path.display().to_string(),
            problems,
            warnings,
        }
    }

    /// A server is not shown to models, so there is nothing to warn of.
    fn of_server(file: &ManifestFile<McpServer>) -> Self {
        Self {
            file: file.path.display().to_string(),
            problems: file.manifest.as_ref().err().cloned().unwrap_or_default(),
            warnings: Vec::new(),
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
