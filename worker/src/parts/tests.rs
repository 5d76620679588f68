use fleet::wire::{
    chunks::{CHUNK_MAX, CHUNKS_MAX, ModelChunk, ModelChunks},
    part::Image,
};
use proptest::prelude::*;
use serde_json::{json, value::RawValue};

use super::*;

/// A clock and what has left.
struct Watched {
    parts: Parts,
    now: Instant,
    left: Vec<(u32, Part)>,
}

impl Watched {
    fn new() -> Self {
        Self {
            parts: Parts::default(),
            now: Instant::now(),
            left: Vec::new(),
        }
    }

    fn put(&mut self, part: impl Into<Part>) -> Put {
        self.parts.put(part.into(), self.now)
    }

    /// Lets this time pass, in which all leaves that may; returns how many parts did.
    fn pass(&mut self, time: Duration) -> usize {
        let (until, before) = (self.now + time, self.left.len());
        loop {
            match self.parts.next(self.now) {
                NextPart::Now(number, part) => self.left.push((number, part)),
                NextPart::At(at) if at <= until => self.now = at,
                NextPart::At(_) | NextPart::None => break,
            }
        }
        self.now = until;
        self.left.len() - before
    }

    fn end(&mut self) -> usize {
        let rest = self.parts.rest(self.now);
        let count = rest.len();
        self.left.extend(rest);
        count
    }

    fn texts(&self) -> Vec<&str> {
        let texts = self.left.iter().map(|(_, part)| match part {
            Part::Text(text) => text.as_str(),
            other => panic!("{other:?}"),
        });
        texts.collect()
    }
}

fn step(text: &str) -> Part {
    Part::Step(text.to_owned())
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn text_is_joined_for_a_moment_and_leaves_before_what_follows_it() {
    let mut watched = Watched::new();
    for word in ["once ", "upon ", "a "] {
        assert_eq!(watched.put(word), Put::Taken);
        watched.pass(10 * MS);
    }
    assert_eq!(watched.left, []);
    watched.pass(20 * MS);
    assert_eq!(watched.texts(), ["once upon a "]);
    // No longer alone, it does not wait.
    watched.put("time");
    watched.put(step("searching"));
    assert_eq!(watched.pass(PACE), 1);
    assert_eq!(watched.pass(PACE), 1);
    let numbers: Vec<u32> = watched.left.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [0, 1, 2]);
}

#[test]
fn a_step_replaces_one_that_waits_and_other_parts_do_not() {
    let mut watched = Watched::new();
    for part in [step("a"), step("b"), Part::Value(json!(1)), step("c")] {
        watched.put(part);
    }
    watched.end();
    let left: Vec<Part> = watched.left.into_iter().map(|(_, part)| part).collect();
    assert_eq!(left, [step("b"), Part::Value(json!(1)), step("c")]);
}

#[test]
fn a_long_text_is_cut_between_characters_and_what_is_unfit_is_left_out() {
    let mut watched = Watched::new();
    let long = "你".repeat(TEXT_MAX);
    assert_eq!(watched.put(long.as_str()), Put::Taken);
    assert_eq!(watched.put(step("")), Put::Unfit(UnfitPart::Empty));
    let image = Image {
        mime: "text/html".to_owned(),
        b64: "aGk=".to_owned(),
        index: 0,
        partial: false,
    };
    assert_eq!(watched.put(image), Put::Unfit(UnfitPart::Image));
    watched.end();
    assert!(watched.texts().iter().all(|text| text.len() <= TEXT_MAX));
    assert_eq!(watched.texts().concat(), long);
}

#[test]
fn no_more_leave_in_a_second_than_may() {
    let mut watched = Watched::new();
    for number in 0..WAITING_MAX {
        assert_eq!(watched.put(Part::Value(json!(number))), Put::Taken);
    }
    let second = Duration::from_secs(1);
    // The first leaves at once.
    assert_eq!(watched.pass(second), A_SECOND_MAX as usize + 1);
    assert_eq!(watched.pass(second), A_SECOND_MAX as usize);
}

