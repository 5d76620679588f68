//! The pass `probe`: asks what became of calls in doubt, and settles what the answers prove.
//!
//! A probe is an ordinary call of a `read` tool: accepted, published, claimed and recorded like any other. So it survives the
//! restart of every process, and its history shows what was asked and answered. The call in doubt remembers its id.
//!
//! | the answer says | it counts |
//! |---|---|
//! | applied | at once |
//! | not applied | when everything that was started for the call is proven gone, and the probe asked after that, after the attempt's own time and, unless the remote is authoritative, after the settle window |
//! | a contradiction | a person decides |
//! | anything else, or nothing | not; it is asked again later, at most [`PROBES_MAX`] times |

use std::{sync::Arc, time::Duration};

use fleet::{
    arguments::Level,
    call::{CallOutcome, State},
    checkpoint::{Checkpoint, reached},
    controls::PausedBy,
    ids::{CallId, Label},
    manifest::ProbeSpec,
    probe::{self, PROBES_MAX, ProbeFinding, Said, Subject},
    rate_key::RateKey,
    registry::Tool,
    store::{
        DecisionError, StoreError,
        probe::{self as asked, Doubted, NewProbe, ProbeAnswer, ProbeState, Remark},
        referents::Turn,
        settle::{self, Settlement, Verdict},
    },
    telemetry::{metrics, report},
};
use futures_util::future::join_all;
use serde_json::Value;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::{Sweep, every};
use crate::{
    arguments::{Arguments, Fitting},
    news,
    question::{self, About, think},
};

/// How long a probe may take, with its own retries.
const PROBE_MAX: Duration = Duration::from_secs(60);
/// Added to a wait until a moment of Postgres's clock, so that the probe asks after it.
const AFTER: Duration = Duration::from_millis(100);

impl Sweep {
    /// Asks and settles. Cancel-safe: a doubt that was taken is due again, and each step is one statement.
    pub(super) async fn sweep_doubts(self) {
        let mut ticks = every(Duration::from_millis(500));
        loop {
            ticks.tick().await;
            self.warn("probe", self.doubts().await);
        }
    }

    async fn doubts(&self) -> Result<(), StoreError> {
        loop {
            let due = asked::take(&self.pool).await?;
            if !due.is_empty() {
                reached(Checkpoint::DoubtTaken);
            }
            let full = i64::try_from(due.len()).unwrap_or(i64::MAX) >= asked::STEP_CALLS;
            join_all(due.iter().map(|doubted| async {
                if let Err(error) = self.look_into(doubted).await {
                    tracing::warn!(
                        call = %doubted.call_id,
                        error = report(&error),
                        "a call in doubt was not looked into; it is tried again"
                    );
                }
            }))
            .await;
            if !full {
                return Ok(());
            }
        }
    }

    async fn look_into(&self, doubted: &Doubted) -> Result<(), StoreError> {
        let Some(tool) = self.registry.version(&doubted.tool, doubted.tool_version) else {
            // The probe was applied a moment ago, or by a newer program: due again soon.
            return Ok(());
        };
        let Some(spec) = &tool.manifest.probe else {
            return asked::leave(&self.pool, doubted.call_id).await;
        };
        match doubted.probe {
            None => self.ask(doubted, spec).await,
            Some(id) => match asked::answer(&self.pool, id).await? {
                ProbeAnswer::Open => Ok(()),
                ProbeAnswer::Lost => {
                    let lost = ProbeFinding::Inconclusive("the probe was lost".to_owned());
                    self.conclude(doubted, spec, id, lost, None, None).await
                }
                ProbeAnswer::Ended {
                    state,
                    outcome,
                    result,
                    error,
                    seen_at,
                } => {
                    let finding = match self.subject(doubted).await? {
                        Ok((subject, turn)) => {
                            let (judge, answer) = (spec.clone(), result.clone());
                            let judging = think(move || {
                                let _turn = turn;
                                found(&judge, &subject, state, outcome, answer, error)
                            });
                            let took_too_long = || {
                                let why = "the answer takes too long to judge".to_owned();
                                ProbeFinding::Inconclusive(why)
                            };
                            judging.await.unwrap_or_else(took_too_long)
                        }
                        Err(why) => ProbeFinding::Inconclusive(why),
                    };
                    self.conclude(doubted, spec, id, finding, result, seen_at)
                        .await
                }
            },
        }
    }

    /// What expressions see of a call in doubt, as [`question::subject`] has it.
    async fn subject(
        &self,
        doubted: &Doubted,
    ) -> Result<Result<(Subject, Option<Turn>), String>, StoreError> {
        let about = About {
            call_id: doubted.call_id,
            tool: &doubted.tool,
            tool_version: doubted.tool_version,
            tenant: &doubted.tenant,
            args: &doubted.args,
        };
        question::subject(&self.pool, &about).await
    }

