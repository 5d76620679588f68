//! Where a request goes: an RFC 6570 template, filled so that no argument can lead it elsewhere.
//!
//! Percent-encoding alone does not keep an argument in its place: `..` has no character to encode, `{+path}` leaves reserved
//! characters as they are, and an empty id turns `DELETE /users/{id}` into `DELETE /users/`. So the arguments are checked
//! before, and the finished URL is checked after.

use fleet::{
    outcome::ToolFailure,
    said,
    wire::{code::Code, message::Message},
};
use reqwest::Url;
use serde_json::{Map, Value};

use super::{
    part::{defect, given, scalar},
    uri_template::{Bound, Expression, Operator, Piece, UriTemplate, Variable},
};

/// Fills the template.
///
/// # Errors
///
/// `tool_error` when an argument may not stand where the template puts it, `tool_gone` when the template is wrong.
pub(super) fn render(template: &str, arguments: &Map<String, Value>) -> Result<Url, ToolFailure> {
    let template = UriTemplate::parse(template).ok_or_else(|| {
        defect(Message::fixed(
            "the URL in the manifest is not an RFC 6570 template without a fragment",
            "清单中的 URL 不是不带片段的 RFC 6570 模板",
        ))
    })?;
    let mut in_path = true;
    let mut text = String::new();
    for piece in &template.pieces {
        match piece {
            Piece::Literal(literal) => {
                in_path &= !literal.contains('?');
                text.push_str(literal);
            }
            Piece::Expression(expression) => {
                let bind = |variable| bind(variable, arguments);
                let values: Vec<Bound> = expression
                    .variables
                    .iter()
                    .map(bind)
                    .collect::<Result<_, _>>()?;
                in_path &= !matches!(
                    expression.operator,
                    Operator::Query | Operator::Continuation
                );
                check(expression, &values, in_path)?;
                text.push_str(&expression.expand(&values));
            }
        }
    }
    in_its_place(template.beginning(), &text)
}

/// The value of a variable. An absent or null argument is undefined.
fn bind(variable: &Variable<'_>, arguments: &Map<String, Value>) -> Result<Bound, ToolFailure> {
    let name = variable.name;
    let flat = |value: &Value| {
        scalar(value).ok_or_else(|| {
            refuse(said!(
                "argument {name:?} cannot stand in the URL: its items must be texts, numbers or booleans",
                "参数 {name:?} 不能放进 URL：它的各项必须是文本、数字或布尔值"
            ))
        })
    };
    match given(arguments, name) {
        None => Ok(Bound::Absent),
        Some(Value::Array(_) | Value::Object(_)) if variable.prefix.is_some() => {
            Err(refuse(said!(
                "argument {name:?} cannot stand in the URL: it must be one text",
                "参数 {name:?} 不能放进 URL：它必须是单个文本"
            )))
        }
        Some(Value::Array(items)) => items
            .iter()
            .map(flat)
            .collect::<Result<_, _>>()
            .map(Bound::List),
        Some(Value::Object(members)) => {
            let pair = |(key, value): (&String, &Value)| Ok((key.clone(), flat(value)?));
            members
                .iter()
                .map(pair)
                .collect::<Result<_, _>>()
                .map(Bound::Pairs)
        }
        Some(value) => flat(value).map(Bound::Text),
    }
}

fn check(expression: &Expression<'_>, values: &[Bound], in_path: bool) -> Result<(), ToolFailure> {
    let operator = expression.operator;
    let stray = |value: &Bound| value.texts().iter().any(|text| text.contains(['?', '#']));
    if operator == Operator::Reserved && values.iter().any(stray) {
        let names = names(expression);
        return Err(refuse(said!(
            "argument {names:?} cannot stand in the URL: ? and # would end its path",
            "参数 {names:?} 不能放进 URL：? 和 # 会使路径提前结束"
        )));
    }
    // `{/id}` says that the segment may be missing; `/{id}` says that it is there.
    let required = in_path && matches!(operator, Operator::Simple | Operator::Reserved);
    if required
        && values
            .iter()
            .all(|value| value.texts().iter().all(|text| text.is_empty()))
    {
        let names = names(expression);
        return Err(refuse(said!(
            "argument {names:?} is part of the URL's path: it must be given and not be empty",
            "参数 {names:?} 是 URL 路径的一部分：必须给出，且不能为空"
        )));
    }
    Ok(())
}

fn names(expression: &Expression<'_>) -> String {
    let names: Vec<&str> = expression
        .variables
        .iter()
        .map(|variable| variable.name)
        .collect();
    names.join(",")
}

