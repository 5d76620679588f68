//! Fit: the arguments that a tool gets for those that were sent.
//!
//! Arguments that refer to answers of other calls are held against the schema with these in their place, exactly as they are:
//! nothing in them is mended. They are stored and hashed with the references, whatever the answers are.

use std::sync::Arc;

use fleet::{
    arguments::{self, Coercing, Coercion, Fitted, Level, Violations},
    canonical,
    controls::LazyArguments,
    ids::Label,
    manifest::Sensitive,
    references::{self, NoReferent, NoReferentWhy, Reference},
    registry::Tool,
    store::{
        PgPool,
        referents::{self, ReferentError},
    },
    telemetry::report,
    wire::{code::Code, message::Message},
};
use serde_json::Value;

use crate::{refusal::Refusal, work};

/// Longer texts are parsed and checked on a blocking thread.
pub(crate) const SHORT: usize = 16 * 1024;

/// Work that may take long, on a blocking thread: meanwhile this one has others to serve.
pub(crate) async fn aside<T: Send + 'static>(
    job: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(|| work::clocked(job)).await;
    let done = done.map(|(done, took)| {
        work::add(took);
        done
    });
    done.unwrap_or_else(|_broken_off| {
        let what = Message::fixed(
            "this dispatcher is about to stop",
            "这个 dispatcher 即将停止",
        );
        Err(Refusal::new(Code::Overloaded, what))
    })
}

/// Arguments that fit their tool.
pub(crate) struct Arguments {
    /// In canonical form.
    pub(crate) text: String,
    /// Its hash, with the files of the call once they are checked.
    pub(crate) hash: [u8; 32],
    /// What was changed in the arguments as sent.
    pub(crate) coercions: Vec<Coercion>,
    /// With the answers that they refer to: megabytes, so keep them no longer than needed. `None` where they refer to none.
    pub(crate) whole: Option<Value>,
}

/// Arguments as they are read without the ledger.
enum Read {
    /// They fit.
    Fitted(Arguments),
    /// They refer to answers, and are not held against the schema yet.
    Referring(Referring),
}

/// Arguments that refer to answers, as they are stored. Nothing of it depends on the answers.
struct Referring {
    args: Value,
    references: Vec<Reference>,
    arguments: Arguments,
}

/// Whose arguments are to fit, and what.
#[derive(Clone, Copy)]
pub(crate) struct Fitting<'a> {
    /// Where the answers are that they may refer to.
    pub(crate) pool: &'a PgPool,
    /// Whose answers these must be.
    pub(crate) tenant: &'a Label,
    pub(crate) tool: &'a Arc<Tool>,
    /// How much may be changed.
    pub(crate) level: Level,
}

/// The most evaluations that a schema may take for arguments with answers in them: seconds.
const WORK_MAX: u64 = 16_000_000;

impl Fitting<'_> {
    /// The arguments that the tool gets for `args`, which were read from `sent`. Work that may take long runs on a blocking
    /// thread; only arguments with references need the ledger.
    pub(crate) async fn fit(&self, sent: &str, args: Value) -> Result<Arguments, Refusal> {
        match read_for(self.tool, self.level, sent, args).await? {
            Read::Fitted(arguments) => Ok(arguments),
            Read::Referring(referring) => Box::pin(self.hold(referring)).await,
        }
    }

    /// Holds the schema against the arguments with the answers in their places.
    async fn hold(&self, referring: Referring) -> Result<Arguments, Refusal> {
        let Referring {
            args: mut whole,
            references,
            mut arguments,
        } = referring;
        let turn = referents::turn().await;
        let (pool, tenant) = (self.pool, self.tenant.as_str());
        let put_in = referents::put_in(&turn, pool, tenant, &mut whole, &references).await;
        let took = put_in.map_err(|error| match error {
            ReferentError::None(none) => no_referent(none),
            ReferentError::Store(error) => {
                tracing::debug!(
                    error = report(&error),
                    "answers that arguments refer to were not read"
                );
                let what = Message::fixed(
                    "the ledger, which has the answers that the arguments refer to, cannot be read at the moment",
                    "目前无法读取账本，因此取不到参数所引用的结果",
                );
                Refusal::new(Code::StoreUnavailable, what)
            }
        })?;
        work::add(took);
        let tool = Arc::clone(self.tool);
        aside(move || {
            let _turn = turn;
            if tool.schema.work(&whole) > WORK_MAX {
                return Err(no_referent(references[0].none(NoReferentWhy::TooCostly)));
            }
            match tool.schema.misfit(&whole, tool.manifest.name.as_str()) {
                Some(misfit) => Err(violated(misfit, tool.manifest.sensitive.as_ref())),
                None => {
                    arguments.whole = Some(whole);
                    Ok(arguments)
                }
            }
        })
        .await
    }
}

