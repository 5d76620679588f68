//! `toolfleet calls tail`: events as they happen. Calls have no common order, so each call is followed by its own revisions:
//! open calls, and those that came within the last minute.

use std::{process::ExitCode, time::Duration};

use anyhow::Context;
use fleet::{
    config::StoreArgs,
    ids::{Label, ToolName},
};
use fleet_history::{
    filter::Filter,
    instant,
    news::{Followed, NewMove, current, moves_since},
};
use sqlx::PgPool;
use tokio::time::{MissedTickBehavior, interval};
use uuid::Uuid;

use crate::commands::{connect, json, output, plain::plain};

/// What `calls tail` is told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "It reads Postgres once a second and follows at most the newest 2000 calls; it says so when there are more"
)]
pub struct Tail {
    /// Only calls of this tool
    #[arg(long)]
    tool: Option<ToolName>,
    /// Only calls of this tenant
    #[arg(long)]
    tenant: Option<Label>,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON: a row of the view of events on each line
    #[arg(long)]
    json: bool,
}

/// How often it looks.
const PERIOD: Duration = Duration::from_secs(1);
/// The most calls that are followed at a time.
const FOLLOWED_MAX: i64 = 2000;

impl Tail {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let filter = Filter {
            tool: self.tool.clone(),
            tenant: self.tenant.clone(),
            limit: FOLLOWED_MAX,
            ..Filter::default()
        };
        let following = self.follow(&pool, &filter);
        tokio::select! {
            ended = following => ended,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted.context("listen for Ctrl-C")?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }

    /// Runs until it is dropped, or reading or printing fails.
    async fn follow(&self, pool: &PgPool, filter: &Filter) -> anyhow::Result<ExitCode> {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut followed, mut first, mut told) = (Followed::default(), true, false);
        loop {
            ticks.tick().await;
            let current = current(pool, filter).await?;
            if current.len() as u64 >= FOLLOWED_MAX.unsigned_abs() && !told {
                told = true;
                output::warn(
                    "there are more calls than can be followed; --tool or --tenant narrows it",
                );
            }
            followed.meet(&current);
            let current: Vec<Uuid> = current.into_iter().map(|(call, _tool)| call).collect();
            let moves = moves_since(pool, &followed.question(&current)).await?;
            let text: String = moves
                .iter()
                .map(|moved| self.line(moved, followed.tool(moved.call_id)))
                .collect::<Result<_, _>>()?;
            followed.learn(&current, &moves);
            // Events from before the start are not printed.
            if !first && !text.is_empty() {
                output::print(&text)?;
            } else if first {
                output::warn("following; Ctrl-C ends it");
            }
            first = false;
        }
    }

    fn line(&self, moved: &NewMove, tool: &str) -> anyhow::Result<String> {
        if self.json {
            return Ok(json::compact(moved.event.json()) + "\n");
        }
        let event = moved.event.read().context("read the view of events")?;
        let from = event.from_state.as_deref().unwrap_or("-");
        let line = format!(
            "{}  {}  {tool}  {from} -> {}  {}  {}",
            instant(event.at),
            event.call_id,
            event.to_state,
            event.reason,
            event.actor
        );
        Ok(plain(&line) + "\n")
    }
}
