//! One call of a batch: the fields, which are a single call's headers in snake case, and its arguments.

use fleet::{
    arguments::{self, Limits},
    call::Language,
    canonical,
    ids::{Label, ToolName},
    registry::Registry,
    said,
    wire::{
        code::Code,
        headers::{BadHeader, Prefer, RequestHeaders},
        message::Message,
        trace::TraceContext,
    },
};
use serde_json::{Value, value::RawValue};

use super::split::Fields;
use crate::{
    check::{self, Submission},
    refusal::Refusal,
    request::BAD_TOOL_NAME,
};

/// The type of a field.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Number,
    Object,
    /// A list of texts; in the header with commas between them.
    Texts,
}

/// Every field that stands for a header, and that header.
const FIELDS: [(&str, &str, Kind); 15] = [
    ("idempotency_key", "Idempotency-Key", Kind::Text),
    ("prefer", "Prefer", Kind::Text),
    ("deadline_ms", "Toolfleet-Deadline-Ms", Kind::Number),
    ("run", "Toolfleet-Run", Kind::Text),
    ("run_deadline", "Toolfleet-Run-Deadline", Kind::Text),
    ("session", "Toolfleet-Session", Kind::Text),
    ("priority", "Toolfleet-Priority", Kind::Text),
    ("tool_version", "Toolfleet-Tool-Version", Kind::Number),
    ("language", "Toolfleet-Language", Kind::Text),
    ("cache_control", "Cache-Control", Kind::Text),
    ("meta", "Toolfleet-Meta", Kind::Object),
    ("files", "Toolfleet-Files", Kind::Texts),
    ("traceparent", "traceparent", Kind::Text),
    ("tracestate", "tracestate", Kind::Text),
    ("baggage", "baggage", Kind::Text),
];

/// A field's value is at most as long as the longest header.
const VALUE: Limits = Limits {
    bytes: 6 * RequestHeaders::META_MAX,
    ..Limits::DEFAULT
};

/// A call that is well formed.
pub(super) struct Item {
    pub(super) submission: Submission,
    /// Whether it belongs to its own trace, and not to the batch's.
    pub(super) own_trace: bool,
}

/// The headers of a batch, which hold for every call that does not set its own.
pub(super) struct Defaults<'a> {
    lines: Vec<(&'static str, &'a str)>,
    /// The language that the batch asks for.
    language: Option<Language>,
    /// The trace that the batch belongs to.
    pub(super) trace: TraceContext,
}