/// The hash of the arguments that the tool gets for `args`, which were read from `sent`; `None`: they do not fit. The ledger is not
/// asked: what arguments refer to is not in their hash.
pub(crate) async fn hash_for(tool: &Arc<Tool>, sent: &str, args: Value) -> Option<[u8; 32]> {
    let level = tool.manifest.coercion_level();
    match read_for(tool, level, sent, args).await.ok()? {
        Read::Fitted(arguments) => Some(arguments.hash),
        Read::Referring(referring) => Some(referring.arguments.hash),
    }
}

async fn read_for(
    tool: &Arc<Tool>,
    level: Level,
    sent: &str,
    args: Value,
) -> Result<Read, Refusal> {
    let may_refer = references::may_be_in(sent);
    let tool = Arc::clone(tool);
    let reading = move || read(args, may_refer, &tool, level);
    match sent.len() <= SHORT {
        true => reading(),
        false => aside(reading).await,
    }
}

fn read(args: Value, may_refer: bool, tool: &Tool, level: Level) -> Result<Read, Refusal> {
    if may_refer
        && !references::references(&args)
            .map_err(no_referent)?
            .is_empty()
    {
        return referring(args, tool, level).map(Read::Referring);
    }
    let Fitted { args, coercions } = tool
        .schema
        .fit(args, how(tool, level))
        .map_err(|violations| violated(violations, tool.manifest.sensitive.as_ref()))?;
    let fitted = written(&args, coercions);
    // The gate takes an object for a reference, however it came about.
    if references::may_be_in_canonical(&fitted.text)
        && let Some(first) = references::references(&args).map_err(no_referent)?.first()
    {
        return Err(no_referent(first.none(NoReferentWhy::Text)));
    }
    Ok(Read::Fitted(fitted))
}

/// Fills in defaults, as if nothing stood in the places of the references.
fn referring(mut args: Value, tool: &Tool, level: Level) -> Result<Referring, Refusal> {
    let sent = references::references(&args).map_err(no_referent)?;
    let taken = references::without(&mut args, &sent);
    let Fitted {
        mut args,
        coercions,
    } = tool.schema.filled(args, level);
    references::put_back(&mut args, &sent, taken);
    let arguments = written(&args, coercions);
    // The workers read them within the same limits as the door.
    arguments::parse(arguments.text.as_bytes(), tool.manifest.arguments_limits())
        .map_err(|error| Refusal::new(error.code.into(), error.message))?;
    Ok(Referring {
        // Those that a default brings along are references, too.
        references: references::references(&args).map_err(no_referent)?,
        args,
        arguments,
    })
}

fn how(tool: &Tool, level: Level) -> Coercing<'_> {
    Coercing {
        level,
        tool: tool.manifest.name.as_str(),
    }
}

fn written(args: &Value, coercions: Vec<Coercion>) -> Arguments {
    let text = canonical::to_text(args);
    Arguments {
        hash: canonical::hash_text(&text),
        text,
        coercions,
        whole: None,
    }
}

impl Arguments {
    /// As a pause sees them: what the tool gets.
    pub(crate) fn seen(&self) -> LazyArguments<'_> {
        match &self.whole {
            Some(whole) => LazyArguments::of(whole),
            None => LazyArguments::new(&self.text),
        }
    }
}

fn no_referent(none: NoReferent) -> Refusal {
    let refusal = Refusal::new(none.code(), none.message());
    let refusal = refusal.with_details(|language| none.details(language));
    match none.place.is_empty() {
        true => refusal,
        false => refusal.at(none.place),
    }
}

fn violated(mut violations: Violations, sensitive: Option<&Sensitive>) -> Refusal {
    if let Some(sensitive) = sensitive {
        violations = violations
            .without_values(|path| sensitive.touches(path))
            .without_undeclared_values();
    }
    let error = Refusal::new(Code::InvalidArguments, violations.summary());
    let first = violations
        .items()
        .first()
        .map(|violation| violation.path.clone());
    let error = match first {
        Some(path) if violations.total() == 1 && !path.is_empty() => error.at(path),
        Some(_) | None => error,
    };
    error.with_details(|language| violations.details(language))
}
