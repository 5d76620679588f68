//! Asks the dispatchers, as any program would: one connection, one inbox for the answers to all questions, and an entry for each that
//! waits.

use std::time::Duration;

use async_nats::client::{PublishError, PublishErrorKind};
use fleet::{
    bus::connect::Bus,
    said,
    wire::{code::Code, message::Message},
};
use fleet_client::{Answer, AskError, FleetClient, Question};
use tokio::time::timeout;

use crate::refusal::{Refused, Repeatable};

/// How long a request waits for the connection to NATS, where that is gone.
const CONNECTED_MAX: Duration = Duration::from_secs(2);

/// The fleet, as a caller sees it. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Dispatchers {
    bus: Bus,
    client: FleetClient,
}

impl Dispatchers {
    /// Over this connection.
    ///
    /// # Errors
    ///
    /// It is closed.
    pub(crate) async fn new(bus: &Bus) -> Result<Self, AskError> {
        Ok(Self {
            bus: bus.clone(),
            client: FleetClient::of(bus).await?,
        })
    }

    /// What asks over the connection, with the inbox for all answers.
    pub(crate) const fn client(&self) -> &FleetClient {
        &self.client
    }

    /// The subjects of the fleet.
    pub(crate) fn subjects(&self) -> &fleet::wire::subjects::Subjects {
        self.client.subjects()
    }

    /// Asks, and waits for the answer. Dropping the future gives up the answer; the request may have been taken.
    ///
    /// # Errors
    ///
    /// There is no answer: `unavailable` where nothing was taken, `no_answer` where that is unknown.
    pub(crate) async fn ask(
        &self,
        question: Question,
        repeatable: Repeatable,
    ) -> Result<Answer, Refused> {
        self.hear(self.client.ask(question), repeatable).await
    }

    /// Waits for the answer to what the client asks, as [`Self::ask`] does.
    ///
    /// # Errors
    ///
    /// As for [`Self::ask`].
    pub(crate) async fn hear(
        &self,
        asking: impl Future<Output = Result<Answer, AskError>>,
        repeatable: Repeatable,
    ) -> Result<Answer, Refused> {
        self.connected().await?;
        asking.await.map_err(|problem| {
            let detail: &dyn std::error::Error = &problem;
            match &problem {
                AskError::NoResponders { .. } => unavailable(Message::fixed(
                    "no dispatcher listens at the moment",
                    "目前没有 dispatcher 在监听",
                )),
                AskError::NoAnswer { .. } | AskError::Closed | AskError::Unreadable(_) => {
                    Refused::no_answer(repeatable)
                }
                AskError::TooMany { .. } => Refused::later(
                    Code::Overloaded,
                    Message::fixed(
                        "too many requests wait for their answers at this gateway",
                        "这个网关上等待回答的请求太多",
                    ),
                ),
                AskError::Unsent(problem) if is_too_large(&**problem) => {
                    let most = self.client.connection().max_payload();
                    let what = said!(
                        "the request and its headers have more bytes than NATS carries in one message ({most})",
                        "请求连同头部超过 NATS 一条消息能承载的字节数（{most}）"
                    );
                    Refused::new(Code::PayloadTooLarge, what)
                }
                AskError::Denied { what } => {
                    tracing::warn!(what, "NATS does not let this user ask the dispatchers");
                    unavailable(Message::fixed(
                        "the NATS user of this program may not ask the dispatchers for this; an operator gives it the rights in docs/nats-users.md",
                        "这个程序的 NATS 用户无权向 dispatcher 发送此请求；需要操作员授予 docs/nats-users.md 中的权限",
                    ))
                }
                AskError::Unsent(_) => {
                    tracing::warn!(
                        error = fleet::telemetry::report(detail),
                        "a request cannot be sent to the dispatchers"
                    );
                    unavailable(Message::fixed(
                        "this gateway cannot send the request to a dispatcher",
                        "这个网关无法把请求发送给 dispatcher",
                    ))
                }
            }
        })
    }

    /// Whether there is a connection to NATS.
    pub(crate) fn are_reachable(&self) -> bool {
        self.bus.is_connected()
    }

    /// Waits a little for the connection. What is sent without one would be sent later, when its caller has given up.
    async fn connected(&self) -> Result<(), Refused> {
        let mut epoch = self.bus.epoch();
        let connecting = async {
            while !self.bus.is_connected() {
                if epoch.changed().await.is_err() {
                    return false;
                }
            }
            true
        };
        if timeout(CONNECTED_MAX, connecting).await.unwrap_or(false) {
            return Ok(());
        }
        Err(unavailable(Message::fixed(
            "this gateway has no connection to NATS",
            "这个网关没有到 NATS 的连接",
        )))
    }
}

/// Whether a message was not sent because the server carries none of its size: with its headers, which a body alone does not tell.
fn is_too_large(problem: &(dyn std::error::Error + 'static)) -> bool {
    let problem = problem.downcast_ref::<PublishError>();
    problem.is_some_and(|problem| problem.kind() == PublishErrorKind::MaxPayloadExceeded)
}

fn unavailable(what: Message) -> Refused {
    Refused::later(Code::Unavailable, what)
}
