//! One thing done to many calls: `calls cancel|retry|settle|discard` with a filter.
//!
//! There is no job at a server. The command walks over the calls, page by page and from the newest to the oldest, and asks for
//! each what it would ask for one, so each rule of a single call holds. First it counts; a second walk acts, in steps. Each step
//! may be done again: what was done is recognised, by the call's state, its mark, or the key of the new call. So a walk that was
//! interrupted, at whatever place, goes on when the same command is given again.

mod cancel;
mod discard;
mod pace;
mod plan;
mod retry;
mod settle;
mod tally;

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
};

use anyhow::{Context, bail};
use fleet::{
    config::{StoreArgs, secret},
    ids::Label,
    store::bulk_retries::BegunRetry,
};
use fleet_history::{
    bulk::{BulkCall, BulkVerb, left_alone, page},
    calls::now,
    filter::Filter,
};
use secrecy::SecretString;
use sqlx::PgPool;

pub(super) use self::{
    cancel::CancelStep,
    discard::DiscardStep,
    retry::{RetryStep, begun_before},
    settle::SettleStep,
};
use self::{
    pace::Pace,
    plan::Plan,
    tally::{Came, Tally},
};
use super::filter::WhichCalls;
use crate::commands::{
    actor::user_at_host,
    connect,
    exit::{FAILED, OK},
    output,
    progress::Progress,
    usage::UsageError,
    words,
};

/// How many requests of a step are under way at a time, where each call is one.
const AT_A_TIME: usize = 16;

/// What every operation on many calls is told.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ManyFlags {
    /// For many calls: count what would be done and what is left alone, and do nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// For many calls: do it; without it they are only counted
    #[arg(long)]
    yes: bool,
    /// For many calls: at most so many a second
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    per_second: u32,
    /// Who does it, as the history will have it; user@host without it
    #[arg(long, value_name = "NAME", default_value_t = user_at_host(), hide_default_value = true, value_parser = words::name)]
    actor: String,
}

impl ManyFlags {
    /// Who does it.
    pub(super) fn actor(&self) -> &str {
        &self.actor
    }

    /// Whether many calls are only counted: then no server but Postgres is needed.
    pub(super) const fn only_counts(&self) -> bool {
        !self.yes
    }

    /// Whether something was said that only many calls have.
    const fn is_about_many(&self) -> bool {
        self.dry_run || self.yes
    }
}

/// The ledger, where many calls are found; one call needs none.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct LedgerFlag {
    /// For many calls: the PostgreSQL database (15 or newer), as `postgres://user:password@host:port/database`, or `file:PATH` of a
    /// file with that.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_parser = secret)]
    database_url: Option<SecretString>,
}

impl LedgerFlag {
    /// The ledger of a command that always needs one.
    pub(super) fn of(store: &StoreArgs) -> Self {
        Self {
            database_url: Some(store.database_url.clone()),
        }
    }

    /// Where it is.
    ///
    /// # Errors
    ///
    /// A [`UsageError`]: nobody said so.
    pub(super) fn url(&self) -> Result<&SecretString, UsageError> {
        self.database_url.as_ref().ok_or_else(|| {
            let what = "many calls are found in the ledger: say where it is with --database-url or DATABASE_URL";
            UsageError(what.to_owned())
        })
    }
}

/// Whether the command line is about many calls.
///
/// # Errors
///
/// A [`UsageError`]: it names one call and says which many.
pub(super) fn is_bulk<T>(
    call: Option<&T>,
    which: &WhichCalls,
    flags: &ManyFlags,
) -> Result<bool, UsageError> {
    match call {
        Some(_one) if which.is_about_many() || flags.is_about_many() => {
            let what = "name one call, or say which calls with flags such as --tool, and not both";
            Err(UsageError(what.to_owned()))
        }
        Some(_one) => Ok(false),
        None => Ok(true),
    }
}

/// What is done to some calls at once.
pub(super) trait Step {
    /// Which calls it is for, of those that were asked for and counted, up to the newest of them: the moments may have been fixed
    /// before. Called once, before the first step.
    async fn begin(&mut self, counted: Filter) -> anyhow::Result<Filter> {
        Ok(counted)
    }

    /// Does it to these calls, at most a hundred, and says what became of each. Cancel-safe: it may be done again.
    async fn take(&mut self, calls: &[BulkCall]) -> anyhow::Result<Vec<Came>>;
}

/// What is only counted.
pub(super) struct CountOnly;

impl Step for CountOnly {
    async fn begin(&mut self, _counted: Filter) -> anyhow::Result<Filter> {
        bail!("what is only counted is not begun")
    }

    async fn take(&mut self, _calls: &[BulkCall]) -> anyhow::Result<Vec<Came>> {
        bail!("what is only counted is not done")
    }
}

/// Counts the calls, and does it.
pub(super) struct Bulk<'a> {
    pub(super) verb: BulkVerb,
    pub(super) pool: PgPool,
    pub(super) filter: Filter,
    /// Of a retry: its name, and what it covers where it began before.
    pub(super) retry: Option<(&'a Label, Option<BegunRetry>)>,
    pub(super) flags: &'a ManyFlags,
    pub(super) json: bool,
}

