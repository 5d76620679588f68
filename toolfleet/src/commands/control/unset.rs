//! `toolfleet control unset`.

use std::process::ExitCode;

use anyhow::bail;
use fleet::{
    config::{BusArgs, StoreArgs},
    controls::ControlId,
    store::controls::{self, Unset, WhichControl},
};
use fleet_history::{Row, controls::ListedControl};
use serde_json::{json, value::RawValue};

use super::{answered, scope};
use crate::commands::{actor::user_at_host, connect, output, tools::bell, words};

/// What `control unset` is told.
#[derive(Debug, clap::Args)]
pub struct UnsetControl {
    /// The control's id, from `toolfleet control list`
    id: ControlId,
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

impl UnsetControl {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let mut connection = connect::writer(&self.store.database_url).await?;
        let unset = Unset {
            which: WhichControl::Id(self.id),
            actor: &self.actor,
            note: &self.note,
            in_tenant: None,
        };
        let Some(row) = answered(controls::unset(&mut connection, &unset).await)? else {
            bail!("there is no such control; `toolfleet control list` says which there are")
        };
        bell::ring(&self.bus).await;
        if self.json {
            let control: Box<RawValue> = RawValue::from_string(row)?;
            output::print_json(&json!({"result": "unset", "control": control}))?;
        } else {
            let was: ListedControl = Row::from(row).read()?;
            let (id, what) = (was.control_id, scope::whole(&was.scope));
            output::print(&format!("control {id} is taken away: {what}"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
