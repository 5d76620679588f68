//! The manifest of an MCP server: how it is reached, and what is believed of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    check::environment,
    problem::{ManifestProblem, Problems},
    request,
    secret::secret,
    version::Manifest,
};
use crate::{
    arguments::pointer_segment,
    call::words,
    ids::{QueueName, ServerName},
};

/// One version of one MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpServer {
    kind: McpServerKind,
    /// What manifests of its tools call it.
    pub name: ServerName,
    /// Immutable once applied: the same version with other content is refused.
    pub version: i32,
    /// How it is reached.
    pub transport: McpTransport,
    /// Whether what it says of its tools' effects counts.
    #[serde(default)]
    pub trust: Trust,
    /// What becomes of calls of a tool that is not what it was when it was applied.
    #[serde(default)]
    pub on_change: OnChange,
    /// Whose workers reach it.
    #[serde(default = "Manifest::default_queue")]
    pub queue: QueueName,
}

/// The word that tells such a manifest from that of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum McpServerKind {
    McpServer,
}

/// How an MCP server is reached; exactly one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum McpTransport {
    /// Over HTTP.
    Http {
        /// Its one endpoint.
        url: String,
        /// Headers of every request: text or `secret://NAME`.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, String>,
    },
    /// A program on the worker's machine.
    Stdio {
        /// The program and its fixed arguments; never a shell line.
        command: Vec<String>,
        /// Its environment besides `PATH`, `LANG` and `HOME`: text or `secret://NAME`.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
        /// Whose process it is.
        #[serde(default)]
        lifetime: Lifetime,
    },
}

words! {
    /// Whose process a server on stdio is.
    #[derive(Default)]
    Lifetime {
        /// The calls of a worker share one.
        #[default]
        Shared = "shared",
        /// Each call has its own.
        Call = "call",
    }
}

words! {
    /// Whether what a server says of its tools' effects counts.
    #[derive(Default)]
    Trust {
        /// No: each of them is `once`.
        #[default]
        Untrusted = "untrusted",
        /// Yes: what it calls read-only is a `read`.
        Trusted = "trusted",
    }
}

words! {
    /// What becomes of calls of a tool that is not what it was when it was applied.
    #[derive(Default)]
    OnChange {
        /// They fail, and nothing is started.
        #[default]
        Refuse = "refuse",
        /// The same, unless only its title or its description is another.
        Warn = "warn",
    }
}

impl McpServer {
    /// The texts that may name secrets.
    pub fn texts(&self) -> impl Iterator<Item = &String> {
        let texts = match &self.transport {
            McpTransport::Http { headers, .. } => headers,
            McpTransport::Stdio { env, .. } => env,
        };
        texts.values()
    }

    /// Every contradiction in a well-formed manifest.
    pub(super) fn check(&self) -> Vec<ManifestProblem> {
        let mut problems = Problems::default();
        match &self.transport {
            McpTransport::Http { url, headers } => {
                if let Some(problem) = url_problem(url) {
                    problems.add("/transport/http/url", problem);
                }
                for (name, value) in headers {
                    let path = format!("/transport/http/headers/{}", pointer_segment(name));
                    if let Err(problem) = header_problem(name) {
                        problems.add(&*path, problem);
                    }
                    let is_twin = |other: &String| other < name && other.eq_ignore_ascii_case(name);
                    if headers.keys().any(is_twin) {
                        problems.add(
                            &*path,
                            "the same header stands twice; case does not tell headers apart",
                        );
                    }
                    secret(path, value, &mut problems);
                }
            }
            McpTransport::Stdio { env, .. } => {
                for (name, value) in env {
                    let path = format!("/transport/stdio/env/{}", pointer_segment(name));
                    environment(path, name, value, &mut problems);
                }
            }
        }
        problems.found
    }
}

