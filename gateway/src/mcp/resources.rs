//! `resources/list`, `resources/templates/list`, `resources/read` and `completion/complete`: calls and files of the fleet by their
//! addresses, and what a folder has.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use fleet::{
    ids::{CallId, FileId},
    said,
    wire::{code::Code, message::Message},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    content::{FILLED_MAX, HeldContent, ResourceTemplate, StaticResource, TooLong},
    envelope::McpEnvelope,
    look::LookedCall,
    members::RawMembers,
    message::RpcRequest,
    revision::Revision,
    rpc::{RpcError, RpcReply, SERVER_INFO, completed, result_type, server_info},
    serve::{LOOKERS_AT_CALLS, NoResult, ServedRequest},
    withheld::without_token,
};
use crate::{
    answer::Glimpse,
    events::places::{NoPlace, StreamHolder, StreamPlace},
    files::door::{FileDoor, NoFile},
    headers::Speaker,
    refusal::Refused,
    wait::WaitUntil,
};

/// How a call is addressed.
const CALL: &str = "toolfleet://call/";
/// How a file is addressed.
const FILE: &str = fleet::content::large::SCHEME;
/// The most bytes of a file that is read over MCP: it stands in one message.
const FILE_MAX: u64 = 1024 * 1024;
/// How long what a folder has holds, in milliseconds: as long as the program runs.
const HOLDS_MS: u64 = 60_000;
/// The most values of a completion.
const VALUES_MAX: usize = 100;

/// What is read, and who may keep it for how long.
struct ReadResource {
    contents: Value,
    ttl_ms: u64,
    scope: &'static str,
    /// Of a file, until the answer has left.
    place: Option<StreamPlace>,
}

