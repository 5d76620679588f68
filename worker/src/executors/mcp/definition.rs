//! What a server says of one tool: the fields that are pinned and whether it wants tasks, as it writes them, and nothing else. Pure.
//!
//! Each tool of a list is judged by itself: one that cannot be read costs none of the others.

use fleet::{
    arguments::{Limits, parse_any},
    mcp::UNREADABLE,
    wire::message::Message,
};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json, value::RawValue};

use crate::executors::output;

/// The most bytes of what is pinned of one tool. The door holds less, so none that is larger was ever applied.
const DEFINITION_MAX: usize = 1024 * 1024;
/// How deep each field may be nested: `mcp_discover` tells it three levels deep in its answer.
const DEPTH_MAX: usize = output::DEPTH_MAX - 3;
/// The most bytes of a name that is told of a tool whose definition cannot be read.
const NAME_MAX: usize = 1024;

/// What a server says of a tool.
#[derive(Debug)]
pub(super) enum ToolDefinition<'a> {
    /// The fields that are pinned, in the order of the protocol, and `execution`.
    Read(Vec<(&'static str, &'a RawValue)>),
    /// It is too large, nested too deep or no definition.
    Unreadable {
        /// Where that much can be read.
        name: Option<String>,
        /// Which of these, in words.
        why: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PinnedFields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    name: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    title: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    description: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    input_schema: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    output_schema: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    annotations: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    execution: Option<&'a RawValue>,
}

/// Also a null: that is not the same as no field.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(field: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(field).map(Some)
}

