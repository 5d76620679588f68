//! `toolfleet tools show`.

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::{Context, bail};
use clap::ValueEnum;
use fleet::{
    config::StoreArgs,
    definitions::{Format, definition, strict_definition},
    ids::ToolName,
    manifest::Manifest,
};
use fleet_history::{
    instant,
    timeouts::known_timeout,
    tools::{ToolVersion, tool_version},
};
use serde_json::value::{RawValue, to_raw_value};

use super::timeout;
use crate::commands::{connect, output};

/// What `tools show` is told.
#[derive(Debug, clap::Args)]
pub struct ShowTool {
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
    /// How long its attempts may take, and what the fleet has learned of that
    #[arg(long, conflicts_with_all = ["format", "strict"])]
    timeout: bool,
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

/// A stored manifest with its omitted fields, which have their defaults.
///
/// Fields that are there keep their tokens. A manifest that another version of this program applied stays as it is.
fn with_defaults(stored: &str) -> anyhow::Result<String> {
    let Ok(manifest) = serde_json::from_str::<Manifest>(stored) else {
        return Ok(stored.to_owned());
    };
    let mut fields: BTreeMap<String, Box<RawValue>> =
        serde_json::from_str(stored).context("read a manifest")?;
    let defaults = [
        ("coercion", to_raw_value(manifest.coercion.as_str())),
        ("key", to_raw_value(manifest.key_policy().as_str())),
        ("losses", to_raw_value(&manifest.losses)),
        ("repeat_cap", to_raw_value(&manifest.repeat_cap)),
    ];
    for (field, value) in defaults {
        let value = value.context("write a default")?;
        fields.entry(field.to_owned()).or_insert(value);
    }
    serde_json::to_string(&fields).context("write a manifest")
}

/// Warns that the version is not offered, which the manifest does not say.
fn warn_of_retirement(tool: &ToolName, found: &ToolVersion) {
    if let (Some(at), Some(by), Some(note)) =
        (found.retired_at, &found.retired_by, &found.retired_note)
    {
        let (version, at) = (found.version, instant(at));
        output::warn(&format!(
            "{tool} version {version} is retired, by {by} at {at}: {note}"
        ));
    }
}

impl ShowTool {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        if self.strict && self.format != Shape::Openai {
            bail!("--strict is for --format openai alone");
        }
        let pool = connect::reader(&self.store).await?;
        let found = tool_version(&pool, &self.tool, self.tool_version).await?;
        let Some(found) = found else {
            match self.tool_version {
                Some(version) => bail!("tool {} has no version {version}", self.tool),
                None => bail!(
                    "there is no tool {}; `toolfleet tools list` says which there are",
                    self.tool
                ),
            }
        };
        warn_of_retirement(&self.tool, &found);
        let manifest = found.manifest;
        if self.timeout {
            let manifest: Manifest = serde_json::from_str(&manifest)
                .context("read a manifest that another version of this program applied")?;
            let known = known_timeout(&pool, &self.tool, manifest.version).await?;
            timeout::print(&manifest, &known, self.json)?;
            return Ok(ExitCode::SUCCESS);
        }
        let shown = match self.format.format() {
            None => with_defaults(&manifest)?,
            Some(format) => {
                let manifest: Manifest = serde_json::from_str(&manifest)
                    .context("read a manifest that another version of this program applied")?;
                self.definition(&manifest, format)
            }
        };
        output::print_text(&shown, self.json)?;
        Ok(ExitCode::SUCCESS)
    }

    fn definition(&self, manifest: &Manifest, format: Format) -> String {
        if !self.strict {
            return definition(manifest, format).to_string();
        }
        let (definition, not_strict) = strict_definition(manifest);
        if let Some(not) = not_strict {
            output::warn(&format!("{} is not strict: {}", not.name, not.reason));
        }
        definition.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_manifest_leaves_out_is_shown_as_what_it_means() {
        let stored = |effect: &str, more: &str| {
            format!(
                r#"{{"description":"d","effect":"{effect}","executor":{{"nats":{{"subject":"a"}}}},"input_schema":{{"maximum":1.50,"type":"object"}}{more},"name":"t","version":1}}"#
            )
        };
        for (effect, more, key, coercion) in [
            ("read", "", "optional", "on"),
            ("once", "", "required", "on"),
            (
                "once",
                r#","coercion":"off","key":"from_arguments""#,
                "from_arguments",
                "off",
            ),
        ] {
            let shown = with_defaults(&stored(effect, more)).unwrap();
            let value: serde_json::Value = serde_json::from_str(&shown).unwrap();
            assert_eq!(
                (&value["key"], &value["coercion"], &value["losses"]),
                (&key.into(), &coercion.into(), &Manifest::LOSSES.into())
            );
            assert!(shown.contains("1.50"), "{shown}");
        }
        assert_eq!(
            with_defaults(r#"{"of":"another release"}"#).unwrap(),
            r#"{"of":"another release"}"#
        );
    }
}
