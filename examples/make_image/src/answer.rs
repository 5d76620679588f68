//! The answer, in blocks: a text for a model, the picture, and its size for programs.

use base64::{Engine, engine::general_purpose::STANDARD};
use schemars::JsonSchema;
use serde::Serialize;

use crate::Picture;

/// An answer of blocks. One of more than 256 KiB becomes a file of the tenant on its way, and the answer has a link to it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Answer {
    content: Vec<Block>,
    structured: Measures,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        text: String,
    },
    Image {
        data: String,
        #[serde(rename = "mimeType")]
        mime_type: &'static str,
    },
}

#[derive(Debug, Serialize, JsonSchema)]
struct Measures {
    width: u32,
    height: u32,
    /// Of the PNG.
    bytes: usize,
}

impl Answer {
    pub(crate) fn new(asked: &Picture, file: &[u8]) -> Self {
        let (width, height, bytes) = (asked.width, asked.height, file.len());
        let text = format!("The picture is drawn, {width} by {height} pixels.");
        let image = Block::Image {
            data: STANDARD.encode(file),
            mime_type: "image/png",
        };
        Self {
            content: vec![Block::Text { text }, image],
            structured: Measures {
                width,
                height,
                bytes,
            },
        }
    }
}
