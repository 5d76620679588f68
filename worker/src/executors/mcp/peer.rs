//! What a worker knows of a server: which revision it speaks, its session, and what it says of its tools.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fleet::{
    manifest::{McpSpec, OnChange},
    mcp::pin::Pin,
    outcome::ToolFailure,
    said,
    wire::{code::Code, message::Message},
};
use reqwest::header::HeaderValue;
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};
use tokio::time::Instant;

use super::{
    answer::cut_off,
    came::{Came, CutOff},
    cut::AttemptEnd,
    headers::MirroredArguments,
    hear::Hear,
    http::{Exchanged, HttpTarget, RequestHeaders},
    message::{self, Request, Revision, RpcAnswer},
    stdio::ServerProcess,
};

/// How long a worker believes what a server said of its tools.
pub(super) const FRESH: Duration = Duration::from_secs(300);
/// How long learning what a server is may take.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long a program may be silent to the newer revision before it is taken for one of the older.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// The most bytes of one page of tools, the most pages, and the most tools.
const PAGE_MAX: usize = 8 * 1024 * 1024;
const PAGES_MAX: usize = 200;
const TOOLS_MAX: usize = 10_000;
/// The most bytes of all pages.
const PAGES_BYTES_MAX: usize = 32 * 1024 * 1024;

/// How a server is reached.
#[derive(Debug, Clone)]
pub(super) enum Carrier {
    Http(Box<HttpTarget>),
    Stdio(Arc<ServerProcess>),
}

/// What a server is.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) greeting: Greeting,
    tools: HashMap<String, KnownTool>,
    pub(super) listed_at: Instant,
}

/// Which revision a server speaks, and its session, if it has one.
#[derive(Debug, Clone)]
pub(super) struct Greeting {
    pub(super) revision: Revision,
    pub(super) session: Option<HeaderValue>,
}

/// What is known of a tool.
#[derive(Debug)]
pub(super) struct KnownTool {
    pin: Pin,
    mirrored: Result<MirroredArguments, String>,
}

impl Connection {
    /// Of what a server says of its tools.
    pub(super) fn of(greeting: Greeting, definitions: &[Value]) -> Self {
        let tools = definitions.iter().filter_map(|definition| {
            let name = definition["name"].as_str()?.to_owned();
            let tool = KnownTool {
                pin: Pin::of(definition),
                mirrored: MirroredArguments::of(&definition["inputSchema"]),
            };
            Some((name, tool))
        });
        Self {
            greeting,
            tools: tools.collect(),
            listed_at: Instant::now(),
        }
    }

    /// The tool of a call, where the server still says what it said when that was applied.
    ///
    /// # Errors
    ///
    /// It does not: `tool_changed`, and nothing was started.
    pub(super) fn tool(
        &self,
        spec: &McpSpec,
        on_change: OnChange,
    ) -> Result<&MirroredArguments, ToolFailure> {
        let server = &spec.server;
        let changed = |what: Message| Err(ToolFailure::new(Code::ToolChanged, what));
        let Some(tool) = self.tools.get(&spec.tool) else {
            return changed(said!(
                "the MCP server {server} has no such tool any more",
                "MCP 服务器 {server} 已经没有这个工具"
            ));
        };
        let is_same_shape = spec.shape.as_ref() == Some(&tool.pin.shape);
        if tool.pin.whole != spec.pin && !(on_change == OnChange::Warn && is_same_shape) {
            return changed(said!(
                "the MCP server {server} says something else of this tool than when it was applied",
                "MCP 服务器 {server} 对这个工具的描述与应用时不同"
            ));
        }
        if tool.pin.whole != spec.pin {
            tracing::warn!(%server, tool = spec.tool, "the MCP server describes a tool in other words than when it was applied");
        }
        tool.mirrored.as_ref().map_err(|why| {
            let what = said!(
                "the MCP server {server} defines this tool in a way that cannot be called: {why}",
                "MCP 服务器 {server} 对这个工具的定义无法调用：{why}"
            );
            ToolFailure::new(Code::ToolGone, what)
        })
    }
}

/// Asks a server, within an attempt.
pub(super) struct Peer<'a> {
    pub(super) carrier: &'a Carrier,
    pub(super) ids: &'a AtomicU64,
    pub(super) cut: &'a AttemptEnd,
    pub(super) hear: &'a Hear,
}

