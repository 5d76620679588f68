//! The arguments of a call as its tool gets them: parsed, and with the answers that they refer to.

use std::{sync::Arc, time::Duration};

use fleet::{
    arguments,
    call::State,
    canonical,
    controls::LazyArguments,
    ids::CallId,
    manifest::{ChatProtocol, ExecutorSpec},
    outcome::ToolFailure,
    references,
    registry::Tool,
    said,
    store::{
        read,
        referents::{self, ReferentError},
    },
    telemetry::report,
    wire::{code::Code, message::Message},
};
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    dispose::{NoArguments, Skip},
    executors::chat::conversation,
    worker::WorkerProcess,
};

/// How long a call waits for its turn to have its references looked up. Its message is delivered again after ten seconds.
const TURN_WAIT_MAX: Duration = Duration::from_secs(2);

/// Arguments, ready for the tool.
pub(crate) struct CallArguments {
    /// What the tool gets.
    pub(crate) value: Value,
    /// Whether answers of other calls are in it.
    refer: bool,
}

/// What a pause sees of them.
#[derive(Clone, Copy)]
pub(crate) enum Seen<'a> {
    /// What the ledger has, which refers to nothing.
    Stored(&'a str),
    /// What the tool gets.
    Whole(&'a Value),
}

/// Reads them from what the ledger has of them. Only arguments with references cost statements.
pub(crate) async fn of(
    worker: &WorkerProcess,
    call: CallId,
    tool: &Arc<Tool>,
    stored: &str,
) -> Result<CallArguments, NoArguments> {
    // Parsed by the dispatcher's own parser: another one would rewrite numbers.
    let value =
        arguments::parse(stored.as_bytes(), tool.manifest.arguments_limits()).map_err(|error| {
            let why = error.message;
            let what = said!(
                "the stored arguments cannot be read: {why}",
                "无法读取已保存的参数：{why}",
                why
            );
            NoArguments::Never(ToolFailure::new(Code::ToolGone, what))
        })?;
    let arguments = if references::may_be_in_canonical(stored) {
        Box::pin(with_answers(worker, call, tool, value)).await?
    } else {
        CallArguments::whole(value)
    };
    match &tool.manifest.executor {
        ExecutorSpec::Chat(chat) if conversation::may_refer(stored) => {
            Box::pin(with_messages(worker, call, chat.protocol, arguments)).await
        }
        _ => Ok(arguments),
    }
}

/// A model's request with the messages of the calls that it goes on from.
async fn with_messages(
    worker: &WorkerProcess,
    call: CallId,
    protocol: ChatProtocol,
    arguments: CallArguments,
) -> Result<CallArguments, NoArguments> {
    let CallArguments { value, refer } = arguments;
    let value = Arc::new(value);
    let whole = crate::conversation::whole(worker, call, protocol, Arc::clone(&value)).await?;
    Ok(match whole {
        Some(value) => CallArguments { value, refer: true },
        None => CallArguments {
            value: Arc::unwrap_or_clone(value),
            refer,
        },
    })
}

async fn with_answers(
    worker: &WorkerProcess,
    call: CallId,
    tool: &Arc<Tool>,
    mut value: Value,
) -> Result<CallArguments, NoArguments> {
    // The door refuses what is none; a call of an older release may have it as it is.
    let found = references::references(&value).unwrap_or_default();
    if found.is_empty() {
        let refer = false;
        return Ok(CallArguments { value, refer });
    }
    let Ok(turn) = timeout(TURN_WAIT_MAX, referents::turn()).await else {
        return Err(NoArguments::Skip(Skip::NoTurn));
    };
    // By its row and not by the message, which says whose answers are read.
    let row = match read::find(&worker.pool, call).await {
        Ok(Some(row)) => row,
        Ok(None) => return Err(NoArguments::Skip(Skip::Gone)),
        Err(_silent) => return Err(NoArguments::Skip(Skip::StoreSilent)),
    };
    if !matches!(row.state(), State::Queued | State::Running) {
        return Err(NoArguments::Skip(Skip::NotQueued(row.state())));
    }
    let tenant = row.tenant.as_str();
    let put_in = referents::put_in(&turn, &worker.pool, tenant, &mut value, &found).await;
    match put_in {
        Ok(_took) => {}
        Err(ReferentError::None(none)) => {
            return Err(NoArguments::Never(none.failure(row.language)));
        }
        Err(ReferentError::Store(error)) => {
            tracing::debug!(
                error = report(&error),
                "answers that arguments refer to were not read"
            );
            return Err(NoArguments::Skip(Skip::StoreSilent));
        }
    }
    let tool = Arc::clone(tool);
    let checking = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        // A dispatcher of an older release took the reference for the argument.
        tool.schema.is_valid(&value).then_some(value)
    });
    match checking.await {
        Ok(Some(value)) => Ok(CallArguments { value, refer: true }),
        Ok(None) => {
            let what = Message::fixed(
                "with the answers that they refer to, the arguments do not fit the tool's schema",
                "代入所引用的结果之后，参数不符合工具的 schema",
            );
            let failure = ToolFailure::new(Code::InvalidArguments, what);
            Err(NoArguments::Never(failure))
        }
        Err(_stopping) => Err(NoArguments::Skip(Skip::StoreSilent)),
    }
}

impl CallArguments {
    /// Arguments that were made here, and refer to nothing.
    pub(crate) const fn whole(value: Value) -> Self {
        Self {
            value,
            refer: false,
        }
    }

    /// As JSON text, where `stored` is what the ledger has of them.
    pub(crate) fn text(&self, stored: &str) -> String {
        if self.refer {
            return canonical::to_text(&self.value);
        }
        stored.to_owned()
    }
}

impl<'a> Seen<'a> {
    /// Of what the ledger has, and of what was read of it.
    pub(crate) fn of(stored: &'a str, read: Option<&'a CallArguments>) -> Self {
        match read {
            Some(read) => Self::Whole(&read.value),
            None => Self::Stored(stored),
        }
    }

    pub(crate) fn lazy(self) -> LazyArguments<'a> {
        match self {
            Self::Stored(text) => LazyArguments::new(text),
            Self::Whole(value) => LazyArguments::of(value),
        }
    }
}
