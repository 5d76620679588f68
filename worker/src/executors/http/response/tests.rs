use fleet::outcome::OutcomeWord;

use super::*;

fn rules(write: bool) -> StatusRules {
    StatusRules {
        write,
        business_statuses: vec![400, 404, 409, 422],
        not_applied_statuses: vec![503, 422],
        later_statuses: Vec::new(),
        is_stream: false,
        output_limit: 100,
        secrets: Vec::new(),
    }
}

fn answer(status: u16, content_type: &str, body: &[u8]) -> HttpAnswer {
    HttpAnswer {
        status,
        content_type: Some(content_type.to_owned()),
        body: body.to_vec(),
        ..HttpAnswer::default()
    }
}

fn of(write: bool, status: u16) -> (OutcomeWord, Option<Code>) {
    let outcome = class(&rules(write), &answer(status, "application/json", b"{}"));
    (
        outcome.word(),
        outcome.failure().map(|failure| failure.code),
    )
}

#[test]
fn each_status_has_its_class() {
    use Code::{Timeout, ToolError, Unavailable};
    use OutcomeWord::{Applied, DefiniteFailure, NotStarted, Unknown};
    for (status, read, write) in [
        (200, (Applied, None), (Applied, None)),
        (202, (Applied, None), (Applied, None)),
        (299, (Applied, None), (Applied, None)),
        (
            101,
            (DefiniteFailure, Some(ToolError)),
            (Unknown, Some(Unavailable)),
        ),
        (
            301,
            (DefiniteFailure, Some(ToolError)),
            (Unknown, Some(Unavailable)),
        ),
        (
            304,
            (DefiniteFailure, Some(ToolError)),
            (Unknown, Some(Unavailable)),
        ),
        (
            400,
            (DefiniteFailure, Some(ToolError)),
            (DefiniteFailure, Some(ToolError)),
        ),
        (
            401,
            (DefiniteFailure, Some(ToolError)),
            (Unknown, Some(Unavailable)),
        ),
        (
            403,
            (DefiniteFailure, Some(ToolError)),
            (Unknown, Some(Unavailable)),
        ),
        (
            404,
            (DefiniteFailure, Some(ToolError)),
            (DefiniteFailure, Some(ToolError)),
        ),
        (
            408,
            (DefiniteFailure, Some(Timeout)),
            (Unknown, Some(Unavailable)),
        ),
        (
            409,
            (DefiniteFailure, Some(ToolError)),
            (DefiniteFailure, Some(ToolError)),
        ),
        (
            422,
            (DefiniteFailure, Some(Unavailable)),
            (NotStarted, Some(Unavailable)),
        ),
        (
            425,
            (DefiniteFailure, Some(Unavailable)),
            (Unknown, Some(Unavailable)),
        ),
        (
            429,
            (DefiniteFailure, Some(Unavailable)),
            (Unknown, Some(Unavailable)),
        ),
        (
            500,
            (DefiniteFailure, Some(Unavailable)),
            (Unknown, Some(Unavailable)),
        ),
        (
            503,
            (DefiniteFailure, Some(Unavailable)),
            (NotStarted, Some(Unavailable)),
        ),
        (
            504,
            (DefiniteFailure, Some(Timeout)),
            (Unknown, Some(Unavailable)),
        ),
        (
            999,
            (DefiniteFailure, Some(ToolError)),
            (Unknown, Some(Unavailable)),
        ),
    ] {
        assert_eq!(of(false, status), read, "read {status}");
        assert_eq!(of(true, status), write, "write {status}");
    }
}

#[test]
fn only_a_declared_status_proves_that_a_write_did_not_happen() {
    for status in 100..=999 {
        let word = of(true, status).0;
        assert_eq!(
            word == OutcomeWord::NotStarted,
            matches!(status, 503 | 422),
            "{status}"
        );
        assert_eq!(
            word == OutcomeWord::DefiniteFailure,
            matches!(status, 400 | 404 | 409),
            "{status}"
        );
        assert_eq!(
            word == OutcomeWord::Applied,
            (200..300).contains(&status),
            "{status}"
        );
    }
}