impl Peer<'_> {
    pub(super) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request once.
    pub(super) async fn exchange(
        &self,
        request: &Request,
        greeting: &Greeting,
        mirrored: Vec<(reqwest::header::HeaderName, HeaderValue)>,
        is_write: bool,
        limit: usize,
    ) -> Exchanged {
        match self.carrier {
            Carrier::Http(target) => {
                let own = RequestHeaders {
                    session: greeting.session.clone(),
                    mirrored,
                    is_write,
                };
                target
                    .exchange(request, greeting.revision, own, limit, self.cut, self.hear)
                    .await
            }
            Carrier::Stdio(process) => Exchanged {
                came: process.exchange(request, limit, self.cut, self.hear).await,
                session: None,
            },
        }
    }

    /// Asks for something that changes nothing.
    pub(super) async fn ask(
        &self,
        method: &'static str,
        params: &Value,
        greeting: &Greeting,
        limit: usize,
    ) -> Exchanged {
        let revision = greeting.revision;
        let request = Request::new(self.next_id(), method, params, revision, Map::new());
        let request = match params["taskId"].as_str() {
            Some(task) => request.named(task),
            None => request,
        };
        self.exchange(&request, greeting, Vec::new(), false, limit)
            .await
    }

    /// Sends a message that nobody answers.
    pub(super) async fn tell(&self, method: &'static str, params: &Value, greeting: &Greeting) {
        let body = message::notification(method, params, greeting.revision);
        match self.carrier {
            Carrier::Http(target) => {
                let session = greeting.session.as_ref();
                target.tell(body, method, greeting.revision, session).await;
            }
            Carrier::Stdio(process) => process.tell(body).await,
        }
    }

    /// Learns which revision a server speaks, and what it says of its tools.
    ///
    /// # Errors
    ///
    /// It does not say. Nothing of a call was sent.
    pub(super) async fn connect(&self) -> Result<(Greeting, Vec<Value>), ToolFailure> {
        let cut = self.cut.within(CONNECT_MAX);
        let peer = Peer { cut: &cut, ..*self };
        let modern = Greeting {
            revision: Revision::Modern,
            session: None,
        };
        let first = match self.carrier {
            Carrier::Http(_) => match peer.page(None, &modern).await {
                Err(refused)
                    if refused
                        .error()
                        .is_some_and(|error| error.names_as_spoken(modern.revision)) =>
                {
                    peer.page(None, &modern).await
                }
                first => first,
            },
            Carrier::Stdio(_) => {
                let cut = cut.within(SILENCE_MAX);
                Peer { cut: &cut, ..peer }.page(None, &modern).await
            }
        };
        let is_modern = match &first {
            Ok(page) => page.is_modern,
            Err(Came::CutOff(CutOff::TimedOut)) => {
                !matches!(self.carrier, Carrier::Stdio(_)) || cut.is_over().is_some()
            }
            // What a server of the older revision may say to a request before its handshake.
            Err(Came::Answer(RpcAnswer::Error(_))) => false,
            Err(Came::Status(came)) => {
                !(400..500).contains(&came.status) || matches!(came.status, 401 | 403 | 429)
            }
            Err(_other) => true,
        };
        if is_modern {
            let first = first.map_err(not_connected)?;
            let tools = peer.rest(first, &modern).await?;
            return Ok((modern, tools));
        }
        match (peer.initialize().await, first) {
            (Ok(greeting), _) => {
                let first = peer.page(None, &greeting).await.map_err(not_connected)?;
                let tools = peer.rest(first, &greeting).await?;
                Ok((greeting, tools))
            }
            // It has answered, and knows no handshake.
            (Err(_), Ok(page)) => Ok((modern.clone(), peer.rest(page, &modern).await?)),
            (Err(why), Err(_)) => Err(why),
        }
    }

    /// Asks again what a server says of its tools.
    ///
    /// # Errors
    ///
    /// It does not say.
    pub(super) async fn list(&self, greeting: &Greeting) -> Result<Vec<Value>, Came> {
        let cut = self.cut.within(CONNECT_MAX);
        let peer = Peer { cut: &cut, ..*self };
        let first = peer.page(None, greeting).await?;
        peer.rest(first, greeting).await.map_err(Came::NotSent)
    }

    async fn initialize(&self) -> Result<Greeting, ToolFailure> {
        let legacy = Greeting {
            revision: Revision::Legacy(Revision::OLDER[0]),
            session: None,
        };
        let params = json!({
            "protocolVersion": legacy.revision.as_str(),
            "capabilities": message::capabilities(legacy.revision),
            "clientInfo": message::client_info(),
        });
        let Exchanged { came, session } = self.ask("initialize", &params, &legacy, PAGE_MAX).await;
        let result = match came {
            Came::Answer(RpcAnswer::Result(result, _)) => result,
            other => return Err(not_connected(other)),
        };
        let spoken = version(&result).and_then(|version| {
            let mut known = Revision::OLDER.into_iter();
            known.find(|known| *known == version)
        });
        let Some(spoken) = spoken else {
            let what = Message::fixed(
                "the MCP server speaks no revision of the protocol that this worker knows",
                "MCP 服务器使用的协议版本是这个 worker 不认识的",
            );
            return Err(ToolFailure::new(Code::Unavailable, what));
        };
        let greeting = Greeting {
            revision: Revision::Legacy(spoken),
            session,
        };
        self.tell("notifications/initialized", &json!({}), &greeting)
            .await;
        Ok(greeting)
    }

    async fn page(&self, cursor: Option<&str>, greeting: &Greeting) -> Result<ToolsPage, Came> {
        let params = match cursor {
            Some(cursor) => json!({ "cursor": cursor }),
            None => json!({}),
        };
        let Exchanged { came, .. } = self.ask("tools/list", &params, greeting, PAGE_MAX).await;
        match came {
            Came::Answer(RpcAnswer::Result(result, _)) => {
                ToolsPage::read(&result).ok_or_else(|| Came::NoAnswer(unfit_list()))
            }
            other => Err(other),
        }
    }

    /// All tools, from the first page on.
    async fn rest(&self, first: ToolsPage, greeting: &Greeting) -> Result<Vec<Value>, ToolFailure> {
        let ToolsPage {
            mut tools,
            mut next,
            mut bytes,
            ..
        } = first;
        for _page in 1..PAGES_MAX {
            let Some(cursor) = next.take() else { break };
            let page = self
                .page(Some(&cursor), greeting)
                .await
                .map_err(not_connected)?;
            bytes += page.bytes;
            tools.extend(page.tools);
            next = page.next;
            if bytes > PAGES_BYTES_MAX || tools.len() > TOOLS_MAX {
                break;
            }
        }
        if next.is_some() || tools.len() > TOOLS_MAX {
            let what = said!(
                "the MCP server lists more than {TOOLS_MAX} tools, or goes on listing",
                "MCP 服务器列出了超过 {TOOLS_MAX} 个工具，或者一直在列出"
            );
            return Err(ToolFailure::new(Code::Unavailable, what));
        }
        Ok(tools)
    }
}

