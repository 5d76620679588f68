//! English words without their endings, so that `emails` and `emailing` are `email`. A light hand: what is made is compared, and never
//! shown.

/// A word in lower case without its ending; one of another script or with digits as it is.
pub(super) fn stem(word: &str) -> String {
    if word.len() < 3 || !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return word.to_owned();
    }
    let singular = singular(word);
    let mut stem = without_tense(&singular).to_owned();
    if let Some(rest) = stem.strip_suffix("ion")
        && rest.len() >= 5
        && rest.ends_with(['t', 's'])
    {
        stem.truncate(rest.len());
    }
    if stem.len() >= 4 && stem.ends_with('e') {
        stem.pop();
    }
    let doubled = stem.as_bytes().last_chunk::<2>();
    if doubled.is_some_and(|[one, other]| one == other && !is_vowel(*one)) {
        stem.pop();
    }
    if stem.len() >= 7 && stem.ends_with("er") {
        stem.truncate(stem.len() - 2);
    }
    stem
}

fn singular(word: &str) -> String {
    let without = |ending: &str| {
        let rest = word.strip_suffix(ending)?;
        (rest.len() >= 3).then_some(rest)
    };
    if let Some(rest) = without("ies").or_else(|| without("ied")) {
        return format!("{rest}y");
    }
    for ending in ["sses", "shes", "ches", "xes", "zes"] {
        if word.ends_with(ending) && word.len() > ending.len() {
            return word[..word.len() - 2].to_owned();
        }
    }
    let is_singular = ["ss", "us", "is"]
        .iter()
        .any(|ending| word.ends_with(ending));
    match without("s") {
        Some(rest) if !is_singular => rest.to_owned(),
        _singular => word.to_owned(),
    }
}

/// Without `ing` and `ed`, where what is left is a word: it has a vowel.
fn without_tense(word: &str) -> &str {
    let rest = word.strip_suffix("ing").or_else(|| {
        let past = word.strip_suffix("ed")?;
        (!past.ends_with('e')).then_some(past)
    });
    match rest {
        Some(rest) if rest.len() >= 3 && rest.bytes().any(is_vowel) => rest,
        _whole => word,
    }
}

const fn is_vowel(letter: u8) -> bool {
    matches!(letter, b'a' | b'e' | b'i' | b'o' | b'u' | b'y')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_a_word_have_one_stem() {
        for forms in [
            &["email", "emails", "emailing", "emailed"][..],
            &[
                "translate",
                "translates",
                "translated",
                "translating",
                "translation",
            ],
            &["reply", "replies", "replied", "replying"],
            &["plan", "plans", "planned", "planning"],
            &["cancel", "cancels", "cancelled", "canceled", "cancelling"],
            &["install", "installed", "installing"],
            &["invoice", "invoices", "invoiced", "invoicing"],
            &["search", "searches", "searching"],
            &["box", "boxes"],
            &["add", "adds", "added", "adding"],
            &["remind", "reminder", "reminders"],
            &["transfer", "transferred", "transferring"],
            &["status"],
        ] {
            let stems: Vec<_> = forms.iter().map(|form| stem(form)).collect();
            assert!(
                stems.iter().all(|it| *it == stems[0]),
                "{forms:?} {stems:?}"
            );
        }
    }

    #[test]
    fn different_words_stay_different() {
        let words = [
            "string", "strong", "need", "speed", "spell", "news", "process", "product", "class",
            "close", "clear", "calendar", "weather", "bring", "thing", "red", "s3", "os",
        ];
        for (n, word) in words.iter().enumerate() {
            for other in &words[n + 1..] {
                assert_ne!(stem(word), stem(other), "{word} {other}");
            }
        }
    }
}