impl ServedRequest<'_> {
    pub(super) fn resources(&self, request: &RpcRequest) -> RpcReply {
        let own = self.desk.content.resources.iter();
        let own: Vec<Value> = own.map(StaticResource::listed).collect();
        listed(request, self.revision, "resources", &own)
    }

    pub(super) fn resource_templates(&self, request: &RpcRequest) -> RpcReply {
        let calls = json!({
            "uriTemplate": format!("{CALL}{{id}}"), "name": "call", "mimeType": "application/json",
            "description": "A call of a tool by its call_id: how it stands, and what it came to.",
        });
        let files = json!({
            "uriTemplate": format!("{FILE}{{id}}"), "name": "file",
            "description": "A file that an answer links to, of at most 1 MiB.",
        });
        let own = self
            .desk
            .content
            .templates
            .iter()
            .map(ResourceTemplate::listed);
        let all: Vec<Value> = [calls, files].into_iter().chain(own).collect();
        listed(request, self.revision, "resourceTemplates", &all)
    }

    pub(super) async fn resource(&self, request: &RpcRequest) -> Result<RpcReply, NoResult> {
        let uri = address(request)?;
        let read = if let Some(id) = uri.strip_prefix(CALL) {
            self.may(&LOOKERS_AT_CALLS)?;
            self.call_resource(&uri, id).await?
        } else if let Some(id) = uri.strip_prefix(FILE) {
            self.may(&LOOKERS_AT_CALLS)?;
            self.file_resource(&uri, id).await?
        } else {
            let contents = self.static_contents(&uri)?;
            ReadResource {
                contents: contents.ok_or_else(|| self.unknown(&uri))?,
                ttl_ms: HOLDS_MS,
                scope: "public",
                place: None,
            }
        };
        let mut result = json!({ "contents": [read.contents] });
        if let Some(kind) = result_type(self.revision) {
            result["resultType"] = kind.into();
            result["ttlMs"] = read.ttl_ms.into();
            result["cacheScope"] = read.scope.into();
            result["_meta"] = json!({ SERVER_INFO: server_info() });
        }
        let reply = completed(&request.id, &result, Speaker::Gateway);
        Ok(match read.place {
            None => reply,
            Some(place) => reply.holding(place),
        })
    }

    /// What a folder has at this address.
    fn static_contents(&self, uri: &str) -> Result<Option<Value>, RpcError> {
        let content = &self.desk.content;
        if let Some(own) = content.resources.iter().find(|one| one.uri == uri) {
            return Ok(Some(own.held.contents(uri, &own.mime)));
        }
        let mut of_templates = content.templates.iter();
        let found = of_templates.find_map(|one| one.contents(uri));
        found.transpose().map_err(too_long)
    }

    fn unknown(&self, uri: &str) -> RpcError {
        RpcError::unknown_resource(self.revision, uri)
    }

    /// A call as it stands. With what its caller answers is a secret of its program's.
    async fn call_resource(&self, uri: &str, id: &str) -> Result<ReadResource, NoResult> {
        let call: CallId = id.parse().map_err(|_no_id| self.unknown(uri))?;
        let (desk, client) = (&self.desk, self.client);
        let looked = LookedCall::at(desk, client, call, Duration::ZERO, WaitUntil::Decided).await;
        let looked = looked.map_err(|refused| RpcError::refused(&refused, client.language))?;
        let bytes = looked.answer.bytes();
        let glimpse = Glimpse::of(bytes);
        if glimpse.is_not_found() {
            return Err(self.unknown(uri).into());
        }
        if glimpse.is_refused() {
            let failure = McpEnvelope::of(bytes).failure();
            return Err(RpcError::told_by_door(&failure).into());
        }
        let text = String::from_utf8_lossy(&without_token(bytes)).into_owned();
        Ok(ReadResource {
            contents: HeldContent::Text(text).contents(uri, "application/json"),
            ttl_ms: 0,
            scope: "private",
            place: None,
        })
    }

    async fn file_resource(&self, uri: &str, id: &str) -> Result<ReadResource, NoResult> {
        let file: FileId = id.parse().map_err(|_no_id| self.unknown(uri))?;
        let place = self
            .file_place()
            .map_err(|refused| RpcError::refused(&refused, self.client.language))?;
        let door = FileDoor::of(&self.desk.dispatchers, &self.client.tenant);
        let told = |problem| self.no_file(uri, problem);
        let described = door.describe(file).await.map_err(told)?;
        if described.bytes > FILE_MAX {
            let what = said!(
                "the file {id} has more than 1 MiB: read it with GET /v1/files/{id} of a gateway, or with toolfleet files get {id}",
                "文件 {id} 超过 1 MiB：请通过网关的 GET /v1/files/{id} 或 toolfleet files get {id} 读取"
            );
            return Err(RpcError::invalid_params(what).into());
        }
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < described.bytes {
            let piece = door.read(file, bytes.len() as u64).await.map_err(told)?;
            bytes.extend_from_slice(&piece);
        }
        if hex::encode(Sha256::digest(&bytes)) != described.sha256 {
            let refused = Refused::no_answer(crate::refusal::Repeatable::Always);
            return Err(RpcError::refused(&refused, self.client.language).into());
        }
        let mime = described.mime;
        let contents = match String::from_utf8(bytes) {
            Ok(text) if mime.starts_with("text/") || mime == "application/json" => {
                json!({ "uri": uri, "mimeType": mime, "text": text })
            }
            Ok(text) => json!({ "uri": uri, "mimeType": mime, "blob": STANDARD.encode(text) }),
            Err(other) => {
                json!({ "uri": uri, "mimeType": mime, "blob": STANDARD.encode(other.into_bytes()) })
            }
        };
        Ok(ReadResource {
            contents,
            ttl_ms: HOLDS_MS,
            scope: "private",
            place: Some(place),
        })
    }

    /// A place for one file of this tenant, whole in one answer.
    fn file_place(&self) -> Result<StreamPlace, Refused> {
        let holder = StreamHolder::Tenant(self.client.tenant.clone());
        self.desk.file_places.take(holder).map_err(|none| {
            let (code, what) = match none {
                NoPlace::Each => (
                    Code::RateLimited,
                    Message::fixed(
                        "as many files of this tenant are being read over MCP as may be; ask again in a second",
                        "这个租户正在通过 MCP 读取的文件已达上限；请稍后再试",
                    ),
                ),
                NoPlace::All => (
                    Code::Overloaded,
                    Message::fixed(
                        "too many files are being read; ask again in a second",
                        "正在读取的文件太多；请稍后再试",
                    ),
                ),
            };
            Refused::later(code, what)
        })
    }

    fn no_file(&self, uri: &str, problem: NoFile) -> RpcError {
        match problem {
            NoFile::Gateway(refused) => RpcError::refused(&refused, self.client.language),
            NoFile::Refused(answer) if Glimpse::of(answer.bytes()).is_not_found() => {
                self.unknown(uri)
            }
            NoFile::Refused(answer) => {
                RpcError::told_by_door(&McpEnvelope::of(answer.bytes()).failure())
            }
        }
    }

    /// `resources/subscribe` and `resources/unsubscribe` of older revisions: what a folder has never changes while the program
    /// runs, so there is nothing to tell.
    pub(super) fn subscription(&self, request: &RpcRequest) -> Result<RpcReply, NoResult> {
        let uri = address(request)?;
        if self.static_contents(&uri)?.is_none() {
            return Err(self.unknown(&uri).into());
        }
        Ok(completed(&request.id, &json!({}), Speaker::Gateway))
    }

    /// The values that an argument may have which begin like this.
    pub(super) fn completion(&self, request: &RpcRequest) -> Result<RpcReply, NoResult> {
        let (reference, argument) = (members(request, "ref")?, members(request, "argument")?);
        let (Some(name), Some(begun)) = (argument.text("name"), argument.text("value")) else {
            let what = Message::fixed(
                "params.argument must have name and value, strings",
                "params.argument 必须有字符串 name 和 value",
            );
            return Err(RpcError::invalid_params(what).into());
        };
        let content = &self.desk.content;
        let values: Option<&[String]> = match reference.text("type").as_deref() {
            Some("ref/prompt") => {
                let prompt = reference.text("name").unwrap_or_default();
                let prompt = content
                    .prompts
                    .iter()
                    .find(|one| one.described.name == prompt);
                prompt.map(|prompt| {
                    let argument = prompt.arguments.iter().find(|one| one.name == name);
                    argument.map_or(&[][..], |argument| &argument.values[..])
                })
            }
            Some("ref/resource") => {
                let uri = reference.text("uri").unwrap_or_default();
                let template = content
                    .templates
                    .iter()
                    .find(|one| one.pattern.as_str() == uri);
                template.map(|template| template.values.get(&name).map_or(&[][..], Vec::as_slice))
            }
            Some(_) | None => None,
        };
        let Some(values) = values else {
            let what = Message::fixed(
                "params.ref names no prompt and no template of this server",
                "params.ref 没有指向这个服务器的提示或模板",
            );
            return Err(RpcError::unknown(what).into());
        };
        let begun = begun.to_lowercase();
        let fit = values
            .iter()
            .filter(|value| value.to_lowercase().starts_with(&begun));
        let fit: Vec<&String> = fit.collect();
        let shown = &fit[..fit.len().min(VALUES_MAX)];
        let mut result = json!({
            "completion": {"values": shown, "total": fit.len(), "hasMore": fit.len() > shown.len()},
        });
        if let Some(kind) = result_type(self.revision) {
            result["resultType"] = kind.into();
            result["_meta"] = json!({ SERVER_INFO: server_info() });
        }
        Ok(completed(&request.id, &result, Speaker::Gateway))
    }
}

