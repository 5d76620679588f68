use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).unwrap()
}

const fn asked(offset: usize, limit: usize) -> Asked<'static> {
    Asked {
        offset,
        limit,
        search: None,
        path: "",
    }
}

fn told(value: &Value, asked: &Asked<'_>) -> Value {
    serde_json::to_value(of(&raw(value), asked).unwrap()).unwrap()
}

/// All of a text, page by page, and how many pages there were.
fn paged(value: &Value, limit: usize) -> (String, usize) {
    let (mut text, mut pages, mut offset) = (String::new(), 0, Some(0));
    while let Some(at) = offset {
        let page = told(value, &asked(at, limit));
        text += page["text"].as_str().unwrap();
        offset = page["next_offset"].as_u64().map(|next| next as usize);
        pages += 1;
        assert!(pages < 10_000, "it never ends");
    }
    (text, pages)
}

#[test]
fn one_long_line_ends() {
    let line = "天气".repeat(20_000);
    let (text, pages) = paged(&json!(line), 8_000);
    assert_eq!((text, pages), (line, 5));
    assert_eq!(paged(&json!(""), 10), (String::new(), 1));
    assert_eq!(
        told(&json!("abc"), &asked(0, 3)),
        json!({"text": "abc", "offset": 0, "characters": 3})
    );
    assert_eq!(
        of(&raw(&json!("abc")), &asked(3, 3)),
        Err(NoPage::BehindTheEnd)
    );
}

#[test]
fn an_array_is_read_in_whole_items_and_a_large_one_by_its_path() {
    let value = json!([{"a": 1}, {"a": 2}, "x".repeat(500), 4]);
    let page = told(&value, &asked(0, 20));
    assert_eq!(
        page,
        json!({"items": [{"a": 1}, {"a": 2}], "offset": 0, "next_offset": 2, "count": 4})
    );
    let page = told(&value, &asked(2, 20));
    assert_eq!(page["items"][0]["path"], "/2");
    assert_eq!(page["items"][0]["characters"], 502);
    assert_eq!(page["next_offset"], 3);
    let page = told(&value, &asked(3, 20));
    assert_eq!(page, json!({"items": [4], "offset": 3, "count": 4}));
    let within = Asked {
        path: "/2",
        ..asked(490, 100)
    };
    assert_eq!(told(&value, &within)["text"], "x".repeat(10));
    assert_eq!(
        told(&json!([]), &asked(0, 1)),
        json!({"items": [], "offset": 0, "count": 0})
    );
}

#[test]
fn numbers_stay_as_they_are() {
    let raw = RawValue::from_string("[1.50, 9007199254740993, 1e400]".to_owned()).unwrap();
    let page = of(&raw, &asked(0, 100)).unwrap();
    let page = serde_json::to_string(&page).unwrap();
    assert!(page.contains("[1.50,9007199254740993,1e400]"), "{page}");
}

#[test]
fn a_path_leads_to_a_part_or_nowhere() {
    let value = json!({"a/b": {"~": [10, {"c": "here"}]}, "": "empty"});
    let at = |path| {
        of(
            &raw(&value),
            &Asked {
                path,
                ..asked(0, 100)
            },
        )
        .map(|page| serde_json::to_value(page).unwrap()["text"].clone())
    };
    assert_eq!(at("/a~1b/~0/1/c"), Ok(json!("here")));
    assert_eq!(at("/a~1b/~0/0"), Ok(json!("10")));
    assert_eq!(at("/"), Ok(json!("empty")));
    for nowhere in [
        "a",
        "/b",
        "/a~1b/~0/2",
        "/a~1b/~0/01",
        "/a~1b/~0/-",
        "/a~1b/~0/0/x",
        "/a~1b/~0/+1",
    ] {
        assert_eq!(at(nowhere), Err(NoPage::NoSuchPath), "{nowhere}");
    }
}

#[test]
fn a_search_tells_where_it_stands_and_where_to_search_on() {
    let text = format!(
        "{}Rome{}ROME{}rome",
        "天".repeat(200),
        "天".repeat(300),
        "天".repeat(100)
    );
    let searched = |offset, limit| {
        told(
            &json!(text),
            &Asked {
                search: Some("rome"),
                ..asked(offset, limit)
            },
        )
    };
    let all = searched(0, 8_000);
    let offsets: Vec<_> = all["matches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| &found["offset"])
        .collect();
    assert_eq!(offsets, [&json!(200), &json!(504), &json!(608)]);
    assert!(
        all["matches"][0]["text"]
            .as_str()
            .unwrap()
            .starts_with(&"天".repeat(80))
    );
    assert_eq!(all.get("next_offset"), None);
    let few = searched(0, 200);
    assert_eq!(
        (
            few["matches"].as_array().unwrap().len(),
            &few["next_offset"]
        ),
        (1, &json!(504))
    );
    let more = searched(504, 200);
    assert_eq!(more["matches"][0]["offset"], 504);
    assert_eq!(searched(0, 1)["matches"].as_array().unwrap().len(), 1);
    let none = told(
        &json!(text),
        &Asked {
            search: Some("Paris"),
            ..asked(0, 100)
        },
    );
    assert_eq!(none["matches"], json!([]));
}

proptest! {
    #[test]
    fn all_pages_together_are_the_text(text in any::<String>(), limit in 1_usize..50) {
        prop_assert_eq!(paged(&json!(text), limit).0, text);
    }

    #[test]
    fn all_pages_together_are_the_items(items in prop::collection::vec("[a-z]{0,40}", 0..40), limit in 1_usize..100) {
        let value = json!(items);
        let (mut seen, mut offset) = (0, Some(0));
        while let Some(at) = offset {
            let page = told(&value, &asked(at, limit));
            let there = page["items"].as_array().unwrap();
            prop_assert!(!there.is_empty() || items.is_empty());
            let shown = serde_json::to_string(there).unwrap().chars().count();
            // One item alone may be larger by what says where the rest is.
            prop_assert!(there.len() == 1 || shown <= limit + 60 * there.len() + 2);
            seen += there.len();
            offset = page["next_offset"].as_u64().map(|next| next as usize);
        }
        prop_assert_eq!(seen, items.len());
    }
}
