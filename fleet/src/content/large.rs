//! The large blocks of an answer become files, and the answer has links to them.
//!
//! A caller that wants the picture fetches it; the row, the stream of the session and a model's context have a line of it.
//! The id of such a file comes from its call and its bytes, so the same answer of a call, given again, is the same files and links.

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{GeneralPurpose, GeneralPurposeConfig},
};
use serde::{Deserialize, Serialize};
use serde_json::{
    Map, Value,
    value::{RawValue, to_raw_value},
};
use sha2::{Digest, Sha256};

use crate::{
    files::{FileName, MimeType},
    ids::{CallId, FileId},
};

/// A block whose text, or whose base64, has more bytes is large.
pub const INLINE_MAX: usize = 256 * 1024;

/// Where the link of a block leads: this, and the id of its file.
pub const SCHEME: &str = "toolfleet://file/";
/// The most bytes of `annotations` and `_meta` together: a block with more stays, for its link would have them.
const ABOUT_MAX: usize = 16 * 1024;
/// What a link keeps of a resource: its own address.
const OWN_URI: &str = "io.toolfleet/uri";
/// What is in base64 is checked elsewhere, and not for bits that nobody reads.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// An answer with large blocks, whose others stay byte for byte as they are.
#[derive(Debug)]
pub struct LargeAnswer {
    blocks: Vec<Box<RawValue>>,
    structured: Option<Box<RawValue>>,
    large: Vec<LargeBlock>,
}

/// A large block, as a file.
#[derive(Debug)]
pub struct LargeBlock {
    /// Its file.
    pub file_id: FileId,
    /// The name of its file.
    pub name: FileName,
    /// The type of its file.
    pub mime: MimeType,
    /// Its bytes, 1 to 8 MiB.
    pub data: Vec<u8>,
    at: usize,
    link: Box<RawValue>,
}

#[derive(Deserialize)]
struct Blocks {
    content: Vec<Box<RawValue>>,
    #[serde(default)]
    structured: Option<Box<RawValue>>,
}

impl LargeAnswer {
    /// Of an answer of blocks, which [`super::flaw`] has looked at; `None`: it has no large block.
    ///
    /// Blocks of the kinds of `stays` stay in it, however large. Takes long: do not run it on a thread of the runtime.
    pub fn of(call: CallId, answer: &str, stays: &[&str]) -> Option<Self> {
        if answer.len() <= INLINE_MAX {
            return None;
        }
        let Blocks {
            content,
            structured,
        } = serde_json::from_str(answer).ok()?;
        let large = content.iter().enumerate().filter_map(|(at, block)| {
            let is_long = block.get().len() > INLINE_MAX;
            is_long.then(|| large(call, at, block, stays))?
        });
        let large: Vec<LargeBlock> = large.collect();
        (!large.is_empty()).then_some(Self {
            blocks: content,
            structured,
            large,
        })
    }

    /// Its large blocks, in their order.
    pub fn large(&self) -> &[LargeBlock] {
        &self.large
    }

    /// The answer with links in their place.
    pub fn linked(mut self) -> Box<RawValue> {
        for block in self.large {
            self.blocks[block.at] = block.link;
        }
        let blocks: Vec<&str> = self.blocks.iter().map(|block| block.get()).collect();
        let mut text = format!(r#"{{"content":[{}]"#, blocks.join(","));
        if let Some(structured) = &self.structured {
            text.push_str(r#","structured":"#);
            text.push_str(structured.get());
        }
        text.push('}');
        RawValue::from_string(text).expect("blocks of JSON are JSON")
    }
}

/// A block, of which nothing is read that does not have to be.
#[derive(Deserialize)]
struct Block<'a> {
    r#type: String,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(rename = "mimeType")]
    mime: Option<String>,
    #[serde(borrow)]
    resource: Option<&'a RawValue>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

/// The resource in a block.
#[derive(Deserialize)]
struct Resource<'a> {
    uri: String,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    blob: Option<&'a RawValue>,
    #[serde(rename = "mimeType")]
    mime: Option<String>,
}

/// What stands in the place of a block.
#[derive(Serialize)]
struct Link<'a> {
    r#type: &'static str,
    uri: String,
    name: &'a str,
    #[serde(rename = "mimeType")]
    mime: &'a str,
    size: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<&'a RawValue>,
    #[serde(rename = "_meta", skip_serializing_if = "Map::is_empty")]
    meta: Map<String, Value>,
}

