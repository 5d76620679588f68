use fleet::{manifest::ChatProtocol, outcome::OutcomeWord};

use super::*;
use crate::executors::chat::dialect;

#[test]
fn the_table_says_what_follows_each_answer() {
    use RouteVerdict::{Done, Larger, Misconfigured, Next, Stop};
    for (seen, expected) in [
        (SeenAnswer::Reply, Done),
        (SeenAnswer::Broken, Next),
        (SeenAnswer::Silent, Next),
        (SeenAnswer::Unreadable, Next),
        (SeenAnswer::Failed, Next),
        (SeenAnswer::Empty, Next),
        (SeenAnswer::TooLarge, Stop),
    ] {
        assert_eq!(verdict(seen), expected, "{seen:?}");
    }
    for status in (100..600).filter(|status| !(200..300).contains(status)) {
        let expected = match status {
            408 | 409 | 425 | 429 | 500..=599 => [Next; 2],
            401 | 403 | 404 | 100..=399 => [Misconfigured(status); 2],
            400 | 413 => [Stop, Larger],
            _other => [Stop; 2],
        };
        let of = |is_too_long| {
            verdict(SeenAnswer::Refused {
                status,
                is_too_long,
            })
        };
        assert_eq!([of(false), of(true)], expected, "{status}");
    }
}

#[test]
fn a_request_that_is_too_long_is_known_by_each_vendors_words() {
    for (body, expected) in [
        (
            r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
            true,
        ),
        (r#"{"error":{"code":"context_length_exceeded"}}"#, true),
        (
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}"#,
            true,
        ),
        (
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 1 + 2 > 2"}}"#,
            true,
        ),
        (
            r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error"}}"#,
            true,
        ),
        (
            r#"{"object":"error","message":"This model's maximum context length is 4096 tokens.","code":400}"#,
            true,
        ),
        (
            r#"{"error":{"message":"Your input exceeds the context window of this model."}}"#,
            true,
        ),
        (
            r#"{"error":{"message":"max_tokens is too large: 100000."}}"#,
            false,
        ),
        (
            r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
            false,
        ),
        (
            "<html>413 Request Entity Too Large: context length</html>",
            false,
        ),
        ("", false),
    ] {
        assert_eq!(is_too_long(body.as_bytes()), expected, "{body}");
    }
}

fn answer(status: u16, body: &str) -> HttpAnswer {
    HttpAnswer {
        status,
        body: body.as_bytes().to_vec(),
        retry_after: Some("7".to_owned()),
        ..HttpAnswer::default()
    }
}

#[test]
fn what_no_route_answered_is_told_by_its_code() {
    use OutcomeWord::{Applied, DefiniteFailure as Definite, Unknown};
    let secrets = [SecretString::from("hunter22")];
    let judged = |answer: &HttpAnswer| {
        judge(
            dialect::of(ChatProtocol::OpenaiChat),
            answer,
            1000,
            &secrets,
        )
    };
    let broken = HttpAnswer {
        end: BodyEnd::Broken,
        ..answer(200, r#"{"choi"#)
    };
    let large = HttpAnswer {
        end: BodyEnd::TooLarge,
        ..answer(200, r#"{"choi"#)
    };
    let said = r#"{"error":{"message":"the key hunter22 is wrong"}}"#;
    let empty = r#"{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}"#;
    for (answer, word, code, says) in [
        (answer(408, ""), Definite, Code::Timeout, "out of time"),
        (answer(504, ""), Definite, Code::Timeout, "out of time"),
        (answer(429, said), Definite, Code::Unavailable, "status 429"),
        (answer(529, ""), Definite, Code::Unavailable, "status 529"),
        (
            answer(401, said),
            Definite,
            Code::Unavailable,
            "the key [secret] is wrong",
        ),
        (
            answer(404, "<html>"),
            Definite,
            Code::Unavailable,
            "status 404",
        ),
        (
            answer(302, ""),
            Definite,
            Code::Unavailable,
            "its key, its model and its URL",
        ),
        (
            answer(422, said),
            Definite,
            Code::ToolError,
            "the key [secret] is wrong",
        ),
        (
            answer(200, said),
            Definite,
            Code::Unavailable,
            "the key [secret] is wrong",
        ),
        (answer(200, ""), Applied, Code::OutputInvalid, "it is empty"),
        (answer(204, ""), Applied, Code::OutputInvalid, "it is empty"),
        (
            answer(200, "<html>"),
            Applied,
            Code::OutputInvalid,
            "not one JSON value",
        ),
        (
            answer(200, "\u{1f}\u{8b}gzip"),
            Applied,
            Code::OutputInvalid,
            "not one JSON value",
        ),
        (
            answer(200, "[]"),
            Applied,
            Code::OutputInvalid,
            "not a JSON object",
        ),
        (
            answer(200, "{}"),
            Applied,
            Code::OutputInvalid,
            "no reply of the tool's protocol",
        ),
        (
            answer(200, empty),
            Applied,
            Code::OutputInvalid,
            "answered with nothing",
        ),
        (broken, Unknown, Code::Unavailable, "broke off"),
        (
            large,
            Definite,
            Code::OutputTooLarge,
            "larger than 1000 bytes",
        ),
    ] {
        let JudgedAnswer::Failed(_, outcome, _) = judged(&answer) else {
            panic!("{}", answer.status);
        };
        let failure = outcome.failure().unwrap();
        assert_eq!((outcome.word(), failure.code), (word, code), "{failure:?}");
        assert!(failure.message.english().contains(says), "{failure:?}");
        assert_eq!(failure.retry_after_ms, Some(7000), "{failure:?}");
    }
}

#[test]
fn a_reply_is_kept_to_the_byte() {
    let body = r#"{"id":"x","choices":[{"message":{"content":"hi","n":1.50},"finish_reason":"stop"}],"big":9007199254740993}"#;
    let judged = judge(
        dialect::of(ChatProtocol::OpenaiChat),
        &answer(200, body),
        1000,
        &[],
    );
    let JudgedAnswer::Reply(reply) = judged else {
        panic!("{judged:?}");
    };
    assert_eq!((reply.raw.get(), reply.flaw.is_none()), (body, true));
}
