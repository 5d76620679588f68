//! `toolfleet control resume`.

use std::process::ExitCode;

use anyhow::bail;
use fleet::{
    config::{BusArgs, StoreArgs},
    controls::ControlId,
    store::controls::{self, ControlKind, Unset, WhichControl},
};
use fleet_history::{
    Row,
    controls::{self as view, ListedControl},
};
use serde_json::{json, value::RawValue};

use super::{
    answered,
    scope::{self, ScopeFlags},
};
use crate::commands::{actor::user_at_host, connect, output, plain::plain, tools::bell, words};

/// What `control resume` is told.
#[derive(Debug, clap::Args)]
pub struct Resume {
    /// The pause's id, from `toolfleet control list`; without it, the flags of its scope name it
    #[arg(conflicts_with_all = ["tool", "queue", "tenant", "holds"])]
    id: Option<ControlId>,
    #[command(flatten)]
    scope: ScopeFlags,
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
    /// Print JSON: an object with the result and the control that was there
    #[arg(long)]
    json: bool,
}

impl Resume {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let which = match self.id {
            Some(id) => WhichControl::Id(id),
            None if self.scope.is_empty() => bail!(
                "which pause? Give its id (`toolfleet control list` says which there are), or --tool, --queue, --tenant of its scope"
            ),
            None => WhichControl::Scope(ControlKind::Pause, self.scope.scope()),
        };
        let mut connection = connect::writer(&self.store.database_url).await?;
        let mut others = self.controls().await?;
        if let Some(id) = self.id
            && let Some(other) = others.iter().find(|control| control.control_id == id.0)
            && other.scope.kind != ControlKind::Pause.as_str()
        {
            bail!(
                "control {id} is no pause: {}; `{}` takes it away",
                scope::whole(&other.scope),
                plain(&scope::takes_away(other))
            );
        }
        let unset = Unset {
            which,
            actor: &self.actor,
            note: &self.note,
            in_tenant: None,
        };
        let Some(row) = answered(controls::unset(&mut connection, &unset).await)? else {
            bail!("there is no such pause; `toolfleet control list` says which there are")
        };
        bell::ring(&self.bus).await;
        if self.json {
            let control: Box<RawValue> = RawValue::from_string(row)?;
            output::print_json(&json!({"result": "unset", "control": control}))?;
        } else {
            let was: ListedControl = Row::from(row).read()?;
            others.retain(|other| {
                other.scope.kind == ControlKind::Pause.as_str()
                    && other.control_id != was.control_id
                    && scope::may_meet(&was.scope, &other.scope)
            });
            output::print(&over(&was, &others))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Those that hold before this one ends.
    async fn controls(&self) -> anyhow::Result<Vec<ListedControl>> {
        let pool = connect::reader(&self.store).await?;
        let rows = view::controls(&pool).await?;
        Ok(Row::read_all(&rows)?)
    }
}

/// That a pause is over, and which others still hold some of its calls.
fn over(was: &ListedControl, others: &[ListedControl]) -> String {
    let told = |pause: &ListedControl| {
        let (id, about) = (pause.control_id, scope::told(&pause.scope));
        plain(&format!("{id} of {about}"))
    };
    let over = format!(
        "pause {} is over: what waits for it goes back to its line within seconds",
        told(was)
    );
    match others {
        [] => format!("{over}, and runs in its turn"),
        others => {
            let named: Vec<String> = others.iter().map(told).collect();
            let (these, they) = match others.len() {
                1 => ("another pause", "it covers"),
                _more => ("other pauses", "they cover"),
            };
            format!(
                "{over}, and runs in its turn, but for what {these} may hold on: {}. What {they} waits until `toolfleet control resume ID \
                 --note WHY`",
                named.join("; ")
            )
        }
    }
}
