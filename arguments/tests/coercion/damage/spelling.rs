//! Names as models misremember them.

use crate::random::Chance;

/// What is said instead, by name. Some of them share nothing with it.
const SYNONYMS: [(&str, &[&str]); 22] = [
    ("city", &["town", "location", "place"]),
    ("days", &["num_days", "duration", "count"]),
    ("tags", &["labels", "keywords", "tag"]),
    ("limit", &["max_results", "n", "top_k"]),
    ("query", &["q", "search", "text"]),
    ("q", &["query", "search_term"]),
    ("units", &["unit", "scale"]),
    ("amount", &["value", "sum", "price"]),
    ("amount_cents", &["amount", "cents"]),
    ("title", &["name", "summary"]),
    ("name", &["title", "label"]),
    ("body", &["message", "content", "text"]),
    ("to", &["recipient", "target", "destination"]),
    ("from", &["start", "source"]),
    ("path", &["file", "filename", "file_path"]),
    ("content", &["contents", "data", "text"]),
    ("items", &["products", "lines", "entries"]),
    ("quantity", &["qty", "amount", "count"]),
    ("value", &["val", "amount", "data"]),
    ("zip", &["postcode", "postal_code"]),
    ("verbose", &["debug", "detailed"]),
    ("geo", &["coordinates", "position"]),
];

pub(super) fn other_word(name: &str, chance: &mut Chance) -> String {
    let known = SYNONYMS.iter().find(|(word, _)| *word == name);
    match known {
        Some((_, words)) if chance.percent(70) => (*chance.of(words)).to_owned(),
        _ => chance
            .of(&[
                format!("{name}_value"),
                format!("the_{name}"),
                format!("my{name}"),
                "info".to_owned(),
                "details".to_owned(),
                "param1".to_owned(),
                "字段".to_owned(),
            ])
            .clone(),
    }
}

pub(super) fn other_case(name: &str, chance: &mut Chance) -> String {
    let words: Vec<&str> = name.split(['_', '-']).collect();
    let title = |word: &str| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| {
            first.to_uppercase().chain(letters).collect()
        })
    };
    let pascal: String = words.iter().map(|word| title(word)).collect();
    let camel = format!(
        "{}{}",
        words[0],
        words[1..]
            .iter()
            .map(|word| title(word))
            .collect::<String>()
    );
    let forms = [
        name.to_uppercase(),
        pascal,
        camel,
        words.join("-"),
        words.join(" "),
        format!(" {name}"),
        format!("{name}:"),
        format!("\"{name}\""),
        format!("_{name}"),
        name.replace('_', ""),
    ];
    chance.of(&forms).clone()
}

pub(super) fn misspelt(name: &str, chance: &mut Chance) -> String {
    let mut letters: Vec<char> = name.chars().collect();
    let at = chance.below(letters.len().max(1));
    match chance.below(5) {
        0 if letters.len() > 2 => {
            letters.remove(at);
        }
        1 if at + 1 < letters.len() => letters.swap(at, at + 1),
        2 if !letters.is_empty() => letters.insert(at, letters[at]),
        3 if name.ends_with('s') => {
            letters.pop();
        }
        _ => letters.push('s'),
    }
    letters.into_iter().collect()
}
