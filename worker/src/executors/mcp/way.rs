//! How a server is reached by one attempt: its manifest with the secrets resolved.

use std::{collections::BTreeMap, sync::Arc};

use fleet::{
    manifest::{McpServer, McpTransport},
    outcome::ToolFailure,
    said,
    secrets::Secrets,
    wire::{code::Code, message::Message},
};
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;

use super::{
    came::SecretHeader,
    http::{Clients, HttpTarget},
};
use crate::executors::{process::GuardCommand, redact::missing_secret};

/// How a server is reached by one attempt.
pub(super) enum ServerWay {
    Http(Box<HttpTarget>),
    Stdio(ProgramWay),
}

/// A program that is to be started, or that runs already with the same.
pub(super) struct ProgramWay {
    pub(super) guard: Arc<GuardCommand>,
    pub(super) command: Vec<String>,
    pub(super) env: ProgramEnv,
    /// When the secrets were resolved.
    pub(super) resolved_at: Instant,
}

/// The variables of a program.
#[derive(Debug, Clone, Default)]
pub(super) struct ProgramEnv(pub(super) BTreeMap<String, SecretString>);

impl PartialEq for ProgramEnv {
    fn eq(&self, other: &Self) -> bool {
        let exposed = |env: &Self| {
            let all = env.0.iter();
            all.map(|(name, value)| (name.clone(), value.expose_secret().to_owned()))
                .collect::<Vec<_>>()
        };
        exposed(self) == exposed(other)
    }
}

impl ServerWay {
    /// To a server, and the secrets that lead there, which must not be told.
    ///
    /// # Errors
    ///
    /// This worker lacks a secret or a guard, or the manifest cannot be used.
    pub(super) fn to(
        server: &McpServer,
        secrets: &Secrets,
        clients: &Clients,
        guard: Option<&Arc<GuardCommand>>,
    ) -> Result<(Self, Vec<SecretString>), ToolFailure> {
        let is_secret = |value: &str| value.starts_with(Secrets::SCHEME);
        let resolve = |value: &str| {
            secrets
                .resolve(value)
                .map_err(|error| missing_secret(&error))
        };
        let resolved_at = Instant::now();
        let mut masked = Vec::new();
        match &server.transport {
            McpTransport::Http { url, headers } => {
                let url = Url::parse(url).map_err(|_unfit| {
                    ToolFailure::new(
                        Code::ToolGone,
                        Message::fixed(
                            "the URL of the MCP server cannot be used: correct its manifest",
                            "MCP 服务器的 URL 无法使用：请修改它的清单",
                        ),
                    )
                })?;
                let (mut fields, mut secret_headers) = (HeaderMap::new(), Vec::new());
                for (name, value) in headers {
                    let secret = resolve(value)?;
                    fields.insert(header_name(name)?, header_value(name, &secret)?);
                    if let Some(named) = value.strip_prefix(Secrets::SCHEME) {
                        secret_headers.push(SecretHeader {
                            header: name.clone(),
                            secret: named.to_owned(),
                        });
                        masked.push(secret);
                    }
                }
                let target = HttpTarget {
                    clients: clients.clone(),
                    url,
                    headers: fields,
                    secret_headers,
                    masked: masked.clone(),
                };
                Ok((Self::Http(Box::new(target)), masked))
            }
            McpTransport::Stdio { command, env, .. } => {
                let guard = guard.cloned().ok_or_else(|| {
                    let what = Message::fixed(
                        "this worker has no guard_program, so it runs no MCP servers on stdio",
                        "这个 worker 没有 guard_program，不能运行 stdio 上的 MCP 服务器",
                    );
                    ToolFailure::new(Code::Unavailable, what)
                })?;
                let mut resolved = BTreeMap::new();
                for (name, value) in env {
                    let secret = resolve(value)?;
                    if is_secret(value) {
                        masked.push(secret.clone());
                    }
                    resolved.insert(name.clone(), secret);
                }
                let way = ProgramWay {
                    guard,
                    command: command.clone(),
                    env: ProgramEnv(resolved),
                    resolved_at,
                };
                Ok((Self::Stdio(way), masked))
            }
        }
    }
}

fn header_name(name: &str) -> Result<HeaderName, ToolFailure> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_unfit| {
        let what = said!(
            "{name:?} in the manifest of the MCP server is not a header name",
            "MCP 服务器清单中的 {name:?} 不是请求头的名字"
        );
        ToolFailure::new(Code::ToolGone, what)
    })
}

fn header_value(name: &str, secret: &SecretString) -> Result<HeaderValue, ToolFailure> {
    let text = secret.expose_secret();
    let value = HeaderValue::from_bytes(text.as_bytes())
        .ok()
        .filter(|_| !text.chars().any(char::is_control));
    let mut value = value.ok_or_else(|| {
        let what = said!(
            "the value for the header {name} holds a control character: store it without",
            "请求头 {name} 的值含有控制字符：请去掉后再存"
        );
        ToolFailure::new(Code::Unavailable, what)
    })?;
    value.set_sensitive(true);
    Ok(value)
}