fn url_problem(url: &str) -> Option<&'static str> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Some("write a URL that begins with https:// or http://");
    };
    if !scheme.eq_ignore_ascii_case("https") && !scheme.eq_ignore_ascii_case("http") {
        return Some("write a URL that begins with https:// or http://");
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() {
        return Some("it names no host; write one, such as https://mcp.example.com/mcp");
    }
    if authority.contains('@') {
        return Some(
            "it would be stored with the name and password that stand in it; send them in a header, as secret://NAME",
        );
    }
    url.contains('#')
        .then_some("what follows # is never sent; leave it out")
}

fn header_problem(name: &str) -> Result<(), String> {
    request::check_header_name(name)?;
    let lower = name.to_ascii_lowercase();
    if ["accept", "content-type", "last-event-id"].contains(&lower.as_str())
        || lower.starts_with("mcp-")
    {
        return Err(format!(
            "the header {lower} belongs to the protocol and is set for every request; leave it out"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::manifest::{AnyManifest, ManifestProblem, parse, parse_any};

    fn problems(text: &str) -> Vec<ManifestProblem> {
        parse_any(text).expect_err(text)
    }

    #[test]
    fn a_server_has_defaults_that_believe_nothing() {
        let text =
            "{kind: mcp_server, name: tracker, version: 1, transport: {stdio: {command: [x]}}}";
        let AnyManifest::McpServer(server) = parse_any(text).expect("a server") else {
            panic!("it is a server");
        };
        assert_eq!(
            serde_json::to_string(&server).expect("JSON"),
            r#"{"kind":"mcp_server","name":"tracker","version":1,"transport":{"stdio":{"command":["x"],"lifetime":"shared"}},"trust":"untrusted","on_change":"refuse","queue":"default"}"#
        );
        assert!(parse(text).is_err(), "it is no tool");
    }

    #[test]
    fn what_does_not_fit_says_where_and_what_to_write() {
        for (fields, path, word) in [
            (
                "transport: {http: {url: 'ftp://x/'}}",
                "/transport/http/url",
                "https://",
            ),
            (
                "transport: {http: {url: 'https:///x'}}",
                "/transport/http/url",
                "no host",
            ),
            (
                "transport: {http: {url: 'https://me:pw@x/'}}",
                "/transport/http/url",
                "password",
            ),
            (
                "transport: {http: {url: 'https://x/#a'}}",
                "/transport/http/url",
                "never sent",
            ),
            (
                "transport: {http: {url: 'https://x/', headers: {Mcp-Session-Id: a}}}",
                "/transport/http/headers/Mcp-Session-Id",
                "protocol",
            ),
            (
                "transport: {http: {url: 'https://x/', headers: {Host: a}}}",
                "/transport/http/headers/Host",
                "every request",
            ),
            (
                "transport: {http: {url: 'https://x/', headers: {A: a, a: b}}}",
                "/transport/http/headers/a",
                "twice",
            ),
            (
                "transport: {http: {url: 'https://x/', headers: {A: 'secret://b c'}}}",
                "/transport/http/headers/A",
                "name of a secret",
            ),
            (
                "transport: {stdio: {command: [x], env: {TOOLFLEET_X: a}}}",
                "/transport/stdio/env/TOOLFLEET_X",
                "another name",
            ),
            (
                "transport: {stdio: {command: []}}",
                "/transport/stdio/command",
                "",
            ),
            ("transport: {}", "/transport", ""),
            (
                "transport: {stdio: {command: [x]}}, trust: some",
                "/trust",
                "trusted",
            ),
            (
                "transport: {stdio: {command: [x]}}, effect: once",
                "/effect",
                "no such field",
            ),
        ] {
            let found = problems(&format!(
                "{{kind: mcp_server, name: t, version: 1, {fields}}}"
            ));
            assert!(
                found
                    .iter()
                    .any(|one| one.path == path && one.message.contains(word)),
                "{fields}: {found:?}"
            );
        }
    }
}