/// Parses the finished text and proves that it still lies where its literal beginning says.
fn in_its_place(literal: &str, text: &str) -> Result<Url, ToolFailure> {
    let base = Url::parse(literal)
        .ok()
        .filter(|base| matches!(base.scheme(), "http" | "https") && base.has_host() && !has_user(base))
        .ok_or_else(|| {
            defect(Message::fixed(
                "the URL in the manifest must begin with a literal http or https scheme, host and port, without a user",
                "清单中的 URL 必须以写明的 http 或 https、主机和端口开头，不带用户",
            ))
        })?;
    if climbs(text) {
        return Err(refuse(Message::fixed(
            "the arguments would put . or .. into the URL's path; give a plain name",
            "这些参数会把 . 或 .. 放进 URL 的路径；请给出普通的名字",
        )));
    }
    let away = || {
        refuse(Message::fixed(
            "the arguments would lead the URL away from the tool's own host and path",
            "这些参数会使 URL 离开工具自己的主机和路径",
        ))
    };
    let url = Url::parse(text).map_err(|_cause| away())?;
    let same_origin = (url.scheme(), url.host(), url.port_or_known_default())
        == (base.scheme(), base.host(), base.port_or_known_default());
    if !same_origin || has_user(&url) || !url.path().starts_with(base.path()) {
        return Err(away());
    }
    if url.fragment().is_some() {
        return Err(defect(Message::fixed(
            "the URL in the manifest has a fragment, which never reaches a server",
            "清单中的 URL 带有片段，它永远不会到达服务器",
        )));
    }
    Ok(url)
}

fn has_user(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// Whether a path segment is `.` or `..` to any server: one that decodes again what it has decoded, takes a backslash for a
/// slash, takes `;` for the beginning of parameters, ends a text at a NUL, or trims it.
fn climbs(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or(url);
    let mut bytes = path.as_bytes().to_vec();
    // Each round makes it shorter.
    while let Some(decoded) = decoded(&bytes) {
        bytes = decoded;
    }
    // What Windows makes of these on the way to a file.
    let text = String::from_utf8_lossy(&bytes).replace(['\u{ff0e}', '\u{2024}'], ".");
    let mut segments = text.split(['/', '\\', '\u{ff0f}', '\u{ff3c}']);
    segments.any(|segment| {
        let name = segment.split([';', '?', '#', '\0']).next();
        let name =
            name.map(|name| name.trim_matches(|c: char| c.is_whitespace() || c.is_control()));
        matches!(name, Some("." | ".."))
    })
}

/// With every escape decoded once, and `.`, `/` and `\` in two bytes of UTF-8, which some decoders take, in one; `None` when
/// there is none.
fn decoded(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, behind @ ..] = rest {
        let (byte, taken) = match rest {
            [b'%', high, low, ..] => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => ((high << 4) | low, 3),
                _ => (b'%', 1),
            },
            [0xc0, low @ (0xae | 0xaf), ..] => (low & 0x3f, 2),
            [0xc1, 0x9c, ..] => (b'\\', 2),
            _ => (*first, 1),
        };
        decoded.push(byte);
        rest = if taken == 1 { behind } else { &rest[taken..] };
    }
    (decoded.len() < bytes.len()).then_some(decoded)
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

