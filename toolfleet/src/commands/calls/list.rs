//! `toolfleet calls list`.

use std::process::ExitCode;

use fleet::config::StoreArgs;
use fleet_history::{
    calls::{self, ListedCall},
    filter::Filter,
    instant,
};

use super::filter::{EndFlags, FilterFlags, WhichCalls};
use crate::commands::{connect, output};

/// What `calls list` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "A call is listed when every flag that is given holds for it")]
pub struct ListCalls {
    #[command(flatten)]
    flags: FilterFlags,
    #[command(flatten)]
    ends: EndFlags,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(i64).range(1..=1000))]
    limit: i64,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON: an array of rows of the view toolfleet.calls, without their bodies
    #[arg(long)]
    json: bool,
}

impl ListCalls {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let which = WhichCalls {
            flags: self.flags,
            ends: self.ends,
        };
        let filter = Filter {
            limit: self.limit,
            ..which.filter(calls::now(&pool).await?)?
        };
        let rows = calls::calls(&pool, &filter).await?;
        let headings = [
            "CALL", "TOOL", "STATE", "ATTEMPTS", "ACCEPTED", "FINISHED", "ERROR",
        ];
        output::print_rows(&rows, self.json, &headings, cells)
    }
}

fn cells(call: ListedCall) -> Vec<String> {
    let none = || "-".to_owned();
    vec![
        call.call_id,
        call.tool,
        match call.awaiting {
            Some(awaiting) => format!("{} ({awaiting})", call.state),
            None if call.held => format!("{}, held", call.state),
            None => call.state,
        },
        call.attempts.to_string(),
        instant(call.accepted_at),
        call.finished_at.map_or_else(none, instant),
        match (call.error_code, call.cause_code) {
            (Some(code), Some(cause)) if cause != code => format!("{code}: {cause}"),
            (code, _) => code.unwrap_or_else(none),
        },
    ]
}
