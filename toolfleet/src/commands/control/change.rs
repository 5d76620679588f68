//! What every change of a mode is told: who, why, for how long; and how its answer is shown.

use std::{process::ExitCode, time::Duration};

use anyhow::bail;
use fleet::{
    config::{BusArgs, StoreArgs},
    ids::{Label, ToolName},
    manifest::parse_duration,
    store::controls::{self, ControlKind, ControlScope, ControlSet, NewControl},
};
use fleet_history::{Row, controls::ListedControl, instant, tools::tool_version};
use serde_json::{Value, json, value::RawValue};

use super::{answered, scope};
use crate::commands::{actor::user_at_host, connect, output, plain::plain, tools::bell, words};

/// Which calls, who, why, and for how long.
#[derive(Debug, clap::Args)]
pub(super) struct ChangeFlags {
    /// In calls of this tool alone
    #[arg(long)]
    tool: Option<ToolName>,
    /// In calls of this tenant alone
    #[arg(long)]
    tenant: Option<Label>,
    /// How long, such as 10m or 24h, at most 720h; without it, until somebody takes it away
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    lasts: Option<Duration>,
    /// Change the control with this scope that is there, or begin its time anew if it is the same
    #[arg(long)]
    replace: bool,
    /// Why, for who asks later
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

impl ChangeFlags {
    /// Sets a control of this kind, about this subject, and says so.
    pub(super) async fn set(
        &self,
        kind: ControlKind,
        subject: Option<&str>,
        setting: &str,
    ) -> anyhow::Result<ExitCode> {
        let for_ms = |lasts: Duration| i64::try_from(lasts.as_millis()).unwrap_or(i64::MAX);
        let control = NewControl {
            kind,
            scope: ControlScope {
                tool: self.tool.as_ref().map(ToolName::as_str),
                tenant: self.tenant.as_ref().map(Label::as_str),
                subject,
                ..ControlScope::default()
            },
            setting,
            told: None,
            actor: &self.actor,
            note: &self.note,
            for_ms: self.lasts.map(for_ms),
            in_tenant: None,
        };
        let mut connection = connect::writer(&self.store.database_url).await?;
        let (word, row) = match answered(if self.replace {
            controls::replace(&mut connection, &control).await
        } else {
            controls::set(&mut connection, &control).await
        })? {
            ControlSet::Set(row) => ("set", row),
            ControlSet::Changed(row) => ("changed", row),
            ControlSet::Already(row) => ("already_set", row),
            ControlSet::Conflict(row) => {
                let there: ListedControl = Row::from(row).read()?;
                let id = there.control_id;
                bail!(
                    "control {id} has this scope already, and is another one: {} since {}, by {}: {}; say --replace to change \
                     it",
                    scope::setting(&there.scope),
                    instant(there.set_at),
                    plain(&there.actor),
                    plain(&there.note)
                )
            }
        };
        if matches!(word, "set" | "changed") {
            bell::ring(&self.bus).await;
        }
        if self.json {
            let control: Box<RawValue> = RawValue::from_string(row)?;
            output::print_json(&json!({"result": word, "control": control}))?;
        } else {
            let there: ListedControl = Row::from(row).read()?;
            let lacks = self.lacks(subject).await?;
            output::print(&format!("{}{lacks}", sentence(&there, word)))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// That the tool has no such brake now; nothing where it has, or no tool is named.
    async fn lacks(&self, subject: Option<&str>) -> anyhow::Result<String> {
        let (Some(tool), Some(brake)) = (&self.tool, subject) else {
            return Ok(String::new());
        };
        let place = match brake {
            "breaker" => "/breaker",
            "rate_limit" => "/rate_limit",
            "retry_budget" => "/retry/budget",
            "learned_timeout" => "/timeout/learned",
            "cache" => "/cache",
            "fallback" => "/fallback",
            "large_result" => "/large_result",
            "delegation" => "/delegates",
            "tool_selection" => "/tool_selection",
            "todo" => "/todo",
            "context" => "/context",
            _other => return Ok(String::new()),
        };
        let pool = connect::reader(&self.store).await?;
        let newest = tool_version(&pool, tool, None).await?;
        let manifest: Option<Value> = newest
            .map(|newest| serde_json::from_str(&newest.manifest))
            .transpose()?;
        let has = manifest.is_none_or(|manifest| manifest.pointer(place).is_some());
        Ok(if has {
            String::new()
        } else {
            format!("; the newest version of {tool} has no {brake}, so it changes nothing now")
        })
    }
}

fn sentence(control: &ListedControl, word: &str) -> String {
    let (id, what) = (control.control_id, scope::whole(&control.scope));
    let until = control.expires_at.map_or_else(
        || format!("until `toolfleet control unset {id} --note WHY`"),
        |until| format!("until {}", instant(until)),
    );
    let had = match word {
        "set" => "is set",
        "changed" => "is changed",
        _already => "was set before",
    };
    let anew = scope::anew(control, word);
    format!(
        "control {id} {had}: {what}, {until}{anew}; calls that come to a worker within seconds heed it, and those \
         under way end as they began"
    )
}
