//! Answers of blocks: `{"content": [text, image, audio, resource, resource_link …], "structured"?}`, the blocks in the shapes of MCP
//! (revision 2025-11-25).
//!
//! What MCP may add to a block later is let through; what it has today is held against its type, for a client of MCP refuses a whole
//! answer because of one block.

pub mod large;

use serde_json::{Map, Value};

use crate::{
    ids::FileId,
    said,
    wire::{encoded::is_base64, message::Message},
};

/// The most blocks of an answer.
pub const BLOCKS_MAX: usize = 1_000;
/// The most bytes of a MIME type.
const MIME_MAX: usize = 127;
/// The most bytes of the address of a resource.
const URI_MAX: usize = 2_048;
/// The most characters of a resource's name.
const NAME_MAX: usize = 255;

/// Why an answer is none of blocks. Quotes nothing of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoContent {
    /// Where, a JSON pointer.
    pub path: String,
    /// Why, readable after the place and a colon.
    pub why: Message,
}

/// The first reason why an answer is none of blocks; `None`: it is one.
pub fn flaw(answer: &Value) -> Option<NoContent> {
    check(answer).err()
}

/// What such an answer says for programs, which `output_schema` describes.
pub fn structured(answer: &Value) -> Option<&Value> {
    answer.get("structured")
}

fn check(answer: &Value) -> Result<(), NoContent> {
    let Some(fields) = answer.as_object() else {
        return Err(no(said!(
            "an object {{\"content\": [blocks], \"structured\"?}} is expected",
            "应为对象 {{\"content\": [块], \"structured\"?}}"
        )));
    };
    let is_known = |name: &String| name == "content" || name == "structured";
    if !fields.keys().all(is_known) {
        return Err(no(said!(
            "there are other fields beside content and structured",
            "除 content 和 structured 之外还有其他字段"
        )));
    }
    let blocks = fields.get("content").and_then(Value::as_array);
    let blocks = blocks.ok_or_else(|| {
        no(said!("a list of blocks is expected", "应为块的列表")).below("/content")
    })?;
    if blocks.len() > BLOCKS_MAX {
        let count = blocks.len();
        let why = said!(
            "there are {count} blocks; at most {BLOCKS_MAX} are allowed",
            "有 {count} 个块，最多允许 {BLOCKS_MAX} 个"
        );
        return Err(no(why).below("/content"));
    }
    for (n, block) in blocks.iter().enumerate() {
        self::block(block).map_err(|flaw| flaw.below(&format!("/content/{n}")))?;
    }
    Ok(())
}

fn block(block: &Value) -> Result<(), NoContent> {
    let Some(fields) = block.as_object() else {
        return Err(no(said!("a block is an object", "块应为对象")));
    };
    for about in ["annotations", "_meta"] {
        if fields.get(about).is_some_and(|about| !about.is_object()) {
            return Err(no(said!("an object is expected", "应为对象")).below(&format!("/{about}")));
        }
    }
    match fields.get("type").and_then(Value::as_str) {
        Some("text") => text(fields, "text").map(drop),
        Some("image") => media(fields, "image/"),
        Some("audio") => media(fields, "audio/"),
        Some("resource") => {
            let resource = fields.get("resource").and_then(Value::as_object);
            let resource = resource.ok_or_else(|| no(said!("an object is expected", "应为对象")));
            let checked = resource.and_then(embedded);
            checked.map_err(|flaw| flaw.below("/resource"))
        }
        Some("resource_link") => link(fields),
        Some(_) | None => {
            let why = said!(
                "write text, image, audio, resource or resource_link",
                "应为 text、image、audio、resource 或 resource_link"
            );
            Err(no(why).below("/type"))
        }
    }
}

/// An image or a sound, in base64.
fn media(fields: &Map<String, Value>, kind: &str) -> Result<(), NoContent> {
    bytes(fields, "data")?;
    let mime = text(fields, "mimeType")?;
    if is_mime(mime) && mime.starts_with(kind) {
        return Ok(());
    }
    let why = said!(
        "write a MIME type such as {kind}…",
        "应为 {kind}… 形式的 MIME 类型"
    );
    Err(no(why).below("/mimeType"))
}