#[test]
fn beyond_a_bound_parts_stop_and_those_before_leave() {
    let mut watched = Watched::new();
    for number in 0..WAITING_MAX {
        watched.put(Part::Value(json!(number)));
    }
    assert_eq!(watched.put(Part::Value(json!("more"))), Put::TooMany);
    assert_eq!(watched.put("text"), Put::Over);
    watched.pass(Duration::from_secs(10));
    assert_eq!(watched.put("text"), Put::Over);
    assert_eq!(watched.left.len(), WAITING_MAX);

    let mut watched = Watched::new();
    let (mut taken, kibibyte) = (0, "x".repeat(1_024));
    while watched.put(kibibyte.as_str()) == Put::Taken {
        taken += 1_024;
        watched.pass(MS);
    }
    assert_eq!(taken, ATTEMPT_MAX);
    watched.end();
    assert_eq!(watched.texts().concat().len(), ATTEMPT_MAX);
    watched.parts.end();
    assert_eq!(watched.put("late"), Put::Over);
}

#[test]
fn a_secret_is_masked_however_it_is_cut() {
    let secret = "hunter/2";
    for cut in 0..=secret.len() {
        let mut watched = Watched::new();
        watched.parts.hide(&[secret.into()]);
        let (first, second) = secret.split_at(cut);
        watched.put(format!("it is {first}"));
        watched.pass(JOIN);
        watched.put(format!("{second}, they say"));
        watched.pass(JOIN);
        watched.end();
        assert_eq!(
            watched.texts().concat(),
            "it is [secret], they say",
            "{cut}"
        );
    }
    let mut watched = Watched::new();
    watched.parts.hide(&[secret.into()]);
    watched.put("hunt");
    assert_eq!(watched.pass(Duration::from_secs(9)), 0);
    watched.put(Part::Value(json!({"key": secret})));
    watched.put(step(secret));
    watched.put("hunter");
    watched.pass(JOIN * 3);
    watched.end();
    let left: Vec<Part> = watched.left.into_iter().map(|(_, part)| part).collect();
    let told = [
        Part::from("hunt"),
        Part::Value(json!({"key": "[secret]"})),
        step("[secret]"),
        Part::from("hunter"),
    ];
    assert_eq!(left, told);
}

proptest! {
    /// Whatever is put, and whenever: what leaves is a beginning of it, in parts that are numbered without gaps and fit.
    #[test]
    fn what_leaves_is_a_beginning_of_what_was_said(
        said in prop::collection::vec(("[a-d]{0,9}", 0_u64..80), 0..40),
        with_secret: bool,
    ) {
        let mut watched = Watched::new();
        if with_secret {
            watched.parts.hide(&["abcdab".into()]);
        }
        let mut whole = String::new();
        for (text, wait) in said {
            prop_assert_eq!(watched.put(text.as_str()), Put::Taken);
            whole.push_str(&text);
            watched.pass(Duration::from_millis(wait));
        }
        watched.end();
        let numbers: Vec<u32> = watched.left.iter().map(|(number, _)| *number).collect();
        let dense: Vec<u32> = (0..).take(numbers.len()).collect();
        prop_assert_eq!(numbers, dense);
        let told = watched.texts().concat();
        if with_secret {
            prop_assert!(!told.contains("abcdab"), "{}", told);
        } else {
            prop_assert_eq!(told, whole);
        }
    }
}

fn chunk(route: &str, json: &str) -> ModelChunks {
    ModelChunks::one(route, RawValue::from_string(json.to_owned()).unwrap())
}

/// What left: the route, whether it began anew, and the chunks.
fn chunks(watched: &Watched) -> Vec<(&str, bool, Vec<&str>)> {
    let told = watched.left.iter().map(|(_, part)| match part {
        Part::Chunks(told) => {
            let chunks = told.chunks.iter().map(ModelChunk::get).collect();
            (told.route.as_str(), told.restart, chunks)
        }
        other => panic!("{other:?}"),
    });
    told.collect()
}

