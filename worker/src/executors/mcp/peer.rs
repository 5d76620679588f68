//! Asks a server: which revision it speaks, its session, and what it says of its tools.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fleet::{
    outcome::ToolFailure,
    said,
    wire::{code::Code, message::Message},
};
use reqwest::header::HeaderValue;
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};
use tokio::time::sleep;

use super::{
    answer::cut_off,
    came::{Came, CutOff},
    connection::Greeting,
    cut::AttemptEnd,
    hear::Hear,
    http::{Exchanged, HttpTarget, RequestHeaders},
    list::{KeptTools, ToolList, ToolsPage, too_large, unfit_list},
    message::{self, Request, Revision, RpcAnswer},
    stdio::ServerProcess,
};

/// How long asking a server for its tools may take, and learning what one over HTTP is.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long a program may take to start and to say what it is.
const START_MAX: Duration = Duration::from_secs(30);
/// How long a program may be silent to the newer revision before it is greeted in the older one too.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// The most bytes of an answer to a greeting.
const GREETING_MAX: usize = 1024 * 1024;

/// How a server is reached.
#[derive(Debug, Clone)]
pub(super) enum Carrier {
    Http(Box<HttpTarget>),
    Stdio(Arc<ServerProcess>),
}

impl Carrier {
    /// The failure of what was not answered in time, with what a program did instead.
    pub(super) fn instead_of_an_answer(&self, failure: ToolFailure) -> ToolFailure {
        match self {
            Self::Stdio(process) if failure.code == Code::Timeout => {
                process.shared().story.instead_of_an_answer(failure)
            }
            Self::Stdio(_) | Self::Http(_) => failure,
        }
    }

    /// Ends a program, and waits until all its processes are gone; false: one may be left.
    pub(super) async fn end(&self) -> bool {
        match self {
            Self::Http(_) => true,
            Self::Stdio(process) => process.end().await,
        }
    }
}

