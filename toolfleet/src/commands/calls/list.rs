//! `toolfleet calls list`.

use std::process::ExitCode;

use anyhow::Context;
use fleet::{
    call::State,
    config::StoreArgs,
    ids::{Label, ToolName},
};
use serde::Deserialize;
use time::OffsetDateTime;

use crate::commands::{
    connect,
    history::{self, Filter},
    json, output,
    words::one_of,
};

/// What `calls list` is told.
#[derive(Debug, clap::Args)]
pub struct List {
    /// Only calls of this tool
    #[arg(long)]
    tool: Option<ToolName>,
    /// Only calls in this state
    #[arg(long, value_parser = one_of::<State>(State::ALL, State::as_str))]
    state: Option<State>,
    /// Only calls of this tenant
    #[arg(long)]
    tenant: Option<Label>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(i64).range(1..=1000))]
    limit: i64,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON: an array of rows of the view toolfleet.calls, without their bodies
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let filter = Filter {
            tool: self.tool,
            state: self.state,
            tenant: self.tenant,
            limit: self.limit,
        };
        let rows = history::calls(&pool, &filter).await?;
        if self.json {
            output::print(&json::compact(&format!("[{}]", rows.join(","))))?;
            return Ok(ExitCode::SUCCESS);
        }
        let rows: Result<Vec<Row>, _> = rows.iter().map(|row| serde_json::from_str(row)).collect();
        let cells: Vec<_> = rows
            .context("read the view of calls")?
            .into_iter()
            .map(Row::cells)
            .collect();
        let headings = [
            "CALL", "TOOL", "STATE", "ATTEMPTS", "ACCEPTED", "FINISHED", "ERROR",
        ];
        output::print(&output::table(&headings, &cells))?;
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Deserialize)]
struct Row {
    call_id: String,
    tool: String,
    state: String,
    held: bool,
    attempts: i32,
    error_code: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    accepted_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    finished_at: Option<OffsetDateTime>,
}

impl Row {
    fn cells(self) -> Vec<String> {
        let none = || "-".to_owned();
        vec![
            self.call_id,
            self.tool,
            if self.held {
                format!("{}, held", self.state)
            } else {
                self.state
            },
            self.attempts.to_string(),
            output::instant(self.accepted_at),
            self.finished_at.map_or_else(none, output::instant),
            self.error_code.unwrap_or_else(none),
        ]
    }
}
