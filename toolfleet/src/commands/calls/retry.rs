//! `toolfleet calls retry`: a *new* call with what an old one asked for. Never of one that may still have its effect.

use std::process::ExitCode;

use anyhow::{Context, bail};
use async_nats::HeaderMap;
use fleet::{
    call::{Effect, State},
    config::{BusArgs, StoreArgs},
    ids::{CallId, IdempotencyKey},
    wire::headers::RequestHeaders,
};

use crate::commands::{
    ask::{Question, SLACK, Verdict, ask},
    call::advice,
    connect,
    exit::UsageError,
    history::{self, Asked},
    json, output,
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
        let Some(asked) = history::asked(&pool, self.call_id).await? else {
            bail!(
                "there is no call {}; its history may have been dropped",
                self.call_id
            );
        };
        self.check(&asked)?;
        let bus = connect::bus(&self.bus).await?;
        let tenant = asked.tenant.parse().context("read the call's tenant")?;
        let question = Question {
            subject: bus.subjects.call(&tenant, &asked.tool),
            headers: self.headers(&asked)?,
            body: asked.args.into_bytes(),
            wait: if self.detach {
                SLACK
            } else {
                RequestHeaders::WAIT_DEFAULT + SLACK
            },
            advice: advice(self.key.is_some()),
        };
        let envelope = ask(&bus, question).await?;
        let verdict = Verdict::of(&envelope)?;
        output::print(&if self.json {
            json::compact(&envelope)
        } else {
            json::pretty(&envelope)
        })?;
        if verdict.replayed {
            bail!(
                "this key names that call already, so no new one was made; give a key that was never used"
            );
        }
        Ok(ExitCode::from(u8::from(verdict.is_error)))
    }

    /// Whether a new call may be made of it at all.
    fn check(&self, asked: &Asked) -> anyhow::Result<()> {
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

    fn headers(&self, asked: &Asked) -> anyhow::Result<HeaderMap> {
        let key = self.key.as_ref().map(ToString::to_string);
        let prefer = self.detach.then(|| "respond-async".to_owned());
        let lines = [
            ("Idempotency-Key", key),
            ("Prefer", prefer),
            ("Toolfleet-Session", asked.session.clone()),
            ("Toolfleet-Run", asked.run.clone()),
            ("Toolfleet-Priority", Some(asked.priority.clone())),
            ("Toolfleet-Language", Some(asked.language.clone())),
            ("Toolfleet-Meta", asked.meta.as_deref().map(json::compact)),
        ];
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            if let Some(value) = value {
                let value: async_nats::HeaderValue = value
                    .parse()
                    .with_context(|| format!("write the header {name}"))?;
                headers.insert(name, value);
            }
        }
        Ok(headers)
    }
}
