//! **Which revision of the protocol does a request speak?** By its headers and its `_meta`, for nothing is remembered between requests.
//!
//! | `MCP-Protocol-Version` | `_meta` says | it speaks |
//! |---|---|---|
//! | 2026-07-28 | the same | 2026-07-28, without a handshake |
//! | 2025-11-25 or 2025-06-18 | nothing | that, behind a handshake that nothing depends on |
//! | none | nothing | only `initialize` is taken |
//! | another version | the same, or nothing | -32022, with the versions that are served |
//! | none, or twice | a version | -32020 |
//! | a version | another | -32020 |
//! | 2026-07-28 | nothing | -32602: its `_meta` is required |

use axum::http::HeaderMap;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use fleet::{said, wire::message::Message};

use super::{
    message::RpcRequest,
    revision::{LEGACY, MODERN, Revision, SERVED},
    rpc::RpcError,
};

/// The header that says which version a message speaks.
pub(super) const VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";
const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Where a client says what it can do.
pub(super) const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// What stands around a value that is no plain header.
const ENCODED: (&str, &str) = ("=?base64?", "?=");

/// The revision of a request with these headers.
///
/// # Errors
///
/// As the table says; and of 2026-07-28, where the other headers do not fit.
pub(super) fn revision_of(headers: &HeaderMap, request: &RpcRequest) -> Result<Revision, RpcError> {
    let header = one(headers, VERSION)?;
    let meta = version_of(request)?;
    let version = match (header, &meta) {
        (None, None) if request.method == "initialize" => return Ok(Revision::Legacy),
        (None, _) => return Err(missing("MCP-Protocol-Version")),
        (Some(header), Some(meta)) if header != meta => {
            return Err(differs("MCP-Protocol-Version"));
        }
        (Some(header), _) => header,
    };
    if LEGACY.contains(&version) {
        return Ok(Revision::Legacy);
    }
    if version != MODERN {
        return Err(RpcError::unsupported(version));
    }
    if meta.is_none() {
        return Err(malformed(META_VERSION, "there", "存在"));
    }
    has_capabilities(request)?;
    mirrored(headers, request)?;
    Ok(Revision::Modern)
}

/// The revision of a request over a pipe, which has no headers: what `_meta` says, else that of the handshake. `has_greeted`: the client
/// has sent `initialize`.
///
/// # Errors
///
/// It says nothing, and there was no handshake; or what it says is not served, or lacks what the revision wants.
pub(super) fn over_a_pipe(request: &RpcRequest, has_greeted: bool) -> Result<Revision, RpcError> {
    match version_of(request)?.as_deref() {
        Some(MODERN) => {
            has_capabilities(request)?;
            Ok(Revision::Modern)
        }
        Some(version) if LEGACY.contains(&version) => Ok(Revision::Legacy),
        Some(version) => Err(RpcError::unsupported(version)),
        None if has_greeted || ["initialize", "ping"].contains(&request.method.as_str()) => {
            Ok(Revision::Legacy)
        }
        None => Err(malformed(META_VERSION, "there", "存在")),
    }
}

fn version_of(request: &RpcRequest) -> Result<Option<String>, RpcError> {
    if request.meta.get(META_VERSION).is_none() {
        return Ok(None);
    }
    let version = request.meta.text(META_VERSION);
    version
        .map(Some)
        .ok_or_else(|| malformed(META_VERSION, "a string", "是字符串"))
}

fn has_capabilities(request: &RpcRequest) -> Result<(), RpcError> {
    let capabilities = request.meta.get(META_CAPABILITIES);
    if capabilities.is_some_and(|value| value.starts_with(b"{")) {
        return Ok(());
    }
    Err(malformed(
        META_CAPABILITIES,
        "there, an object",
        "存在且是对象",
    ))
}

/// Looks at the version of a notification, which may be absent.
///
/// # Errors
///
/// It is none that is served, or stands there twice.
pub(super) fn of_notification(headers: &HeaderMap) -> Result<(), RpcError> {
    match one(headers, VERSION)? {
        Some(version) if !SERVED.contains(&version) => Err(RpcError::unsupported(version)),
        Some(_) | None => Ok(()),
    }
}

