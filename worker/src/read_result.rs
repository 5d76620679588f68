//! The fleet's own tool that reads large results: `read_result`.
//!
//! It is applied together with the first tool that has `large_result`, and every worker has its handler. `page` cuts what is asked
//! for out of a result.

mod page;

use std::sync::Arc;

use fleet::{
    call::Effect,
    ids::CallId,
    manifest::READ_RESULT,
    store::{
        PgPool,
        results::{self, KeptResult, Which},
    },
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use self::page::{Asked, Page};
use crate::tool::{Settings, Tool, ToolContext, ToolError};

/// Reads large results from the ledger.
#[derive(Default)]
pub(crate) struct ReadResult(Option<Ledger>);

struct Ledger {
    pool: PgPool,
    /// Each of them holds a result of megabytes, several times over.
    readers: Arc<Semaphore>,
}

/// How many results a worker reads at a time; other calls wait for their turn within their timeout.
const READERS: usize = 4;

impl ReadResult {
    /// With the ledger that has the results.
    pub(crate) fn of(pool: PgPool) -> Self {
        let readers = Arc::new(Semaphore::new(READERS));
        Self(Some(Ledger { pool, readers }))
    }
}

/// What it is asked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asking {
    /// The $result of a shortened answer.
    #[serde(rename = "ref")]
    #[schemars(length(equal = 36))]
    result: String,
    /// Where to begin: a character of a text, an item of an array. From `next_offset` of the page before; 0 if absent.
    #[serde(default)]
    offset: u32,
    /// How many characters at most.
    #[serde(default = "Asking::usual_limit")]
    #[schemars(range(min = 1, max = 8000))]
    limit: u32,
    /// Find this instead of reading a page: the places where it stands, without regard to case in ASCII.
    #[serde(default)]
    #[schemars(length(min = 1, max = 1024))]
    search: Option<String>,
    /// Only this part of the result, a JSON pointer such as /items/3/name.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    path: Option<String>,
}

impl Asking {
    const fn usual_limit() -> u32 {
        4_000
    }
}

impl Tool for ReadResult {
    type Args = Asking;
    type Output = Page;
    const NAME: &'static str = READ_RESULT;
    const VERSION: i32 = 1;
    const EFFECT: Effect = Effect::Read;
    const DESCRIPTION: &'static str = "Reads more of an answer that was shortened: one with $result and a preview. Pass its $result as ref. Gives a page \
         of the text from offset on, or of an array whole items; next_offset says where the next page begins, and is absent at \
         the end. With search it tells where a text stands. With path it reads only that part.";

    fn settings(&self) -> Settings {
        Settings::default().queue("default").without_output_schema()
    }

    async fn call(&self, asked: Asking, context: ToolContext) -> Result<Page, ToolError> {
        let unknown = || {
            let what = "there is no such result: it is unknown, or no longer kept";
            ToolError::business(what).with_code("not_found")
        };
        let call: CallId = asked.result.parse().map_err(|_not_an_id| unknown())?;
        let Ledger { pool, readers } = self.0.as_ref().ok_or_else(unknown)?;
        let turn = Arc::clone(readers).acquire_owned().await;
        let turn = turn.map_err(|_closed| unknown())?;
        let tenant = context.tenant();
        let result = results::result(pool, tenant, call, Which::AlsoDegraded, usize::MAX).await;
        let result = result.map_err(|_silent| ToolError::not_started("the ledger is away"))?;
        let Some(KeptResult::Text(result)) = result else {
            return Err(unknown());
        };
        // Megabytes: not on a thread that serves other calls.
        let reading = tokio::task::spawn_blocking(move || {
            // As long as the thread works, whatever has become of its call.
            let _turn = turn;
            let raw = RawValue::from_string(result).ok()?;
            let asked = Asked {
                offset: asked.offset as usize,
                limit: asked.limit as usize,
                search: asked.search.as_deref(),
                path: asked.path.as_deref().unwrap_or(""),
            };
            Some(page::of(&raw, &asked))
        });
        match reading.await {
            Ok(Some(Ok(page))) => Ok(page),
            Ok(Some(Err(why))) => Err(ToolError::business(why.to_string()).with_code(why.code())),
            Ok(None) | Err(_) => Err(unknown()),
        }
    }
}
