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
            Some(id) => {
                self.must_be_a_pause(id).await?;
                WhichControl::Id(id)
            }
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
            output::print(&format!(
                "pause {} of {} is over: what waits for it goes back to its line within seconds, and runs in its turn",
                was.control_id,
                plain(&scope::told(&was.scope))
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Refuses the id of another kind of control: a mistyped number must not take a limit away. Ids are never used again.
    async fn must_be_a_pause(&self, id: ControlId) -> anyhow::Result<()> {
        let pool = connect::reader(&self.store).await?;
        for row in view::controls(&pool).await? {
            let there = row.read()?;
            if there.control_id == id.0 && there.scope.kind != ControlKind::Pause.as_str() {
                bail!(
                    "control {id} is no pause: {}; `toolfleet control unset {id}` takes it away",
                    scope::whole(&there.scope)
                )
            }
        }
        Ok(())
    }
}
