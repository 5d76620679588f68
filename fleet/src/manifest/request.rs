//! Whether the request of an HTTP tool can be made of its arguments, and whether no argument can lead it elsewhere.

use serde_json::Value;

use super::{
    executor::HttpSpec,
    input::{is_required, properties},
    problem::Problems,
    secret::secret,
    uri_template::{Piece, UriTemplate, Variable},
    version::Manifest,
};
use crate::{arguments::pointer_segment, secrets::Secrets};

/// Headers that belong to the connection or that every request carries already.
const RESERVED: [&str; 15] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "idempotency-key",
    "traceparent",
    "tracestate",
    "baggage",
];

/// Everything that is wrong with an HTTP request.
pub(super) fn check(spec: &HttpSpec, manifest: &Manifest, problems: &mut Problems) {
    let place = |field: &str| format!("/executor/http/{field}");
    if let Err(message) = check_url(&spec.url, manifest) {
        problems.add(place("url"), message);
    }
    for (name, value) in &spec.headers {
        let path = format!("{}/{}", place("headers"), pointer_segment(name));
        if let Err(message) = check_header_name(name) {
            problems.add(&*path, message);
        }
        if spec
            .headers
            .keys()
            .any(|other| other < name && other.eq_ignore_ascii_case(name))
        {
            problems.add(
                &*path,
                "the same header stands twice; case does not tell headers apart",
            );
        }
        check_text(&path, value, manifest, problems);
        secret(path, value, problems);
    }
    for (name, value) in &spec.query {
        let path = format!("{}/{}", place("query"), pointer_segment(name));
        check_text(&path, value, manifest, problems);
        secret(path, value, problems);
    }
    match &spec.body {
        Some(_) if spec.method == "GET" => {
            problems.add(
                place("body"),
                "a GET has no body; write the arguments into the URL or into query",
            );
        }
        Some(body) => check_body(&place("body"), body, manifest, problems),
        None => {}
    }
    if let Some(header) = manifest
        .idempotency
        .as_ref()
        .and_then(|idempotency| idempotency.header.as_ref())
    {
        if !header.eq_ignore_ascii_case("idempotency-key")
            && let Err(message) = check_header_name(header)
        {
            problems.add("/idempotency/header", message);
        }
        if spec
            .headers
            .keys()
            .any(|name| name.eq_ignore_ascii_case(header))
        {
            problems.add(
                "/idempotency/header",
                "executor.http.headers sets this header too; take it out there",
            );
        }
    }
}

/// Whether a manifest may name this header.
pub(super) fn check_header_name(name: &str) -> Result<(), String> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > 256 || !name.bytes().all(token) {
        return Err("the name of a header has letters, digits and -, and no space".to_owned());
    }
    let lower = name.to_ascii_lowercase();
    if RESERVED.contains(&lower.as_str()) || lower.starts_with("toolfleet-") {
        return Err(format!(
            "the header {lower} is set for every request; leave it out"
        ));
    }
    Ok(())
}

/// A value of a header or of the query: text, a secret, or one argument.
pub(super) fn check_text(path: &str, text: &str, manifest: &Manifest, problems: &mut Problems) {
    match placeholder(text) {
        Some(name) if !declared(manifest, name) => problems.add(path, undeclared(name)),
        Some(_) => {}
        None => {
            if let Some(name) = embedded(text, manifest) {
                problems.add(
                    path,
                    format!(
                        "{{{name}}} would be sent as it stands; a placeholder must stand alone"
                    ),
                );
            }
        }
    }
}

