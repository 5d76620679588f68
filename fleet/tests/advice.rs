//! The advice to a caller, held together over every code: message, `suggestion`, page, the instructions for models,
//! and what the ledger itself says.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::{fs, path::Path};

use fleet::{
    call::{EffectKnown, Language},
    definitions::instructions,
    outcome::ToolFailure,
    wire::{
        code::Code,
        error::{
            ErrorBody, Suggestion,
            advice::{Advice, Key, RequestStage},
        },
        message::Message,
    },
};

const EFFECTS: [EffectKnown; 4] = [
    EffectKnown::None,
    EffectKnown::NotApplied,
    EffectKnown::Applied,
    EffectKnown::Unknown,
];
/// Tools answer writes with these, and the effect stands.
const OF_TOOLS_THAT_DID_IT: [Code; 2] = [Code::OutputInvalid, Code::OutputTooLarge];
/// "Ask for less" helps against these alone.
const OF_SIZE: [Code; 5] = [
    Code::TooManyNodes,
    Code::StringTooLong,
    Code::PayloadTooLarge,
    Code::OutputTooLarge,
    Code::NarrowIt,
];
/// The arguments are at fault here, and nowhere else.
const OF_ARGUMENTS: [Code; 10] = [
    Code::MalformedJson,
    Code::TruncatedArguments,
    Code::InvalidUnicode,
    Code::NulNotAllowed,
    Code::DuplicateKey,
    Code::DepthExceeded,
    Code::KeyTooLong,
    Code::NumberOutOfRange,
    Code::NumberTooLong,
    Code::InvalidArguments,
];

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::read_to_string(root.join(path)).unwrap()
}

