//! What is not the same in two JSON values. Pure.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// The most places that are told of.
const PLACES_MAX: usize = 200;

/// A place where they differ.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// A JSON pointer.
    pub(super) pointer: String,
    /// The JSON text there before; `None`: there was nothing.
    pub(super) before: Option<String>,
    /// The JSON text there now; `None`: there is nothing.
    pub(super) now: Option<String>,
}

/// The deepest places where they differ, the first 200. Numbers differ as they are written.
pub(super) fn differences(before: &RawValue, now: &RawValue) -> Vec<Difference> {
    let mut found = Vec::new();
    look(String::new(), Some(before), Some(now), &mut found);
    found
}

fn look(
    pointer: String,
    before: Option<&RawValue>,
    now: Option<&RawValue>,
    found: &mut Vec<Difference>,
) {
    if found.len() >= PLACES_MAX {
        return;
    }
    let parts = match (before, now) {
        (Some(before), Some(now)) if before.get() == now.get() => return,
        (Some(before), Some(now)) => Parts::of(before).zip(Parts::of(now)),
        (_, _) => None,
    };
    match parts {
        Some((Parts::Members(mut before), Parts::Members(now))) => {
            for (name, now) in &now {
                let step = name.replace('~', "~0").replace('/', "~1");
                let before = before.remove(name);
                look(
                    format!("{pointer}/{step}"),
                    before.as_deref(),
                    Some(now),
                    found,
                );
            }
            for (name, gone) in &before {
                let step = name.replace('~', "~0").replace('/', "~1");
                look(format!("{pointer}/{step}"), Some(gone), None, found);
            }
        }
        Some((Parts::Items(before), Parts::Items(now))) => {
            for place in 0..before.len().max(now.len()) {
                let of = |items: &'_ [Box<RawValue>]| items.get(place).cloned();
                let (before, now) = (of(&before), of(&now));
                look(
                    format!("{pointer}/{place}"),
                    before.as_deref(),
                    now.as_deref(),
                    found,
                );
            }
        }
        _others => found.push(Difference {
            pointer,
            before: before.map(|value| value.get().to_owned()),
            now: now.map(|value| value.get().to_owned()),
        }),
    }
}

enum Parts {
    Members(BTreeMap<String, Box<RawValue>>),
    Items(Vec<Box<RawValue>>),
}

impl Parts {
    fn of(value: &RawValue) -> Option<Self> {
        let text = value.get();
        match text.as_bytes().first()? {
            b'{' => serde_json::from_str(text).map(Self::Members).ok(),
            b'[' => serde_json::from_str(text).map(Self::Items).ok(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(before: &str, now: &str) -> Vec<(String, Option<String>, Option<String>)> {
        let of = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let found = differences(&of(before), &of(now));
        let told = |one: Difference| (one.pointer, one.before, one.now);
        found.into_iter().map(told).collect()
    }

    fn place(
        pointer: &str,
        before: Option<&str>,
        now: Option<&str>,
    ) -> (String, Option<String>, Option<String>) {
        let owned = |text: Option<&str>| text.map(ToOwned::to_owned);
        (pointer.to_owned(), owned(before), owned(now))
    }

    #[test]
    fn the_deepest_places_are_told_and_the_order_of_members_is_none() {
        let before = r#"{"a":{"b":1,"c/d":[1,2]},"gone":true,"big":9007199254740993}"#;
        let now = r#"{"big": 9007199254740992, "a":{"c/d":[1,3,4],"b":1},"new":null}"#;
        assert_eq!(
            found(before, now),
            [
                place("/a/c~1d/1", Some("2"), Some("3")),
                place("/a/c~1d/2", None, Some("4")),
                place("/big", Some("9007199254740993"), Some("9007199254740992")),
                place("/new", None, Some("null")),
                place("/gone", Some("true"), None),
            ]
        );
        assert_eq!(
            found(r#"{"a":[]}"#, r#"{"a":{}}"#),
            [place("/a", Some("[]"), Some("{}"))]
        );
        assert!(found(before, before).is_empty());
        assert!(found(r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#).is_empty());
    }

    #[test]
    fn no_more_than_so_many_places_are_told() {
        let many: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
        assert_eq!(
            found("[]", &format!("[{}]", many.join(","))).len(),
            PLACES_MAX
        );
    }
}
