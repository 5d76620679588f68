//! Checks a tool's answer against `output` and `output_schema` of its manifest.

use std::{sync::Arc, time::Duration};

use fleet::{
    outcome::ToolFailure,
    registry::Tool,
    wire::{code::Code, message::Message},
};
use serde_json::value::RawValue;
use tokio::{sync::Semaphore, time::timeout};

/// An answer of more bytes is checked on a thread of its own.
const SHORT: usize = 64 * 1024;

/// The schema of a tool's answers. Clones are cheap.
#[derive(Debug, Clone, Default)]
pub struct Promise(Option<Arc<Tool>>);

impl Promise {
    pub(crate) fn of(tool: &Arc<Tool>) -> Self {
        Self(tool.is_choosy().then(|| Arc::clone(tool)))
    }

    /// The answer, and why it does not fit the schema, if it does not. The reason quotes no value.
    pub async fn kept(&self, answer: Box<RawValue>) -> Judged {
        match (self.kept_now(answer), &self.0) {
            (Ok(judged), _) => judged,
            (Err(answer), Some(tool)) => check_aside(answer, Arc::clone(tool)).await,
            (Err(answer), None) => (answer, None),
        }
    }

    /// The same without waiting. `Err` returns an answer that is too long for that.
    pub(crate) fn kept_now(&self, answer: Box<RawValue>) -> Result<Judged, Box<RawValue>> {
        match &self.0 {
            None => Ok((answer, None)),
            Some(_) if answer.get().len() > SHORT => Err(answer),
            Some(tool) => {
                let problem = tool.answer_problem(&answer);
                Ok((answer, problem))
            }
        }
    }
}

/// An answer, and why it does not fit the schema, if it does not.
type Judged = (Box<RawValue>, Option<ToolFailure>);

/// An answer of more bytes waits for its turn: one of 8 MiB may take hundreds while it is checked.
const LONG: usize = 1024 * 1024;
/// Such answers that are checked at a time.
static FEW_LONG: Semaphore = Semaphore::const_new(2);
/// How long one waits: then its attempt, whose time may be over soon, counts more than the memory.
const TURN_MAX: Duration = Duration::from_secs(2);

/// On a blocking thread, where it holds up nothing else.
async fn check_aside(answer: Box<RawValue>, tool: Arc<Tool>) -> Judged {
    let _turn = match answer.get().len() > LONG {
        true => timeout(TURN_MAX, FEW_LONG.acquire()).await.ok(),
        false => None,
    };
    let checking = tokio::task::spawn_blocking(move || {
        let problem = tool.answer_problem(&answer);
        (answer, problem)
    });
    checking.await.unwrap_or_else(|_panic| {
        let what = Message::fixed(
            "the tool's answer could not be held against its manifest",
            "无法用 manifest 检查工具返回的结果",
        );
        let flaw = ToolFailure::new(Code::OutputInvalid, what);
        (RawValue::NULL.to_owned(), Some(flaw))
    })
}
