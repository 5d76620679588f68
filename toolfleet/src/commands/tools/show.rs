//! `toolfleet tools show`.

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::ValueEnum;
use fleet::{
    config::StoreArgs,
    definitions::{Format, definitions, strict_definitions},
    ids::ToolName,
    manifest::Manifest,
};

use crate::commands::{connect, history, json, output};

/// What `tools show` is told.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// The tool's name
    tool: ToolName,
    /// The version; the current one without it
    #[arg(long = "version", value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    tool_version: Option<i32>,
    /// What to show of it
    #[arg(long, value_enum, default_value_t = Shape::Manifest)]
    format: Shape,
    /// For strict mode, with --format openai; says why where the tool cannot be strict
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON on one line
    #[arg(long)]
    json: bool,
}

/// What is shown of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shape {
    /// The whole manifest with its defaults, as it was applied
    Manifest,
    /// The definition as chat completions take it
    Openai,
    /// The definition as Anthropic messages take it
    Anthropic,
    /// The definition as MCP lists it
    Mcp,
    /// Everything a caller may know
    Full,
}

impl Shape {
    const fn format(self) -> Option<Format> {
        match self {
            Self::Manifest => None,
            Self::Openai => Some(Format::Openai),
            Self::Anthropic => Some(Format::Anthropic),
            Self::Mcp => Some(Format::Mcp),
            Self::Full => Some(Format::Full),
        }
    }
}

impl Show {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        if self.strict && self.format != Shape::Openai {
            bail!("--strict is for --format openai alone");
        }
        let pool = connect::reader(&self.store).await?;
        let Some(manifest) = history::manifest(&pool, &self.tool, self.tool_version).await? else {
            match self.tool_version {
                Some(version) => bail!("tool {} has no version {version}", self.tool),
                None => bail!(
                    "there is no tool {}; `toolfleet tools list` says which there are",
                    self.tool
                ),
            }
        };
        let shown = match self.format.format() {
            None => manifest,
            Some(format) => {
                let manifest: Manifest = serde_json::from_str(&manifest)
                    .context("read a manifest that another version of this program applied")?;
                self.definition(&manifest, format)
            }
        };
        output::print(&if self.json {
            json::compact(&shown)
        } else {
            json::pretty(&shown)
        })?;
        Ok(ExitCode::SUCCESS)
    }

    fn definition(&self, manifest: &Manifest, format: Format) -> String {
        if !self.strict {
            return definitions([manifest].into_iter(), format)[0].to_string();
        }
        let listed = strict_definitions([manifest].into_iter());
        for not in &listed.not_strict {
            output::warn(&format!("{} is not strict: {}", not.name, not.reason));
        }
        listed.tools[0].to_string()
    }
}
