//! **Which arguments are the answers of other calls?** `{"$result": id, "path"?}` stands in place of a value. Pure.
//!
//! What is stored, hashed and told is the reference. What the schema, the interceptors and the tool get is the answer. An
//! answer is never looked through for further references.

use serde_json::{Map, Value, json};

use crate::{
    arguments::{Limits, ParseError, pointer_segment, shorten},
    call::Language,
    ids::CallId,
    outcome::ToolFailure,
    said,
    wire::{code::Code, message::Message},
};

/// The most references in the arguments of a call.
pub const REFERENCES_MAX: usize = 16;
/// The most bytes of everything that they stand for, JSON text.
pub const REFERRED_MAX: usize = 8 * 1024 * 1024;
/// The most values of everything that they stand for, containers counted: a value takes up to a hundred times its text in memory.
pub const VALUES_MAX: usize = 200_000;
/// The most bytes of the whole answers of which they stand for a part: all of them are read.
pub const READ_MAX: usize = 2 * REFERRED_MAX;

const RESULT: &str = "$result";
/// What a message has that stands for all of another call's.
pub const CALL: &str = "$call";
const PATH: &str = "path";

/// A value of the arguments that stands for the answer of another call, or for a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Where it stands, a JSON pointer.
    pub place: String,
    /// Whose answer it is; `None` where no call can have such an id.
    pub call: Option<CallId>,
    /// Which part of it, a JSON pointer; empty for all of it.
    pub path: String,
}

/// Why a reference stands for nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct NoReferent {
    /// Where it stands.
    pub place: String,
    /// Why.
    pub why: NoReferentWhy,
}

/// Why a reference stands for nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum NoReferentWhy {
    /// It is the arguments themselves.
    Whole,
    /// It has something else beside its members, or these are no texts.
    Malformed,
    /// There are more than [`REFERENCES_MAX`].
    TooMany,
    /// There is no such answer for this tenant.
    NotFound,
    /// The answer has no such part.
    NoSuchPath,
    /// It is a text that was mended to a reference.
    Text,
    /// They stand for more than [`REFERRED_MAX`] bytes together, or for parts of more than [`READ_MAX`].
    TooLarge,
    /// The schema would have to be held against more than it can in a moment.
    TooCostly,
    /// The part cannot be an argument: it is nested too deep, has too many values, or a number that no argument may have.
    Unfit(ParseError),
}

/// Whether an object that names another call, for its answer or its messages, may come of this JSON text, in whatever way it is written.
pub fn may_name_calls(sent: &str) -> bool {
    may_be_in(sent) || sent.contains(CALL)
}

/// Whether an object with the key of a reference may come of this JSON text, in whatever way it is written.
pub fn may_be_in(sent: &str) -> bool {
    sent.contains(RESULT) || sent.contains("\\u")
}

/// The same for arguments in canonical form, which write the key in one way.
pub fn may_be_in_canonical(text: &str) -> bool {
    text.contains("\"$result\"")
}

/// The call that a model's request goes on from, in whichever protocol it is: `{"$call": id}` as its first message.
pub fn goes_on_from(args: &Value) -> Option<CallId> {
    let first = |member| args.get(member).and_then(|items: &Value| items.get(0));
    let mut firsts = ["messages", "input"].into_iter().filter_map(first);
    firsts.find_map(|item| item.get(CALL)?.as_str()?.parse().ok())
}

/// The same arguments with nothing in the places of these references: what is done with them then does not depend on answers.
pub fn without(args: &mut Value, references: &[Reference]) -> Vec<Value> {
    let mut taken = Vec::with_capacity(references.len());
    for reference in references {
        let value = args.pointer_mut(&reference.place);
        taken.extend(value.map(Value::take));
    }
    taken
}

/// Puts back what [`without`] took from the places of the same references.
pub fn put_back(args: &mut Value, references: &[Reference], taken: Vec<Value>) {
    for (reference, value) in references.iter().zip(taken) {
        if let Some(place) = args.pointer_mut(&reference.place) {
            *place = value;
        }
    }
}

/// Every reference in these arguments.
///
/// # Errors
///
/// An object that has the key of a reference and is none, or more references than there may be.
pub fn references(args: &Value) -> Result<Vec<Reference>, NoReferent> {
    let mut finder = Finder {
        place: String::new(),
        found: Vec::new(),
    };
    finder.look_at(args)?;
    Ok(finder.found)
}

struct Finder {
    place: String,
    found: Vec<Reference>,
}

