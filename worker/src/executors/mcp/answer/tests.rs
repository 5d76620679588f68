use super::*;
use crate::executors::{
    StopReason,
    mcp::{came::StatusFacts, message},
};

fn rules(effect: Effect, errors: McpErrors) -> AnswerRules {
    AnswerRules {
        effect,
        errors,
        form: AnswerForm::Json,
        output_limit: 100,
        secrets: vec![SecretString::from("hunter22")],
    }
}

fn over(rules: &AnswerRules, came: Came) -> Outcome {
    match rules.class(came) {
        CallResult::Over(outcome) => outcome,
        CallResult::Task(task) => panic!("{task:?}"),
    }
}

fn answer(text: &str) -> Came {
    match message::read(text.as_bytes()).expect("a message") {
        message::Incoming::Answer { answer, .. } => Came::Answer(answer),
        other => panic!("{other:?}"),
    }
}

fn error(code: i64) -> Came {
    answer(&format!(
        r#"{{"id":1,"error":{{"code":{code},"message":"no hunter22"}}}}"#
    ))
}

fn status(status: u16, code: Option<i64>, of_session: bool) -> Came {
    Came::Status(HttpStatus {
        facts: StatusFacts::default(),
        status,
        error: code.map(|code| RpcError {
            code,
            message: String::new(),
            data: None,
        }),
        retry_after: None,
        of_session,
    })
}

fn failure() -> ToolFailure {
    ToolFailure::new(Code::Unavailable, Message::fixed("x", "x"))
}

/// The word and the code of a write, of a write with `errors: unknown`, and of a read.
fn cells(came: impl Fn() -> Came) -> [(&'static str, &'static str); 3] {
    [
        rules(Effect::Once, McpErrors::SaidNo),
        rules(Effect::Once, McpErrors::Unknown),
        rules(Effect::Read, McpErrors::SaidNo),
    ]
    .map(|rules| {
        let outcome = over(&rules, came());
        let code = outcome.failure().map_or("-", |failure| {
            assert!(
                !failure.message.english().contains("hunter22"),
                "{failure:?}"
            );
            failure.code.as_str()
        });
        (outcome.word().as_str(), code)
    })
}

const NO: &str = "definite_failure";