/// The codes that a section of the list of pages names.
fn listed(section: &str) -> Vec<Code> {
    let list = read("docs/errors/README.md");
    let (_, after) = list.split_once(&format!("\n## {section}\n")).unwrap();
    let section = after.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| [`"));
    rows.map(|row| row.split('`').next().unwrap().parse().unwrap())
        .collect()
}

/// Codes that a refusal carries.
fn refusals() -> Vec<Code> {
    [listed("Refusals"), listed("Asking")].concat()
}

/// Codes with which a call ends, or is in doubt.
fn ends() -> Vec<Code> {
    let mut ends = listed("After acceptance");
    // A service of tools can carry less than the door takes.
    ends.push(Code::PayloadTooLarge);
    ends
}

fn what() -> Message {
    Message::fixed("It did not work", "没有成功")
}

fn refused(code: Code, language: Language) -> ErrorBody {
    ErrorBody::refused(code, &what(), language)
}

fn ended(code: Code, effect: EffectKnown, language: Language) -> ErrorBody {
    ErrorBody::failed(&ToolFailure::new(code, what()), effect, language)
}

/// What the message says of keys, as one of the four.
fn key_in(message: &str, language: Language) -> Key {
    let (same, new, never, repeats) = match language {
        Language::En => (
            "with the same idempotency key",
            "a new idempotency key",
            "not with a new idempotency key either",
            "the same one repeats this answer",
        ),
        Language::Zh => (
            "同一个",
            "新的幂等键",
            "换用新的幂等键也不行",
            "同一个幂等键只会得到同样的回答",
        ),
    };
    let advice = message.replace(repeats, "");
    match (advice.contains(same), advice.contains(new)) {
        (true, false) => Key::Same,
        (false, true) if advice.contains(never) => Key::Never,
        (false, true) => Key::New,
        (false, false) => Key::Unsaid,
        (true, true) => panic!("both: {message}"),
    }
}

/// Everything that a caller can be told, by its code and where it stands.
fn all(language: Language) -> Vec<(Code, RequestStage, ErrorBody)> {
    let refusals = refusals().into_iter();
    let refusals = refusals.map(|code| (code, RequestStage::Refused, refused(code, language)));
    let ends = ends().into_iter().flat_map(|code| {
        EFFECTS.map(|effect| {
            (
                code,
                RequestStage::Ended(effect),
                ended(code, effect, language),
            )
        })
    });
    refusals.chain(ends).collect()
}

#[test]
fn every_code_is_listed_as_a_refusal_or_as_an_end() {
    for code in Code::ALL {
        let listed = refusals().contains(code) || ends().contains(code);
        assert!(listed, "{code} is in no section of docs/errors/README.md");
    }
}

#[test]
fn a_message_says_the_suggestion_and_the_key_of_the_table() {
    for language in Language::ALL {
        for (code, standing, error) in all(*language) {
            let advice = Advice::of(code, standing);
            let case = format!("{code} {standing:?} {language}: {}", error.message);
            assert_eq!(error.suggestion, advice.suggestion(), "{case}");
            assert!(
                error.message.ends_with(advice.sentence().told(*language)),
                "{case}"
            );
            assert_eq!(key_in(&error.message, *language), advice.key(), "{case}");
            let later = error.suggestion == Suggestion::RetryLater;
            assert_eq!(error.retryable, later, "{case}");
        }
    }
}

#[test]
fn a_key_is_used_again_after_a_refusal_and_never_after_an_end() {
    for (code, standing, error) in all(Language::En) {
        let key = Advice::of(code, standing).key();
        let case = format!("{code} {standing:?}: {}", error.message);
        match standing {
            RequestStage::Refused => {
                assert_ne!(key, Key::Never, "{case}");
                // That one is another call's.
                assert_eq!(
                    key == Key::New,
                    code == Code::IdempotencyKeyReused,
                    "{case}"
                );
                if error.retryable {
                    assert_eq!(key, Key::Same, "{case}");
                }
            }
            RequestStage::Ended(effect) => {
                assert_ne!(key, Key::Same, "{case}");
                if error.retryable {
                    assert_eq!(key, Key::New, "{case}");
                }
                if matches!(effect, EffectKnown::Applied | EffectKnown::Unknown) {
                    assert_eq!(key, Key::Never, "{case}");
                }
            }
        }
    }
}

/// These are about the key itself, so there is one, or one is missing.
const OF_KEYS: [Code; 3] = [
    Code::MissingIdempotencyKey,
    Code::InvalidIdempotencyKey,
    Code::IdempotencyKeyReused,
];

#[test]
fn a_caller_without_a_key_is_told_what_to_do_without_one() {
    for (language, key, conditions) in [
        (
            Language::En,
            "idempotency key",
            ["if there was one", "if it had one"],
        ),
        (Language::Zh, "幂等键", ["如果带有幂等键", "如果带有幂等键"]),
    ] {
        for (code, standing, error) in all(language) {
            let advised = matches!(Advice::of(code, standing).key(), Key::Same | Key::New);
            if !advised || OF_KEYS.contains(&code) {
                continue;
            }
            let is_conditional = conditions.iter().any(|words| error.message.contains(words));
            assert!(
                is_conditional || !error.message.contains(key),
                "{code} {standing:?}: {}",
                error.message
            );
        }
    }
}

#[test]
fn arguments_are_corrected_only_where_they_are_at_fault_and_less_is_asked_only_of_what_is_too_large()
 {
    for (language, correct, less) in [
        (Language::En, "Correct the arguments", "Ask for less"),
        (Language::Zh, "请改正参数", "请减少"),
    ] {
        for (code, standing, error) in all(language) {
            let case = format!("{code} {standing:?}: {}", error.message);
            let refused = standing == RequestStage::Refused;
            let at_fault = refused && OF_ARGUMENTS.contains(&code);
            assert_eq!(error.message.contains(correct), at_fault, "{case}");
            if error.message.contains(less) {
                assert!(OF_SIZE.contains(&code), "{case}");
            }
            let simplify = error.suggestion == Suggestion::Simplify;
            assert_eq!(simplify, error.message.contains(less), "{case}");
            if error.suggestion == Suggestion::FixArguments {
                let fits = at_fault || matches!(code, Code::ToolError | Code::InvalidId);
                assert!(fits, "{case}");
            }
        }
    }
}

#[test]
fn that_a_call_was_not_found_does_not_say_that_nothing_was_run() {
    for (language, run, changed) in [
        (Language::En, "Nothing was run", "Nothing was changed"),
        (Language::Zh, "没有执行任何操作", "没有做任何更改"),
    ] {
        let message = refused(Code::NotFound, language).message;
        assert!(
            !message.contains(run) && !message.contains(changed),
            "{message}"
        );
        let message = refused(Code::UnknownTool, language).message;
        assert!(message.contains(run), "{message}");
    }
}

/// The line of a page, up to where it may say more.
fn line(code: Code) -> String {
    let said = |advice: Advice| {
        let key = match advice.key() {
            Key::Same => ", with the same key",
            Key::New => ", with a new key",
            Key::Never => ", and never again",
            Key::Unsaid => "",
        };
        format!("`{}`{key}", advice.suggestion())
    };
    let ended = said(Advice::of(code, RequestStage::Ended(EffectKnown::None)));
    let refused = said(Advice::of(code, RequestStage::Refused));
    let mut line = match (refusals().contains(&code), ends().contains(&code)) {
        (true, true) => format!("{refused}; after acceptance {ended}"),
        (true, false) => refused,
        (false, _) => ended,
    };
    if OF_TOOLS_THAT_DID_IT.contains(&code) {
        let did_it = said(Advice::of(code, RequestStage::Ended(EffectKnown::Applied)));
        line += &format!("; where the tool did it, {did_it}");
    }
    format!("\n**Suggestion:** {line}")
}

#[test]
fn every_page_says_the_suggestion_and_the_key_of_its_code() {
    for code in Code::ALL {
        let page = read(&format!("docs/errors/{code}.md"));
        let line = line(*code);
        let rest = page.split_once(&line).map(|(_, rest)| rest);
        assert!(
            rest.is_some_and(|rest| rest.starts_with(['.', ';'])),
            "docs/errors/{code}.md must have the line{line}."
        );
        let of_an_end = ends().contains(code) && *code != Code::PayloadTooLarge;
        let repeats = page.replace("the same key repeats this answer", "");
        assert!(
            !of_an_end || !repeats.contains("same key") || *code == Code::Timeout,
            "docs/errors/{code}.md advises the same key for what has ended"
        );
    }
}

#[test]
fn the_instructions_tell_refusals_from_ends() {
    for (language, refused, ended, repeats) in [
        (
            Language::En,
            "`refused` with the same key",
            "after any other with a new key",
            "the same key repeats the answer",
        ),
        (
            Language::Zh,
            "`refused` 的，沿用同一个幂等键",
            "其他状态的，换用新的幂等键",
            "同一个幂等键只会得到同样的回答",
        ),
    ] {
        let text = instructions(language);
        for sentence in [refused, ended, repeats] {
            assert!(text.contains(sentence), "{language}: {sentence}");
        }
    }
    assert!(!instructions(Language::En).contains("the same call with the same key"));
}

#[test]
fn what_the_ledger_itself_says_ends_in_the_same_sentences() {
    let schema = read("migrations/schema.sql");
    for language in Language::ALL {
        for (advice, times) in [
            (Advice::AskIfWanted, 2),
            (Advice::DoNotRepeat, 2),
            (Advice::AcceptNo, 1),
        ] {
            let sentence = advice.sentence().told(*language);
            let found = schema.matches(sentence).count();
            assert_eq!(found, times, "{language}: {sentence}");
        }
    }
}
