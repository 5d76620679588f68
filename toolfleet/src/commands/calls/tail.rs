//! `toolfleet calls tail`: what happens, as it happens. There is no order over all calls, so each call is followed by its own
//! revisions: those that are open, and those that came within the last minute.

use std::{
    collections::{HashMap, HashSet},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use fleet::{
    config::StoreArgs,
    ids::{CallId, Label, ToolName},
};
use serde::Deserialize;
use sqlx::PgPool;
use time::OffsetDateTime;
use tokio::time::{MissedTickBehavior, interval};
use uuid::Uuid;

use crate::commands::{
    connect,
    history::{self, Filter, News},
    json, output,
};

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
/// Calls that are followed at a time.
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

    /// Runs until it is dropped, or something cannot be read or printed.
    async fn follow(&self, pool: &PgPool, filter: &Filter) -> anyhow::Result<ExitCode> {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut followed, mut first, mut told) = (Followed::default(), true, false);
        loop {
            ticks.tick().await;
            let current = history::current(pool, filter).await?;
            if current.len() as u64 >= FOLLOWED_MAX.unsigned_abs() && !told {
                told = true;
                output::warn(
                    "there are more calls than can be followed; --tool or --tenant narrows it",
                );
            }
            followed.meet(&current);
            let current: Vec<Uuid> = current.into_iter().map(|(call, _tool)| call).collect();
            let news = history::news(pool, &followed.question(&current)).await?;
            let text: String = news
                .iter()
                .map(|news| self.line(news, followed.tool(news.call_id)))
                .collect::<Result<_, _>>()?;
            followed.learn(&current, &news);
            // What has happened before is not news.
            if !first && !text.is_empty() {
                output::print(&text)?;
            } else if first {
                output::warn("following; Ctrl-C ends it");
            }
            first = false;
        }
    }

    fn line(&self, news: &News, tool: &str) -> anyhow::Result<String> {
        if self.json {
            return Ok(json::compact(&news.event) + "\n");
        }
        let event: Event = serde_json::from_str(&news.event).context("read the view of events")?;
        let from = event.from_state.as_deref().unwrap_or("-");
        let line = format!(
            "{}  {}  {tool}  {from} -> {}  {}  {}",
            output::instant(event.at),
            event.call_id,
            event.to_state,
            event.reason,
            event.actor
        );
        Ok(output::plain(&line) + "\n")
    }
}

#[derive(Deserialize)]
struct Event {
    call_id: CallId,
    #[serde(with = "time::serde::rfc3339")]
    at: OffsetDateTime,
    from_state: Option<String>,
    to_state: String,
    actor: String,
    reason: String,
}

/// How far each call has been followed.
#[derive(Debug, Default)]
struct Followed {
    calls: HashMap<Uuid, Seen>,
    /// The tools of those calls, and of those that are just met.
    tools: HashMap<Uuid, String>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    revision: i32,
    over: bool,
}

impl Followed {
    /// Takes note of whose calls these are.
    fn meet(&mut self, current: &[(Uuid, String)]) {
        for (call, tool) in current {
            self.tools.entry(*call).or_insert_with(|| tool.clone());
        }
    }

    /// The tool of a call that was met.
    fn tool(&self, call: Uuid) -> &str {
        self.tools.get(&call).map_or("-", String::as_str)
    }

    /// Every call that may have news, with the last revision that is known of it.
    fn question(&self, current: &[Uuid]) -> Vec<(Uuid, i32)> {
        let new = current.iter().filter(|call| !self.calls.contains_key(call));
        let known = self.calls.iter().filter(|(_, seen)| !seen.over);
        let known = known.map(|(call, seen)| (*call, seen.revision));
        known.chain(new.map(|call| (*call, -1))).collect()
    }

    /// Takes what was found. A call that is over and no longer current has no more news.
    fn learn(&mut self, current: &[Uuid], news: &[News]) {
        let current: HashSet<&Uuid> = current.iter().collect();
        for News {
            call_id,
            revision,
            over,
            ..
        } in news
        {
            let seen = self.calls.entry(*call_id).or_insert(Seen {
                revision: *revision,
                over: *over,
            });
            seen.revision = seen.revision.max(*revision);
            seen.over |= *over;
        }
        self.calls
            .retain(|call, seen| !seen.over || current.contains(call));
        self.tools.retain(|call, _| self.calls.contains_key(call));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news(call_id: Uuid, revision: i32, over: bool) -> News {
        News {
            call_id,
            revision,
            over,
            event: String::new(),
        }
    }

    #[test]
    fn a_call_is_followed_to_its_end_and_told_once() {
        let (call, other) = (Uuid::now_v7(), Uuid::now_v7());
        let mut followed = Followed::default();
        followed.meet(&[(call, "look_up".to_owned()), (other, "charge".to_owned())]);
        assert_eq!(
            (followed.tool(call), followed.tool(other)),
            ("look_up", "charge")
        );
        assert_eq!(followed.question(&[call]), [(call, -1)]);
        followed.learn(&[call], &[news(call, 0, false), news(call, 1, false)]);
        // No longer among the current ones, because it has ended meanwhile: asked about all the same.
        let mut asked = followed.question(&[other]);
        asked.sort_by_key(|(_, revision)| *revision);
        assert_eq!(asked, [(other, -1), (call, 1)]);
        followed.learn(&[other], &[news(call, 2, true), news(other, 0, true)]);
        // Over and still current: known, so that it is not told again.
        assert!(followed.question(&[other]).is_empty());
        followed.learn(&[], &[]);
        assert!(followed.calls.is_empty() && followed.tools.is_empty());
    }
}