fn check_body(path: &str, body: &Value, manifest: &Manifest, problems: &mut Problems) {
    match body {
        Value::String(text) => {
            check_text(path, text, manifest, problems);
            if text.starts_with(Secrets::SCHEME) {
                problems.add(
                    path,
                    "a secret can stand in a header, in the query or in env, not in the body",
                );
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                check_body(&format!("{path}/{index}"), item, manifest, problems);
            }
        }
        Value::Object(entries) => {
            for (name, value) in entries {
                check_body(
                    &format!("{path}/{}", pointer_segment(name)),
                    value,
                    manifest,
                    problems,
                );
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The name in a text that is exactly `{name}`.
pub(super) fn placeholder(text: &str) -> Option<&str> {
    let name = text.strip_prefix('{')?.strip_suffix('}')?;
    (!name.is_empty() && !name.contains(['{', '}'])).then_some(name)
}

/// A declared argument whose placeholder has other text around it.
pub(super) fn embedded<'m>(text: &str, manifest: &'m Manifest) -> Option<&'m str> {
    let names = properties(&manifest.input_schema).map(|(name, _)| name.as_str());
    names
        .into_iter()
        .find(|name| text.contains(&format!("{{{name}}}")))
}

fn declared(manifest: &Manifest, name: &str) -> bool {
    properties(&manifest.input_schema).any(|(property, _)| property == name)
}

fn undeclared(name: &str) -> String {
    format!(
        "{{{name}}} is not a top-level property of input_schema; declare it there or correct the name"
    )
}

/// Whether a URL has everything that a request needs, and nothing to fill in.
pub(super) fn check_literal_url(url: &str) -> Result<(), String> {
    let path = split_url(url)?.1;
    match path.find(['{', '}', '\\', '#']) {
        Some(_) => Err(
            "the URL is literal and has no fragment; write it without {, }, \\ and #".to_owned(),
        ),
        None => Ok(()),
    }
}

/// Authority and the rest of a URL whose scheme and host are literal.
fn split_url(url: &str) -> Result<(&str, &str), String> {
    let Some(rest) = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"))
    else {
        let rest = url.split_once("://").map_or(url, |(_scheme, rest)| rest);
        return Err(match rest.starts_with('{') {
            false => format!("the URL begins with http:// or https://; write https://{rest}"),
            true => {
                "the URL begins with http:// or https:// and a literal host; write them".to_owned()
            }
        });
    };
    let (authority, path) = rest.split_at(
        rest.find(['/', '?', '#', '{', '}', '\\'])
            .unwrap_or(rest.len()),
    );
    check_authority(authority)?;
    Ok((authority, path))
}

fn check_url(url: &str, manifest: &Manifest) -> Result<(), String> {
    let (_authority, path) = split_url(url)?;
    if !(path.is_empty()
        || path.starts_with(['/', '?'])
        || path.starts_with("{/")
        || path.starts_with("{?"))
    {
        return Err(
            "scheme, host and port must be literal and end with /; an argument may stand only in the path or the query"
                .to_owned(),
        );
    }
    check_template(path, manifest)
}

fn check_authority(authority: &str) -> Result<(), String> {
    if authority.contains('@') {
        return Err(
            "a user or password in a URL is not kept secret; write a header with secret://NAME instead"
                .to_owned(),
        );
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        Some(_) | None => (authority, None),
    };
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let valid = match host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(letter),
    };
    if !valid {
        return Err(
            "the host must be literal; write a name or an address, such as api.example.com"
                .to_owned(),
        );
    }
    if port.is_some_and(|port| port.parse::<u16>().map_or(true, |port| port == 0)) {
        return Err("the port must be literal; write a number, 1 to 65535".to_owned());
    }
    Ok(())
}

/// In the path `{x}` and `{+x}` must be required, or another resource is meant.
fn check_template(text: &str, manifest: &Manifest) -> Result<(), String> {
    let template = UriTemplate::parse(text).map_err(|problem| problem.to_string())?;
    let mut in_path = true;
    for piece in &template.pieces {
        let expression = match piece {
            Piece::Literal(literal) => {
                in_path &= !literal.contains('?');
                continue;
            }
            Piece::Expression(expression) => expression,
        };
        in_path &= !expression.is_of_query();
        for Variable { name, .. } in &expression.variables {
            if !declared(manifest, name) {
                return Err(undeclared(name));
            }
            let filled_in = manifest
                .idempotency
                .as_ref()
                .and_then(|i| i.argument.as_deref())
                == Some(*name);
            let must_stand = in_path && expression.must_stand();
            if must_stand && !filled_in && !is_required(&manifest.input_schema, name) {
                return Err(format!(
                    "{{{name}}} is part of the path; add it to `required` in input_schema"
                ));
            }
        }
    }
    Ok(())
}
