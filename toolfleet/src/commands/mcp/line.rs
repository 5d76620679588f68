//! A tool of a server as a person sees it.

use fleet::mcp::discovered::{FieldChange, FoundTool, Standing};
use serde_json::Value;

use crate::commands::plain::plain;

/// The most characters of a value that are shown, and how many of them before the place where it begins to differ.
const SHOWN_MAX: usize = 300;
const BEFORE: usize = 60;
/// The most characters of a name that a server gives.
const NAME_MAX: usize = 100;

/// A line, and two more for each field that has changed.
pub(super) fn lines(found: &FoundTool) -> String {
    let mut lines = vec![line(found)];
    for FieldChange { field, was, is } in &found.changes {
        let (was, is) = (text(was), text(is));
        let same = was
            .chars()
            .zip(is.chars())
            .take_while(|(was, is)| was == is);
        let from = same.count().saturating_sub(BEFORE);
        lines.push(format!("          {field} was: {}", excerpt(&was, from)));
        lines.push(format!("          {field} is:  {}", excerpt(&is, from)));
    }
    lines.join("\n")
}

fn line(found: &FoundTool) -> String {
    let FoundTool { upstream, name, .. } = found;
    let (word, more) = match &found.standing {
        Standing::New => ("new", effect(found)),
        Standing::Retired => (
            "retired",
            format!("its manifest would bring it back; {}", effect(found)),
        ),
        Standing::Unchanged => ("unchanged", String::new()),
        Standing::Changed {
            words_only,
            unfit: None,
        } => ("changed", changed(&found.changes, *words_only)),
        Standing::Changed {
            unfit: Some(reason),
            ..
        } => (
            "changed",
            format!("its definition; now it is unfit: {reason}"),
        ),
        Standing::Gone => (
            "gone",
            format!(
                "the server does not have it any more; if that stays so: toolfleet tools retire {name}"
            ),
        ),
        Standing::Unfit { reason } => ("unfit", reason.clone()),
    };
    let gap = if more.is_empty() { "" } else { ": " };
    plain(&format!(
        "{word:<9} {} ({}){gap}{more}",
        cut(name),
        cut(upstream)
    ))
}

fn effect(found: &FoundTool) -> String {
    let effect = found
        .manifest
        .as_ref()
        .and_then(|manifest| manifest["effect"].as_str());
    format!("effect {}", effect.unwrap_or("-"))
}

fn changed(changes: &[FieldChange], words_only: bool) -> String {
    if changes.is_empty() {
        return "its definition".to_owned();
    }
    let fields: Vec<_> = changes.iter().map(|one| one.field).collect();
    let which = fields.join(", ");
    if words_only && !fields.contains(&"effect") {
        format!("{which}; title and description alone")
    } else {
        which
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A part of a text, on one line.
fn excerpt(text: &str, from: usize) -> String {
    let shown: String = text.chars().skip(from).take(SHOWN_MAX).collect();
    let before = if from > 0 { "…" } else { "" };
    let behind = if text.chars().nth(from + SHOWN_MAX).is_some() {
        "…"
    } else {
        ""
    };
    plain(&format!("{before}{shown}{behind}")).replace('\n', "\\n")
}

fn cut(name: &str) -> String {
    if name.chars().nth(NAME_MAX).is_none() {
        return name.to_owned();
    }
    name.chars().take(NAME_MAX).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(standing: Standing, changes: Vec<FieldChange>) -> FoundTool {
        FoundTool {
            upstream: "look".to_owned(),
            name: "s_look".to_owned(),
            standing,
            changes,
            manifest: None,
        }
    }

    #[test]
    fn what_has_changed_is_shown_where_it_begins_to_differ() {
        let long = "a".repeat(1_000);
        let changes = vec![FieldChange {
            field: "description",
            was: json!(format!("{long} it looks")),
            is: json!(format!("{long} it pays\u{202e}\n{long}")),
        }];
        let standing = Standing::Changed {
            words_only: true,
            unfit: None,
        };
        let text = lines(&found(standing, changes));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[0],
            "changed   s_look (look): description; title and description alone"
        );
        assert!(
            lines[1].contains("was: …") && lines[1].ends_with(" it looks"),
            "{text}"
        );
        assert!(
            lines[2].contains(" it pays") && lines[2].ends_with('…'),
            "{text}"
        );
        assert!(lines.len() == 3 && text.chars().count() < 700 && !text.contains('\u{202e}'));
    }

    #[test]
    fn a_tool_that_is_gone_says_what_can_be_done() {
        let text = lines(&found(Standing::Gone, Vec::new()));
        assert!(text.ends_with("toolfleet tools retire s_look"), "{text}");
    }

    #[test]
    fn a_name_without_end_is_cut() {
        let mut found = found(Standing::Unchanged, Vec::new());
        found.upstream = "x".repeat(5_000);
        assert!(lines(&found).len() < 300);
    }
}
