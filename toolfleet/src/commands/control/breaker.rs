//! `toolfleet control breaker`.

use std::{process::ExitCode, time::Duration};

use anyhow::bail;
use clap::ValueEnum;
use fleet::{
    config::{BusArgs, StoreArgs},
    ids::ToolName,
    manifest::parse_duration,
    store::controls::{
        self, ControlKind, ControlScope, ControlSet, NewControl, Unset, WhichControl,
    },
};
use fleet_history::{Row, controls::ListedControl, instant, tools::tool_version};
use serde_json::{Value, json, value::RawValue};

use super::{answered, scope};
use crate::commands::{actor::user_at_host, connect, output, tools::bell, words};

/// What `control breaker` is told.
#[derive(Debug, clap::Args)]
pub struct ForceBreaker {
    /// The tool; its newest version must have a breaker
    tool: ToolName,
    /// What its breaker does, whatever is counted
    position: Position,
    /// How long, such as 10m or 24h, at most 720h; without it, until somebody says `auto`
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    lasts: Option<Duration>,
    /// Why, for who asks later; callers are never told
    #[arg(long, value_name = "TEXT", value_parser = words::note)]
    note: String,
    /// Who says so, as the log will say; user@host without it
    #[arg(long, value_name = "NAME", default_value_t = user_at_host(), hide_default_value = true, value_parser = words::name)]
    actor: String,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    bus: BusArgs,
    /// Print JSON: an object with the result and the control
    #[arg(long)]
    json: bool,
}

/// Where a breaker is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Position {
    /// Nothing is sent to the tool's targets
    Open,
    /// Everything is sent to them
    Closed,
    /// What is counted decides again
    Auto,
}

impl ForceBreaker {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        if self.position == Position::Auto && self.lasts.is_some() {
            bail!("--for is for open and closed: leave it out, for auto lasts");
        }
        let scope = ControlScope {
            tool: Some(self.tool.as_str()),
            ..ControlScope::default()
        };
        let (word, row, said) = match self.position {
            Position::Open => self.set(scope, "\"open\"").await?,
            Position::Closed => self.set(scope, "\"closed\"").await?,
            Position::Auto => self.unset(scope).await?,
        };
        if matches!(word, "set" | "changed" | "unset") {
            bell::ring(&self.bus).await;
        }
        if self.json {
            let control: Box<RawValue> = RawValue::from_string(row)?;
            output::print_json(&json!({"result": word, "control": control}))?;
        } else {
            output::print(&said)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn set(
        &self,
        scope: ControlScope<'_>,
        setting: &str,
    ) -> anyhow::Result<(&'static str, String, String)> {
        let mut connection = connect::writer(&self.store.database_url).await?;
        let for_ms = |lasts: Duration| i64::try_from(lasts.as_millis()).unwrap_or(i64::MAX);
        let control = NewControl {
            kind: ControlKind::Breaker,
            scope,
            setting,
            told: None,
            actor: &self.actor,
            note: &self.note,
            for_ms: self.lasts.map(for_ms),
            in_tenant: None,
        };
        let (word, row) = match answered(controls::replace(&mut connection, &control).await)? {
            ControlSet::Set(row) => ("set", row),
            ControlSet::Changed(row) => ("changed", row),
            ControlSet::Already(row) => ("already_set", row),
            ControlSet::Conflict(_row) => bail!("somebody has just forced it otherwise; ask again"),
        };
        let there: ListedControl = Row::from(row.clone()).read()?;
        let until = there.expires_at.map_or_else(
            || {
                format!(
                    "until `toolfleet control breaker {} auto --note WHY`",
                    self.tool
                )
            },
            |until| format!("until {}", instant(until)),
        );
        let does = match self.position {
            Position::Open => "nothing is sent to its targets",
            Position::Closed | Position::Auto => "everything is sent to its targets",
        };
        let said = format!(
            "the breaker of {} is forced {} (control {}), {until}: within seconds {does}",
            self.tool,
            scope::setting(&there.scope),
            there.control_id
        );
        Ok((word, row, said))
    }

    /// Refuses a tool that is not there, or whose newest version has no breaker.
    async fn has_one(&self) -> anyhow::Result<()> {
        let tool = &self.tool;
        let pool = connect::reader(&self.store).await?;
        let Some(newest) = tool_version(&pool, tool, None).await? else {
            bail!("there is no tool {tool}; `toolfleet tools list` says which there are")
        };
        let manifest: Value = serde_json::from_str(&newest.manifest)?;
        if manifest.get("breaker").is_none() {
            bail!("the tool {tool} has no breaker: its newest version says nothing of one")
        }
        Ok(())
    }

    async fn unset(
        &self,
        scope: ControlScope<'_>,
    ) -> anyhow::Result<(&'static str, String, String)> {
        let mut connection = connect::writer(&self.store.database_url).await?;
        let unset = Unset {
            which: WhichControl::Scope(ControlKind::Breaker, scope),
            actor: &self.actor,
            note: &self.note,
            in_tenant: None,
        };
        let tool = &self.tool;
        Ok(
            match answered(controls::unset(&mut connection, &unset).await)? {
                Some(row) => {
                    let said = format!(
                        "the breaker of {tool} is no longer forced: what is counted decides again"
                    );
                    ("unset", row, said)
                }
                None => {
                    self.has_one().await?;
                    let said = format!("the breaker of {tool} was not forced");
                    ("not_found", "null".to_owned(), said)
                }
            },
        )
    }
}