    /// Makes a probe, if there is a question and a tool for it.
    async fn ask(&self, doubted: &Doubted, spec: &ProbeSpec) -> Result<(), StoreError> {
        let question = match self.subject(doubted).await? {
            Ok((subject, turn)) => self.question(spec, subject, turn, &doubted.tenant).await,
            Err(why) => Err(why),
        };
        let (tool, made, arguments) = match question {
            Ok(question) => question,
            Err(why) => {
                let remark = inconclusive(doubted, "sweep".to_owned(), why);
                return asked::remark(&self.pool, doubted, &remark).await.map(drop);
            }
        };
        if self.is_paused(&tool, doubted, &arguments) {
            // It is due again soon, and is not counted as asked.
            return Ok(());
        }
        let pointer = tool.manifest.rate_pointer();
        let probe = NewProbe {
            rate_key: pointer.map(|at| RateKey::of(&doubted.tenant, at, &arguments.seen())),
            call_id: CallId::generate(),
            tool: tool.manifest.name.clone(),
            tool_version: tool.manifest.version,
            queue: tool.manifest.queue.clone(),
            args_hash: arguments.hash,
            kept_args: tool
                .manifest
                .sensitive
                .as_ref()
                .and_then(|sensitive| sensitive.kept(&arguments.text)),
            original_args: (!arguments.coercions.is_empty()).then_some(made),
            coercions: arguments.coercions,
            args: arguments.text,
            deadline: tool.manifest.deadline.min(PROBE_MAX),
            dispatcher: self.dispatcher,
        };
        let started = asked::start(&self.pool, doubted.call_id, doubted.rev, probe).await?;
        if let Some(call) = started {
            reached(Checkpoint::ProbeStarted);
            metrics().swept("probe", 1);
            self.publish(vec![call]).await;
        }
        Ok(())
    }

    /// Whether a pause covers the probe: it would only wait, and count as one that found nothing out.
    fn is_paused(&self, tool: &Tool, doubted: &Doubted, arguments: &Arguments) -> bool {
        let probe = PausedBy {
            tool: &tool.manifest.name,
            queue: &tool.manifest.queue,
            tenant: &doubted.tenant,
            arguments: &arguments.seen(),
        };
        let controls = self.registry.controls();
        controls.pause_of_accepted(&probe, Instant::now()).is_some()
    }

    /// The current version of the tool that is asked, what the template made, and the arguments that this becomes.
    async fn question(
        &self,
        spec: &ProbeSpec,
        subject: Subject,
        turn: Option<Turn>,
        tenant: &Label,
    ) -> Result<(Arc<Tool>, String, Arguments), String> {
        let tool = self.registry.current(&spec.tool);
        let tool = tool.ok_or_else(|| format!("the probe's tool {} is not there", spec.tool))?;
        if !tool.manifest.may_probe() {
            return Err(format!(
                "the probe's tool {} is no read that workers run unasked any more",
                spec.tool
            ));
        }
        let (made, args) = question::arguments("the probe's", &spec.args, subject, turn).await?;
        // An operator wrote the template, so only changes are made that cannot change the question.
        let level = tool.manifest.coercion_level().min(Level::Safe);
        let fitting = Fitting {
            pool: &self.pool,
            tenant,
            tool: &tool,
            level,
        };
        match fitting.fit(&made, args).await {
            Ok(arguments) => Ok((tool, made, arguments)),
            Err(_refusal) => Err("the probe's arguments do not fit its tool's schema".to_owned()),
        }
    }

    async fn conclude(
        &self,
        doubted: &Doubted,
        spec: &ProbeSpec,
        probe: CallId,
        finding: ProbeFinding,
        result: Option<String>,
        seen_at: Option<OffsetDateTime>,
    ) -> Result<(), StoreError> {
        let actor = format!("probe {probe}");
        let remark = match finding {
            ProbeFinding::Applied => {
                return self
                    .settle(
                        doubted,
                        settle::SettledAs::Applied,
                        &actor,
                        result.as_deref(),
                    )
                    .await;
            }
            ProbeFinding::NotApplied => match counts_from(doubted, spec) {
                Some(from) if seen_at.is_some_and(|seen_at| seen_at >= from) => {
                    return self
                        .settle(doubted, settle::SettledAs::NotApplied, &actor, None)
                        .await;
                }
                Some(from) => Remark {
                    why: "the probe asked before a no can count".to_owned(),
                    again_after: again_after(doubted).map(|_| wait_until(from, seen_at)),
                    state: ProbeState::NotYetApplied,
                    actor,
                },
                None => Remark {
                    why: "the worker is not fenced, so the effect may still come".to_owned(),
                    again_after: again_after(doubted),
                    state: ProbeState::NotYetApplied,
                    actor,
                },
            },
            ProbeFinding::Conflict => Remark {
                why: "the answer contradicts the call".to_owned(),
                again_after: None,
                state: ProbeState::Conflict,
                actor,
            },
            ProbeFinding::Inconclusive(why) => inconclusive(doubted, actor, why),
        };
        asked::remark(&self.pool, doubted, &remark).await.map(drop)
    }

