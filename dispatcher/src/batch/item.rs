//! One call of a batch: the fields, which are a single call's headers in snake case, and its arguments.

use fleet::{
    arguments::{self, Limits},
    canonical,
    ids::{Label, ToolName},
    wire::{
        code::Code,
        error::ErrorBody,
        headers::{BadHeader, Prefer, RequestHeaders},
        trace::TraceContext,
    },
};
use serde_json::{Value, value::RawValue};

use super::split::Fields;
use crate::{accept::Submission, answer::Refusal};

/// What a field holds.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Number,
    Object,
}

/// Every field that stands for a header, and which.
const FIELDS: [(&str, &str, Kind); 14] = [
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
    /// Whether it belongs to a trace of its own, and not to the batch's.
    pub(super) own_trace: bool,
}

/// The headers that a batch came with, which hold for every call that does not say otherwise.
pub(super) struct Defaults<'a> {
    lines: Vec<(&'static str, &'a str)>,
    /// The trace that the batch belongs to.
    pub(super) trace: TraceContext,
}

impl<'a> Defaults<'a> {
    /// What makes sense for many calls at once.
    ///
    /// # Errors
    ///
    /// A header that cannot be accepted, or a key: it would be the key of every call.
    pub(super) fn read(lines: &[(&str, &'a str)]) -> Result<Self, Refusal> {
        let headers =
            RequestHeaders::read(lines).map_err(|bad| Refusal::new(bad.code, &bad.message()))?;
        if headers.key.is_some() {
            let what = "a batch has no key of its own; give each call its idempotency_key";
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
            trace: headers.trace,
        })
    }
}

/// Reads the call at this place of a batch; `named` becomes the tool that it names, whatever is wrong with it.
pub(super) fn read(
    place: usize,
    raw: &RawValue,
    tenant: &Label,
    defaults: &Defaults<'_>,
    named: &mut String,
) -> Result<Item, Refusal> {
    let at = At(place);
    let Some(Fields(fields)) = Fields::of(raw.get()) else {
        let what = "a call of a batch is one object with tool and args";
        return Err(at.refuse("", Code::InvalidArguments, what));
    };
    if let Some((_, tool)) = fields.iter().find(|(name, _)| name == "tool")
        && let Ok(text) = serde_json::from_str(tool.get())
    {
        *named = text;
    }
    let (mut tool, mut args) = (None, None);
    let mut own: Vec<(&'static str, String)> = Vec::new();
    for (index, (name, value)) in fields.iter().enumerate() {
        if fields[..index].iter().any(|(before, _)| before == name) {
            return Err(at.refuse(
                name,
                Code::DuplicateKey,
                "the field stands twice in one call",
            ));
        }
        match name.as_str() {
            "tool" => tool = Some(at.tool(value)?),
            "args" => args = Some(value),
            _ => {
                let Some((field, header, kind)) = FIELDS.iter().find(|(field, ..)| field == name)
                else {
                    return Err(at.refuse(name, Code::InvalidArguments, &unknown()));
                };
                own.extend(
                    at.line(field, header, *kind, value)?
                        .map(|line| (*header, line)),
                );
            }
        }
    }
    let missing = |name: &str| {
        let what = format!("the call has no {name}");
        at.refuse(name, Code::InvalidArguments, &what)
    };
    let (tool, args) = (
        tool.ok_or_else(|| missing("tool"))?,
        args.ok_or_else(|| missing("args"))?,
    );
    let headers = at.headers(&own, defaults)?;
    let submission = Submission::read(tenant.clone(), tool, headers, args.get().as_bytes())?;
    Ok(Item {
        submission,
        own_trace: own.iter().any(|(header, _)| *header == "traceparent"),
    })
}

fn unknown() -> String {
    let names: Vec<&str> = FIELDS.iter().map(|(field, ..)| *field).collect();
    format!(
        "a call of a batch has no such field; it may have tool, args, {}",
        names.join(", ")
    )
}

/// The place of a call in its batch: what is wrong with a field is named by its pointer into the body.
#[derive(Clone, Copy)]
struct At(usize);

impl At {
    fn refuse(self, field: &str, code: Code, what: &str) -> Refusal {
        let mut path = format!("/calls/{}", self.0);
        if !field.is_empty() {
            let field: String = field.chars().take(64).collect();
            path.push('/');
            path.push_str(&field.replace('~', "~0").replace('/', "~1"));
        }
        ErrorBody::refused(code, what).at(path).into()
    }

    fn tool(self, value: &RawValue) -> Result<ToolName, Refusal> {
        let Value::String(name) = self.value("tool", value)? else {
            return Err(self.refuse("tool", Code::InvalidToolName, "tool must be a string"));
        };
        name.parse().map_err(|_rule| {
            let what = "a tool name has 1 to 64 characters of a-z, 0-9 and _";
            self.refuse("tool", Code::InvalidToolName, what)
        })
    }

    fn value(self, field: &str, value: &RawValue) -> Result<Value, Refusal> {
        arguments::parse_any(value.get().as_bytes(), &VALUE)
            .map_err(|error| self.refuse(field, error.code, &error.message))
    }

    /// The field as the line of its header; `None` for null, which says nothing.
    fn line(
        self,
        field: &str,
        header: &str,
        kind: Kind,
        value: &RawValue,
    ) -> Result<Option<String>, Refusal> {
        let wrong = |rule: &str| {
            let code = match header {
                "Idempotency-Key" => Code::InvalidIdempotencyKey,
                "Toolfleet-Deadline-Ms" | "Toolfleet-Run-Deadline" => Code::DeadlineInvalid,
                _ => Code::HeaderInvalid,
            };
            self.refuse(field, code, &format!("{field} must be {rule}"))
        };
        let line = match (self.value(field, value)?, kind) {
            (Value::Null, _) => return Ok(None),
            (Value::String(text), Kind::Text) => text,
            (Value::Number(number), Kind::Number) => number.to_string(),
            (object @ Value::Object(_), Kind::Object) => canonical::to_text(&object),
            (_, Kind::Text) => return Err(wrong("a string")),
            (_, Kind::Number) => return Err(wrong("a number")),
            (_, Kind::Object) => return Err(wrong("an object")),
        };
        if field == "prefer" && line != "respond-async" {
            return Err(wrong(
                "respond-async: a batch never waits; ask `get` for results",
            ));
        }
        Ok(Some(line))
    }

    /// By the same reader as a single call's headers.
    fn headers(
        self,
        own: &[(&'static str, String)],
        defaults: &Defaults<'_>,
    ) -> Result<RequestHeaders, Refusal> {
        let is_own = |name: &str| own.iter().any(|(header, _)| *header == name);
        // A state without its parent would be another trace's.
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
                let what = format!("{field} must be {}", bad.rule);
                self.refuse(field, bad.code, &what)
            }
            None => self.refuse("", bad.code, &bad.message()),
        }
    }
}

#[cfg(test)]
mod tests;
