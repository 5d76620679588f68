//! `toolfleet calls list`.

use std::process::ExitCode;

use fleet::{
    call::State,
    config::StoreArgs,
    ids::{Label, ToolName},
    wire::code::Code,
};
use fleet_history::{
    calls::{self, Filter, ListedCall},
    instant,
};
use sqlx::PgPool;
use time::OffsetDateTime;

use super::moment::Moment;
use crate::commands::{connect, output, usage::UsageError, words::one_of};

/// What `calls list` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "A call is listed when every flag that is given holds for it")]
pub struct ListCalls {
    /// Only calls of this tool
    #[arg(long)]
    tool: Option<ToolName>,
    /// Only calls in this state
    #[arg(long, value_parser = one_of::<State>(State::ALL, State::as_str))]
    state: Option<State>,
    /// Only calls of this tenant
    #[arg(long)]
    tenant: Option<Label>,
    /// Only calls of this session
    #[arg(long)]
    session: Option<Label>,
    /// Only calls of this run
    #[arg(long)]
    run: Option<Label>,
    /// Only calls whose error has this code (docs/errors); of an open call, the error of its last attempt
    #[arg(long, hide_possible_values = true, value_parser = one_of::<Code>(Code::ALL, Code::as_str))]
    code: Option<Code>,
    /// Only calls accepted then or later: how long ago, such as 2h, or a moment, such as 2026-11-23T08:00:00Z
    #[arg(long, value_name = "AGO|MOMENT")]
    since: Option<Moment>,
    /// Only calls accepted before: how long ago, or a moment
    #[arg(long, value_name = "AGO|MOMENT")]
    until: Option<Moment>,
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
        let (since, until) = span(&pool, self.since, self.until).await?;
        let filter = Filter {
            tool: self.tool,
            state: self.state,
            tenant: self.tenant,
            session: self.session,
            run: self.run,
            code: self.code,
            since,
            until,
            limit: self.limit,
        };
        let rows = calls::calls(&pool, &filter).await?;
        let headings = [
            "CALL", "TOOL", "STATE", "ATTEMPTS", "ACCEPTED", "FINISHED", "ERROR",
        ];
        output::print_rows(&rows, self.json, &headings, cells)
    }
}

/// The moments of the flags, by Postgres's clock.
async fn span(
    pool: &PgPool,
    since: Option<Moment>,
    until: Option<Moment>,
) -> anyhow::Result<(Option<OffsetDateTime>, Option<OffsetDateTime>)> {
    if since.is_none() && until.is_none() {
        return Ok((None, None));
    }
    let now = calls::now(pool).await?;
    let at = |moment: Option<Moment>| moment.map(|moment| moment.at(now));
    let (since, until) = (at(since), at(until));
    if since.is_some_and(|since| until.is_some_and(|until| until <= since)) {
        let what = "--until must be after --since: `--since 3h --until 2h` is the hour before the last two";
        return Err(UsageError(what.to_owned()).into());
    }
    Ok((since, until))
}

fn cells(call: ListedCall) -> Vec<String> {
    let none = || "-".to_owned();
    vec![
        call.call_id,
        call.tool,
        if call.held {
            format!("{}, held", call.state)
        } else {
            call.state
        },
        call.attempts.to_string(),
        instant(call.accepted_at),
        call.finished_at.map_or_else(none, instant),
        call.error_code.unwrap_or_else(none),
    ]
}
