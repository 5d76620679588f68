//! What it costs to shorten a large answer, beside reading it: once for each call whose tool has a `large_result`.

use fleet::{call::Language, ids::CallId, large_result, manifest::LargeResult};
use serde_json::{Value, json};

use crate::{
    keep, say,
    timing::{Work, measure},
};

/// Bytes of an answer.
const SIZE: usize = 5_000_000;
/// How much dearer than reading an answer its preview may be: a string without escapes is read nearly at the speed of memory, and
/// the preview reads it twice and counts its characters.
const RATIO_MAX: f64 = 4.0;

/// The table; whether the budget holds.
pub(crate) fn table(rounds: usize) -> bool {
    say("\nLarge answers of 5 MB, ms per answer (median of paired rounds)\n");
    say("| answer | bytes | floor: parse | preview | preview / floor | quartiles |");
    say("|---|--:|--:|--:|--:|--:|");
    let items: Vec<Value> = (0..SIZE / 50)
        .map(|number| json!({"id": number, "title": "an item of a list", "done": false}))
        .collect();
    let list = json!({ "items": items }).to_string();
    let answers = [
        (
            "one line of Chinese",
            json!({"text": "汉".repeat(SIZE / 3)}).to_string(),
        ),
        (
            "a text of lines",
            json!({"text": "a line of a log\n".repeat(SIZE / 16)}).to_string(),
        ),
        ("JSON in a text", json!({ "text": &list }).to_string()),
        ("a list of objects", list),
    ];
    let mut holds = true;
    for (name, answer) in &answers {
        holds &= row(name, answer, rounds) <= RATIO_MAX;
    }
    say(&format!(
        "\nThe budget of {RATIO_MAX:.1} {}.\n",
        if holds { "holds" } else { "IS MISSED" }
    ));
    holds
}

/// Prints the row of an answer and returns its ratio.
fn row(name: &str, answer: &str, rounds: usize) -> f64 {
    let spec: LargeResult = serde_json::from_str("{}").expect("everything has a default");
    let call: CallId = "01980000-0000-7000-8000-000000000000"
        .parse()
        .expect("it is an id");
    let mut works: Vec<Work<'_>> = vec![
        Box::new(|| keep(serde_json::from_str::<Value>(answer).expect("it is JSON"))),
        Box::new(|| {
            let shortened = large_result::preview(call, answer, &spec, Language::En);
            keep(shortened.expect("it is large"));
        }),
    ];
    let samples = measure(&mut works, rounds);
    let (ratio, (low, high)) = (samples.ratio(1, 0), samples.ratio_quartiles(1, 0));
    say(&format!(
        "| {name} | {} | {:.1} | {:.1} | **{ratio:.2}** | {low:.2}–{high:.2} |",
        answer.len(),
        samples.median(0) / 1e6,
        samples.median(1) / 1e6,
    ));
    ratio
}
