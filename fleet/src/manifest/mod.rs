//! A tool manifest: what an operator writes, what is stored as an immutable version.
//!
//! `version` is the content of one file; `policy`, `approval`, `retry`, `rate`, `rules`, `budget`, `context`, `tool_selection`,
//! `delegate`, `breaker`, `cache`, `fallback`, `files`, `probe`, `timeout`, `todo`, `large_result`, `client`, `completion`,
//! `executor` (`chat` of it, and `origin`), `sandbox`, `answer_form`, `over_mcp` and `shown` are parts of it. `parse` reads a file
//! in three steps: `document` (YAML or JSON), the schema of a manifest with its `advice`, and `check` for what its fields say
//! together. For that, `required` looks at the input schema, and `request` and `sql` at the two executors that are written as text,
//! `chat_check` at models, whose other defaults `chat_defaults` has filled in before; `unseen` at what is said of how calls are
//! shown; `built_in` has the names of the fleet's own tools. `mcp_server` is the other kind of manifest, which names a server whose
//! tools manifests name. `lint` warns of what a model may misunderstand.

mod answer_form;
mod approval;
mod breaker;
mod budget;
mod built_in;
mod cache;
mod chat;
mod client;
mod completion;
mod context;
mod delegate;
mod duration;
mod executor;
mod fallback;
mod files;
mod large_result;
mod mcp_server;
mod optional;
mod origin;
mod over_mcp;
mod policy;
pub(crate) mod probe;
mod rate;
pub(crate) mod retry;
mod rules;
mod sandbox;
mod shown;
mod size;
mod timeout;
mod todo;
mod tool_selection;
mod version;

mod advice;
mod chat_check;
mod chat_defaults;
mod check;
mod document;
mod flow;
mod input;
mod parse;
mod problem;
mod request;
mod required;
mod secret;
pub mod sql;
mod unseen;
pub mod uri_template;

mod lint;

pub use self::{
    answer_form::AnswerForm,
    approval::{ApprovalSpec, ApprovedBy, Comparison, Condition, PreviewSpec},
    breaker::{BreakerSpec, Percent, SlowSpec, WhenOpen},
    budget::Budget,
    built_in::{TODO_WRITE, is_built_in},
    cache::CacheSpec,
    chat::{ChatProtocol, ChatRoute, ChatSpec, RouteLack, RoutePrice},
    completion::CompletionSpec,
    context::{ClearToolResults, ContextSpec, ContextStrategy},
    delegate::{Delegate, Keyword},
    duration::{format_duration, parse_duration},
    executor::{
        ClientSpec, ExecutorSpec, HttpSpec, McpErrors, McpSpec, NativeSpec, NatsSpec, OwnSpec,
        Presents, ProcessSpec, RowBounds, SqlSpec,
    },
    fallback::{FallbackSpec, OtherTool, StaleSpec, UnfitTool},
    files::FilesSpec,
    large_result::{LargeResult, READ_RESULT, Threshold},
    lint::{lint, lint_text},
    mcp_server::{Lifetime, McpServer, McpTransport, OnChange, Trust},
    over_mcp::{OverMcp, TaskUse},
    parse::{AnyManifest, parse, parse_any},
    policy::{CoercionPolicy, ExitCodes, Idempotency, KeyPolicy, Sensitive, SensitiveMode},
    probe::ProbeSpec,
    problem::ManifestProblem,
    rate::{OnLimit, RateBy, RateLimit},
    retry::{RetryPolicy, RetryStrategy},
    rules::{AtMost, AtMostPer, Policy},
    sandbox::{Network, Sandbox},
    shown::{ShownAs, Visibility},
    timeout::{LearnedFrom, LearnedTimeout, Timeout},
    todo::TodoSpec,
    tool_selection::{FIND_TOOLS, ToolSelection, ToolSource},
    version::Manifest,
};
