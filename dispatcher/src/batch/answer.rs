//! The answer to a batch: an envelope for each call, in order, and never more bytes than the server carries.

use fleet::{
    call::Language,
    wire::{envelope::Accepted, error::ErrorBody, message::Message},
};

use crate::{answer::Answer, refusal::Refusal};

/// The outcome of one call.
pub(super) enum Outcome {
    /// It is in the ledger.
    Accepted(Accepted),
    /// It is not, or that is unknown. With the name of its tool, and the language of the message.
    Refused(String, Refusal, Language),
}

/// The most bytes of an item. An accepted envelope has fewer; a refusal is cut to them.
pub(super) const ITEM_BYTES: usize = 1_000;

/// How many calls can be answered in this many bytes, whatever their outcomes.
pub(super) const fn calls_max(bytes_max: usize) -> usize {
    bytes_max.saturating_sub(FRAME.len()) / (ITEM_BYTES + 1)
}

const FRAME: &str = "{\"items\":[]}";

/// Writes the answer. When it would be too large, refusals lose their details, and if need be more.
pub(super) fn write(outcomes: Vec<Outcome>, bytes_max: usize) -> Answer {
    let mut items: Vec<Vec<u8>> = outcomes.iter().map(full).collect();
    let size =
        |items: &[Vec<u8>]| FRAME.len() + items.iter().map(|item| item.len() + 1).sum::<usize>();
    if size(&items) > bytes_max {
        for (item, outcome) in items.iter_mut().zip(&outcomes) {
            if let Outcome::Refused(tool, refusal, language) = outcome
                && item.len() > ITEM_BYTES
            {
                *item = short(tool, refusal, *language);
            }
        }
    }
    let mut text = Vec::with_capacity(size(&items));
    text.extend_from_slice(b"{\"items\":[");
    text.extend_from_slice(&items.join(&b','));
    text.extend_from_slice(b"]}");
    Answer::json(String::from_utf8(text).expect("JSON is UTF-8"))
}

fn full(outcome: &Outcome) -> Vec<u8> {
    match outcome {
        Outcome::Accepted(accepted) => Answer::accepted(accepted).body.to_vec(),
        Outcome::Refused(tool, refusal, language) => refusal.envelope(tool, *language).to_bytes(),
    }
}

/// The refusal in at most [`ITEM_BYTES`]: without details, then without the place, then in general words.
fn short(tool: &str, refusal: &Refusal, language: Language) -> Vec<u8> {
    let marked = Some(serde_json::json!({ "shortened": true }));
    let error = refusal.error(language);
    let general = Message::fixed(
        "the call was refused; send it alone to read why",
        "这个调用被拒绝了；请单独发送它，以读到原因",
    );
    let without_details = ErrorBody {
        details: marked.clone(),
        ..error
    };
    let without_place = ErrorBody {
        path: None,
        ..without_details.clone()
    };
    let in_general = ErrorBody {
        details: marked,
        ..ErrorBody::refused(error.code, &general, language)
    };
    let mut envelopes = [without_details, without_place, in_general]
        .into_iter()
        .map(|error| refusal.envelope_of(tool, error).to_bytes());
    let last = envelopes.next_back().expect("there are three");
    envelopes
        .find(|envelope| envelope.len() <= ITEM_BYTES)
        .unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use fleet::{arguments::Limits, wire::code::Code};
    use serde_json::{Value, json};

    use super::*;

    fn refused(details: usize, language: Language) -> Outcome {
        let what = Message::verbatim("\u{1}".repeat(480));
        let refusal = Refusal::new(Code::InvalidArguments, what)
            .at(format!("/{}", "\u{1}".repeat(Limits::PATH_BYTES - 1)))
            .with_details(|_language| json!({ "violations": "x".repeat(details) }));
        Outcome::Refused("\u{1}".repeat(200), refusal, language)
    }

    #[test]
    fn an_answer_that_fits_tells_everything() {
        let answer = write(vec![refused(2_000, Language::En)], 1024 * 1024);
        let read: Value = serde_json::from_slice(&answer.body).unwrap();
        let details = &read["items"][0]["error"]["details"]["violations"];
        assert_eq!(details.as_str().unwrap().len(), 2_000);
    }

    #[test]
    fn the_worst_refusals_fit_where_they_were_promised_to() {
        let bytes_max = 64 * 1024;
        let count = calls_max(bytes_max);
        assert!(count > 60);
        for language in [Language::En, Language::Zh] {
            let refused = (0..count).map(|_| refused(2_000, language)).collect();
            let answer = write(refused, bytes_max);
            assert!(answer.body.len() <= bytes_max, "{}", answer.body.len());
            let read: Value = serde_json::from_slice(&answer.body).unwrap();
            let items = read["items"].as_array().unwrap();
            assert_eq!(items.len(), count);
            for item in items {
                assert_eq!(item["error"]["code"], "invalid_arguments");
                assert_eq!(item["error"]["details"], json!({"shortened": true}));
            }
        }
    }

    #[test]
    fn a_server_with_the_usual_limit_carries_a_whole_batch() {
        assert!(calls_max(1024 * 1024 - 4 * 1024) >= super::super::split::CALLS_MAX);
    }
}