impl<'a> Bulk<'a> {
    /// For the calls of these flags; all moments are fixed now.
    ///
    /// # Errors
    ///
    /// The flags make no sense, or Postgres does not answer.
    pub(super) async fn of(
        verb: BulkVerb,
        which: &WhichCalls,
        flags: &'a ManyFlags,
        ledger: &LedgerFlag,
        json: bool,
    ) -> anyhow::Result<Self> {
        // Before a server is asked, as far as that goes.
        which.bounded(time::OffsetDateTime::UNIX_EPOCH + time::Duration::days(36_500))?;
        let pool = connect::reader_of(ledger.url()?).await?;
        let filter = which.bounded(now(&pool).await?)?;
        which.of_a_tool_that_is(&pool).await?;
        Ok(Self {
            verb,
            pool,
            filter,
            retry: None,
            flags,
            json,
        })
    }

    /// Counts, prints, and acts if it was told to.
    ///
    /// # Errors
    ///
    /// A server does not answer, or nobody has said yes.
    pub(super) async fn run(self, step: &mut impl Step) -> anyhow::Result<ExitCode> {
        let (plan, newest) = self.plan().await?;
        if !self.json {
            output::print(&plan.to_string())?;
        }
        let is_asked = self.flags.yes;
        if plan.is_empty() && self.filter.code.is_some() {
            output::warn(
                "no call has this code: the one behind retries_exhausted, deadline_exceeded and in_doubt is --last-code",
            );
        }
        let (Some(newest), true) = (newest, is_asked && plan.to_ask() > 0) else {
            if self.json {
                output::print_json(&plan)?;
            }
            if !self.flags.dry_run && !is_asked && plan.to_do() > 0 {
                let what = "nothing was done: say --yes to do it, or --dry-run to count without this message";
                return Err(UsageError(what.to_owned()).into());
            }
            return Ok(ExitCode::from(OK));
        };
        let counted = Filter {
            newest: Some(newest.id()),
            ..self.filter.clone()
        };
        let filter = step.begin(counted).await?;
        let mut done = Tally::default();
        let mut progress =
            Progress::new(Some(plan.to_ask()), self.json, io::stderr().is_terminal());
        let walked = tokio::select! {
            walked = self.walk(filter, step, &mut done, &mut progress) => walked,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted.context("listen for Ctrl-C").map(|()| done.is_interrupted = true)
            }
        };
        progress.end();
        if self.json {
            output::print_json(&serde_json::json!({"plan": plan, "done": done}))?;
        } else {
            output::print(&format!("{done}\n{}", done.reasons()))?;
        }
        walked.context("it ends before its end; the same command again goes on where it was")?;
        Ok(ExitCode::from(if done.is_good() { OK } else { FAILED }))
    }

    /// Counts, and says which is the newest call that was found.
    async fn plan(&self) -> anyhow::Result<(Plan, Option<BulkCall>)> {
        let name = self.retry.as_ref().map(|(name, _)| name.as_str());
        let mut filter = self.filter.clone();
        let begun = self.retry.as_ref().and_then(|(_, begun)| begun.as_ref());
        if let Some(begun) = begun {
            filter = filter.of_retry(&begun.retry);
        }
        let mut plan = Plan::new(self.verb, name, &filter);
        let mut newest = None;
        let mut pages = Pages::of(&self.pool, filter);
        while let Some(calls) = pages.next().await? {
            newest = newest.or_else(|| calls.first().cloned());
            calls.iter().for_each(|call| plan.count(call));
        }
        if let Some(begun) = begun {
            let since = Filter {
                after: Some(begun.retry.newest),
                ..self.filter.clone()
            };
            let mut fit = 0;
            let mut pages = Pages::of(&self.pool, since);
            while let Some(calls) = pages.next().await? {
                let fits = |call: &&BulkCall| left_alone(self.verb, call).is_none();
                fit += calls.iter().filter(fits).count() as u64;
            }
            plan.newer(fit, begun.at);
        }
        Ok((plan, newest))
    }

    /// Acts on what is not left alone. Dropped in the middle, up to a step may be done and not counted.
    async fn walk(
        &self,
        filter: Filter,
        step: &mut impl Step,
        done: &mut Tally,
        progress: &mut Progress,
    ) -> anyhow::Result<()> {
        let mut pace = Pace::new(self.flags.per_second);
        let mut pages = Pages::of(&self.pool, filter);
        while let Some(calls) = pages.next().await? {
            let calls: Vec<BulkCall> = calls
                .into_iter()
                .filter(|call| left_alone(self.verb, call).is_none())
                .collect();
            for calls in calls.chunks(pace.step()) {
                pace.before(calls.len()).await;
                for came in step.take(calls).await? {
                    done.count(came);
                }
                progress.at(done.calls());
                progress.say(&done.to_string());
            }
        }
        Ok(())
    }
}

/// The calls of a filter, page by page.
struct Pages<'a> {
    pool: &'a PgPool,
    filter: Filter,
    is_over: bool,
}

impl<'a> Pages<'a> {
    const fn of(pool: &'a PgPool, filter: Filter) -> Self {
        Self {
            pool,
            filter,
            is_over: false,
        }
    }

    async fn next(&mut self) -> anyhow::Result<Option<Vec<BulkCall>>> {
        if self.is_over {
            return Ok(None);
        }
        let calls = page(self.pool, &self.filter).await?;
        match calls.last() {
            Some(last) => self.filter.before = Some(last.id()),
            None => self.is_over = true,
        }
        Ok(Some(calls).filter(|calls| !calls.is_empty()))
    }
}
