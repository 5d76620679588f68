//! What a server says of one tool: the fields that are pinned and whether it wants tasks, as it writes them, and nothing else. Pure.

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, value::RawValue};

/// The most bytes of what is pinned of one tool. The door holds less, so none that is larger was ever applied.
const DEFINITION_MAX: usize = 1024 * 1024;
/// The most bytes of a name that is told of a tool whose definition cannot be read.
const NAME_MAX: usize = 1024;

/// What a server says of a tool.
#[derive(Debug)]
pub(super) enum ToolDefinition<'a> {
    /// The fields that are pinned, in the order of the protocol, and `execution`.
    Read(Vec<(&'static str, &'a RawValue)>),
    /// It is too large, nested too deep or no definition; its name, where that much can be read.
    Unreadable(Option<String>),
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
            return Self::Unreadable(None);
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
        if bytes > DEFINITION_MAX {
            let name = fields.name.filter(|name| name.get().len() <= NAME_MAX);
            return Self::Unreadable(name.and_then(|name| serde_json::from_str(name.get()).ok()));
        }
        Self::Read(pinned)
    }

    /// The tool's name, if it has one.
    pub(super) fn name(&self) -> Option<String> {
        match self {
            Self::Read(fields) => {
                let (_, name) = fields.iter().find(|(name, _)| *name == "name")?;
                serde_json::from_str(name.get()).ok()
            }
            Self::Unreadable(name) => name.clone(),
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

    /// As the server writes it; of one that cannot be read the name alone.
    pub(super) fn written(&self) -> Box<RawValue> {
        let text = match self {
            Self::Read(fields) => {
                let fields = fields.iter();
                let fields = fields.map(|(name, field)| format!(r#""{name}":{}"#, field.get()));
                format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
            }
            Self::Unreadable(Some(name)) => {
                format!(r#"{{"name":{}}}"#, Value::from(name.as_str()))
            }
            Self::Unreadable(None) => "{}".to_owned(),
        };
        RawValue::from_string(text).expect("an object is made of JSON")
    }
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
        assert_eq!(read.written().get(), r#"{"name":"t"}"#);
        let deep = format!(
            r#"{{"name":"t","inputSchema":{}{}}}"#,
            "[".repeat(500),
            "]".repeat(500)
        );
        // The whole message is bounded in depth before this; here it costs its own tool alone.
        let deep = raw(&deep);
        assert_eq!(ToolDefinition::read(&deep).value(), None);
        for other in ["0", "[]", r#"["a"]"#, r#"{"name":1,"name":2}"#] {
            let other = raw(other);
            let read = ToolDefinition::read(&other);
            assert_eq!((read.name(), read.written().get()), (None, "{}"), "{other}");
        }
    }
}
