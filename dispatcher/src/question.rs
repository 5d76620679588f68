//! Questions about a call: what a template of its manifest sees of it, and the arguments that this becomes for the tool that is asked.

use std::time::Duration;

use fleet::{
    arguments::{self, Limits},
    canonical,
    ids::{CallId, Label, ToolName},
    probe::{self, Subject},
    references,
    store::{
        PgPool, StoreError,
        referents::{self, ReferentError, Turn},
    },
};
use serde_json::Value;
use tokio::{sync::Semaphore, time::timeout};

/// How long one evaluation of expressions may take.
const THINK_MAX: Duration = Duration::from_secs(2);

/// A call that another tool is asked about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) call_id: CallId,
    pub(crate) tool: &'a ToolName,
    pub(crate) tool_version: i32,
    pub(crate) tenant: &'a Label,
    /// Its arguments, JSON text.
    pub(crate) args: &'a str,
}

/// What expressions see of a call, and the turn in which its arguments were read where these refer to answers.
///
/// The inner error: such an answer is not there any more, and nothing may be concluded from the rest.
pub(crate) async fn subject(
    pool: &PgPool,
    about: &About<'_>,
) -> Result<Result<(Subject, Option<Turn>), String>, StoreError> {
    let mut args = read(about.args).unwrap_or(Value::Null);
    let mut turn = None;
    if references::may_be_in_canonical(about.args) {
        let gone = || "an answer that the arguments refer to is no longer kept".to_owned();
        let Ok(found) = references::references(&args) else {
            return Ok(Err(gone()));
        };
        let tenant = about.tenant.as_str();
        let turn = turn.insert(referents::turn().await);
        match referents::put_in(turn, pool, tenant, &mut args, &found).await {
            Ok(_took) => {}
            Err(ReferentError::None(_)) => return Ok(Err(gone())),
            Err(ReferentError::Store(error)) => return Err(error),
        }
    }
    let subject = Subject {
        call_id: about.call_id,
        tool: about.tool.to_string(),
        tool_version: about.tool_version,
        tenant: about.tenant.to_string(),
        args,
    };
    Ok(Ok((subject, turn)))
}

/// The arguments that a template becomes, as text and parsed by the door's own rules, like a caller's.
///
/// # Errors
///
/// A sentence that begins with whose arguments they are, such as "the probe's".
pub(crate) async fn arguments(
    whose: &str,
    template: &Value,
    subject: Subject,
    turn: Option<Turn>,
) -> Result<(String, Value), String> {
    let template = template.clone();
    let thinking = think(move || {
        let _turn = turn;
        probe::filled(&template, &subject)
    });
    let args = thinking.await;
    let args = args.ok_or_else(|| format!("{whose} arguments take too long to compute"))??;
    let made = canonical::to_text(&args);
    let args = arguments::parse(made.as_bytes(), &Limits::DEFAULT)
        .map_err(|error| format!("{whose} arguments: {}", error.message))?;
    // Of a template or of an answer that a tool gave: neither may choose what is read.
    if references::references(&args).map_or(true, |found| !found.is_empty()) {
        return Err(format!("{whose} arguments have a $result"));
    }
    Ok((made, args))
}

/// Evaluates an author's expressions on a blocking thread. `None`: it takes too long.
///
/// The engine bounds the number of its steps and not the cost of a step. An evaluation that is given up here still ends by
/// itself.
pub(crate) async fn think<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    static AT_A_TIME: Semaphore = Semaphore::const_new(2);
    let _turn = AT_A_TIME.acquire().await.ok()?;
    let thinking = timeout(THINK_MAX, tokio::task::spawn_blocking(work));
    thinking.await.ok()?.ok()
}

/// The ledger holds valid JSON, but it may be nested deeper than the engine accepts.
pub(crate) fn read(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}
