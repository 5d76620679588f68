//! `toolfleet calls retry`: a *new* call with the tool and arguments of an old one. Never for a call that may still have its
//! effect.

use std::process::ExitCode;

use anyhow::{Context, bail};
use fleet::{
    call::{Effect, State},
    config::{BusArgs, StoreArgs},
    explain::chain,
    ids::{CallId, FileId, IdempotencyKey, Label},
    store::{
        marks::{CallMark, NewMarks, mark},
        reservations::{ReserveVerdict, Reserver, release, reserve},
    },
    wire::headers::Prefer,
};
use fleet_client::{Options, calls::Submission};
use fleet_history::{
    bulk::BulkVerb,
    marks::marks,
    original::{Original, original},
};

use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    again::against,
    bulk::{Bulk, CountOnly, LedgerFlag, ManyFlags, RetryStep, begun_before, is_bulk},
    filter::{EndFlags, FilterFlags, WhichCalls},
};
use crate::commands::{
    ask::{advice, unanswered},
    connect, json, output,
    usage::UsageError,
};

/// What `calls retry` is told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without a call's id, all calls for which every flag holds are counted, and with --yes made again under keys of \
                  --name and the old call: the same command again doubles nothing (docs/dead-letters.md).\n\
                  Of one call it refuses what it leaves alone of many as succeeded, retried_before, discarded_before, effect_unknown, \
                  effect_happened, under_way or unsure, unless --anyway is given; in_doubt, not_over and sensitive always"
)]
pub struct Retry {
    /// The call whose tool, arguments, files, tenant, session, run, priority, language and meta the new one gets; without it, which calls
    call_id: Option<CallId>,
    /// The new call's idempotency key; a tool that writes once needs one that was never used
    #[arg(long)]
    key: Option<IdempotencyKey>,
    /// Of one call: also if it succeeded, was made again or given up before, or may have been carried out. Its tool may do it twice
    #[arg(long, requires = "call_id")]
    anyway: bool,
    /// Do not wait for the result: print the accepted envelope
    #[arg(long = "async")]
    detach: bool,
    /// For many calls: what the retry is called, 1 to 64 of A-Z, a-z, 0-9, _ and -; the same name with the same flags goes on
    /// where it was, and with other flags it is refused
    #[arg(long, conflicts_with = "call_id")]
    name: Option<Label>,
    /// For many calls: also those whose tool said no for a reason of its own
    #[arg(long, conflicts_with = "call_id")]
    business: bool,
    #[command(flatten)]
    flags: FilterFlags,
    #[command(flatten)]
    ends: EndFlags,
    #[command(flatten)]
    bulk: ManyFlags,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    bus: BusArgs,
    /// Print the envelope on one line; of many calls, what was found and done as JSON
    #[arg(long)]
    json: bool,
}

/// Why a call is not made again that was settled as not applied.
const HAPPENED_LATE: &str = "an attempt of the call said late that it was carried out, whatever it was settled as: \
     `toolfleet calls show` has the attempt";

