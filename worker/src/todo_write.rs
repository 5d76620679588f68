//! The fleet's own tool that changes the todo list of a session: `todo_write`.
//!
//! It is applied together with the first tool that has `todo`, and every worker has its handler. What was written is recognised by the
//! call, so another attempt of it changes nothing again.

use fleet::{
    call::{Effect, Language},
    manifest::TODO_WRITE,
    store::{PgPool, StoreError, todos},
    todo::{TodoChanges, TodoItem, TodoProblem, TodoUpdate},
    wire::message::Message,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tool::{Settings, Tool, ToolContext, ToolError};

/// Changes todo lists in the ledger.
#[derive(Default)]
pub(crate) struct TodoWrite(Option<PgPool>);

impl TodoWrite {
    /// In the ledger that has the lists.
    pub(crate) const fn of(pool: PgPool) -> Self {
        Self(Some(pool))
    }
}

/// What it is asked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WishedTodos {
    /// The titles of new items, each one line of at most 500 characters that says what is to be done.
    #[serde(default)]
    #[schemars(length(max = 200))]
    add: Vec<String>,
    /// New statuses of items that are in the list.
    #[serde(default)]
    #[schemars(length(max = 200))]
    update: Vec<WishedStatus>,
}

/// A new status of an item.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct WishedStatus {
    /// The id of the item, such as t1.
    #[schemars(length(min = 1))]
    id: String,
    /// One of `pending`, `in_progress`, `completed` and `cancelled`.
    #[schemars(length(min = 1))]
    status: String,
}

/// The list, and which changes were not made.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TodoAnswer {
    #[schemars(with = "Vec<Value>")]
    todos: Vec<TodoItem>,
    problems: Vec<ToldProblem>,
}

/// A change that was not made.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ToldProblem {
    /// Which, a JSON pointer in the arguments.
    path: String,
    /// What is wrong and what to send instead.
    message: String,
}

impl ToldProblem {
    fn of(problem: &TodoProblem, language: Language) -> Self {
        Self {
            path: problem.place.to_string(),
            message: problem.message.told(language).to_owned(),
        }
    }
}

impl Tool for TodoWrite {
    type Args = WishedTodos;
    type Output = TodoAnswer;
    const NAME: &'static str = TODO_WRITE;
    const VERSION: i32 = 1;
    const EFFECT: Effect = Effect::Idempotent;
    const DESCRIPTION: &'static str = "Changes the todo list of this conversation, and returns all of it. Add an item for each step of a task that has \
         several, set an item to in_progress when you begin it and to completed when it is done, and to cancelled when it need \
         not be done any more. Without arguments it returns the list. Changes that cannot be made stand in problems; the others are made.";

    fn settings(&self) -> Settings {
        Settings::default().queue("default").without_output_schema()
    }

    async fn call(
        &self,
        wished: WishedTodos,
        context: ToolContext,
    ) -> Result<TodoAnswer, ToolError> {
        let language = context.language();
        let Some(session) = context.session() else {
            let what = Message::fixed(
                "a todo list is that of a session, and this call has none; send the header Toolfleet-Session with the name of \
                 the conversation",
                "待办列表属于会话，而这次调用没有会话；请在请求头 Toolfleet-Session 中写明会话的名称",
            );
            return Err(ToolError::business(what.told(language)).with_code("no_session"));
        };
        let Some(pool) = &self.0 else {
            return Err(ToolError::not_started("there is no ledger"));
        };
        let changes = wished.changes();
        let writing = todos::write(pool, context.tenant(), session, context.call_id(), &changes);
        let written = writing.await.map_err(|error| unwritten(&error))?;
        let problems = written.problems.iter();
        Ok(TodoAnswer {
            problems: problems
                .map(|problem| ToldProblem::of(problem, language))
                .collect(),
            todos: written.items,
        })
    }
}

impl WishedTodos {
    fn changes(self) -> TodoChanges {
        let update = self.update.into_iter();
        TodoChanges {
            add: self.add,
            update: update
                .map(|WishedStatus { id, status }| TodoUpdate { id, status })
                .collect(),
        }
    }
}

/// Whether the list was written is known where the ledger has answered.
fn unwritten(error: &StoreError) -> ToolError {
    let what = "the ledger is away";
    if error.is_unavailable() {
        ToolError::unknown(what)
    } else {
        ToolError::not_started(what)
    }
}