#[test]
fn a_result_is_applied() {
    let came = || answer(r#"{"id":1,"result":{"content":[],"structuredContent":{"a":1.10}}}"#);
    assert_eq!(cells(came), [("applied", "-"); 3]);
    let Outcome::Applied { result, .. } = over(&rules(Effect::Once, McpErrors::SaidNo), came())
    else {
        panic!("it was applied")
    };
    assert_eq!(result.get(), r#"{"a":1.10}"#);
}

#[test]
fn an_error_that_the_tool_reports_is_its_no_unless_its_manifest_says_otherwise() {
    let came = || {
        answer(
            r#"{"id":1,"result":{"isError":true,"content":[{"type":"text","text":"sold out hunter22"}]}}"#,
        )
    };
    assert_eq!(
        cells(came),
        [
            (NO, "tool_error"),
            ("unknown", "tool_error"),
            (NO, "tool_error")
        ]
    );
    let outcome = over(&rules(Effect::Once, McpErrors::SaidNo), came());
    assert_eq!(
        outcome.failure().unwrap().message.english(),
        "sold out [secret]"
    );
}

#[test]
fn what_another_fleet_does_not_know_is_not_known_here() {
    for (call, word) in [
        (
            r#"{"state":"failed","outcome":"business_error","effect":"none"}"#,
            NO,
        ),
        (
            r#"{"state":"failed","outcome":"system_error","effect":"not_applied"}"#,
            NO,
        ),
        (
            r#"{"state":"in_doubt","outcome":"unknown","effect":"unknown"}"#,
            "unknown",
        ),
        (
            r#"{"state":"failed","outcome":"system_error","effect":"applied"}"#,
            "unknown",
        ),
        (
            r#"{"state":"running","outcome":null,"effect":null}"#,
            "unknown",
        ),
        (
            r#"{"state":"refused","outcome":"system_error","effect":"unknown"}"#,
            "unknown",
        ),
    ] {
        let came = || {
            answer(&format!(
                r#"{{"id":1,"result":{{"isError":true,"content":[],"_meta":{{"io.toolfleet/call":{call}}}}}}}"#
            ))
        };
        let words = cells(came).map(|(word, _)| word);
        assert_eq!(words, [word, "unknown", NO], "{call}");
    }
    // What is no such facts changes nothing.
    let came = || {
        answer(r#"{"id":1,"result":{"isError":true,"content":[],"_meta":{"io.toolfleet/call":7}}}"#)
    };
    assert_eq!(cells(came).map(|(word, _)| word), [NO, "unknown", NO]);
}

#[test]
fn errors_about_the_request_prove_that_nothing_was_done() {
    for code in [-32600, -32601, -32602, -32020, -32021, -32022] {
        assert_eq!(cells(|| error(code)), [(NO, "tool_error"); 3], "{code}");
        assert_eq!(
            cells(|| status(400, Some(code), false)),
            [(NO, "tool_error"); 3],
            "{code}"
        );
    }
}

#[test]
fn other_errors_prove_nothing() {
    for code in [
        -32603,
        -32700,
        -32599,
        -32604,
        -32000,
        -32019,
        -32023,
        -1,
        0,
        7,
        i64::MIN,
        i64::MAX,
    ] {
        let cells_ = [
            ("unknown", "unavailable"),
            ("unknown", "unavailable"),
            (NO, "unavailable"),
        ];
        assert_eq!(cells(|| error(code)), cells_, "{code}");
        assert_eq!(cells(|| status(500, Some(code), true)), cells_, "{code}");
    }
}

#[test]
fn who_is_not_let_in_has_started_nothing() {
    for code in [None, Some(-32603)] {
        for number in [401, 403] {
            assert_eq!(
                cells(|| status(number, code, false)),
                [("not_started", "unavailable"); 3]
            );
        }
        assert_eq!(
            cells(|| status(404, code, true)),
            [("not_started", "unavailable"); 3]
        );
    }
}

#[test]
fn other_statuses_prove_nothing() {
    for number in [204, 301, 307, 400, 404, 408, 409, 429, 500, 502, 503, 504] {
        assert_eq!(
            cells(|| status(number, None, false)),
            [
                ("unknown", "unavailable"),
                ("unknown", "unavailable"),
                (NO, "unavailable")
            ],
            "{number}"
        );
    }
}

#[test]
fn what_was_not_sent_has_started_nothing_and_what_was_not_answered_may_have() {
    assert_eq!(
        cells(|| Came::NotSent(failure())),
        [("not_started", "unavailable"); 3]
    );
    assert_eq!(
        cells(|| Came::NoAnswer(failure())),
        [("unknown", "unavailable"); 3]
    );
    assert_eq!(
        cells(|| Came::CutOff(CutOff::TimedOut)),
        [("unknown", "timeout"); 3]
    );
    let stopped = || Came::CutOff(CutOff::Stopped(StopReason::Cancelled));
    assert_eq!(cells(stopped), [("unknown", "cancelled"); 3]);
}

#[test]
fn a_large_answer_is_applied_where_it_was_seen_to_be_a_result() {
    let cell = |skimmed| cells(move || Came::TooLarge(skimmed, b"{".to_vec()));
    let code = "output_too_large";
    assert_eq!(
        cell(Skimmed::Result),
        [("applied", code), ("applied", code), (NO, code)]
    );
    assert_eq!(
        cell(Skimmed::IsError),
        [(NO, code), ("unknown", code), (NO, code)]
    );
    for skimmed in [Skimmed::Error, Skimmed::Nothing] {
        assert_eq!(
            cell(skimmed),
            [("unknown", code), ("unknown", code), (NO, code)]
        );
    }
    let long = "x".repeat(200);
    let came = || {
        answer(&format!(
            r#"{{"id":1,"result":{{"structuredContent":"{long}"}}}}"#
        ))
    };
    assert_eq!(
        cells(came),
        [("applied", code), ("applied", code), (NO, code)]
    );
}

#[test]
fn questions_go_to_the_caller_with_the_state_of_the_server() {
    let came = || {
        answer(
            r#"{"id":1,"result":{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create"}},"requestState":"s\"1"}}"#,
        )
    };
    assert_eq!(cells(came), [("not_started", "unavailable"); 3]);
    let outcome = over(&rules(Effect::Once, McpErrors::SaidNo), came());
    let Some(fleet::input::ToolWish::Input(wanted)) = outcome.failure().unwrap().wanted() else {
        panic!("it asks")
    };
    assert_eq!(
        wanted.requests,
        r#"{"inputRequests":{"a":{"method":"elicitation/create"}}}"#
    );
    assert_eq!(wanted.state.as_deref(), Some(r#""s\"1""#));
}

#[test]
fn a_task_is_followed_and_one_without_a_name_cannot_be() {
    let task = answer(
        r#"{"id":1,"result":{"resultType":"task","taskId":"t","status":"working","pollIntervalMs":5}}"#,
    );
    assert!(matches!(
        rules(Effect::Once, McpErrors::SaidNo).class(task),
        CallResult::Task(Task { task_id, poll_interval_ms: Some(5), .. }) if task_id == "t"
    ));
    let unnamed = || answer(r#"{"id":1,"result":{"resultType":"task"}}"#);
    assert_eq!(cells(unnamed), [("unknown", "output_invalid"); 3]);
}

#[test]
fn a_result_that_cannot_be_used_was_applied_all_the_same() {
    for result in [
        "7",
        "[]",
        r#"{"content":7}"#,
        r#"{"content":[],"isError":"x"}"#,
    ] {
        let came = || answer(&format!(r#"{{"id":1,"result":{result}}}"#));
        assert_eq!(cells(came), [("applied", "output_invalid"); 3], "{result}");
    }
    let unknown = || answer(r#"{"id":1,"result":{"resultType":"new"}}"#);
    assert_eq!(
        cells(unknown),
        [
            ("unknown", "output_invalid"),
            ("unknown", "output_invalid"),
            (NO, "output_invalid")
        ]
    );
}

#[test]
fn what_is_nested_too_deep_is_what_it_says_and_no_answer() {
    let deep = "[".repeat(200) + &"]".repeat(200);
    let of = |result: &str| {
        let message = format!(r#"{{"id":1,"result":{result}}}"#);
        cells(|| answer(&message))
    };
    for result in [
        format!(r#"{{"content":[],"structuredContent":{deep}}}"#),
        format!(r#"{{"content":[{deep}]}}"#),
        deep.clone(),
    ] {
        assert_eq!(of(&result), [("applied", "output_invalid"); 3], "{result}");
    }
    let no = format!(r#"{{"content":[{{"type":"text","text":"no"}}],"isError":true,"x":{deep}}}"#);
    assert_eq!(
        of(&no),
        [
            (NO, "tool_error"),
            ("unknown", "tool_error"),
            (NO, "tool_error")
        ]
    );
    for asks in [
        format!(r#"{{"resultType":"input_required","inputRequests":{{"a":{deep}}}}}"#),
        format!(
            r#"{{"resultType":"input_required","inputRequests":{{"a":1}},"requestState":{deep}}}"#
        ),
    ] {
        assert_eq!(
            of(&asks),
            [
                ("unknown", "output_invalid"),
                ("unknown", "output_invalid"),
                (NO, "output_invalid")
            ],
            "{asks}"
        );
    }
}

#[test]
fn a_result_has_the_form_that_its_manifest_says() {
    let of = |form, result: &str| {
        let rules = AnswerRules {
            form,
            ..rules(Effect::Read, McpErrors::SaidNo)
        };
        match over(&rules, answer(&format!(r#"{{"id":1,"result":{result}}}"#))) {
            Outcome::Applied { result, flaw: None } => result.get().to_owned(),
            other => panic!("{other:?}"),
        }
    };
    let both = r#"{"content":[{"type":"text","text":"a","x":1.0}],"structuredContent":[1.10]}"#;
    assert_eq!(
        of(AnswerForm::Content, both),
        r#"{"content":[{"type":"text","text":"a","x":1.0}],"structured":[1.10]}"#
    );
    assert_eq!(of(AnswerForm::Json, both), "[1.10]");
    let texts =
        r#"{"content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]}"#;
    assert_eq!(of(AnswerForm::Json, texts), r#""a\nb""#);
    assert_eq!(of(AnswerForm::Json, "{}"), "null");
    assert_eq!(of(AnswerForm::Content, "{}"), r#"{"content":[]}"#);
}

#[test]
fn a_question_that_asks_nothing_is_no_question() {
    for requests in [
        "",
        r#","inputRequests":{}"#,
        r#","inputRequests":null"#,
        r#","inputRequests":[]"#,
    ] {
        let result = format!(r#"{{"resultType":"input_required","requestState":"s"{requests}}}"#);
        let result = RawValue::from_string(result).unwrap();
        for effect in [Effect::Once, Effect::Read] {
            let rules = AnswerRules {
                effect,
                errors: McpErrors::SaidNo,
                form: AnswerForm::Json,
                output_limit: 1_000,
                secrets: Vec::new(),
            };
            let CallResult::Over(outcome) = rules.result(&result, None) else {
                panic!("it is no task")
            };
            let failure = outcome.failure().unwrap();
            assert_eq!(failure.code, Code::OutputInvalid, "{result}");
            assert!(failure.wanted().is_none());
        }
    }
}