fn refuse(message: Message) -> ToolFailure {
    ToolFailure::new(Code::ToolError, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn url(template: &str, arguments: Value) -> Result<String, Code> {
        let arguments = arguments.as_object().expect("an object").clone();
        render(template, &arguments)
            .map(String::from)
            .map_err(|failure| failure.code)
    }

    #[test]
    fn a_template_is_filled_as_rfc_6570_says() {
        for (template, arguments, expected) in [
            ("http://h/a/{id}", json!({"id": "x y"}), "http://h/a/x%20y"),
            (
                "http://h/a/{id}",
                json!({"id": 9_007_199_254_740_993_u64}),
                "http://h/a/9007199254740993",
            ),
            (
                "http://h/a/{id}",
                json!({"id": "中"}),
                "http://h/a/%E4%B8%AD",
            ),
            (
                "http://h/a{?q,r}",
                json!({"q": "a&b=c", "r": true}),
                "http://h/a?q=a%26b%3Dc&r=true",
            ),
            ("http://h/a{?q,r}", json!({"r": null}), "http://h/a"),
            ("http://h/a{/b}", json!({}), "http://h/a"),
            (
                "http://h/a{?ids*}",
                json!({"ids": [1, "2"]}),
                "http://h/a?ids=1&ids=2",
            ),
            ("http://h/a{?m*}", json!({"m": {"k": 1}}), "http://h/a?k=1"),
            (
                "http://h/a/{+path}",
                json!({"path": "b/c.txt"}),
                "http://h/a/b/c.txt",
            ),
            (
                "http://[::1]:8080/{id}",
                json!({"id": "1"}),
                "http://[::1]:8080/1",
            ),
        ] {
            assert_eq!(
                url(template, arguments).as_deref(),
                Ok(expected),
                "{template}"
            );
        }
    }

    #[test]
    fn an_argument_cannot_leave_its_place() {
        let simple = "https://api.example.com/users/{id}/notes";
        for hostile in [
            "..",
            ".",
            "../admin",
            "..\\admin",
            "a/../b",
            "",
            "x/..",
            "..;",
            "..;a=b",
            ".;x",
            "..;/admin",
            "%2e%2e",
            "%2E.",
            ".%2e/admin",
            "..%2fadmin",
            "..%5cadmin",
            "%252e%252e",
            "%25252e.",
            "%c0%ae%c0%ae",
            "..%c0%afadmin",
            "..%c1%9cadmin",
            "..\0",
            "..%00x",
            "..%3fx",
            ".. ",
            " ..",
            "..\t",
            "..%20/admin",
            "\u{ff0e}\u{ff0e}",
            "..\u{ff0f}admin",
        ] {
            assert_eq!(
                url(simple, json!({"id": hostile})),
                Err(Code::ToolError),
                "{hostile:?}"
            );
        }
        for harmless in [
            "?x=1",
            "#x",
            "@evil.com",
            "//evil.com",
            "a\r\nb",
            "...",
            ".hidden",
            "v1..v2",
            "100%",
            "%zz",
            "50%25",
            "..x;y",
            "a;b",
            ":80",
        ] {
            let rendered = url(simple, json!({"id": harmless})).unwrap();
            assert!(
                rendered.starts_with("https://api.example.com/users/"),
                "{rendered}"
            );
            assert!(rendered.ends_with("/notes"), "{rendered}");
            assert!(!rendered.contains(['?', '#', '@']), "{rendered}");
        }
        assert_eq!(url(simple, json!({})), Err(Code::ToolError));
        assert_eq!(url(simple, json!({"id": null})), Err(Code::ToolError));
        assert_eq!(url(simple, json!({"id": [[1]]})), Err(Code::ToolError));
        assert_eq!(
            url("http://h/{a}{b}/x", json!({"a": ".", "b": "."})),
            Err(Code::ToolError)
        );
    }

    #[test]
    fn reserved_expansion_cannot_leave_the_host() {
        for hostile in [
            "@evil.com/",
            ".evil.com/",
            ":99/",
            "/../../x",
            "/..;/x",
            "/..;a=b/x",
            "/%2e%2e/x",
            "/a?b=1",
            "/a#b",
            "",
        ] {
            assert_eq!(
                url("https://api.example.com{+p}", json!({"p": hostile})),
                Err(Code::ToolError),
                "{hostile:?}"
            );
        }
        let kept = url("https://api.example.com/{+p}", json!({"p": "//evil.com/"})).unwrap();
        assert!(
            kept.starts_with("https://api.example.com///evil.com/"),
            "{kept}"
        );
    }

    #[test]
    fn a_wrong_template_is_the_operators_fault() {
        let arguments = json!({"h": "evil.com", "p": "80"});
        for template in [
            "{h}",
            "http://{h}/",
            "ftp://h/{h}",
            "http://u:p@h/{h}",
            "http://h/{",
            "http://h/{#h}",
            "http://h/{h}#x",
            "/x/{h}",
        ] {
            assert_eq!(
                url(template, arguments.clone()),
                Err(Code::ToolGone),
                "{template}"
            );
        }
        assert_eq!(
            url("http://a.{h}/", arguments.clone()),
            Err(Code::ToolError)
        );
        assert_eq!(url("http://a:{p}1/", arguments), Err(Code::ToolError));
    }

    proptest! {
        #[test]
        fn no_text_moves_the_url(a in any::<String>(), b in "[./%2eE\\\\?#@:a-c]{0,12}", plus in any::<bool>()) {
            let template = if plus { "https://api.example.com:8443/v1/{+a}/x/{b}" } else { "https://api.example.com:8443/v1/{a}/x{b}" };
            let arguments = json!({"a": a, "b": b});
            if let Ok(url) = render(template, arguments.as_object().expect("an object")) {
                prop_assert_eq!(url.scheme(), "https");
                prop_assert_eq!(url.host_str(), Some("api.example.com"));
                prop_assert_eq!(url.port(), Some(8443));
                prop_assert!(!has_user(&url));
                prop_assert!(url.path().starts_with("/v1/"));
                prop_assert!(url.query().is_none() && url.fragment().is_none());
                prop_assert!(plus || url.path().split('/').count() == 4, "{}", url);
            }
        }

        #[test]
        fn no_text_moves_a_url_without_a_path(p in "[./%2eE\\\\?#@:a-c0-9]{0,12}") {
            let arguments = json!({"p": p});
            if let Ok(url) = render("https://api.example.com{+p}", arguments.as_object().expect("an object")) {
                prop_assert_eq!(url.origin().ascii_serialization(), "https://api.example.com");
                prop_assert!(!has_user(&url));
            }
        }
    }
}