impl Retry {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let which = WhichCalls {
            flags: self.flags.clone(),
            ends: self.ends.clone(),
        };
        match self.call_id {
            Some(call) if !is_bulk(Some(&call), &which, &self.bulk)? => self.one(call).await,
            Some(_) | None => self.many(&which).await,
        }
    }

    /// Makes many calls again.
    async fn many(&self, which: &WhichCalls) -> anyhow::Result<ExitCode> {
        if self.key.is_some() || self.detach {
            let what = "--key and --async are for one call: many get keys of --name, and nobody waits for them";
            return Err(UsageError(what.to_owned()).into());
        }
        let Some(name) = &self.name else {
            let what = "a retry of many calls needs a --name, by which the same command again doubles nothing";
            return Err(UsageError(what.to_owned()).into());
        };
        let verb = BulkVerb::Retry {
            business: self.business,
            state: self.flags.state,
        };
        let ledger = LedgerFlag::of(&self.store);
        let mut bulk = Bulk::of(verb, which, &self.bulk, &ledger, self.json).await?;
        let mut spelled = which.spelled();
        spelled["business"] = self.business.into();
        let spelled = spelled.to_string();
        let mut ledger = connect::writer(&self.store.database_url).await?;
        let begun = begun_before(&mut ledger, name, &spelled).await?;
        bulk.retry = Some((name, begun));
        if self.bulk.only_counts() {
            return bulk.run(&mut CountOnly).await;
        }
        let mut step = RetryStep {
            client: connect::client(&self.bus).await?,
            pool: bulk.pool.clone(),
            ledger,
            name,
            spelled,
            actor: self.bulk.actor(),
            run: Uuid::new_v4(),
            nonce: None,
        };
        bulk.run(&mut step).await
    }

    /// Makes one call again, and marks it.
    async fn one(&self, call: CallId) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let Some(asked) = original(&pool, call).await? else {
            bail!("there is no call {call}; its history may have been dropped");
        };
        self.check(&asked)?;
        let marks = marks(&pool, call).await?.read();
        let against = against(&asked, &marks.context("read the marks of a call")?);
        if let Some(why) = against.filter(|_| !self.anyway) {
            bail!(why);
        }
        let submission = Submission {
            tenant: asked.tenant.parse().context("read the call's tenant")?,
            tool: asked.tool.parse().context("read the call's tool")?,
            options: self.options(&asked)?,
            args: asked.args.into(),
        };
        let client = connect::client(&self.bus).await?;
        let has_succeeded = asked.state == State::Succeeded.as_str();
        let reservation = self.reserve(call, has_succeeded).await?;
        let answer = client
            .submit(submission)
            .await
            .map_err(|problem| unanswered(problem, advice(self.key.is_some())))?;
        let (head, envelope) = (answer.head()?, answer.text()?);
        output::print_text(envelope, self.json)?;
        if let Some((mut ledger, by)) = reservation
            && head.is_refused()
            && head.nothing_happened()
        {
            // Left there, it only keeps retries of many away.
            release(&mut ledger, by, &[call]).await.ok();
        }
        // A call after the old one was made for it, by a command that did not come to its mark.
        let new = head
            .call_id
            .filter(|new| !head.is_refused() && *new != call);
        if head.replayed {
            match new.filter(|new| *new > call) {
                Some(new) => output::warn(&format!(
                    "this key names a call that was made already, {new}: no new one was made"
                )),
                None => bail!(
                    "this key names that call already, so no new one was made; give a key that was never used"
                ),
            }
        }
        if let Some(new) = new
            && let Err(problem) = self.mark(call, new).await
        {
            // The call was made, and that is what was asked for.
            output::warn(&format!(
                "the old call has no mark that it was made again: {}",
                chain(problem.as_ref())
            ));
        }
        Ok(ExitCode::from(u8::from(head.is_error)))
    }

    /// Sees to it that no retry of many calls makes it too. `None`: the role may only read.
    async fn reserve(
        &self,
        call: CallId,
        has_succeeded: bool,
    ) -> anyhow::Result<Option<(PgConnection, Reserver<'_>)>> {
        let run = Uuid::new_v4();
        let by = Reserver {
            name: None,
            retry: run,
            run,
        };
        let reserving = async {
            let mut ledger = connect::writer(&self.store.database_url).await?;
            let reserved = reserve(&mut ledger, by, &[call]).await?.pop();
            anyhow::Ok((ledger, reserved))
        };
        let (ledger, reserved) = match reserving.await {
            Err(problem) if connect::lacks_right(&problem) => return Ok(None),
            reserved => reserved?,
        };
        let reserved = reserved.context("the ledger says nothing about the call")?;
        let holder = reserved.holder.unwrap_or_default();
        match reserved.verdict {
            ReserveVerdict::UnderWay if !holder.is_empty() => bail!(
                "the retry {holder} makes it again, or was killed at it: give its command again, or wait 23 hours and see whether \
                 there is a new call"
            ),
            ReserveVerdict::UnderWay | ReserveVerdict::Unsure if !self.anyway => bail!(
                "{}: somebody has begun to make it again, and nobody has said what came of it \
                 (toolfleet.retries_under_way says when): look for a new call of that time, or give the --key that was given then \
                 with --anyway, for that key cannot make a second one",
                reserved.verdict.as_str()
            ),
            // Somebody else has it, and a person knows better.
            ReserveVerdict::UnderWay => Ok(None),
            ReserveVerdict::EffectHappened if !has_succeeded => bail!(HAPPENED_LATE),
            ReserveVerdict::NotOver | ReserveVerdict::NotFound => {
                bail!(
                    "the ledger has no such call that is over: {}",
                    reserved.verdict.as_str()
                )
            }
            // Since it was looked at; or a person knows, and decides.
            ReserveVerdict::RetriedBefore
            | ReserveVerdict::DiscardedBefore
            | ReserveVerdict::EffectUnknown
                if !self.anyway =>
            {
                bail!(
                    "{}: somebody dealt with it just now; `toolfleet calls explain` says how",
                    reserved.verdict.as_str()
                )
            }
            ReserveVerdict::Held
            | ReserveVerdict::EffectHappened
            | ReserveVerdict::Unsure
            | ReserveVerdict::RetriedBefore
            | ReserveVerdict::DiscardedBefore
            | ReserveVerdict::EffectUnknown => Ok(Some((ledger, by))),
        }
    }

    async fn mark(&self, call: CallId, new: CallId) -> anyhow::Result<()> {
        let mut ledger = connect::writer(&self.store.database_url).await?;
        let marks = NewMarks {
            what: CallMark::Retried,
            actor: self.bulk.actor(),
            note: None,
            bulk_name: None,
            calls: &[(call, Some(new))],
        };
        mark(&mut ledger, &marks).await?;
        Ok(())
    }

    /// Whether a new call may be made from it at all.
    fn check(&self, asked: &Original) -> anyhow::Result<()> {
        let state: State = asked.state.parse().context("read the call's state")?;
        let effect: Effect = asked
            .effect
            .parse()
            .context("read the call's effect class")?;
        match state {
            State::InDoubt => bail!(
                "the call is in doubt: it may have been carried out, and a new call might do it twice; \
                 look it up, then use `toolfleet calls settle`"
            ),
            State::Queued | State::Running | State::AwaitingClient => {
                bail!("the call is {state}: it is not over, wait for it or take it back first")
            }
            State::Succeeded | State::Failed | State::Cancelled | State::Expired => {}
        }
        // Of one that succeeded it is known anyway.
        if asked.happened_late && state != State::Succeeded {
            bail!(HAPPENED_LATE);
        }
        if asked.sensitive {
            bail!(
                "the tool {} has sensitive fields, and the history does not show them: make the new call \
                 with `toolfleet call` and the arguments themselves",
                asked.tool
            );
        }
        let once = matches!(effect, Effect::Once | Effect::Transaction);
        if once && self.key.is_none() {
            let what = format!(
                "the tool {} writes once: give the new call a key of its own with --key",
                asked.tool
            );
            return Err(UsageError(what).into());
        }
        Ok(())
    }

    fn options(&self, asked: &Original) -> anyhow::Result<Options> {
        let files = asked.files.clone().unwrap_or_default();
        let label = |text: &Option<String>| text.as_deref().map(str::parse).transpose();
        Ok(Options {
            key: self.key.clone(),
            prefer: self.detach.then_some(Prefer::RespondAsync),
            deadline: None,
            session: label(&asked.session).context("read the call's session")?,
            run: label(&asked.run).context("read the call's run")?,
            tool_version: None,
            language: Some(asked.language.parse().context("read the call's language")?),
            priority: Some(asked.priority.parse().context("read the call's priority")?),
            meta: asked.meta.as_deref().map(json::raw),
            no_store: false,
            files: files.into_iter().map(FileId).collect(),
        })
    }
}
