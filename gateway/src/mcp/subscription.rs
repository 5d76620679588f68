//! `subscriptions/listen`: a stream that tells of changes for as long as its client wants to hear of them.
//!
//! What is told of is whether the tools have changed that are for who listens. Whatever else a client asks for is left out of the
//! acknowledgement.

use std::sync::Arc;

use axum::{body::Body, response::Response};
use fleet::{telemetry::metrics, wire::message::Message};
use serde_json::{Value, json};

use super::{
    answer_code::AnswerCode,
    members::RawMembers,
    message::RpcRequest,
    notices::notification,
    rpc::{RpcError, RpcId, SERVER_INFO, server_info},
    serve::NoResult,
    tool_bell::ToolListener,
};
use crate::{
    auth::principal::Principal,
    edge::peers::Peer,
    events::{
        pipe::{PipeEnd, StreamPipe, streamed},
        raw,
        way::Said,
    },
    follower::stream_from,
    state::Gateway,
};

/// The method of what is told.
const CHANGED: &str = "notifications/tools/list_changed";
/// Where each message of a subscription says to which it belongs.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The stream that a request asks for.
///
/// # Errors
///
/// The request is not right, or there is no place for a stream more.
pub(super) fn listen(
    gateway: &Arc<Gateway>,
    peer: Peer,
    principal: &Principal,
    request: &RpcRequest,
) -> Result<Response, NoResult> {
    let wants_tools = wanted(request)?;
    let told = ToldChanges {
        id: request.id.clone(),
        tools: wants_tools.then(|| gateway.tool_bell.listen(&gateway.dispatchers, principal)),
    };
    let whom = stream_from(gateway, peer, principal).map_err(NoResult::Refused)?;
    let (pipe, pieces) = StreamPipe::open(Arc::clone(gateway), whom);
    let gateway = Arc::clone(gateway);
    let tasks = gateway.tasks.clone();
    tasks.spawn(async move { told.run(&gateway, pipe).await });
    let mut response = streamed(Body::from_stream(pieces));
    response.extensions_mut().insert(AnswerCode::Ok);
    Ok(response)
}

/// Whether a request wants to hear of changed tools.
fn wanted(request: &RpcRequest) -> Result<bool, RpcError> {
    let wrong = || {
        RpcError::invalid_params(Message::fixed(
            "params.notifications must be an object that says by true what is to be told of",
            "params.notifications 必须是对象，并用 true 指明需要通知的内容",
        ))
    };
    let filter = request.params.get("notifications").ok_or_else(wrong)?;
    let filter = RawMembers::of(filter).map_err(|_no_object| wrong())?;
    match filter.get("toolsListChanged").map(|value| &value[..]) {
        None | Some(b"false") => Ok(false),
        Some(b"true") => Ok(true),
        Some(_) => Err(wrong()),
    }
}

/// What one stream tells of.
struct ToldChanges {
    /// Of the request that asked for it.
    id: RpcId,
    tools: Option<ToolListener>,
}

impl ToldChanges {
    async fn run(mut self, gateway: &Gateway, mut pipe: StreamPipe) {
        let end = self.tell(gateway, &mut pipe).await;
        metrics().ended_stream(match end {
            Ok(()) => "stopping",
            Err(PipeEnd::Gone) => "gone",
            Err(PipeEnd::Slow) => "slow",
            Err(PipeEnd::Revoked) => "revoked",
        });
        if end == Err(PipeEnd::Slow) {
            pipe.cut();
        }
    }

    /// Tells until the gateway stops.
    async fn tell(&mut self, gateway: &Gateway, pipe: &mut StreamPipe) -> Result<(), PipeEnd> {
        if let Some(tools) = &mut self.tools {
            pipe.meanwhile(tools.ready()).await?;
        }
        let RpcId(id) = self.id.clone();
        let agreed = match self.tools {
            Some(_) => json!({ "toolsListChanged": true }),
            None => json!({}),
        };
        let params = json!({ "notifications": agreed, "_meta": { SUBSCRIPTION: id } });
        let method = "notifications/subscriptions/acknowledged";
        say(pipe, &notification(method, &params)).await?;
        loop {
            let changed = async {
                match &mut self.tools {
                    Some(tools) => tools.changed().await,
                    None => std::future::pending().await,
                }
            };
            let next = async {
                tokio::select! {
                    biased;
                    () = gateway.stopping.cancelled() => false,
                    () = changed => true,
                }
            };
            if !pipe.meanwhile(next).await? {
                break;
            }
            let params = json!({ "_meta": { SUBSCRIPTION: id } });
            say(pipe, &notification(CHANGED, &params)).await?;
        }
        // Who is told so comes back to another gateway at once.
        let meta = json!({ SUBSCRIPTION: id, SERVER_INFO: server_info() });
        let result = json!({ "resultType": "complete", "_meta": meta });
        say(
            pipe,
            &json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        )
        .await
    }
}

async fn say(pipe: &mut StreamPipe, message: &Value) -> Result<(), PipeEnd> {
    let mut said = Said::default();
    raw::write_message(message.to_string().as_bytes(), said.text());
    pipe.send(&mut said).await
}