/// A resource whose content is in the answer.
fn embedded(fields: &Map<String, Value>) -> Result<(), NoContent> {
    uri(fields)?;
    mime_if_any(fields)?;
    match (fields.contains_key("text"), fields.contains_key("blob")) {
        (true, false) => text(fields, "text").map(drop),
        (false, true) => bytes(fields, "blob"),
        (true, true) | (false, false) => Err(no(said!(
            "a resource has either text or blob",
            "资源应有 text 或 blob 之一"
        ))),
    }
}

/// A resource that is somewhere else.
fn link(fields: &Map<String, Value>) -> Result<(), NoContent> {
    uri(fields)?;
    mime_if_any(fields)?;
    let name = text(fields, "name")?;
    if name.is_empty() || name.chars().count() > NAME_MAX {
        let why = said!(
            "a name has 1 to {NAME_MAX} characters",
            "名称应为 1 到 {NAME_MAX} 个字符"
        );
        return Err(no(why).below("/name"));
    }
    for optional in ["title", "description"] {
        if fields.contains_key(optional) {
            text(fields, optional)?;
        }
    }
    if fields.get("size").is_some_and(|size| !size.is_u64()) {
        let why = said!("a number of bytes is expected", "应为字节数");
        return Err(no(why).below("/size"));
    }
    Ok(())
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<&'a str, NoContent> {
    let text = fields.get(name).and_then(Value::as_str);
    text.ok_or_else(|| no(said!("a text is expected", "应为文本")).below(&format!("/{name}")))
}

fn bytes(fields: &Map<String, Value>, name: &str) -> Result<(), NoContent> {
    let text = text(fields, name)?;
    if !text.is_empty() && is_base64(text) {
        return Ok(());
    }
    let why = said!("base64 with its padding is expected", "应为带填充的 base64");
    Err(no(why).below(&format!("/{name}")))
}

fn uri(fields: &Map<String, Value>) -> Result<(), NoContent> {
    let uri = text(fields, "uri")?;
    let scheme = uri.split_once(':').map_or("", |(scheme, _rest)| scheme);
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let is_plain = |letter: char| !letter.is_whitespace() && !letter.is_control();
    // What looks like a link of our own is one, so that whoever follows it asks for a file and for nothing else.
    let file = || uri.strip_prefix(large::SCHEME)?.parse::<FileId>().ok();
    let fits = !scheme.eq_ignore_ascii_case("toolfleet") || file().is_some();
    if is_scheme && fits && uri.len() <= URI_MAX && uri.chars().all(is_plain) {
        return Ok(());
    }
    let why = said!(
        "write an address with its scheme, of at most {URI_MAX} bytes",
        "应为带协议的地址，最多 {URI_MAX} 字节"
    );
    Err(no(why).below("/uri"))
}

fn mime_if_any(fields: &Map<String, Value>) -> Result<(), NoContent> {
    if !fields.contains_key("mimeType") || is_mime(text(fields, "mimeType")?) {
        return Ok(());
    }
    let why = said!("write a MIME type", "应为 MIME 类型");
    Err(no(why).below("/mimeType"))
}

/// `type/subtype`, with parameters or without.
fn is_mime(text: &str) -> bool {
    let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
    let is_word = |word: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        !word.is_empty() && word.bytes().all(fits)
    };
    let is_shown = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    let essence = essence.split_once('/');
    text.len() <= MIME_MAX
        && essence.is_some_and(|(kind, subtype)| is_word(kind) && is_word(subtype.trim_end()))
        && parameters.bytes().all(is_shown)
}

const fn no(why: Message) -> NoContent {
    let path = String::new();
    NoContent { path, why }
}

