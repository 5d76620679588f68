//! What an item shows of its call's result.

use std::borrow::Cow;

use fleet::wire::encoded::is_base64;
use serde::Serialize;
use serde_json::{Map, Number, Value};

use super::shape::ItemKind;

/// The result of a call.
#[derive(Debug)]
pub(super) struct ShownResult<'a> {
    json: &'a str,
    value: Value,
}

/// One thing that a search of files has found.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct FoundText<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    file_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filename: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<&'a Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

/// What code has put out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RanCommand<'a> {
    pub(super) stdout: Cow<'a, str>,
    pub(super) stderr: &'a str,
    pub(super) exit_code: i64,
}

impl<'a> ShownResult<'a> {
    /// That of this JSON text.
    pub(super) fn read(json: &'a str) -> Self {
        let value = serde_json::from_str(json).unwrap_or_default();
        Self { json, value }
    }

    /// Whether an item of this kind can show what has come of its call. Where it cannot, an item of the kind `mcp_call` does.
    pub(super) fn fits(&self, kind: ItemKind) -> bool {
        let fits =
            |list: &[Value], shows: fn(&Value) -> bool| list.is_empty() || list.iter().any(shows);
        match kind {
            ItemKind::Image => self.image().is_some(),
            ItemKind::FileSearch => self
                .found_list()
                .is_some_and(|found| fits(found, Value::is_object)),
            ItemKind::WebSearch => self
                .source_list()
                .is_some_and(|found| fits(found, |one| address(one).is_some())),
            // They have a place for any text.
            ItemKind::Mcp | ItemKind::Message | ItemKind::Code | ItemKind::Shell => true,
        }
    }

    /// As text: a string's characters, and of everything else the JSON.
    pub(super) fn text(&self) -> &str {
        self.value.as_str().unwrap_or(self.json)
    }

    /// As the assistant says it: a string, or the texts among blocks of content; of everything else the JSON.
    pub(super) fn message(&self) -> Cow<'_, str> {
        let texts: Vec<&str> = self
            .blocks("text")
            .filter_map(|block| text(block, "text"))
            .collect();
        if texts.is_empty() {
            return Cow::Borrowed(self.text());
        }
        Cow::Owned(texts.join("\n"))
    }

    /// The image in base64: a string, the field `b64`, or the first image among blocks of content.
    pub(super) fn image(&self) -> Option<&str> {
        let given = self.value.as_str().or_else(|| self.field("b64"));
        let image = given.or_else(|| self.blocks("image").find_map(|block| text(block, "data")));
        // A text in words has a space, or another length.
        image.filter(|image| !image.is_empty() && is_base64(image))
    }

    /// What was found in files: the objects of `results`, or of the result itself where it is a list.
    pub(super) fn found(&self) -> Option<Vec<FoundText<'_>>> {
        let found = self.found_list()?.iter().filter_map(Value::as_object);
        Some(found.map(FoundText::of).collect())
    }

    /// The addresses that were found on the web: of `sources`, `results`, or the result itself where it is a list.
    pub(super) fn sources(&self) -> Vec<&str> {
        let found = self.source_list().into_iter().flatten();
        found.filter_map(address).collect()
    }

    /// What a shell has put out: `stdout`, or `output`, with `stderr` and `exit_code`; of everything else the text.
    pub(super) fn ran(&self) -> RanCommand<'_> {
        let stdout = self.field("stdout").or_else(|| self.field("output"));
        RanCommand {
            stdout: stdout.map_or_else(|| self.message(), Cow::Borrowed),
            stderr: self.field("stderr").unwrap_or_default(),
            exit_code: self
                .value
                .get("exit_code")
                .and_then(Value::as_i64)
                .unwrap_or(0),
        }
    }

    /// The addresses of images that code has made, in `images`.
    pub(super) fn image_urls(&self) -> Vec<&str> {
        let images = self.value.get("images").and_then(Value::as_array);
        images
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }

    /// What code has put out: `logs`, or else the text.
    pub(super) fn logs(&self) -> Cow<'_, str> {
        let logs = self.field("logs");
        logs.map_or_else(|| self.message(), Cow::Borrowed)
    }

    fn found_list(&self) -> Option<&[Value]> {
        self.list(&["results"])
    }

    fn source_list(&self) -> Option<&[Value]> {
        self.list(&["sources", "results"])
    }

    /// The result where it is a list, or the first list among these fields.
    fn list(&self, fields: &[&str]) -> Option<&[Value]> {
        let fields = fields
            .iter()
            .filter_map(|field| self.value.get(field)?.as_array());
        let mut lists = self.value.as_array().into_iter().chain(fields);
        lists.next().map(Vec::as_slice)
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.value.get(name)?.as_str()
    }

    fn blocks(&self, kind: &'static str) -> impl Iterator<Item = &Value> {
        let blocks = self.value.get("content").and_then(Value::as_array);
        let of_kind = move |block: &&Value| text(block, "type") == Some(kind);
        blocks.into_iter().flatten().filter(of_kind)
    }
}