/// A first page of tools, or what came instead.
type FirstPage<K> = Result<(ToolList<K>, ToolsPage), Came>;

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
            Carrier::Stdio(process) => process.tell(body),
        }
    }

    /// Learns which revision a server speaks, and what it says of its tools.
    ///
    /// # Errors
    ///
    /// It does not say. Nothing of a call was sent.
    pub(super) async fn connect<K: KeptTools>(&self) -> Result<(Greeting, K), ToolFailure> {
        match self.carrier {
            Carrier::Http(_) => {
                let cut = self.cut.within(CONNECT_MAX);
                Peer { cut: &cut, ..*self }.connect_over_http().await
            }
            Carrier::Stdio(_) => {
                let cut = self.cut.within(START_MAX);
                Peer { cut: &cut, ..*self }.connect_to_program().await
            }
        }
    }

    async fn connect_over_http<K: KeptTools>(&self) -> Result<(Greeting, K), ToolFailure> {
        let first = self.first_page().await;
        if is_decided(&first) {
            return self.modern(first).await;
        }
        let greeted = self.initialize().await;
        self.settle(first, greeted).await
    }

    /// A program that is silent may be one of the older revision, which passes over what comes before its handshake, or one that is
    /// still starting. So it is greeted too, and whatever it answers first says what it is.
    async fn connect_to_program<K: KeptTools>(&self) -> Result<(Greeting, K), ToolFailure> {
        let mut asked = Box::pin(self.first_page());
        let soon = tokio::select! {
            biased;
            first = &mut asked => Some(first),
            () = sleep(SILENCE_MAX) => None,
        };
        if let Some(first) = soon {
            if is_decided(&first) {
                return self.modern(first).await;
            }
            let greeted = self.initialize().await;
            return self.settle(first, greeted).await;
        }
        let mut greeting = Box::pin(self.initialize());
        tokio::select! {
            biased;
            first = &mut asked => {
                if is_decided(&first) {
                    return self.modern(first).await;
                }
                let greeted = greeting.await;
                self.settle(first, greeted).await
            }
            greeted = &mut greeting => match greeted {
                Ok(greeting) => self.older(greeting).await,
                // It knows no handshake, so it will answer the newer revision.
                Err(why) => {
                    let first = asked.await;
                    self.settle(first, Err(why)).await
                }
            }
        }
    }

    async fn first_page<K: KeptTools>(&self) -> FirstPage<K> {
        let modern = Greeting::modern();
        let first = self.page(ToolList::default(), None, &modern).await;
        match first {
            // Some servers refuse the first request of a client.
            Err(refused)
                if refused
                    .error()
                    .is_some_and(|error| error.names_as_spoken(modern.revision)) =>
            {
                self.page(ToolList::default(), None, &modern).await
            }
            first => first,
        }
    }

    async fn modern<K: KeptTools>(
        &self,
        first: FirstPage<K>,
    ) -> Result<(Greeting, K), ToolFailure> {
        let modern = Greeting::modern();
        let first = first.map_err(not_connected)?;
        let tools = self.rest(first, &modern).await.map_err(not_connected)?;
        Ok((modern, tools))
    }

    async fn older<K: KeptTools>(&self, greeting: Greeting) -> Result<(Greeting, K), ToolFailure> {
        let first = self.page(ToolList::default(), None, &greeting).await;
        let first = first.map_err(not_connected)?;
        let tools = self.rest(first, &greeting).await.map_err(not_connected)?;
        Ok((greeting, tools))
    }

    /// What a server is that was greeted because its first answer did not say it.
    async fn settle<K: KeptTools>(
        &self,
        first: FirstPage<K>,
        greeted: Result<Greeting, ToolFailure>,
    ) -> Result<(Greeting, K), ToolFailure> {
        match (greeted, first) {
            (Ok(greeting), _) => self.older(greeting).await,
            // It has answered, and knows no handshake.
            (Err(_), Ok(first)) => self.modern(Ok(first)).await,
            (Err(why), Err(_)) => Err(why),
        }
    }

    /// Asks again what a server says of its tools.
    ///
    /// # Errors
    ///
    /// It does not say.
    pub(super) async fn list<K: KeptTools>(&self, greeting: &Greeting) -> Result<K, Came> {
        let cut = self.cut.within(CONNECT_MAX);
        let peer = Peer { cut: &cut, ..*self };
        let first = peer.page(ToolList::default(), None, greeting).await?;
        peer.rest(first, greeting).await
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
        let Exchanged { came, session } =
            self.ask("initialize", &params, &legacy, GREETING_MAX).await;
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

    /// The next page of a list.
    async fn page<K: KeptTools>(
        &self,
        list: ToolList<K>,
        cursor: Option<&str>,
        greeting: &Greeting,
    ) -> FirstPage<K> {
        let params = match cursor {
            Some(cursor) => json!({ "cursor": cursor }),
            None => json!({}),
        };
        let asked = self.ask("tools/list", &params, greeting, list.room());
        match asked.await.came {
            Came::Answer(RpcAnswer::Result(result, _)) => {
                list.with(result).await.map_err(Came::NoAnswer)
            }
            other => Err(other),
        }
    }

    /// All tools, from the first page on.
    async fn rest<K: KeptTools>(
        &self,
        (mut list, mut page): (ToolList<K>, ToolsPage),
        greeting: &Greeting,
    ) -> Result<K, Came> {
        while let Some(cursor) = page.next.take() {
            (list, page) = self.page(list, Some(&cursor), greeting).await?;
        }
        Ok(list.kept)
    }
}

/// Whether what came to the first request says that the server speaks the newer revision, or that it says nothing at all.
fn is_decided<K>(first: &FirstPage<K>) -> bool {
    match first {
        Ok((_, page)) => page.is_modern,
        // What a server of the older revision may say to a request before its handshake.
        Err(Came::Answer(RpcAnswer::Error(_))) => false,
        Err(Came::Status(came)) => {
            !(400..500).contains(&came.status) || matches!(came.status, 401 | 403 | 429)
        }
        Err(_other) => true,
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

/// Why a server could not be asked. Nothing of a call was sent.
pub(super) fn not_connected(came: Came) -> ToolFailure {
    match came {
        Came::NotSent(failure) => failure,
        Came::NoAnswer(mut failure) => {
            failure.code = Code::Unavailable;
            failure
        }
        Came::CutOff(CutOff::TimedOut) => {
            let what = Message::fixed(
                "the MCP server did not say in time what its tools are",
                "MCP 服务器没有及时说明它有哪些工具",
            );
            ToolFailure::new(Code::Timeout, what)
        }
        Came::CutOff(why @ CutOff::Stopped(_)) => cut_off(why),
        Came::Status(came) if matches!(came.status, 401 | 403) => came.let_nobody_in(),
        Came::Status(came) => {
            let status = came.status;
            let what = said!(
                "the MCP server cannot be asked: it answered with status {status}",
                "MCP 服务器无法询问：它返回了状态码 {status}"
            );
            ToolFailure::new(Code::Unavailable, what)
                .with_details(came.details())
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
        Came::TooLarge(..) => too_large(),
    }
}