    async fn settle(
        &self,
        doubted: &Doubted,
        finding: settle::SettledAs,
        actor: &str,
        result: Option<&str>,
    ) -> Result<(), StoreError> {
        let settlement = Settlement {
            call: doubted.call_id,
            tenant: None,
            finding,
            actor,
            note: "found out by its probe",
            result,
            by_time_only: false,
        };
        let verdict = match settle::settle(&self.pool, &settlement).await {
            Ok(verdict) => verdict,
            Err(DecisionError::Store(error)) => return Err(error),
            Err(DecisionError::Invalid(why)) => {
                let remark = inconclusive(doubted, actor.to_owned(), why);
                return asked::remark(&self.pool, doubted, &remark).await.map(drop);
            }
        };
        let remark = match verdict {
            Verdict::Settled { tell, .. } => {
                reached(Checkpoint::ProbeSettled);
                tracing::info!(call = %doubted.call_id, %finding, "a call in doubt was settled by its probe");
                if let Some(dispatcher) = tell {
                    self.ring(dispatcher, doubted.call_id).await;
                }
                news::tell_decided(&self.events, &self.pool, doubted.call_id).await;
                return Ok(());
            }
            // Asked again, it would give the same answer for ever.
            Verdict::Conflict {
                state: State::InDoubt,
                ..
            } => Remark {
                state: ProbeState::Conflict,
                actor: actor.to_owned(),
                why: "an attempt has said since that it did it".to_owned(),
                again_after: None,
            },
            Verdict::Conflict { .. } | Verdict::NotFound => return Ok(()),
            Verdict::WorkerNotFenced | Verdict::TooEarly { .. } => Remark {
                state: ProbeState::NotYetApplied,
                actor: actor.to_owned(),
                why: "the probe asked before a no can count".to_owned(),
                again_after: again_after(doubted),
            },
        };
        asked::remark(&self.pool, doubted, &remark).await.map(drop)
    }
}

fn found(
    spec: &ProbeSpec,
    subject: &Subject,
    state: State,
    outcome: CallOutcome,
    result: Option<String>,
    error: Option<String>,
) -> ProbeFinding {
    let said = match (state, outcome) {
        (State::Succeeded, CallOutcome::Success) => read_or_null(result).map(Said::Result),
        (State::Failed, CallOutcome::BusinessError) => read_or_null(error).map(Said::No),
        (_, _) => return ProbeFinding::Inconclusive(format!("the probe itself ended as {state}")),
    };
    match said {
        Some(said) => probe::judge(spec, subject, &said),
        None => ProbeFinding::Inconclusive("the probe's answer cannot be read".to_owned()),
    }
}

/// Null stands for no text; `None`: it cannot be read.
fn read_or_null(text: Option<String>) -> Option<Value> {
    text.map_or(Some(Value::Null), |text| question::read(&text))
}

/// From when on a "no" counts; `None` while something that was started for the call may still act.
fn counts_from(doubted: &Doubted, spec: &ProbeSpec) -> Option<OffsetDateTime> {
    let window = if spec.authoritative {
        Duration::ZERO
    } else {
        spec.settle
    };
    doubted.fenced_since.map(|since| since + window)
}

/// How long until a "no" counts, from the start of the probe. Both moments are Postgres's, so no clock here is read.
fn wait_until(counts_from: OffsetDateTime, seen_at: Option<OffsetDateTime>) -> Duration {
    let left = seen_at.and_then(|seen_at| Duration::try_from(counts_from - seen_at).ok());
    left.unwrap_or_default().max(Duration::from_millis(500)) + AFTER
}

fn inconclusive(doubted: &Doubted, actor: String, why: String) -> Remark {
    Remark {
        state: if again_after(doubted).is_some() {
            ProbeState::Inconclusive
        } else {
            ProbeState::GivenUp
        },
        again_after: again_after(doubted),
        actor,
        why,
    }
}

/// The pause before the next probe, if another is allowed.
fn again_after(doubted: &Doubted) -> Option<Duration> {
    (doubted.probes < PROBES_MAX).then(|| probe::pause(doubted.call_id, doubted.probes))
}