impl Finder {
    fn look_at(&mut self, value: &Value) -> Result<(), NoReferent> {
        match value {
            Value::Object(members) if members.contains_key(RESULT) => self.add(members),
            Value::Object(members) => {
                let mut members = members.iter();
                members.try_for_each(|(name, value)| self.below(&pointer_segment(name), value))
            }
            Value::Array(items) => {
                let mut items = items.iter().enumerate();
                items.try_for_each(|(index, item)| self.below(&index.to_string(), item))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    fn below(&mut self, segment: &str, value: &Value) -> Result<(), NoReferent> {
        if !matches!(value, Value::Object(_) | Value::Array(_)) {
            return Ok(());
        }
        let length = self.place.len();
        self.place.push('/');
        self.place.push_str(segment);
        self.look_at(value)?;
        self.place.truncate(length);
        Ok(())
    }

    fn add(&mut self, members: &Map<String, Value>) -> Result<(), NoReferent> {
        if self.place.is_empty() {
            return Err(self.none(NoReferentWhy::Whole));
        }
        let Some((call, path)) = read(members) else {
            return Err(self.none(NoReferentWhy::Malformed));
        };
        if self.found.len() == REFERENCES_MAX {
            return Err(self.none(NoReferentWhy::TooMany));
        }
        self.found.push(Reference {
            place: self.place.clone(),
            call: call.parse().ok(),
            path: path.to_owned(),
        });
        Ok(())
    }

    fn none(&self, why: NoReferentWhy) -> NoReferent {
        NoReferent::at(&self.place, why)
    }
}

/// The call and the path, where an object is exactly a reference.
fn read(members: &Map<String, Value>) -> Option<(&str, &str)> {
    let call = members.get(RESULT)?.as_str()?;
    let path = match members.get(PATH) {
        Some(path) => path.as_str()?,
        None => "",
    };
    let known = 1 + usize::from(members.contains_key(PATH));
    (members.len() == known).then_some((call, path))
}

impl Reference {
    /// How many values are around it.
    pub fn depth(&self) -> usize {
        self.place.matches('/').count()
    }

    /// That it stands for nothing, and why.
    pub fn none(&self, why: NoReferentWhy) -> NoReferent {
        NoReferent::at(&self.place, why)
    }
}

impl NoReferent {
    fn at(place: &str, why: NoReferentWhy) -> Self {
        Self {
            place: shorten(place, Limits::PATH_BYTES).into_owned(),
            why,
        }
    }

    /// The stable code.
    pub fn code(&self) -> Code {
        match &self.why {
            NoReferentWhy::TooLarge | NoReferentWhy::TooCostly => Code::PayloadTooLarge,
            NoReferentWhy::Whole
            | NoReferentWhy::Malformed
            | NoReferentWhy::TooMany
            | NoReferentWhy::NotFound
            | NoReferentWhy::NoSuchPath
            | NoReferentWhy::Text
            | NoReferentWhy::Unfit(_) => Code::InvalidArguments,
        }
    }

    /// What is wrong and what to send instead.
    pub fn message(&self) -> Message {
        match &self.why {
            NoReferentWhy::Whole => Message::fixed(
                "a $result stands for the value of one argument, and not for all arguments",
                "$result 只能代替某一个参数的值，不能代替全部参数",
            ),
            NoReferentWhy::Malformed => Message::fixed(
                "an argument that refers to an answer has $result, the id, and if wanted path, both texts, and nothing else",
                "引用结果的参数只含 $result（编号），需要时再加 path，两者都是字符串，不能有其他字段",
            ),
            NoReferentWhy::TooMany => said!(
                "arguments refer to at most {REFERENCES_MAX} answers",
                "参数最多引用 {REFERENCES_MAX} 个结果"
            ),
            NoReferentWhy::NotFound => Message::fixed(
                "there is no such result: it is unknown, or no longer kept",
                "没有这个结果：它不存在，或已不再保存",
            ),
            NoReferentWhy::NoSuchPath => Message::fixed(
                "path leads nowhere in this result; it begins with /, such as /items/3; read it with read_result to see what it has",
                "path 在这个结果中不存在；它以 / 开头，例如 /items/3；请用 read_result 查看其内容",
            ),
            NoReferentWhy::TooLarge => said!(
                "the answers that arguments refer to have at most {REFERRED_MAX} bytes together; name a part with path",
                "参数引用的结果合计最多 {REFERRED_MAX} 字节；请用 path 指定其中一部分"
            ),
            NoReferentWhy::Text => Message::fixed(
                "an argument that refers to an answer is sent as an object and not as its text",
                "引用结果的参数要以对象发送，不能以字符串发送",
            ),
            NoReferentWhy::TooCostly => Message::fixed(
                "the schema of the tool is too costly to check for answers of this size; name a part with path",
                "这么大的结果，检查工具的 schema 代价过高；请用 path 指定其中一部分",
            ),
            NoReferentWhy::Unfit(error) => {
                let why = &error.message;
                said!(
                    "what it refers to cannot be an argument here ({why}); name a part with path",
                    "它引用的内容在这里不能作为参数（{why}）；请用 path 指定其中一部分",
                    why
                )
            }
        }
    }

    /// What would be right, to be read after "expected".
    const fn expected(&self) -> Message {
        match &self.why {
            NoReferentWhy::Whole => Message::fixed("arguments", "参数"),
            NoReferentWhy::Malformed => Message::fixed(
                "an object with $result and perhaps path, both texts, and nothing else",
                "只含 $result、需要时再加 path 的对象，两者都是字符串",
            ),
            NoReferentWhy::TooMany => Message::fixed("at most 16 of them", "最多 16 个"),
            NoReferentWhy::NotFound => Message::fixed(
                "the $result of a call of yours that has succeeded and is still kept",
                "属于你、已经成功并且仍保存着的调用的 $result",
            ),
            NoReferentWhy::NoSuchPath => Message::fixed(
                "a path to a part of this result",
                "指向这个结果某一部分的 path",
            ),
            NoReferentWhy::Text => Message::fixed("an object", "对象"),
            NoReferentWhy::TooLarge | NoReferentWhy::TooCostly | NoReferentWhy::Unfit(_) => {
                Message::fixed("a smaller or simpler part", "更小或更简单的一部分")
            }
        }
    }

    /// For programs: the same list as for arguments that do not fit, and the word of `read_result`.
    pub fn details(&self, language: Language) -> Value {
        let mut details = json!({"left_out": 0, "violations": [{
            "path": self.place,
            "expected": self.expected().told(language),
            "found": RESULT,
        }]});
        let code = match &self.why {
            NoReferentWhy::NotFound => Some("not_found"),
            NoReferentWhy::NoSuchPath => Some("no_such_path"),
            NoReferentWhy::Unfit(error) => Some(Code::from(error.code).as_str()),
            NoReferentWhy::Whole
            | NoReferentWhy::Malformed
            | NoReferentWhy::TooMany
            | NoReferentWhy::Text
            | NoReferentWhy::TooLarge
            | NoReferentWhy::TooCostly => None,
        };
        if let Some(code) = code {
            details["code"] = json!(code);
        }
        details
    }

    /// As the end of a call that was accepted.
    pub fn failure(&self, language: Language) -> ToolFailure {
        ToolFailure::new(self.code(), self.message()).with_details(self.details(language))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0192a6a0-0000-7000-8000-000000000001";

    fn places(args: &Value) -> Vec<(String, String)> {
        let found = references(args).unwrap();
        found.into_iter().map(|r| (r.place, r.path)).collect()
    }

    fn why(args: &Value) -> (String, NoReferentWhy) {
        let none = references(args).unwrap_err();
        (none.place, none.why)
    }

    #[test]
    fn references_are_found_wherever_they_stand() {
        let args = json!({
            "a/b": {"$result": ID},
            "list": [1, {"deep": {"$result": ID, "path": "/x"}}],
            "text": "$result",
            "$results": {"result": ID},
        });
        let found = [("/a~1b", ""), ("/list/1/deep", "/x")];
        let found = found.map(|(place, path)| (place.to_owned(), path.to_owned()));
        assert_eq!(places(&args), found);
        assert_eq!(references(&args).unwrap()[1].depth(), 3);
        assert_eq!(places(&json!({})), []);
    }

    #[test]
    fn an_object_with_the_key_of_a_reference_is_one_or_wrong() {
        use NoReferentWhy::{Malformed, TooMany, Whole};
        assert_eq!(why(&json!({"$result": ID})), (String::new(), Whole));
        for wrong in [
            json!({"$result": ID, "preview": "…"}),
            json!({"$result": ID, "path": 1}),
            json!({"$result": ID, "path": null}),
            json!({"$result": {"$result": ID}}),
            json!({"$result": 7, "path": "/a"}),
        ] {
            let found = why(&json!({"data": wrong}));
            assert_eq!(found, ("/data".to_owned(), Malformed));
        }
        let most = vec![json!({"$result": ID}); 16];
        assert_eq!(places(&json!({"all": most})).len(), 16);
        let more = vec![json!({"$result": ID}); 17];
        assert_eq!(why(&json!({"all": more})), ("/all/16".to_owned(), TooMany));
    }

    #[test]
    fn what_no_call_can_have_as_its_id_refers_to_no_call() {
        let found = references(&json!({"data": {"$result": "yesterday's"}})).unwrap();
        assert_eq!(found[0].call, None);
    }

    #[test]
    fn no_way_to_write_the_key_escapes_the_search() {
        for sent in [
            r#"{"data":{"$result":"x"}}"#,
            r#"{"data":{"\u0024result":"x"}}"#,
            r#"{"data":{"$res\u0075lt":"x"}}"#,
        ] {
            assert!(may_be_in(sent), "{sent}");
            let value: Value = serde_json::from_str(sent).unwrap();
            assert!(may_be_in_canonical(&crate::canonical::to_text(&value)));
        }
        assert!(!may_be_in(r#"{"data":"results"}"#));
        assert!(!may_be_in_canonical(r#"{"data":"say \"$result\""}"#));
    }

    #[test]
    fn what_is_wrong_is_said_in_both_languages_and_at_its_place() {
        let none = references(&json!({"data": {"$result": 1}})).unwrap_err();
        for language in Language::ALL {
            let details = none.details(*language);
            assert_eq!(details["violations"][0]["path"], "/data");
            let expected = details["violations"][0]["expected"].as_str();
            assert_eq!(expected, Some(none.expected().told(*language)));
        }
        assert_eq!(none.code(), Code::InvalidArguments);
    }
}
