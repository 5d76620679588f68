use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::json;

use super::*;

mod catalogue;

fn spec(changes: &Value) -> ToolSelection {
    serde_json::from_value(changes.clone()).unwrap()
}

/// Tools with names alone.
fn offered<'r>(names: &[&'r str]) -> Vec<OfferedTool<'r>> {
    let tool = |name: &&'r str| OfferedTool {
        name: (!name.is_empty()).then_some(*name),
        description: "",
    };
    names.iter().map(tool).collect()
}

fn kept<'r>(changes: &Value, said: &[&str], names: &[&'r str], bound: &[&str]) -> Vec<&'r str> {
    let bound = bound.iter().copied().collect();
    let kept = select(&spec(changes), said, &offered(names), &bound);
    let kept = match kept {
        Selected::Kept(kept) => kept,
        Selected::All | Selected::Unknown => (0..names.len()).collect(),
    };
    kept.into_iter().map(|n| names[n]).collect()
}

#[test]
fn those_that_fit_stay_in_the_order_of_the_request_with_those_that_are_bound() {
    let all = [
        "list_cats",
        "buy_house",
        "",
        "feed_dog",
        "feed_cats",
        "sell_house",
        "find_tools",
    ];
    let two = json!({"max": 2});
    for (changes, said, bound, expected) in [
        // As many as there may be.
        (json!({"max": 6}), "feed the cats", &[][..], &all[..]),
        (
            json!({"max": 5}),
            "feed the cats",
            &[],
            &["list_cats", "", "feed_dog", "feed_cats"],
        ),
        (
            two.clone(),
            "feed the cats",
            &[],
            &["list_cats", "", "feed_cats"],
        ),
        (json!({"max": 1}), "feed the cats", &[], &["", "feed_cats"]),
        // Bound ones are beside them, and take no place.
        (
            two.clone(),
            "feed the cats",
            &["feed_cats", "buy_house", "gone"],
            &["list_cats", "buy_house", "", "feed_dog", "feed_cats"],
        ),
        (
            json!({"max": 1, "always": ["sell_house", "gone"]}),
            "feed the cats",
            &[],
            &["", "feed_cats", "sell_house"],
        ),
        (
            json!({"max": 1, "from": "fleet"}),
            "feed the cats",
            &[],
            &["", "feed_cats", "find_tools"],
        ),
        // Nothing to go by.
        (two.clone(), "hello, how are you?", &[], &all),
        (two.clone(), "", &[], &all),
        (
            two.clone(),
            "what was the name of that old house with the red door",
            &[],
            &all,
        ),
    ] {
        assert_eq!(
            kept(&changes, &[said], &all, bound),
            expected,
            "{changes} {said}"
        );
    }
    assert_eq!(
        kept(&two, &["feed it", "no, the cats"], &all, &[]),
        ["list_cats", "", "feed_cats"]
    );
    assert_eq!(kept(&two, &["feed the cats"], &[], &[]), [""; 0]);
}

#[test]
fn few_enough_tools_are_not_the_same_as_nothing_to_go_by() {
    let names = ["list_cats", "buy_house", "find_tools"];
    let of_fleet = |max| spec(&json!({"from": "fleet", "max": max}));
    for (max, said, bound, expected) in [
        (2, "hello", &[][..], Selected::All),
        (1, "hello", &["buy_house"], Selected::All),
        (1, "hello", &[], Selected::Unknown),
        (1, "feed the cats", &[], Selected::Kept(vec![0, 2])),
    ] {
        let bound = bound.iter().copied().collect();
        let selected = select(&of_fleet(max), &[said], &offered(&names), &bound);
        assert_eq!(selected, expected, "{max} {said} {bound:?}");
    }
}

#[test]
fn a_name_that_stands_twice_stays_or_goes_as_a_whole_and_takes_one_place() {
    let names = [
        "feed_cats",
        "list_cats",
        "feed_cats",
        "feed_dog",
        "feed_dog",
    ];
    let kept = |max| kept(&json!({ "max": max }), &["feed the cats"], &names, &[]);
    assert_eq!(kept(1), ["feed_cats", "feed_cats"]);
    assert_eq!(kept(2), ["feed_cats", "list_cats", "feed_cats"]);
    assert_eq!(kept(3), names);
}

#[test]
fn two_thousand_tools_and_a_long_conversation_are_no_matter() {
    let names: Vec<String> = (0..2_000)
        .map(|n| format!("{}_{n}", ["cat", "hen", "cow"][n % 3]))
        .collect();
    let description = "Feeds all of this house, and the dog. 喂养这座房子里的狗。".repeat(5);
    let tools = names.iter().map(|name| OfferedTool {
        name: Some(name),
        description: &description,
    });
    let tools: Vec<_> = tools.collect();
    let text = "Feed the hens of the house, 请喂养房子里的鸡。".repeat(20_000);
    let begun = Instant::now();
    let kept = select(&spec(&json!({})), &[&text], &tools, &HashSet::new());
    let Selected::Kept(kept) = kept else {
        panic!("{kept:?}")
    };
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(kept.len(), 10);
    assert!(kept.iter().all(|n| names[*n].starts_with("hen_")));
}

#[test]
fn what_find_tools_has_named_is_read_from_its_answer_alone() {
    let names =
        |answer: &str| -> Vec<String> { found(answer).iter().map(ToString::to_string).collect() };
    let two = json!({"tools": [{"name": "a", "description": "A."}, {"name": "b"}]});
    assert_eq!(names(&two.to_string()), ["a", "b"]);
    assert_eq!(
        names(&json!({"state": "succeeded", "result": two}).to_string()),
        ["a", "b"]
    );
    let odd = json!({"tools": [{"name": "No name"}, {"name": 1}, "a", {}, null, {"name": "c"}]});
    assert_eq!(names(&odd.to_string()), ["c"]);
    let many: Vec<_> = (0..50).map(|n| json!({"name": format!("t{n}")})).collect();
    assert_eq!(names(&json!({ "tools": many }).to_string()).len(), 10);
    for other in [
        "",
        "a",
        "[]",
        "{\"tools\": {}}",
        "{\"tools\": [{\"name\": \"a\"}",
        "find_tools found a and b",
        &json!({"error": two.to_string()}).to_string(),
    ] {
        assert_eq!(names(other), [""; 0], "{other}");
    }
}

proptest! {
    #[test]
    fn the_bound_stay_no_more_than_max_are_chosen_and_the_order_is_kept(
        names in proptest::collection::vec("([a-c]|猫|狗|_){0,4}", 0..20),
        said in "([a-c]|猫|狗| ){0,20}",
        bound in proptest::collection::vec("[a-c]", 0..3),
        max in 1_u32..6,
    ) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let bound: HashSet<&str> = bound.iter().map(String::as_str).collect();
        let offered = offered(&names);
        if let Selected::Kept(kept) = select(&spec(&json!({ "max": max })), &[&said], &offered, &bound) {
            prop_assert!(kept.is_sorted_by(|one, other| one < other));
            let kept: HashSet<usize> = kept.into_iter().collect();
            for (n, name) in names.iter().enumerate() {
                prop_assert!(kept.contains(&n) || !(name.is_empty() || bound.contains(name)));
            }
            let free = kept.iter().map(|n| names[*n]).filter(|name| !name.is_empty() && !bound.contains(name));
            let free: HashSet<&str> = free.collect();
            prop_assert!((1..=max as usize).contains(&free.len()));
        }
    }

    #[test]
    fn no_answer_is_too_odd(answer in any::<String>()) {
        prop_assert!(found(&answer).len() <= 10);
    }
}