#[test]
fn the_first_chunk_of_a_route_leaves_at_once_and_others_are_joined() {
    let mut watched = Watched::new();
    watched.put(chunk("a", "{}"));
    assert_eq!(watched.pass(MS), 1);
    for n in ["1", "2.50", "3"] {
        watched.put(chunk("a", n));
        watched.pass(10 * MS);
    }
    assert_eq!(watched.left.len(), 1);
    watched.pass(20 * MS);
    assert_eq!(
        chunks(&watched),
        [
            ("a", false, vec!["{}"]),
            ("a", false, vec!["1", "2.50", "3"])
        ]
    );

    // Another route says that it begins, and its first chunk does not wait either.
    watched.put(chunk("a", "4"));
    watched.put(ModelChunks::restart("b"));
    watched.pass(PACE * 2);
    watched.put(chunk("b", "5"));
    watched.pass(PACE);
    watched.put(chunk("b", "6"));
    watched.pass(MS);
    watched.end();
    assert_eq!(
        chunks(&watched)[2..],
        [
            ("a", false, vec!["4"]),
            ("b", true, vec![]),
            ("b", false, vec!["5"]),
            ("b", false, vec!["6"]),
        ]
    );
    let numbers: Vec<u32> = watched.left.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn the_first_chunk_is_alone_where_others_came_in_the_same_read() {
    let mut watched = Watched::new();
    for n in ["1", "2", "3"] {
        watched.put(chunk("a", n));
    }
    watched.pass(MS);
    watched.put(ModelChunks::restart("b"));
    for n in ["4", "5"] {
        watched.put(chunk("b", n));
    }
    watched.pass(PACE * 4);
    assert_eq!(
        chunks(&watched),
        [
            ("a", false, vec!["1"]),
            ("a", false, vec!["2", "3"]),
            ("b", true, vec!["4"]),
            ("b", false, vec!["5"]),
        ]
    );
}

#[test]
fn chunks_are_bounded_and_none_is_left_out_between_others() {
    let mut watched = Watched::new();
    let large = format!("\"{}\"", "x".repeat(10_000));
    for _ in 0..10 {
        assert_eq!(watched.put(chunk("a", &large)), Put::Taken);
    }
    let whole = format!("\"{}\"", "x".repeat(CHUNK_MAX - 2));
    assert_eq!(watched.put(chunk("a", &whole)), Put::Taken);
    watched.pass(Duration::from_secs(1));
    let lengths: Vec<usize> = chunks(&watched).iter().map(|part| part.2.len()).collect();
    assert_eq!(lengths, [1, 3, 3, 3, 1]);

    let too_large = format!("\"{}\"", "x".repeat(CHUNK_MAX - 1));
    assert_eq!(watched.put(chunk("a", &too_large)), Put::TooMany);
    assert_eq!(watched.put(chunk("a", "1")), Put::Over);

    let mut watched = Watched::new();
    let reserved = r#"{"$serde_json::private::RawValue": "1"}"#;
    assert_eq!(watched.put(chunk("a", reserved)), Put::TooMany);

    let (mut watched, mut taken) = (Watched::new(), 0);
    while watched.put(chunk("a", &whole)) == Put::Taken {
        taken += 1;
        watched.pass(PACE);
    }
    assert_eq!(taken, CHUNKS_MAX / (CHUNK_MAX + 32));
}

#[test]
fn a_secret_is_masked_in_chunks() {
    let mut watched = Watched::new();
    watched.parts.hide(&["hunter/2".into()]);
    let delta = |text: &str| json!({"index": 0, "delta": {"text": text}}).to_string();
    watched.put(chunk("a", &delta("it is hun")));
    watched.pass(JOIN);
    assert_eq!(watched.left, []);
    watched.put(chunk("a", &delta("ter/2, hun")));
    watched.put(ModelChunks::restart("b"));
    watched.end();
    let told = [
        ("a", false, vec![delta("it is [secret], hun"), delta("")]),
        ("b", true, vec![]),
    ];
    let told: Vec<_> = told
        .iter()
        .map(|(route, restart, told)| (*route, *restart, told.iter().map(String::as_str).collect()))
        .collect();
    assert_eq!(chunks(&watched), told);
}