#[test]
fn an_answer_becomes_one_json_value() {
    let result = |answer: HttpAnswer| match class(&rules(true), &answer) {
        Outcome::Applied { result, flaw } => (result.get().to_owned(), flaw.map(|flaw| flaw.code)),
        other => panic!("{other:?}"),
    };
    let exact = r#"{"n":9007199254740993}"#;
    let plain = |text: &str| (text.to_owned(), None);
    for (kind, body, expected) in [
        ("application/json", exact, plain(exact)),
        (
            "Application/Problem+JSON; charset=utf-8",
            "[1.10]",
            plain("[1.10]"),
        ),
        ("application/json", "", plain("null")),
        ("text/html", " \r\n", plain("null")),
        ("text/plain", "say \"hi\"", plain(r#""say \"hi\"""#)),
        ("text/plain", "1", plain("\"1\"")),
        (
            "text/plain",
            "a\0b",
            ("\"a\u{fffd}b\"".to_owned(), Some(Code::OutputInvalid)),
        ),
        (
            "application/json",
            "{oops",
            ("null".to_owned(), Some(Code::OutputInvalid)),
        ),
    ] {
        assert_eq!(
            result(answer(200, kind, body.as_bytes())),
            expected,
            "{kind} {body}"
        );
    }
    let mended = ("\"caf\u{fffd}\"".to_owned(), Some(Code::OutputInvalid));
    assert_eq!(result(answer(200, "text/plain", b"caf\xe9")), mended);
    assert_eq!(result(answer(200, "text/json", b"\"caf\xe9\"")), mended);
    assert_eq!(
        result(answer(200, "image/png", b"\x89PNG\xff")).1,
        Some(Code::OutputInvalid)
    );
    assert_eq!(
        result(answer(204, "application/json", b"junk")),
        plain("null")
    );
    let untyped = |body: &str| HttpAnswer {
        status: 200,
        body: body.into(),
        ..HttpAnswer::default()
    };
    assert_eq!(result(untyped("[1]")), plain("[1]"));
    assert_eq!(result(untyped("hello")), plain("\"hello\""));
}

#[test]
fn a_success_that_breaks_off_is_unknown_and_a_refusal_that_breaks_off_is_a_refusal() {
    for (end, code) in [
        (BodyEnd::Broken, Code::Unavailable),
        (BodyEnd::TimedOut, Code::Timeout),
        (BodyEnd::Stopped(StopReason::Drained), Code::Timeout),
        (BodyEnd::Stopped(StopReason::Cancelled), Code::Cancelled),
    ] {
        for write in [true, false] {
            let outcome = class(
                &rules(write),
                &HttpAnswer {
                    end,
                    ..answer(200, "application/json", b"{\"a\":")
                },
            );
            assert_eq!(outcome.word(), OutcomeWord::Unknown, "{end:?}");
            assert_eq!(outcome.failure().unwrap().code, code, "{end:?}");
            let outcome = class(
                &rules(write),
                &HttpAnswer {
                    end,
                    ..answer(404, "application/json", b"{\"a\":")
                },
            );
            assert_eq!(outcome.word(), OutcomeWord::DefiniteFailure, "{end:?}");
        }
    }
}

#[test]
fn a_write_whose_answer_is_too_large_was_applied() {
    let large = |write| {
        class(
            &rules(write),
            &HttpAnswer {
                end: BodyEnd::TooLarge,
                ..answer(200, "text/plain", b"x")
            },
        )
    };
    let Outcome::Applied {
        result,
        flaw: Some(flaw),
    } = large(true)
    else {
        panic!()
    };
    assert_eq!(
        (result.get(), flaw.code),
        ("\"x… [cut]\"", Code::OutputTooLarge)
    );
    assert_eq!(large(false).word(), OutcomeWord::DefiniteFailure);
    assert_eq!(large(false).failure().unwrap().code, Code::OutputTooLarge);
}

#[test]
fn a_refusal_carries_a_bounded_message_the_status_and_the_pause() {
    let refusal = |body: &str| {
        let retry_after = Some("7".to_owned());
        let outcome = class(
            &rules(true),
            &HttpAnswer {
                retry_after,
                ..answer(404, "text/html", body.as_bytes())
            },
        );
        outcome.failure().cloned().expect("it is refused")
    };
    let failure = refusal("<html>");
    assert_eq!(
        failure.message.english(),
        "the tool answered with status 404"
    );
    assert_eq!(
        (failure.details, failure.retry_after_ms),
        (Some(json!({"status": 404})), Some(7_000))
    );
    let long = refusal(&json!({"message": "é".repeat(2_000)}).to_string());
    assert_eq!(long.message.english().len(), ToolFailure::MESSAGE_MAX);
}

#[test]
fn only_a_declared_status_says_that_the_answer_comes_later() {
    for write in [false, true] {
        let declared = StatusRules {
            later_statuses: vec![202],
            ..rules(write)
        };
        let accepted = answer(202, "application/json", b"{}");
        let outcome = class(&declared, &accepted);
        assert_eq!(outcome.word(), OutcomeWord::Unknown);
        let wanted = outcome.failure().and_then(|failure| failure.wanted());
        assert_eq!(wanted, Some(&fleet::input::ToolWish::Completion));
        assert_eq!(class(&rules(write), &accepted).word(), OutcomeWord::Applied);
        let done = answer(200, "application/json", b"{}");
        assert_eq!(class(&declared, &done).word(), OutcomeWord::Applied);
    }
}
