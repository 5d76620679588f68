//! Validate: whether a submission is a call that its tool accepts, and with which arguments.

use std::sync::Arc;

use fleet::{
    arguments::{Limits, parse},
    canonical, files,
    ids::{Label, ToolName},
    manifest::KeyPolicy,
    mcp, references,
    registry::{Lookup, Registry, Tool},
    said,
    store::PgPool,
    wire::{code::Code, headers::RequestHeaders, message::Message},
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;

use crate::{
    arguments::{self, Arguments, Fitting, SHORT, aside},
    files::named,
    key,
    refusal::Refusal,
};

/// A submission that is well formed; its tool and arguments are not checked yet.
pub(crate) struct Submission {
    pub(crate) tenant: Label,
    pub(crate) tool: ToolName,
    pub(crate) headers: RequestHeaders,
    /// The arguments as they were sent, JSON text.
    pub(crate) sent: String,
    /// Its hash, with the files.
    pub(crate) original_hash: [u8; 32],
    /// The parsed arguments, until a check turns them into [`Arguments`].
    args: Value,
    /// How large they may be.
    limits: &'static Limits,
}

/// A submission's tool, and its arguments as that tool gets them.
pub(crate) struct Checked {
    pub(crate) tool: Arc<Tool>,
    /// The tool's newest version: its limits, breaker and repeat cap hold, whatever version a caller asks for.
    pub(crate) newest: Arc<Tool>,
    pub(crate) arguments: Arguments,
}

/// Why a submission makes no new call, and the key under which there may be a call already.
pub(crate) struct TurnedAway {
    pub(crate) refusal: Refusal,
    /// The hash of the caller's key, or of the key that the tool derives from the arguments.
    pub(crate) key: Option<[u8; 32]>,
}

impl Submission {
    /// Reads these arguments, as far as that is possible without the tool; long ones on a blocking thread.
    pub(crate) async fn of(
        registry: &Registry,
        tenant: Label,
        tool: ToolName,
        headers: RequestHeaders,
        body: &[u8],
    ) -> Result<Self, Refusal> {
        let limits = limits(registry, &tool, &headers, body);
        if body.len() <= SHORT {
            return Self::read(tenant, tool, headers, body, limits);
        }
        let body = body.to_vec();
        Box::pin(aside(move || {
            Self::read(tenant, tool, headers, &body, limits)
        }))
        .await
    }

    /// Reads these arguments, as far as that is possible without the tool.
    pub(crate) fn read(
        tenant: Label,
        tool: ToolName,
        headers: RequestHeaders,
        body: &[u8],
        limits: &'static Limits,
    ) -> Result<Self, Refusal> {
        let args = parse(body, limits).map_err(|error| {
            let refused = Refusal::new(error.code.into(), error.message);
            if error.path.is_empty() {
                refused
            } else {
                refused.at(error.path)
            }
        })?;
        Ok(Self {
            original_hash: files::hash(Sha256::digest(body).into(), &headers.files),
            tenant,
            tool,
            headers,
            sent: String::from_utf8_lossy(body).into_owned(),
            args,
            limits,
        })
    }

    /// The hash of the arguments as this version of the tool gets them; without a version, of the arguments as sent. With the files.
    ///
    /// `None` where they do not fit.
    pub(crate) async fn hash_for(&self, tool: Option<&Arc<Tool>>) -> Option<[u8; 32]> {
        let args = parse(self.sent.as_bytes(), self.limits).ok()?;
        let hash = match tool {
            Some(tool) => arguments::hash_for(tool, &self.sent, args).await?,
            None => canonical::hash(&args),
        };
        Some(files::hash(hash, &self.headers.files))
    }

    /// The arguments as this tool gets them, and whether it takes the files.
    async fn fit(
        &self,
        args: Value,
        tool: &Arc<Tool>,
        pool: &PgPool,
    ) -> Result<Arguments, Refusal> {
        let fitting = Fitting {
            pool,
            tenant: &self.tenant,
            tool,
            level: tool.manifest.coercion_level(),
        };
        let mut arguments = fitting.fit(&self.sent, args).await?;
        let files = &self.headers.files;
        if !files.is_empty() {
            Box::pin(named::check(pool, &self.tenant, &tool.manifest, files)).await?;
            arguments.hash = files::hash(arguments.hash, files);
        }
        Ok(arguments)
    }
}

/// How large the arguments of this tool may be. Short ones are within the limits of every tool, and are not worth a look.
pub(crate) fn limits(
    registry: &Registry,
    tool: &ToolName,
    headers: &RequestHeaders,
    body: &[u8],
) -> &'static Limits {
    if body.len() <= SHORT {
        return &Limits::DEFAULT;
    }
    match registry.look_up(tool, headers.tool_version) {
        Lookup::Offered(tool) | Lookup::Retired(tool) => tool.manifest.arguments_limits(),
        Lookup::NoSuchVersion(_) | Lookup::NoSuchTool => &Limits::DEFAULT,
    }
}

