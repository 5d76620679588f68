//! A result of blocks (docs/definitions.md): texts as text, small images as images, files as links; what else there may be stays in
//! the JSON.

use fleet::ids::FileId;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{text, visitor::Visitor};

/// What a browser may draw. No SVG: it is a document.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// The largest image that stands in a page, in base64.
const IMAGE_MAX: usize = 1024 * 1024;
/// How many blocks are shown.
const BLOCKS_MAX: usize = 50;
/// How a file of the fleet is named.
const FILE: &str = "toolfleet://file/";

#[derive(Debug, Deserialize)]
struct ShownBlocks {
    content: Vec<ShownBlock>,
}

#[derive(Debug, Deserialize)]
struct ShownBlock {
    r#type: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    data: String,
    #[serde(default, rename = "mimeType")]
    mime_type: String,
    #[serde(default)]
    uri: String,
    #[serde(default)]
    name: String,
}

/// The blocks of a result; empty where it has none.
pub(super) fn shown(visitor: &Visitor, result: &RawValue) -> Markup {
    let blocks: Option<ShownBlocks> = serde_json::from_str(result.get()).ok();
    let blocks = blocks.map(|blocks| blocks.content).unwrap_or_default();
    html! {
        @for block in blocks.iter().take(BLOCKS_MAX) { (one(visitor, block)) }
    }
}

fn one(visitor: &Visitor, block: &ShownBlock) -> Markup {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    let is_image = block.r#type == "image"
        && IMAGES.contains(&block.mime_type.as_str())
        && block.data.len() <= IMAGE_MAX
        && block.data.bytes().all(is_base64);
    let file = block
        .uri
        .strip_prefix(FILE)
        .and_then(|id| id.parse::<FileId>().ok());
    html! {
        @if block.r#type == "text" {
            @let (beginning, is_whole) = text::cut(&block.text);
            pre.text { (text::stranger(beginning)) @if !is_whole { "…" } }
        } @else if is_image {
            img.result src={ "data:" (block.mime_type) ";base64," (block.data) } alt=(block.mime_type);
        } @else if let Some(file) = file {
            p { a href=(visitor.link(&format!("/console/files/{file}"))) download { (text::beginning(&block.name, 120)) } " " (text::beginning(&block.mime_type, 60)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_browser_draws_is_an_image() {
        let block = |mime: &str, data: &str| ShownBlock {
            r#type: "image".to_owned(),
            text: String::new(),
            data: data.to_owned(),
            mime_type: mime.to_owned(),
            uri: String::new(),
            name: String::new(),
        };
        let drawn = |mime: &str, data: &str| {
            let visitor = Visitor::somebody();
            one(&visitor, &block(mime, data))
                .into_string()
                .contains("<img")
        };
        assert!(drawn("image/png", "iVBORw0KGgo="));
        for (mime, data) in [
            ("image/svg+xml", "AAAA"),
            ("text/html", "AAAA"),
            ("image/png", "AA\"><script>"),
        ] {
            assert!(!drawn(mime, data), "{mime} {data}");
        }
    }
}