/// A page of tools.
struct ToolsPage {
    tools: Vec<Value>,
    next: Option<String>,
    bytes: usize,
    is_modern: bool,
}

impl ToolsPage {
    fn read(result: &RawValue) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ListResult {
            tools: Vec<Value>,
            #[serde(default)]
            next_cursor: Option<String>,
            #[serde(default)]
            result_type: Option<String>,
        }
        let read: ListResult = serde_json::from_str(result.get()).ok()?;
        Some(Self {
            tools: read.tools,
            next: read.next_cursor,
            bytes: result.get().len(),
            is_modern: read.result_type.is_some(),
        })
    }
}

fn version(result: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct InitializeResult {
        protocol_version: String,
    }
    let read: InitializeResult = serde_json::from_str(result.get()).ok()?;
    Some(read.protocol_version)
}

fn unfit_list() -> ToolFailure {
    let what = Message::fixed(
        "the MCP server's list of tools is not what the protocol says",
        "MCP 服务器的工具列表不符合协议",
    );
    ToolFailure::new(Code::Unavailable, what)
}

/// Why a server could not be asked. Nothing of a call was sent.
pub(super) fn not_connected(came: Came) -> ToolFailure {
    match came {
        Came::NotSent(failure) => failure,
        Came::NoAnswer(mut failure) => {
            failure.code = Code::Unavailable;
            failure
        }
        Came::CutOff(why) => cut_off(why),
        Came::Status(came) => {
            let status = came.status;
            let what = said!(
                "the MCP server cannot be asked: it answered with status {status}",
                "无法询问 MCP 服务器：它返回了状态码 {status}"
            );
            ToolFailure::new(Code::Unavailable, what)
                .with_details(json!({ "status": status }))
                .with_retry_after(came.retry_after)
        }
        Came::Answer(RpcAnswer::Error(error)) => {
            let code = error.code;
            let what = said!(
                "the MCP server cannot be asked: it answered with error {code}",
                "无法询问 MCP 服务器：它返回了错误 {code}"
            );
            ToolFailure::new(Code::Unavailable, what).with_details(json!({ "rpc_code": code }))
        }
        Came::Answer(RpcAnswer::Result(..)) => unfit_list(),
        Came::TooLarge(..) => {
            let what = Message::fixed(
                "the MCP server's list of tools is too large",
                "MCP 服务器的工具列表过大",
            );
            ToolFailure::new(Code::Unavailable, what)
        }
    }
}