/// Checks a new call. The ledger is asked only for answers that its arguments refer to.
pub(crate) async fn check(
    registry: &Registry,
    pool: &PgPool,
    submission: &mut Submission,
) -> Result<Checked, TurnedAway> {
    let refusal = match check_new(registry, pool, submission).await {
        Ok(checked) => return Ok(checked),
        Err(refusal) => refusal,
    };
    let key = match &submission.headers.key {
        Some(key) => Some(key::hash_of_callers(&submission.tenant, key)),
        // What the arguments refer to may be gone, or a file, and their call is there all the same.
        None if refusal.code == Code::ToolRetired
            || references::may_be_in(&submission.sent)
            || !submission.headers.files.is_empty() =>
        {
            Box::pin(key_from_arguments(registry, submission)).await
        }
        None => None,
    };
    Err(TurnedAway { refusal, key })
}

/// The tool of a submission, and its arguments as that tool gets them, or why they do not fit it. Nothing else of the submission is looked
/// at.
///
/// # Errors
///
/// There is no such tool that takes calls.
pub(crate) async fn fitted(
    registry: &Registry,
    pool: &PgPool,
    submission: &mut Submission,
) -> Result<(Arc<Tool>, Result<Arguments, Refusal>), Refusal> {
    let tool = tool_for(registry, submission)?;
    let args = std::mem::take(&mut submission.args);
    let arguments = submission.fit(args, &tool, pool).await;
    Ok((tool, arguments))
}

async fn check_new(
    registry: &Registry,
    pool: &PgPool,
    submission: &mut Submission,
) -> Result<Checked, Refusal> {
    if submission.headers.run_deadline.is_some_and(has_passed) {
        let what = Message::fixed(
            "the deadline of the run (Toolfleet-Run-Deadline) must be in the future",
            "run 的截止时间（Toolfleet-Run-Deadline）必须晚于现在",
        );
        return Err(Refusal::new(Code::DeadlineInvalid, what));
    }
    let tool = tool_for(registry, submission)?;
    let name = &submission.tool;
    if tool.manifest.key_policy() == KeyPolicy::Required && submission.headers.key.is_none() {
        let what = said!(
            "the tool {name} needs an idempotency key (Idempotency-Key), so that it is never run twice by mistake",
            "工具 {name} 需要幂等键（Idempotency-Key），以免被误执行两次"
        );
        return Err(Refusal::new(Code::MissingIdempotencyKey, what));
    }
    let args = std::mem::take(&mut submission.args);
    let arguments = submission.fit(args, &tool, pool).await?;
    let newest = match submission.headers.tool_version {
        None => None,
        Some(_) => registry.current(&submission.tool),
    };
    Ok(Checked {
        newest: newest.unwrap_or_else(|| Arc::clone(&tool)),
        tool,
        arguments,
    })
}

fn tool_for(registry: &Registry, submission: &Submission) -> Result<Arc<Tool>, Refusal> {
    let name = &submission.tool;
    // The subject says the tenant, and NATS who may ask there; where somebody wants to hear the answer says nothing.
    if mcp::is_for_operators(name.as_str()) && submission.tenant.as_str() != mcp::OPERATORS {
        let what = said!(
            "the tool {name} is for operators, who look at an MCP server with toolfleet mcp discover SERVER",
            "工具 {name} 只供运维人员使用：请用 toolfleet mcp discover SERVER 查看 MCP 服务器"
        );
        return Err(Refusal::new(Code::Forbidden, what));
    }
    let (code, what) = match registry.look_up(name, submission.headers.tool_version) {
        Lookup::Offered(tool) => return Ok(tool),
        Lookup::Retired(_) => (
            Code::ToolRetired,
            said!(
                "the tool {name} is retired and takes no new calls",
                "工具 {name} 已停用，不再接受新的调用"
            ),
        ),
        Lookup::NoSuchVersion(version) => (
            Code::UnknownToolVersion,
            said!(
                "the tool {name} has no version {version}",
                "工具 {name} 没有版本 {version}"
            ),
        ),
        Lookup::NoSuchTool => (
            Code::UnknownTool,
            said!("there is no tool named {name}", "没有名为 {name} 的工具"),
        ),
    };
    Err(Refusal::new(code, what))
}

/// The key that a tool derives from the arguments of a submission that is refused; `None` where it derives none.
async fn key_from_arguments(registry: &Registry, submission: &Submission) -> Option<[u8; 32]> {
    let named = (&submission.tool, submission.headers.tool_version);
    let (Lookup::Retired(tool) | Lookup::Offered(tool)) = registry.look_up(named.0, named.1) else {
        return None;
    };
    let policy = tool.manifest.key_policy();
    if policy != KeyPolicy::FromArguments {
        return None;
    }
    let hash = submission.hash_for(Some(&tool)).await?;
    key::hash_for_call(&submission.tenant, &submission.tool, policy, None, &hash)
}

/// By this process's clock, so it is only a courtesy: the claim decides by Postgres's clock.
#[expect(
    clippy::disallowed_methods,
    reason = "spares a call that would expire at once, decides nothing"
)]
fn has_passed(deadline: OffsetDateTime) -> bool {
    deadline <= OffsetDateTime::now_utc()
}