impl<'a> FoundText<'a> {
    fn of(found: &'a Map<String, Value>) -> Self {
        let text = |field| found.get(field).and_then(Value::as_str);
        Self {
            file_id: text("file_id"),
            filename: text("filename"),
            score: found.get("score").and_then(Value::as_number),
            text: text("text"),
        }
    }
}

/// The address of something that was found on the web.
fn address(found: &Value) -> Option<&str> {
    found.as_str().or_else(|| found.get("url")?.as_str())
}

fn text<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object.get(field)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> ShownResult<'_> {
        ShownResult::read(json)
    }

    #[test]
    fn a_result_is_its_text_and_numbers_keep_their_digits() {
        assert_eq!(read(r#""a\nb""#).text(), "a\nb");
        assert_eq!(read("9007199254740993.10").text(), "9007199254740993.10");
        assert_eq!(read(r#"{"b": 1, "a": 2}"#).text(), r#"{"b": 1, "a": 2}"#);
        let blocks = r#"{"content":[{"type":"text","text":"a"},{"type":"image","data":"aGk="},{"type":"text","text":"b"}]}"#;
        assert_eq!(read(blocks).message(), "a\nb");
        assert_eq!(read(r#""said""#).message(), "said");
        assert_eq!(read(r#"{"content":1}"#).message(), r#"{"content":1}"#);
    }

    #[test]
    fn an_image_is_found_where_tools_put_it() {
        for json in [
            r#""aGk=""#,
            r#"{"mime":"image/png","b64":"aGk="}"#,
            r#"{"content":[{"type":"text","text":"x"},{"type":"image","data":"aGk=","mimeType":"image/png"}]}"#,
        ] {
            assert_eq!(read(json).image(), Some("aGk="), "{json}");
        }
        assert_eq!(read(r#"{"url":"https://x"}"#).image(), None);
    }

    #[test]
    fn what_was_found_is_shown_with_the_fields_that_are_known() {
        let found = r#"{"results":[{"file_id":"f","score":0.50,"text":"t","more":1},2]}"#;
        let shown = serde_json::to_string(&read(found).found()).unwrap();
        assert_eq!(shown, r#"[{"file_id":"f","score":0.50,"text":"t"}]"#);
        assert_eq!(read(r#"{"a":1}"#).found(), None);
        assert_eq!(read(r#"[{"url":"u"},"v",3]"#).sources(), ["u", "v"]);
        assert_eq!(read(r#"{"results":[{"url":"u"}]}"#).sources(), ["u"]);
    }

    #[test]
    fn what_a_shell_says_is_shown_as_such() {
        let ran = read(r#"{"output":"hi","exit_code":3}"#);
        let ran = ran.ran();
        assert_eq!((&*ran.stdout, ran.stderr, ran.exit_code), ("hi", "", 3));
        assert_eq!(read("[1]").ran().stdout, "[1]");
        assert_eq!(read(r#"{"logs":"x"}"#).logs(), "x");
        assert_eq!(read(r#"{"images":["u",1]}"#).image_urls(), ["u"]);
        let blocks = r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#;
        assert_eq!(read(blocks).ran().stdout, "a\nb");
        assert_eq!(read(blocks).logs(), "a\nb");
    }

    #[test]
    fn a_result_fits_a_kind_that_has_a_place_for_it() {
        for (kind, json, fits) in [
            (ItemKind::Image, r#""aGk=""#, true),
            (ItemKind::Image, r#""there is none""#, false),
            (ItemKind::Image, r#""""#, false),
            (ItemKind::Image, r#"{"b64":"a"}"#, false),
            (ItemKind::Image, r#"{"url":"https://a.example"}"#, false),
            (ItemKind::Image, "null", false),
            (ItemKind::FileSearch, r#"{"results":[]}"#, true),
            (ItemKind::FileSearch, r#"[{"text":"t"}]"#, true),
            (ItemKind::FileSearch, r#"["t"]"#, false),
            (ItemKind::FileSearch, r#""nothing found""#, false),
            (ItemKind::WebSearch, r#"["https://a.example"]"#, true),
            (ItemKind::WebSearch, r#"{"sources":[]}"#, true),
            (ItemKind::WebSearch, r#"{"results":[{"title":"t"}]}"#, false),
            (ItemKind::WebSearch, r#"{"answer":"it rains"}"#, false),
            (ItemKind::Code, "null", true),
            (ItemKind::Shell, "[1]", true),
            (ItemKind::Message, "{}", true),
            (ItemKind::Mcp, "{}", true),
        ] {
            assert_eq!(read(json).fits(kind), fits, "{kind:?} {json}");
        }
    }
}