/// The headers that repeat what the body says: what stands between goes by them.
fn mirrored(headers: &HeaderMap, request: &RpcRequest) -> Result<(), RpcError> {
    match one(headers, METHOD)? {
        None => return Err(missing("Mcp-Method")),
        Some(method) if method != request.method => return Err(differs("Mcp-Method")),
        Some(_) => {}
    }
    let Some(named) = named(&request.method) else {
        return Ok(());
    };
    let name = request.params.text(named);
    match (one(headers, NAME)?.map(decoded), name) {
        (None, _) => Err(missing("Mcp-Name")),
        (Some(header), Some(name)) if header.as_deref() == Some(name.as_str()) => Ok(()),
        (Some(_), _) => Err(differs("Mcp-Name")),
    }
}

/// The parameter of a method that stands in `Mcp-Name`, too.
fn named(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// The only value of a header.
pub(super) fn one<'a>(
    headers: &'a HeaderMap,
    name: &'static str,
) -> Result<Option<&'a str>, RpcError> {
    let mut lines = headers.get_all(name).iter();
    let (first, second) = (lines.next(), lines.next());
    if second.is_some() {
        let what = said!(
            "the header {name} stands there twice",
            "请求头 {name} 出现了两次"
        );
        return Err(RpcError::header_mismatch(what));
    }
    let text = first.map(|line| {
        line.to_str().map_err(|_no_text| {
            let what = said!(
                "the header {name} has other characters than visible ASCII",
                "请求头 {name} 含有可见 ASCII 以外的字符"
            );
            RpcError::header_mismatch(what)
        })
    });
    Ok(text.transpose()?.map(str::trim))
}

/// The value that a header carries; `None` where it says that it is encoded and is not.
fn decoded(value: &str) -> Option<String> {
    let inner = value
        .strip_prefix(ENCODED.0)
        .and_then(|rest| rest.strip_suffix(ENCODED.1));
    match inner {
        None => Some(value.to_owned()),
        Some(inner) => String::from_utf8(STANDARD.decode(inner).ok()?).ok(),
    }
}

fn missing(name: &str) -> RpcError {
    RpcError::header_mismatch(said!("the header {name} is missing", "缺少请求头 {name}"))
}

fn differs(name: &str) -> RpcError {
    RpcError::header_mismatch(said!(
        "the header {name} says something else than the body",
        "请求头 {name} 与请求体不一致"
    ))
}