impl NoContent {
    fn below(mut self, place: &str) -> Self {
        self.path.insert_str(0, place);
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(block: Value) -> Option<String> {
        flaw(&json!({"content": [block]})).map(|flaw| flaw.path)
    }

    #[test]
    fn each_kind_of_block_is_taken_as_mcp_writes_it() {
        for block in [
            json!({"type": "text", "text": ""}),
            json!({"type": "text", "text": "hi", "annotations": {"audience": ["user"]}, "_meta": {"a": 1}}),
            json!({"type": "image", "data": "aGk=", "mimeType": "image/png"}),
            json!({"type": "image", "data": "aGk=", "mimeType": "image/svg+xml", "later": [1]}),
            json!({"type": "audio", "data": "aGk=", "mimeType": "audio/ogg; codecs=opus"}),
            json!({"type": "resource", "resource": {"uri": "file:///a", "text": "x", "mimeType": "text/plain; charset=utf-8"}}),
            json!({"type": "resource", "resource": {"uri": "urn:a:b", "blob": "aGk="}}),
            json!({"type": "resource_link", "uri": "https://a.example/ä", "name": "a", "title": "A", "size": 0}),
            json!({"type": "resource_link", "uri": "toolfleet://file/01890a5d-ac96-774b-bcce-b302099a8057", "name": "a"}),
        ] {
            assert_eq!(of(block.clone()), None, "{block}");
        }
        assert_eq!(flaw(&json!({"content": []})), None);
        let both = json!({"content": [], "structured": [1]});
        assert_eq!((flaw(&both), structured(&both)), (None, Some(&json!([1]))));
    }

    #[test]
    fn a_flaw_is_found_at_its_place() {
        for (block, place) in [
            (json!("hi"), ""),
            (json!({"text": "hi"}), "/type"),
            (json!({"type": "video"}), "/type"),
            (json!({"type": "text"}), "/text"),
            (json!({"type": "text", "text": 1}), "/text"),
            (
                json!({"type": "text", "text": "", "annotations": []}),
                "/annotations",
            ),
            (json!({"type": "text", "text": "", "_meta": null}), "/_meta"),
            (json!({"type": "image", "mimeType": "image/png"}), "/data"),
            (
                json!({"type": "image", "data": "", "mimeType": "image/png"}),
                "/data",
            ),
            (
                json!({"type": "image", "data": "a b=", "mimeType": "image/png"}),
                "/data",
            ),
            (
                json!({"type": "image", "data": "aGk=", "mimetype": "image/png"}),
                "/mimeType",
            ),
            (
                json!({"type": "image", "data": "aGk=", "mimeType": "text/html"}),
                "/mimeType",
            ),
            (
                json!({"type": "image", "data": "aGk=", "mimeType": "image/"}),
                "/mimeType",
            ),
            (
                json!({"type": "audio", "data": "aGk=", "mimeType": "audio/a\nb"}),
                "/mimeType",
            ),
            (json!({"type": "resource"}), "/resource"),
            (
                json!({"type": "resource", "resource": {"uri": "a b:c", "text": ""}}),
                "/resource/uri",
            ),
            (
                json!({"type": "resource", "resource": {"uri": "a:c"}}),
                "/resource",
            ),
            (
                json!({"type": "resource", "resource": {"uri": "a:c", "text": "", "blob": "aGk="}}),
                "/resource",
            ),
            (
                json!({"type": "resource", "resource": {"uri": "a:c", "blob": "?"}}),
                "/resource/blob",
            ),
            (json!({"type": "resource_link", "name": "a"}), "/uri"),
            (
                json!({"type": "resource_link", "name": "a", "uri": "toolfleet://file/../../v1/history"}),
                "/uri",
            ),
            (
                json!({"type": "resource_link", "name": "a", "uri": "ToolFleet://FILE/x"}),
                "/uri",
            ),
            (
                json!({"type": "resource_link", "uri": "nowhere", "name": "a"}),
                "/uri",
            ),
            (
                json!({"type": "resource_link", "uri": "a:\u{0}", "name": "a"}),
                "/uri",
            ),
            (json!({"type": "resource_link", "uri": "a:b"}), "/name"),
            (
                json!({"type": "resource_link", "uri": "a:b", "name": ""}),
                "/name",
            ),
            (
                json!({"type": "resource_link", "uri": "a:b", "name": "a", "size": -1}),
                "/size",
            ),
            (
                json!({"type": "resource_link", "uri": "a:b", "name": "a", "title": 1}),
                "/title",
            ),
        ] {
            assert_eq!(
                of(block.clone()),
                Some(format!("/content/0{place}")),
                "{block}"
            );
        }
        for (answer, place) in [
            (json!([{"type": "text", "text": "hi"}]), ""),
            (json!("hi"), ""),
            (json!({"content": [], "structuredContent": {}}), ""),
            (json!({"structured": {}}), "/content"),
            (json!({"content": {}}), "/content"),
            (
                json!({"content": vec![json!({"type": "text", "text": ""}); BLOCKS_MAX + 1]}),
                "/content",
            ),
        ] {
            assert_eq!(
                flaw(&answer).map(|flaw| flaw.path).as_deref(),
                Some(place),
                "{answer}"
            );
        }
    }
}
