//! `toolfleet calls retry`: a *new* call with the tool and arguments of an old one. Never for a call that may still have its
//! effect.

use std::process::ExitCode;

use anyhow::{Context, bail};
use fleet::{
    call::{Effect, State},
    config::{BusArgs, StoreArgs},
    ids::{CallId, IdempotencyKey},
    wire::headers::Prefer,
};
use fleet_client::{Options, calls::Submission};
use fleet_history::original::{Original, original};

use crate::commands::{
    ask::{advice, unanswered},
    connect, json, output,
    usage::UsageError,
};

/// What `calls retry` is told.
#[derive(Debug, clap::Args)]
pub struct Retry {
    /// The call whose tool, arguments, tenant, session, run, priority, language and meta the new one gets
    call_id: CallId,
    /// The new call's idempotency key; a tool that writes once needs one that was never used
    #[arg(long)]
    key: Option<IdempotencyKey>,
    /// Do not wait for the result: print the accepted envelope
    #[arg(long = "async")]
    detach: bool,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    bus: BusArgs,
    /// Print the envelope on one line
    #[arg(long)]
    json: bool,
}

impl Retry {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let Some(asked) = original(&pool, self.call_id).await? else {
            bail!(
                "there is no call {}; its history may have been dropped",
                self.call_id
            );
        };
        self.check(&asked)?;
        let submission = Submission {
            tenant: asked.tenant.parse().context("read the call's tenant")?,
            tool: asked.tool.parse().context("read the call's tool")?,
            options: self.options(&asked)?,
            args: asked.args.into(),
        };
        let client = connect::client(&self.bus).await?;
        let answer = client
            .submit(submission)
            .await
            .map_err(|problem| unanswered(problem, advice(self.key.is_some())))?;
        let (head, envelope) = (answer.head()?, answer.text()?);
        output::print_text(envelope, self.json)?;
        if head.replayed {
            bail!(
                "this key names that call already, so no new one was made; give a key that was never used"
            );
        }
        Ok(ExitCode::from(u8::from(head.is_error)))
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
        })
    }
}
