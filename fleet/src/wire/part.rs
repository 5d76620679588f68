//! A part of an answer, told while its tool still runs.
//!
//! Parts are news: whoever missed one has the result of the call, which is what counts.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::{
    chunks::{CHUNK_MAX, ModelChunks},
    encoded::is_base64,
};

/// The most bytes of a text or of a value, as JSON.
pub const TEXT_MAX: usize = 32 * 1024;
/// The most bytes of an image, in base64.
pub const IMAGE_MAX: usize = 512 * 1024;
/// The most bytes of what a tool says that it is doing.
pub const STEP_MAX: usize = 512;

/// The most bytes of a part as a tool writes it: an image with what is around it.
pub const JSON_MAX: usize = IMAGE_MAX + 1_024;
/// The most parts of one attempt that leave in a second.
pub const A_SECOND_MAX: u32 = 50;
/// The most bytes of all parts of one attempt together, as [`Part::size`] counts them.
pub const ATTEMPT_MAX: usize = 4 * 1024 * 1024;

/// What a tool tells of its answer before it is complete.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The next characters of its text.
    Text(String),
    /// What it is doing now, such as `searching`.
    Step(String),
    /// An image, or a first sketch of one.
    Image(Image),
    /// Any other piece.
    Value(Value),
    /// Pieces of a model's answer. Only the fleet's own executor tells them: no tool writes them.
    #[serde(skip_deserializing)]
    Chunks(ModelChunks),
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// What it is, such as `image/png`.
    pub mime: String,
    /// Its bytes in base64.
    pub b64: String,
    /// Which of the tool's images, from 0.
    #[serde(default)]
    pub index: u32,
    /// Whether a better one follows.
    #[serde(default)]
    pub partial: bool,
}

/// Why something is no part of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnfitPart {
    /// It is none of `text`, `step`, `image`, `value`.
    #[error("it is not an object with exactly one of text, step, image, value")]
    Form,
    /// It is empty.
    #[error("it is empty")]
    Empty,
    /// It is too large.
    #[error("it has more than {0} bytes")]
    TooLarge(usize),
    /// The image is no image.
    #[error("mime is not image/…, or b64 is not base64")]
    Image,
}

impl Part {
    /// Reads what a tool wrote: `{"text": "…"}`, `{"step": "…"}`, `{"image": {…}}` or `{"value": …}`.
    ///
    /// # Errors
    ///
    /// It is something else, empty, or too large.
    pub fn read(json: &[u8]) -> Result<Self, UnfitPart> {
        if json.len() > JSON_MAX {
            return Err(UnfitPart::TooLarge(JSON_MAX));
        }
        let part: Self = serde_json::from_slice(json).map_err(|_other| UnfitPart::Form)?;
        part.check()?;
        Ok(part)
    }

    /// # Errors
    ///
    /// It is empty, or too large.
    pub fn check(&self) -> Result<(), UnfitPart> {
        let most = match self {
            Self::Text(_) | Self::Value(_) => TEXT_MAX,
            Self::Step(_) => STEP_MAX,
            Self::Image(image) if !image.is_fit() => return Err(UnfitPart::Image),
            Self::Image(_) => IMAGE_MAX,
            Self::Chunks(chunks) if chunks.restart && chunks.chunks.is_empty() => return Ok(()),
            Self::Chunks(_) => CHUNK_MAX,
        };
        match self.size() {
            0 => Err(UnfitPart::Empty),
            bytes if bytes > most => Err(UnfitPart::TooLarge(most)),
            _fits => Ok(()),
        }
    }

    /// How many bytes it has: those of its text, of its image in base64, or of its value or its chunks as JSON.
    pub fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Step(step) => step.len(),
            Self::Image(image) => image.b64.len(),
            Self::Value(value) => value.to_string().len(),
            Self::Chunks(chunks) => chunks.size(),
        }
    }
}

impl Serialize for Part {
    /// As an object with one member, and chunks beside their route.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => to.serialize_newtype_variant("Part", 0, "text", text),
            Self::Step(step) => to.serialize_newtype_variant("Part", 1, "step", step),
            Self::Image(image) => to.serialize_newtype_variant("Part", 2, "image", image),
            Self::Value(value) => to.serialize_newtype_variant("Part", 3, "value", value),
            Self::Chunks(chunks) => chunks.serialize(to),
        }
    }
}

impl From<&str> for Part {
    /// The next characters of the text.
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Part {
    /// The next characters of the text.
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Image> for Part {
    fn from(image: Image) -> Self {
        Self::Image(image)
    }
}

impl From<ModelChunks> for Part {
    fn from(chunks: ModelChunks) -> Self {
        Self::Chunks(chunks)
    }
}

impl Image {
    fn is_fit(&self) -> bool {
        let named = self.mime.strip_prefix("image/").is_some_and(|kind| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
            (1..=32).contains(&kind.len()) && kind.bytes().all(fits)
        });
        named && is_base64(&self.b64)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: &Value) -> Result<Part, UnfitPart> {
        Part::read(value.to_string().as_bytes())
    }

    #[test]
    fn each_kind_is_read_as_it_is_written() {
        for written in [
            json!({"text": "你好"}),
            json!({"step": "searching"}),
            json!({"image": {"mime": "image/svg+xml", "b64": "aGk=", "index": 2, "partial": true}}),
            json!({"value": {"rows": [1, 2.50]}}),
            json!({"value": null}),
        ] {
            let part = read(&written).unwrap();
            assert_eq!(serde_json::to_value(part).unwrap(), written);
        }
    }

    #[test]
    fn what_is_no_part_is_refused() {
        let text = |bytes: usize| json!({"text": "x".repeat(bytes)});
        assert!(read(&text(TEXT_MAX)).is_ok());
        assert_eq!(
            read(&text(TEXT_MAX + 1)),
            Err(UnfitPart::TooLarge(TEXT_MAX))
        );
        assert_eq!(read(&text(0)), Err(UnfitPart::Empty));
        assert_eq!(
            Part::read(&[b'x'; 600_000]),
            Err(UnfitPart::TooLarge(JSON_MAX))
        );
        for other in [
            json!({"text": "a", "step": "b"}),
            json!({"text": 1}),
            json!({"audio": "x"}),
            json!({"route": "main", "chunks": [{}]}),
            json!({"chunks": {"route": "main", "chunks": [{}]}}),
            json!("text"),
            json!({}),
            json!({"image": {"mime": "image/png", "b64": "aGk=", "url": "https://x"}}),
        ] {
            assert_eq!(read(&other), Err(UnfitPart::Form), "{other}");
        }
        for (mime, b64) in [
            ("text/html", "aGk="),
            ("image/", "aGk="),
            ("image/png;x=\"", "aGk="),
            ("image/png", "aGk"),
            ("image/png", "a==="),
            ("image/png", "a\"k="),
        ] {
            let image = json!({"image": {"mime": mime, "b64": b64}});
            assert_eq!(read(&image), Err(UnfitPart::Image), "{image}");
        }
    }
}