/// What a client is told whose values make an answer too long.
pub(super) fn too_long(_why: TooLong) -> RpcError {
    let mib = FILLED_MAX / (1024 * 1024);
    RpcError::invalid_params(said!(
        "with these values the answer has more than {mib} MiB; give shorter ones",
        "使用这些值时结果超过 {mib} MiB；请使用更短的值"
    ))
}

/// A list of all that there is, as one page.
pub(super) fn listed(
    request: &RpcRequest,
    revision: Revision,
    name: &str,
    all: &[Value],
) -> RpcReply {
    let mut result = json!({ name: all });
    if let Some(kind) = result_type(revision) {
        result["resultType"] = kind.into();
        result["ttlMs"] = HOLDS_MS.into();
        result["cacheScope"] = "public".into();
        result["_meta"] = json!({ SERVER_INFO: server_info() });
    }
    completed(&request.id, &result, Speaker::Gateway)
}

fn address(request: &RpcRequest) -> Result<String, RpcError> {
    request.params.text("uri").ok_or_else(|| {
        RpcError::invalid_params(Message::fixed(
            "params.uri must be a string",
            "params.uri 必须是字符串",
        ))
    })
}

fn members(request: &RpcRequest, name: &str) -> Result<RawMembers, RpcError> {
    let given = request.params.get(name);
    let read = given.and_then(|given| RawMembers::of(given).ok());
    read.ok_or_else(|| {
        let what = said!(
            "params.{name} must be an object",
            "params.{name} 必须是对象"
        );
        RpcError::invalid_params(what)
    })
}
