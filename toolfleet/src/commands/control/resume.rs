//! `toolfleet control resume`.

use std::process::ExitCode;

use anyhow::bail;
use fleet::{
    config::{BusArgs, StoreArgs},
    controls::ControlId,
    store::controls::{self, ControlKind, Unset, WhichControl},
};
use fleet_history::{Row, controls::ListedControl};
use serde_json::{json, value::RawValue};

use super::{
    answered,
    scope::{self, ScopeFlags},
};
use crate::commands::{connect, output, plain::plain, tools::bell, words};

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
    /// Who says so, as the log will say
    #[arg(long, value_name = "NAME", env = "USER", default_value = "cli", value_parser = words::name)]
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
            if was.scope.kind != ControlKind::Pause.as_str() {
                let (id, what) = (was.control_id, scope::whole(&was.scope));
                output::print(&format!("control {id} is taken away: {what}"))?;
                return Ok(ExitCode::SUCCESS);
            }
            output::print(&format!(
                "pause {} of {} is over: what waits for it goes back to its line within seconds, and runs in its turn",
                was.control_id,
                plain(&scope::told(&was.scope))
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