fn malformed(field: &str, rule: &'static str, chinese: &'static str) -> RpcError {
    let rule = Message::fixed(rule, chinese);
    RpcError::malformed_meta(said!(
        "params._meta[\"{field}\"] must be {rule}",
        "params._meta[\"{field}\"] 必须{rule}",
        rule
    ))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};
    use bytes::Bytes;
    use fleet::call::Language;

    use super::{super::message::RpcMessage, *};

    fn request(method: &str, name: &str, meta: &str) -> RpcRequest {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"name":"{name}","_meta":{meta}}}}}"#
        );
        match RpcMessage::read(&Bytes::from(body)) {
            Ok(RpcMessage::Request(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

    fn number(read: Result<Revision, RpcError>) -> String {
        match read {
            Ok(revision) => format!("{revision:?}"),
            Err(error) => {
                let told = error.told(None, Language::En);
                format!("{} {error:?}", told.status.as_u16())
                    .split_inclusive("number: ")
                    .collect::<Vec<_>>()
                    .concat()
                    .split(',')
                    .next()
                    .unwrap()
                    .replace("RpcError { number: ", "")
            }
        }
    }

    #[test]
    fn the_table_is_as_it_stands_above() {
        let version = |version| ("MCP-Protocol-Version", version);
        let method = ("Mcp-Method", "tools/list");
        let other = META.replace("2026-07-28", "2025-11-25");
        let unknown = META.replace("2026-07-28", "1900-01-01");
        let no_capabilities = META.replace(
            "\"io.modelcontextprotocol/clientCapabilities\":{}",
            "\"x\":1",
        );
        let no_text = META.replace("\"2026-07-28\"", "1");
        for (lines, meta, expected) in [
            (vec![version(MODERN), method], META, "Modern"),
            (vec![version(LEGACY[0])], "{}", "Legacy"),
            (vec![version(LEGACY[1])], "{}", "Legacy"),
            (vec![version(LEGACY[0])], other.as_str(), "Legacy"),
            (vec![], "{}", "400 -32020"),
            (vec![], META, "400 -32020"),
            (vec![version("1900-01-01")], "{}", "400 -32022"),
            (vec![version("1900-01-01")], unknown.as_str(), "400 -32022"),
            (vec![version("2025-03-26")], "{}", "400 -32022"),
            (vec![version(LEGACY[0])], META, "400 -32020"),
            (vec![version(MODERN)], other.as_str(), "400 -32020"),
            (
                vec![version(MODERN), version(MODERN), method],
                META,
                "400 -32020",
            ),
            (vec![version("\u{e9}"), method], META, "400 -32020"),
            (vec![version(MODERN), method], "{}", "400 -32602"),
            (
                vec![version(MODERN), method],
                no_capabilities.as_str(),
                "400 -32602",
            ),
            (
                vec![version(MODERN), method],
                no_text.as_str(),
                "400 -32602",
            ),
            (vec![version(MODERN)], META, "400 -32020"),
            (
                vec![version(MODERN), ("Mcp-Method", "tools/call")],
                META,
                "400 -32020",
            ),
            (
                vec![version(MODERN), ("Mcp-Method", "Tools/List")],
                META,
                "400 -32020",
            ),
        ] {
            let read = revision_of(&headers(&lines), &request("tools/list", "x", meta));
            assert_eq!(number(read), expected, "{lines:?} {meta}");
        }
        let initialize = request("initialize", "x", "{}");
        assert_eq!(
            revision_of(&headers(&[]), &initialize).unwrap(),
            Revision::Legacy
        );
        assert!(of_notification(&headers(&[])).is_ok());
        assert!(of_notification(&headers(&[version("x")])).is_err());
    }

    #[test]
    fn over_a_pipe_a_message_says_its_revision_or_the_handshake_did() {
        let other = META.replace("2026-07-28", "2025-11-25");
        let unknown = META.replace("2026-07-28", "1900-01-01");
        let bare = META.replace(
            "\"io.modelcontextprotocol/clientCapabilities\":{}",
            "\"x\":1",
        );
        for (method, meta, has_greeted, expected) in [
            ("tools/list", META, false, "Modern"),
            ("tools/list", META, true, "Modern"),
            ("tools/list", other.as_str(), false, "Legacy"),
            ("tools/list", "{}", true, "Legacy"),
            ("tools/list", "{}", false, "400 -32602"),
            ("initialize", "{}", false, "Legacy"),
            ("ping", "{}", false, "Legacy"),
            ("tools/list", unknown.as_str(), true, "400 -32022"),
            ("tools/list", bare.as_str(), false, "400 -32602"),
        ] {
            let read = over_a_pipe(&request(method, "x", meta), has_greeted);
            assert_eq!(number(read), expected, "{method} {meta} {has_greeted}");
        }
    }

    #[test]
    fn the_name_of_a_call_stands_in_its_header_too() {
        let call = request("tools/call", "look", META);
        let base = [
            ("MCP-Protocol-Version", MODERN),
            ("Mcp-Method", "tools/call"),
        ];
        for (name, expected) in [
            (Some("look"), "Modern"),
            (Some("=?base64?bG9vaw==?="), "Modern"),
            (Some("=?base64?bG9vaw?="), "400 -32020"),
            (Some("=?BASE64?bG9vaw==?="), "400 -32020"),
            (Some("Look"), "400 -32020"),
            (None, "400 -32020"),
        ] {
            let mut lines = base.to_vec();
            lines.extend(name.map(|name| ("Mcp-Name", name)));
            assert_eq!(
                number(revision_of(&headers(&lines), &call)),
                expected,
                "{name:?}"
            );
        }
    }
}