impl<'a> Defaults<'a> {
    /// Reads the headers that make sense for many calls.
    ///
    /// # Errors
    ///
    /// A header that cannot be accepted, or a key, which would be the key of every call.
    pub(super) fn read(lines: &[(&str, &'a str)]) -> Result<Self, Refusal> {
        let headers =
            RequestHeaders::read(lines).map_err(|bad| Refusal::new(bad.code, bad.message()))?;
        if headers.key.is_some() {
            let what = Message::fixed(
                "a batch has no key of its own; give each call its idempotency_key",
                "一批调用没有自己的幂等键；请为每个调用给出 idempotency_key",
            );
            return Err(Refusal::new(Code::InvalidIdempotencyKey, what));
        }
        let known = |name: &str| {
            let fields = FIELDS.iter().filter(|(field, _, _)| *field != "prefer");
            let mut fields = fields.map(|(_, header, _)| *header);
            fields.find(|header| header.eq_ignore_ascii_case(name))
        };
        let lines = lines
            .iter()
            .filter_map(|(name, value)| Some((known(name)?, *value)));
        Ok(Self {
            lines: lines.collect(),
            language: headers.language,
            trace: headers.trace,
        })
    }
}

/// What a refusal needs to know of a call, whatever is wrong with the call.
#[derive(Default)]
pub(super) struct Named {
    /// The tool that it names.
    pub(super) tool: String,
    /// The language that the call asks for, or else its batch.
    pub(super) language: Option<Language>,
}

impl Named {
    fn read(fields: &[(String, &RawValue)], defaults: &Defaults<'_>) -> Self {
        let text = |wanted: &str| {
            let (_, value) = fields.iter().find(|(name, _)| name == wanted)?;
            serde_json::from_str::<String>(value.get()).ok()
        };
        let own = text("language").and_then(|language| language.parse().ok());
        Self {
            tool: text("tool").unwrap_or_default(),
            language: own.or(defaults.language),
        }
    }
}

/// Reads the call at this place of a batch, and fills `named` for a refusal.
pub(super) fn read(
    place: usize,
    raw: &RawValue,
    registry: &Registry,
    tenant: &Label,
    defaults: &Defaults<'_>,
    named: &mut Named,
) -> Result<Item, Refusal> {
    let at = At(place);
    let fields = Fields::of(raw.get()).map(|Fields(fields)| fields);
    *named = Named::read(fields.as_deref().unwrap_or_default(), defaults);
    let Some(fields) = fields else {
        let what = Message::fixed(
            "a call of a batch is one object with tool and args",
            "一批中的每个调用都是含有 tool 和 args 的一个对象",
        );
        return Err(at.refuse("", Code::InvalidArguments, what));
    };
    let (mut tool, mut args) = (None, None);
    let mut own: Vec<(&'static str, String)> = Vec::new();
    for (index, (name, value)) in fields.iter().enumerate() {
        if fields[..index].iter().any(|(before, _)| before == name) {
            let what = Message::fixed(
                "the field stands twice in one call",
                "这个字段在一个调用中出现了两次",
            );
            return Err(at.refuse(name, Code::DuplicateKey, what));
        }
        match name.as_str() {
            "tool" => tool = Some(at.tool(value)?),
            "args" => args = Some(value),
            _ => {
                let Some((field, header, kind)) = FIELDS.iter().find(|(field, ..)| field == name)
                else {
                    return Err(at.refuse(name, Code::InvalidArguments, unknown()));
                };
                own.extend(
                    at.line(field, header, *kind, value)?
                        .map(|line| (*header, line)),
                );
            }
        }
    }
    let missing = |name: &str| {
        let what = said!("the call has no {name}", "这个调用没有 {name}");
        at.refuse(name, Code::InvalidArguments, what)
    };
    let (tool, args) = (
        tool.ok_or_else(|| missing("tool"))?,
        args.ok_or_else(|| missing("args"))?,
    );
    let headers = at.headers(&own, defaults)?;
    let args = args.get().as_bytes();
    let limits = check::limits(registry, &tool, &headers, args);
    let submission = Submission::read(tenant.clone(), tool, headers, args, limits)?;
    Ok(Item {
        submission,
        own_trace: own.iter().any(|(header, _)| *header == "traceparent"),
    })
}

fn unknown() -> Message {
    let names: Vec<&str> = FIELDS.iter().map(|(field, ..)| *field).collect();
    let names = names.join(", ");
    said!(
        "a call of a batch has no such field; it may have tool, args, {names}",
        "一批中的调用没有这个字段；可以有 tool, args, {names}"
    )
}

/// The place of a call in its batch. Errors name a field by its pointer into the body.
#[derive(Clone, Copy)]
struct At(usize);

impl At {
    fn refuse(self, field: &str, code: Code, what: Message) -> Refusal {
        let mut path = format!("/calls/{}", self.0);
        if !field.is_empty() {
            let field: String = field.chars().take(64).collect();
            path.push('/');
            path.push_str(&field.replace('~', "~0").replace('/', "~1"));
        }
        Refusal::new(code, what).at(path)
    }

    fn tool(self, value: &RawValue) -> Result<ToolName, Refusal> {
        let Value::String(name) = self.value("tool", value)? else {
            let what = Message::fixed("tool must be a string", "tool 必须是字符串");
            return Err(self.refuse("tool", Code::InvalidToolName, what));
        };
        name.parse()
            .map_err(|_rule| self.refuse("tool", Code::InvalidToolName, BAD_TOOL_NAME))
    }

    fn value(self, field: &str, value: &RawValue) -> Result<Value, Refusal> {
        arguments::parse_any(value.get().as_bytes(), &VALUE)
            .map_err(|error| self.refuse(field, error.code.into(), error.message))
    }

    /// The field as a header line; `None` for null, which sets nothing.
    fn line(
        self,
        field: &str,
        header: &str,
        kind: Kind,
        value: &RawValue,
    ) -> Result<Option<String>, Refusal> {
        let wrong = |english, chinese| {
            let code = match header {
                "Idempotency-Key" => Code::InvalidIdempotencyKey,
                "Toolfleet-Deadline-Ms" | "Toolfleet-Run-Deadline" => Code::DeadlineInvalid,
                _ => Code::HeaderInvalid,
            };
            self.refuse(
                field,
                code,
                must_be(field, &Message::fixed(english, chinese)),
            )
        };
        let line = match (self.value(field, value)?, kind) {
            (Value::Null, _) => return Ok(None),
            (Value::String(text), Kind::Text) => text,
            (Value::Number(number), Kind::Number) => number.to_string(),
            (object @ Value::Object(_), Kind::Object) => canonical::to_text(&object),
            (Value::Array(texts), Kind::Texts) if texts.iter().all(Value::is_string) => {
                let texts: Vec<&str> = texts.iter().filter_map(Value::as_str).collect();
                texts.join(",")
            }
            (_, Kind::Texts) => return Err(wrong("a list of strings", "是字符串列表")),
            (_, Kind::Text) => return Err(wrong("a string", "是字符串")),
            (_, Kind::Number) => return Err(wrong("a number", "是数字")),
            (_, Kind::Object) => return Err(wrong("an object", "是对象")),
        };
        if field == "prefer" && line != "respond-async" {
            return Err(wrong(
                "respond-async: a batch never waits; ask `get` for results",
                "是 respond-async：一批调用从不等待；请用 `get` 查询结果",
            ));
        }
        Ok(Some(line))
    }

    /// Reads it as the headers of a single call are read.
    fn headers(
        self,
        own: &[(&'static str, String)],
        defaults: &Defaults<'_>,
    ) -> Result<RequestHeaders, Refusal> {
        let is_own = |name: &str| own.iter().any(|(header, _)| *header == name);
        // A trace state without its parent would belong to another trace.
        let overridden =
            |name: &str| is_own(name) || (name == "tracestate" && is_own("traceparent"));
        let inherited = defaults.lines.iter().filter(|(name, _)| !overridden(name));
        let lines: Vec<(&str, &str)> = inherited
            .copied()
            .chain(own.iter().map(|(name, line)| (*name, line.as_str())))
            .collect();
        let headers = RequestHeaders::read(&lines).map_err(|bad| self.bad(&bad))?;
        Ok(RequestHeaders {
            prefer: Prefer::RespondAsync,
            ..headers
        })
    }

    fn bad(self, bad: &BadHeader) -> Refusal {
        let field = FIELDS
            .iter()
            .find(|(_, header, _)| bad.header == Some(*header));
        match field {
            Some((field, ..)) => {
                let what = must_be(field, &bad.rule);
                self.refuse(field, bad.code, what)
            }
            None => self.refuse("", bad.code, bad.message()),
        }
    }
}

fn must_be(field: &str, rule: &Message) -> Message {
    said!("{field} must be {rule}", "{field} 必须{rule}", rule)
}

#[cfg(test)]
mod tests;