impl<'a> ToolDefinition<'a> {
    /// Of one tool as `tools/list` has it.
    pub(super) fn read(tool: &'a RawValue) -> Self {
        // A list would be read as the fields in their order.
        let text = Some(tool.get()).filter(|text| text.trim_start().starts_with('{'));
        let fields = text.and_then(|text| serde_json::from_str::<PinnedFields<'_>>(text).ok());
        let Some(fields) = fields else {
            let (name, why) = (None, "it is not what the protocol says".to_owned());
            return Self::Unreadable { name, why };
        };
        let pinned = [
            ("name", fields.name),
            ("title", fields.title),
            ("description", fields.description),
            ("inputSchema", fields.input_schema),
            ("outputSchema", fields.output_schema),
            ("annotations", fields.annotations),
            ("execution", fields.execution),
        ];
        let pinned = pinned
            .into_iter()
            .filter_map(|(name, field)| Some((name, field?)));
        let pinned: Vec<_> = pinned.collect();
        let bytes: usize = pinned.iter().map(|(_, field)| field.get().len()).sum();
        let unreadable = |(field, json): &(&str, &RawValue)| {
            let why = unreadable(json.get())?;
            Some(format!("{field}: {}", why.english()))
        };
        let why = if bytes > DEFINITION_MAX {
            Some(format!("it has more than {DEFINITION_MAX} bytes"))
        } else {
            pinned.iter().find_map(unreadable)
        };
        match why {
            None => Self::Read(pinned),
            Some(why) => {
                let name = fields.name.filter(|name| name.get().len() <= NAME_MAX);
                let name = name.and_then(|name| serde_json::from_str(name.get()).ok());
                Self::Unreadable { name, why }
            }
        }
    }

    /// Of one that has the value of a secret; `veiled`: as it may be told.
    pub(super) fn with_a_secret(veiled: &str) -> Self {
        let veiled = RawValue::from_string(veiled.to_owned()).ok();
        Self::Unreadable {
            name: veiled.and_then(|veiled| ToolDefinition::read(&veiled).name()),
            why: "it has the value of a secret of the server, which nobody is told".to_owned(),
        }
    }

    /// The tool's name, if it has one.
    pub(super) fn name(&self) -> Option<String> {
        match self {
            Self::Read(fields) => {
                let (_, name) = fields.iter().find(|(name, _)| *name == "name")?;
                serde_json::from_str(name.get()).ok()
            }
            Self::Unreadable { name, .. } => name.clone(),
        }
    }

    /// As a value; `None`: it cannot be read.
    pub(super) fn value(&self) -> Option<Value> {
        let Self::Read(fields) = self else {
            return None;
        };
        let values = fields.iter().map(|(name, field)| {
            let value = serde_json::from_str(field.get()).ok()?;
            Some(((*name).to_owned(), value))
        });
        values.collect::<Option<Map<_, _>>>().map(Value::Object)
    }

    /// As the server writes it; of one that cannot be read the name and the reason.
    pub(super) fn written(&self) -> Box<RawValue> {
        let text = match self {
            Self::Read(fields) => {
                let fields = fields.iter();
                let fields = fields.map(|(name, field)| format!(r#""{name}":{}"#, field.get()));
                format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
            }
            Self::Unreadable {
                name: Some(name),
                why,
            } => json!({ "name": name, UNREADABLE: why }).to_string(),
            Self::Unreadable { name: None, why } => json!({ UNREADABLE: why }).to_string(),
        };
        RawValue::from_string(text).expect("an object is made of JSON")
    }
}

/// Why a field cannot be read as what the server wrote, and nothing else.
fn unreadable(json: &str) -> Option<Message> {
    // What stands twice, or is rounded, would be pinned as what it is not.
    let limits = Limits {
        depth: DEPTH_MAX,
        ..Limits::ANSWER
    };
    let parsed = || parse_any(json.as_bytes(), &limits).err();
    output::unreadable(json, DEPTH_MAX).or_else(|| parsed().map(|problem| problem.message))
}

#[cfg(test)]
mod tests {
    use fleet::mcp::pin::PINNED;
    use serde_json::json;

    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn what_is_pinned_is_kept_as_it_is_written_and_nothing_else() {
        let tool = raw(
            r#"{"icons":[{"src":"data:x"}],"inputSchema":{"maximum":1.50},"name":"t","title":null,"_meta":{}}"#,
        );
        let read = ToolDefinition::read(&tool);
        assert_eq!(
            read.written().get(),
            r#"{"name":"t","title":null,"inputSchema":{"maximum":1.50}}"#
        );
        let value = read.value().unwrap();
        assert_eq!(value["title"], Value::Null);
        assert!(value.get("title").is_some() && value.get("description").is_none());
        let all = json!({"name": "t", "title": "T", "description": "d", "inputSchema": {}, "outputSchema": {}, "annotations": {}});
        let text = raw(&all.to_string());
        let read = ToolDefinition::read(&text);
        assert_eq!(read.value(), Some(all.clone()));
        assert!(PINNED.iter().all(|field| all.get(field).is_some()));
    }

    #[test]
    fn of_what_cannot_be_read_the_name_is_told() {
        let large = format!(
            r#"{{"name":"t","description":"{}"}}"#,
            "x".repeat(DEFINITION_MAX)
        );
        let large = raw(&large);
        let read = ToolDefinition::read(&large);
        assert_eq!((read.name().as_deref(), read.value()), (Some("t"), None));
        let written = |read: &ToolDefinition<'_>| -> Value {
            serde_json::from_str(read.written().get()).unwrap()
        };
        let why = "it has more than 1048576 bytes";
        assert_eq!(written(&read), json!({"name": "t", UNREADABLE: why}));
        for other in ["0", "[]", r#"["a"]"#, r#"{"name":1,"name":2}"#] {
            let other = raw(other);
            let read = ToolDefinition::read(&other);
            let why = "it is not what the protocol says";
            assert_eq!(
                (read.name(), written(&read)),
                (None, json!({UNREADABLE: why})),
                "{other}"
            );
        }
    }

    #[test]
    fn what_is_too_deep_for_an_answer_is_not_read_and_what_is_not_can_be_told() {
        let nested = |levels: usize| {
            let (open, close) = ("[".repeat(levels), "]".repeat(levels));
            raw(&format!(r#"{{"name":"t","inputSchema":{open}{close}}}"#))
        };
        for levels in [DEPTH_MAX + 1, 500, 100_000] {
            let deep = nested(levels);
            let read = ToolDefinition::read(&deep);
            assert_eq!((read.name().as_deref(), read.value()), (Some("t"), None));
            let why = "inputSchema: it is nested deeper than 97 levels";
            assert_eq!(
                read.written().get(),
                json!({"name": "t", UNREADABLE: why}).to_string()
            );
        }
        for (schema, why) in [
            (r#"{"maximum":9,"maximum":2}"#, "twice"),
            (
                r#"{"maximum":{"$serde_json::private::Number":"2"}}"#,
                "reserved",
            ),
            (r#"{"maximum":1e999}"#, "exactly"),
        ] {
            let text = format!(r#"{{"name":"t","inputSchema":{schema}}}"#);
            let odd = raw(&text);
            let read = ToolDefinition::read(&odd);
            assert_eq!((read.name().as_deref(), read.value()), (Some("t"), None));
            assert!(read.written().get().contains(why), "{}", read.written());
        }
        let deepest = nested(DEPTH_MAX);
        let read = ToolDefinition::read(&deepest);
        assert!(read.value().is_some());
        let answer = format!(r#"{{"tools":[{}]}}"#, read.written());
        assert!(output::json(answer.as_bytes()).is_ok());
    }
}