fn large(call: CallId, at: usize, block: &RawValue, stays: &[&str]) -> Option<LargeBlock> {
    let block: Block<'_> = serde_json::from_str(block.get()).ok()?;
    if stays.contains(&&*block.r#type) {
        return None;
    }
    let resource = block.resource.map(RawValue::get);
    let resource: Option<Resource<'_>> = match resource {
        Some(resource) => Some(serde_json::from_str(resource).ok()?),
        None => None,
    };
    let (text, encoded, said, own_uri) = match &resource {
        Some(of) => (of.text, of.blob, of.mime.as_deref(), Some(&*of.uri)),
        None => (block.text, block.data, block.mime.as_deref(), None),
    };
    let (data, without_type) = match (text, encoded) {
        (Some(text), None) => (read_large(text)?.into_bytes(), "text/plain"),
        (None, Some(encoded)) => (
            BASE64.decode(read_large(encoded)?).ok()?,
            "application/octet-stream",
        ),
        (_, _) => return None,
    };
    let about = [block.annotations, block.meta];
    let about: usize = about.iter().flatten().map(|about| about.get().len()).sum();
    if about > ABOUT_MAX {
        return None;
    }
    let essence = said.map(|said| said.split(';').next().unwrap_or(said).trim());
    let mime = essence.and_then(|said| said.parse().ok());
    let mime: MimeType = mime.or_else(|| without_type.parse().ok())?;
    let name = own_uri.and_then(last_segment);
    let name = name.or_else(|| named(&block.r#type, at + 1, &mime).parse().ok())?;
    let file_id = id_of(call, at, (&name, &mime), &data);

    let mut meta: Map<String, Value> = match block.meta {
        Some(meta) => serde_json::from_str(meta.get()).ok()?,
        None => Map::new(),
    };
    meta.remove(OWN_URI);
    meta.extend(own_uri.map(|uri| (OWN_URI.to_owned(), Value::from(uri))));
    let link = Link {
        r#type: "resource_link",
        uri: format!("{SCHEME}{file_id}"),
        name: name.as_str(),
        mime: said.unwrap_or(without_type),
        size: data.len(),
        annotations: block.annotations,
        meta,
    };
    let link = to_raw_value(&link).ok()?;
    Some(LargeBlock {
        file_id,
        name,
        mime,
        data,
        at,
        link,
    })
}

/// A JSON string, if it is large.
fn read_large(text: &RawValue) -> Option<String> {
    if text.get().len() <= INLINE_MAX {
        return None;
    }
    let text: String = serde_json::from_str(text.get()).ok()?;
    (text.len() > INLINE_MAX).then_some(text)
}

/// The moment of its call, and of the rest what its bytes come to.
fn id_of(call: CallId, at: usize, (name, mime): (&FileName, &MimeType), data: &[u8]) -> FileId {
    let hash = Sha256::new()
        .chain_update(call.0.as_bytes())
        .chain_update(at.to_be_bytes())
        .chain_update(name.as_str())
        .chain_update([0])
        .chain_update(mime.as_str())
        .chain_update([0])
        .chain_update(data)
        .finalize();
    let mut rest = [0; 10];
    rest.copy_from_slice(&hash[..10]);
    let millis = u64::try_from(call.0.as_u128() >> 80).unwrap_or(u64::MAX);
    FileId(uuid::Builder::from_unix_timestamp_millis(millis, &rest).into_uuid())
}

/// What the address of a resource ends with, where that can be a name.
fn last_segment(uri: &str) -> Option<FileName> {
    let path = uri.split(['?', '#']).next().unwrap_or(uri);
    path.rsplit(['/', ':']).next()?.parse().ok()
}

/// `image-3.png`.
fn named(kind: &str, n: usize, mime: &MimeType) -> String {
    let ending = match mime.as_str() {
        "image/png" => ".png",
        "image/jpeg" => ".jpg",
        "image/gif" => ".gif",
        "image/webp" => ".webp",
        "image/svg+xml" => ".svg",
        "audio/mpeg" => ".mp3",
        "audio/wav" | "audio/x-wav" => ".wav",
        "audio/ogg" => ".ogg",
        "text/plain" => ".txt",
        _other => "",
    };
    format!("{kind}-{n}{ending}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::content;

    fn call() -> CallId {
        "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap()
    }

    fn of(answer: &str) -> LargeAnswer {
        LargeAnswer::of(call(), answer, &[]).unwrap()
    }

    #[test]
    fn large_blocks_become_links_and_all_else_stays_byte_for_byte() {
        let (image, text) = ("aGkA".repeat(100_000), "é".repeat(150_000));
        let small = r#"{"n":1.10,  "type":"text","text":"hi"}"#;
        let answer = format!(
            r#"{{"structured":{{"b":1.0,"a":9007199254740993}},"content":[{small},
               {{"type":"image","data":"{image}","mimeType":"image/png","annotations":{{"priority":1}},"_meta":{{"a":1,"io.toolfleet/uri":"https://evil.example"}}}},
               {{"type":"text","text":"{text}"}},
               {{"type":"audio","data":"{image}","mimeType":"audio/ogg; codecs=opus"}},
               {{"type":"resource","resource":{{"uri":"https://a.example/x/report%201.pdf?v=2","blob":"{image}"}}}},
               {{"type":"resource","resource":{{"uri":"urn:x:/","text":"{text}","mimeType":"text/csv"}}}}]}}"#
        );
        let found = of(&answer);
        let shown: Vec<(&str, &str, usize)> = found
            .large()
            .iter()
            .map(|one| (one.name.as_str(), one.mime.as_str(), one.data.len()))
            .collect();
        assert_eq!(
            shown,
            [
                ("image-2.png", "image/png", 300_000),
                ("text-3.txt", "text/plain", 300_000),
                ("audio-4.ogg", "audio/ogg", 300_000),
                ("report%201.pdf", "application/octet-stream", 300_000),
                ("resource-6", "text/csv", 300_000),
            ]
        );
        let ids: Vec<FileId> = found.large().iter().map(|one| one.file_id).collect();
        let linked = found.linked();
        let first = format!(r#"{{"content":[{small},{{"type":"resource_link","uri":"#);
        assert!(linked.get().starts_with(&first), "{}", &linked.get()[..200]);
        assert!(
            linked
                .get()
                .ends_with(r#","structured":{"b":1.0,"a":9007199254740993}}"#)
        );
        let value: Value = serde_json::from_str(linked.get()).unwrap();
        assert_eq!(content::flaw(&value), None);
        let link = &value["content"][1];
        assert_eq!(link["uri"], format!("toolfleet://file/{}", ids[0]));
        assert_eq!(
            (&link["annotations"], &link["_meta"]),
            (&json!({"priority": 1}), &json!({"a": 1}))
        );
        assert_eq!(value["content"][3]["mimeType"], "audio/ogg; codecs=opus");
        assert_eq!(
            value["content"][4]["_meta"]["io.toolfleet/uri"],
            "https://a.example/x/report%201.pdf?v=2"
        );
    }

    #[test]
    fn the_same_answer_of_a_call_is_the_same_files() {
        let image = |letter: &str| {
            let data = letter.repeat(300_000);
            format!(
                r#"{{"content":[{{"type":"image","data":"{data}","mimeType":"image/x"}},
                   {{"type":"image","data":"{data}","mimeType":"image/x"}}]}}"#
            )
        };
        let ids = |answer: &LargeAnswer| -> Vec<FileId> {
            answer.large().iter().map(|one| one.file_id).collect()
        };
        let first = ids(&of(&image("a")));
        assert_eq!(first, ids(&of(&image("a"))));
        assert_ne!(first[0], first[1]);
        assert_ne!(first[0], ids(&of(&image("b")))[0]);
        let other = LargeAnswer::of(CallId::generate(), &image("a"), &[]).unwrap();
        assert_ne!(first[0], ids(&other)[0]);
        let text = first[0].to_string();
        assert_eq!(text.parse::<FileId>().unwrap(), first[0], "it is a UUIDv7");
    }

    #[test]
    fn an_answer_without_a_large_block_is_left_alone() {
        let many = vec![r#"{"type":"text","text":"aaaaaaaaaa"}"#; 20_000].join(",");
        let fits = "a".repeat(INLINE_MAX);
        let image = format!(
            r#"{{"content":[{{"type":"image","data":"{}","mimeType":"image/png"}}]}}"#,
            "aGkA".repeat(100_000)
        );
        let about = format!(
            r#"{{"content":[{{"type":"text","text":"{fits}a","_meta":{{"a":"{}"}}}}]}}"#,
            "a".repeat(ABOUT_MAX)
        );
        for (answer, stays) in [
            (about, ""),
            (format!(r#"{{"content":[{many}]}}"#), ""),
            (
                format!(r#"{{"content":[{{"type":"text","text":"{fits}"}}]}}"#),
                "",
            ),
            (
                format!(r#"{{"content":[],"structured":"{}"}}"#, "a".repeat(300_000)),
                "",
            ),
            (image, "image"),
        ] {
            assert!(LargeAnswer::of(call(), &answer, &[stays]).is_none());
        }
    }
}
