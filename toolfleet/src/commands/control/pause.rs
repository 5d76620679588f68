//! `toolfleet control pause`.

use std::{process::ExitCode, time::Duration};

use anyhow::bail;
use fleet::{
    config::{BusArgs, StoreArgs},
    manifest::parse_duration,
    store::controls::{self, ControlKind, ControlSet, NewControl},
};
use fleet_history::{Row, controls::ListedControl, instant, tools::client_tools};
use serde_json::{json, value::RawValue};

use super::{
    answered,
    scope::{self, Refusing, ScopeFlags, anew},
};
use crate::commands::{actor::user_at_host, connect, output, plain::plain, tools::bell, words};

/// What `control pause` is told.
#[derive(Debug, clap::Args)]
pub struct PauseCalls {
    #[command(flatten)]
    scope: ScopeFlags,
    /// Refuse new calls with `tool_paused`; without it they are accepted and wait, except those of client tools
    #[arg(long)]
    refuse: bool,
    /// What the callers of refused calls are told, models among them; at most 200 characters
    #[arg(long, value_name = "TEXT", requires = "refuse")]
    tell: Option<String>,
    /// How long, such as 10m or 24h, at most 720h; without it, until somebody resumes it
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    lasts: Option<Duration>,
    /// Change the pause with this scope that is there, or begin its time anew if it is the same: what waits for it waits on
    #[arg(long)]
    replace: bool,
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
    /// Print JSON: an object with the result, the control, and how many queued calls it covers
    #[arg(long)]
    json: bool,
}

impl PauseCalls {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let mut connection = connect::writer(&self.store.database_url).await?;
        let for_ms = |lasts: Duration| i64::try_from(lasts.as_millis()).unwrap_or(i64::MAX);
        let control = NewControl {
            kind: ControlKind::Pause,
            scope: self.scope.scope(),
            setting: if self.refuse {
                "\"refuse\""
            } else {
                "\"wait\""
            },
            told: self.tell.as_deref(),
            actor: &self.actor,
            note: &self.note,
            for_ms: self.lasts.map(for_ms),
            in_tenant: None,
        };
        let set = answered(if self.replace {
            controls::replace(&mut connection, &control).await
        } else {
            controls::set(&mut connection, &control).await
        })?;
        let (word, row) = match set {
            ControlSet::Set(row) => ("set", row),
            ControlSet::Changed(row) => ("changed", row),
            ControlSet::Already(row) => ("already_set", row),
            ControlSet::Conflict(row) => {
                let there: ListedControl = Row::from(row).read()?;
                bail!(
                    "pause {} has this scope already, and is another one: {} {}, since {}, by {}: {}; say --replace to change it, and \
                     what waits for it waits on",
                    there.control_id,
                    scope::setting(&there.scope),
                    until(&there),
                    instant(there.set_at),
                    plain(&there.actor),
                    plain(&there.note)
                )
            }
        };
        if matches!(word, "set" | "changed") {
            bell::ring(&self.bus).await;
        }
        let covers = controls::covered(&mut connection, &control.scope).await?;
        if self.json {
            let control: Box<RawValue> = RawValue::from_string(row)?;
            output::print_json(&json!({"result": word, "control": control, "covers": covers}))?;
        } else {
            let there: ListedControl = Row::from(row).read()?;
            let clients = client_tools(&connect::reader(&self.store).await?).await?;
            let refusing = scope::refusing(&there.scope, &clients);
            output::print(&sentence(&there, word, covers, refusing))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn sentence(control: &ListedControl, word: &str, covers: i64, refusing: Refusing) -> String {
    let id = control.control_id;
    let about = plain(&scope::told(&control.scope));
    let until = until(control);
    let new = match (scope::setting(&control.scope).as_str(), refusing) {
        ("refuse", _) => "new calls are refused",
        (_waiting, Refusing::None) => "new calls wait",
        (_waiting, Refusing::Some) => {
            "new calls wait, those of client tools are refused as tool_paused"
        }
        (_waiting, Refusing::All) => {
            "new calls are refused as tool_paused, for the programs of its callers run them"
        }
    };
    let had = match word {
        "set" => "is set",
        "changed" => "is changed",
        _already => "was set before",
    };
    let covered = match covers {
        0 => "no queued call is covered now".to_owned(),
        1 => "the queued call that it covers waits".to_owned(),
        more => format!("the {more} queued calls that it covers wait"),
    };
    let anew = anew(control, word);
    format!(
        "pause {id} {had}: {about}, {until}{anew}; within seconds {new}, and {covered}; what runs goes on"
    )
}

fn until(control: &ListedControl) -> String {
    control.expires_at.map_or_else(
        || {
            format!(
                "until `toolfleet control resume {} --note …`",
                control.control_id
            )
        },
        |until| format!("until {}", instant(until)),
    )
}
