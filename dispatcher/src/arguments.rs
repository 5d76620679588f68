//! Fit: the arguments that a tool gets for those that were sent.
//!
//! Arguments that refer to answers of other calls are held against the schema with these in their place, exactly as they are:
//! nothing in them is mended. They are stored as they were sent, with the references.

use std::sync::Arc;

use fleet::{
    arguments::{self, Coercing, Coercion, Fitted, Level, Limits, Violations},
    canonical,
    controls::LazyArguments,
    ids::Label,
    manifest::Sensitive,
    references::{self, NoReferent, Reference},
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
    /// Its hash.
    pub(crate) hash: [u8; 32],
    /// What was changed in the arguments as sent.
    pub(crate) coercions: Vec<Coercion>,
    /// With the answers that they refer to; `None` where they refer to none.
    pub(crate) whole: Option<Arc<Value>>,
}

/// Whose arguments are to fit, and what.
#[derive(Clone)]
pub(crate) struct Fitting<'a> {
    /// Where the answers are that they may refer to.
    pub(crate) pool: &'a PgPool,
    /// Whose answers these must be.
    pub(crate) tenant: &'a Label,
    pub(crate) tool: &'a Arc<Tool>,
    /// How much may be changed.
    pub(crate) level: Level,
}

impl Fitting<'_> {
    /// The arguments that the tool gets for `args`, which were read from `sent`. Work that may take long runs on a blocking
    /// thread; only arguments with references need the ledger.
    pub(crate) async fn fit(&self, sent: &str, args: Value) -> Result<Arguments, Refusal> {
        if references::may_be_in(sent) {
            let found = references::references(&args).map_err(no_referent)?;
            if !found.is_empty() {
                return Box::pin(self.fit_referring(args, found, Vec::new())).await;
            }
        }
        let (tool, level) = (Arc::clone(self.tool), self.level);
        let fitting = move || mended(args, &tool, level);
        let fitted = match sent.len() <= SHORT {
            true => fitting(),
            false => aside(fitting).await,
        }?;
        if !references::may_be_in_canonical(&fitted.text) {
            return Ok(fitted);
        }
        Box::pin(self.refit(fitted)).await
    }

    /// Looks once more at arguments that were mended: a text may have become a reference.
    async fn refit(&self, fitted: Arguments) -> Result<Arguments, Refusal> {
        let args = arguments::parse(fitted.text.as_bytes(), &Limits::DEFAULT)
            .map_err(|error| Refusal::new(error.code.into(), error.message))?;
        let found = references::references(&args).map_err(no_referent)?;
        if found.is_empty() {
            return Ok(fitted);
        }
        self.fit_referring(args, found, fitted.coercions).await
    }

    async fn fit_referring(
        &self,
        args: Value,
        found: Vec<Reference>,
        before: Vec<Coercion>,
    ) -> Result<Arguments, Refusal> {
        let (mut whole, tenant) = (args.clone(), self.tenant.as_str());
        let put_in = referents::put_in(self.pool, tenant, &mut whole, &found).await;
        put_in.map_err(|error| match error {
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
        let (tool, level) = (Arc::clone(self.tool), self.level);
        aside(move || unchanged(args, whole, &found, before, &tool, level)).await
    }
}

/// Arguments without references; changed where that makes them fit.
fn mended(args: Value, tool: &Tool, level: Level) -> Result<Arguments, Refusal> {
    let Fitted { args, coercions } = tool
        .schema
        .fit(args, how(tool, level))
        .map_err(|violations| violated(violations, tool.manifest.sensitive.as_ref()))?;
    Ok(written(&args, coercions))
}

/// Arguments with references, which fit if they do so with the answers in their place, `whole`.
fn unchanged(
    args: Value,
    whole: Value,
    found: &[Reference],
    before: Vec<Coercion>,
    tool: &Tool,
    level: Level,
) -> Result<Arguments, Refusal> {
    let fitted = tool.schema.fit_unchanged(whole, how(tool, level));
    let mut fitted =
        fitted.map_err(|violations| violated(violations, tool.manifest.sensitive.as_ref()))?;
    let whole = Arc::new(fitted.args.clone());
    for reference in found {
        let is_below = |coercion: &Coercion| {
            let below = coercion.path.strip_prefix(&reference.place);
            below.is_some_and(|below| below.starts_with('/'))
        };
        fitted.coercions.retain(|coercion| !is_below(coercion));
        let sent = args.pointer(&reference.place).cloned();
        if let (Some(value), Some(sent)) = (fitted.args.pointer_mut(&reference.place), sent) {
            *value = sent;
        }
    }
    let mut coercions = before;
    coercions.append(&mut fitted.coercions);
    let mut written = written(&fitted.args, coercions);
    written.whole = Some(whole);
    // The workers read them within the same limits as the door.
    arguments::parse(written.text.as_bytes(), &Limits::DEFAULT)
        .map_err(|error| Refusal::new(error.code.into(), error.message))?;
    Ok(written)
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
