//! What a caller reads for every error code, in every language: whole envelopes, each in the code's usual situation.
//!
//! Sentences that are made in other crates are repeated here, and found there: see [`elsewhere`].

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::{collections::BTreeSet, fs, path::Path, sync::LazyLock};

use fleet::{
    arguments::{self, Limits, Schema},
    call::{CallOutcome, EffectKnown, Language, Source, State},
    outcome::ToolFailure,
    registry::Tool,
    retry,
    wire::{
        code::Code,
        envelope::{Envelope, EnvelopeState, Timing, is_error, no_coercions},
        error::{ErrorBody, Suggestion, advice::Advice},
        headers::RequestHeaders,
        message::Message,
    },
};
use serde_json::{Value, json, value::RawValue};

#[test]
fn every_code_reads_as_it_was_reviewed_in_english() {
    insta::assert_snapshot!(all(Language::En));
}

#[test]
fn every_code_reads_as_it_was_reviewed_in_chinese() {
    insta::assert_snapshot!(all(Language::Zh));
}

#[test]
fn every_envelope_is_what_the_schema_says() {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/envelopes.json");
    let schema: Value = serde_json::from_str(&fs::read_to_string(schema).unwrap()).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    for code in Code::ALL {
        for language in Language::ALL {
            let envelope = serde_json::to_value(envelope(*code, *language)).unwrap();
            assert_eq!(envelope["error"]["code"], code.as_str());
            let flaws = schema.iter_errors(&envelope);
            let flaws: Vec<String> = flaws.map(|flaw| flaw.to_string()).collect();
            assert!(flaws.is_empty(), "{code} {language}: {flaws:?}\n{envelope}");
        }
    }
}

#[test]
fn a_message_is_in_one_language_and_short() {
    let mut mixed = BTreeSet::new();
    for code in Code::ALL {
        let [english, chinese] = [Language::En, Language::Zh].map(|language| {
            let message = envelope(*code, language).error.expect("an error").message;
            assert!(message.len() <= 1024, "{code}: {message}");
            message
        });
        assert!(!english.contains(is_chinese), "{code}: {english}");
        assert!(english.ends_with('.'), "{code}: {english}");
        assert!(chinese.contains(is_chinese), "{code}: {chinese}");
        assert!(chinese.ends_with('。'), "{code}: {chinese}");
        if english_words_in_a_row(&chinese) > 2 {
            mixed.insert(code.as_str());
        }
    }
    assert_eq!(mixed, BTreeSet::from(MIXED));
}

/// The words of tools are never translated.
const MIXED: [&str; 1] = ["tool_error"];

fn is_chinese(c: char) -> bool {
    matches!(c, '\u{3000}'..='\u{303f}' | '\u{4e00}'..='\u{9fff}' | '\u{ff00}'..='\u{ffef}')
}

/// The longest stretch of words in letters with nothing but spaces between them.
fn english_words_in_a_row(text: &str) -> usize {
    let (mut longest, mut row) = (0, 0);
    for piece in text.split([' ', '\u{3000}']) {
        let word = piece.trim_end_matches([':', ',', ';', '.', '。', '；', '，']);
        let is_word = !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphabetic());
        row = if is_word { row + 1 } else { 0 };
        longest = longest.max(row);
    }
    longest
}

fn all(language: Language) -> String {
    let mut text = String::new();
    for code in Code::ALL {
        let envelope = String::from_utf8(envelope(*code, language).to_bytes()).unwrap();
        text += &format!("{code}\n{envelope}\n\n");
    }
    text
}

/// The envelope of this code, as its caller gets it.
fn envelope(code: Code, language: Language) -> Envelope {
    let refused = |what: Message| refused(code, &what, language);
    let unchanged = |what: &Message, details| {
        let error = ErrorBody::refused(code, what, language);
        Envelope::refused("", ErrorBody { details, ..error })
    };
    let failed = |what, effect| {
        let failure = ToolFailure::new(code, what);
        let error = ErrorBody::failed(&failure, effect, language);
        ended(State::Failed, effect, error)
    };
    match code {
        Code::MalformedJson => unread(r#"{"city": Paris}"#, language),
        Code::TruncatedArguments => unread(r#"{"city": "Par"#, language),
        Code::InvalidUnicode => unread(r#"{"city": "\ud800"}"#, language),
        Code::NulNotAllowed => unread(r#"{"city": "a\u0000"}"#, language),
        Code::DuplicateKey => unread(r#"{"city": "Paris", "city": "Rome"}"#, language),
        Code::DepthExceeded => {
            let deep = format!("{}1{}", "[".repeat(64), "]".repeat(64));
            unread(&format!("{{\"a\":{deep}}}"), language)
        }
        Code::TooManyNodes => unread(&format!("{{\"a\":[{}1]}}", "1,".repeat(10_000)), language),
        Code::KeyTooLong => unread(&format!("{{\"{}\":1}}", "k".repeat(257)), language),
        Code::StringTooLong => {
            let long = "x".repeat(128 * 1024 + 1);
            unread(&format!("{{\"text\":\"{long}\"}}"), language)
        }
        Code::PayloadTooLarge => unread(&" ".repeat(256 * 1024 + 1), language),
        Code::NumberOutOfRange => unread(r#"{"days": 1e999}"#, language),
        Code::NumberTooLong => unread(&format!("{{\"days\":{}}}", "1".repeat(65)), language),
        Code::InvalidArguments => invalid(language),
        Code::UnknownTool => refused(elsewhere(
            "there is no tool named {name}",
            "没有名为 {name} 的工具",
            &[("{name}", "get_weather")],
        )),
        Code::UnknownToolVersion => refused(elsewhere(
            "the tool {name} has no version {version}",
            "工具 {name} 没有版本 {version}",
            &[("{name}", "get_weather"), ("{version}", "9")],
        )),
        Code::ToolRetired => refused(elsewhere(
            "the tool {name} is retired and takes no new calls",
            "工具 {name} 已停用，不再接受新的调用",
            &[("{name}", "get_weather")],
        )),
        Code::InvalidToolName => refused(elsewhere(
            "a tool name has 1 to 64 characters of a-z, 0-9 and _",
            "工具名必须是 1 到 64 个字符，只能用 a-z、0-9 和 _",
            &[],
        )),
        Code::InvalidTenant => refused(elsewhere(
            "a tenant has 1 to 64 characters of A-Z, a-z, 0-9, _ and -",
            "租户名必须是 1 到 64 个字符，只能用 A-Z、a-z、0-9、_ 和 -",
            &[],
        )),
        Code::MissingIdempotencyKey => refused(elsewhere(
            "the tool {name} needs an idempotency key (Idempotency-Key), so that it is never run twice by mistake",
            "工具 {name} 需要幂等键（Idempotency-Key），以免被误执行两次",
            &[("{name}", "get_weather")],
        )),
        Code::InvalidIdempotencyKey => bad_header("Idempotency-Key", "a b", language),
        Code::DeadlineInvalid => bad_header("Toolfleet-Deadline-Ms", "0", language),
        Code::HeaderInvalid => bad_header("Prefer", "soon", language),
        Code::IdempotencyKeyReused => refused(elsewhere(
            "this idempotency key already names a call with another tool, other arguments or other files",
            "这个幂等键已经用于另一个工具、另一组参数或另一组文件的调用",
            &[],
        )),
        Code::ToolPaused => refused(elsewhere(
            "calls like this one are paused for the moment",
            "这类调用目前已暂停",
            &[],
        )),
        Code::RepeatedFailure => refused(elsewhere(
            "this call has failed {failures} times with the same arguments in this run or session, the last time with {last}",
            "这次调用在本次 run 或 session 中以同样的参数失败了 {failures} 次，最后一次的错误是 {last}",
            &[("{failures}", "10"), ("{last}", "unavailable")],
        )),
        Code::QuotaExceeded => refused(elsewhere(
            "this tenant has as many open calls as it may have at a time ({quota})",
            "这个租户未结束的调用已达到上限（{quota} 个）",
            &[("{quota}", "1000000")],
        )),
        Code::RateLimited => refused(elsewhere(
            "this tenant sends more calls than it may ({rate} a second)",
            "这个租户发送的调用太多（每秒最多 {rate} 个）",
            &[("{rate}", "1000")],
        )),
        Code::Overloaded => refused(elsewhere(
            "too many requests are waiting here",
            "这里等待处理的请求太多",
            &[],
        )),
        Code::StoreUnavailable => Envelope {
            effect: EffectKnown::Unknown,
            ..Envelope::refused("get_weather", ErrorBody::unconfirmed(true, language))
        },
        Code::Unauthenticated => refused(elsewhere(
            "this endpoint wants a token: Authorization: Bearer tf_…",
            "这个接口需要 token：Authorization: Bearer tf_…",
            &[],
        )),
        Code::NoAnswer => Envelope {
            effect: EffectKnown::Unknown,
            ..Envelope::refused("get_weather", ErrorBody::no_answer(true, language))
        },
        Code::NarrowIt => refused_of_call(
            code,
            "the history holds too much to look through for this within 2 s",
            "历史记录太多，无法在 2 秒内完成这次查询",
            language,
        ),
        Code::Timeout => failed(late(), EffectKnown::None),
        Code::Unavailable => failed(unreachable(), EffectKnown::NotApplied),
        Code::CircuitOpen => {
            let what = Message::fixed(
                "what the tool depends on fails at present, so nothing was sent to it",
                "工具所依赖的目标目前出现故障，因此没有向它发送任何请求",
            );
            let pause = std::time::Duration::from_millis(4_200);
            let failure = ToolFailure::new(code, what).with_retry_after(Some(pause));
            let error = ErrorBody::failed(&failure, EffectKnown::None, language);
            ended(State::Failed, EffectKnown::None, error)
        }
        Code::ToolCrashed => failed(
            elsewhere(
                "the program ended with exit code {code}",
                "程序以退出码 {code} 结束",
                &[("{code}", "3")],
            ),
            EffectKnown::None,
        ),
        Code::ToolError => {
            let no = ToolFailure::new(code, Message::verbatim("the card is blocked"));
            let effect = EffectKnown::NotApplied;
            Envelope {
                outcome: CallOutcome::BusinessError,
                source: Source::Live,
                ..ended(
                    State::Failed,
                    effect,
                    ErrorBody::failed(&no, effect, language),
                )
            }
        }
        Code::OutputInvalid => misfit(language),
        Code::OutputTooLarge => {
            let error = ErrorBody::failed(&misfitting(), EffectKnown::Applied, language);
            let done = Envelope {
                error: None,
                ..done(error)
            };
            done.without_result(9_000_000, 1_044_480, language)
        }
        Code::RetriesExhausted => {
            let last = ToolFailure::new(Code::Unavailable, unreachable());
            let failure = retry::exhausted(3, &last, language);
            let effect = EffectKnown::None;
            Envelope {
                attempts: 3,
                ..ended(
                    State::Failed,
                    effect,
                    ErrorBody::failed(&failure, effect, language),
                )
            }
        }
        Code::DeadlineExceeded => {
            let what = elsewhere(
                "the call's deadline passed before it could run",
                "这次调用尚未执行就已过了截止时间",
                &[],
            );
            let (failure, effect) = (ToolFailure::new(code, what), EffectKnown::NotApplied);
            Envelope {
                attempts: 0,
                ..ended(
                    State::Expired,
                    effect,
                    ErrorBody::failed(&failure, effect, language),
                )
            }
        }
        Code::Cancelled => {
            let last = elsewhere("{word} before it answered", "在响应之前{word}", &[]);
            let words = [("{word}", "cancelled"), ("{word}", "被取消")];
            let last = Message::new(
                last.english().replace(words[0].0, words[0].1),
                last.told(Language::Zh).replace(words[1].0, words[1].1),
            );
            let failure = retry::cancelled(&ToolFailure::new(code, last), language);
            let effect = EffectKnown::None;
            ended(
                State::Cancelled,
                effect,
                ErrorBody::failed(&failure, effect, language),
            )
        }
        Code::InDoubt => {
            let failure = ToolFailure::new(Code::Timeout, late());
            Envelope {
                outcome: CallOutcome::Unknown,
                ..ended(
                    State::InDoubt,
                    EffectKnown::Unknown,
                    ErrorBody::in_doubt(&failure, language),
                )
            }
        }
        Code::NotApplied => {
            let what = elsewhere(
                "It was found out that the action was not carried out.",
                "已查明操作没有生效。",
                &[],
            );
            let advice = Advice::AskIfWanted.sentence();
            let gap = match language {
                Language::En => " ",
                Language::Zh => "",
            };
            let message = format!("{}{gap}{}", what.told(language), advice.told(language));
            let error = ErrorBody {
                code,
                message,
                retryable: false,
                retry_after_ms: None,
                suggestion: Suggestion::AskUser,
                path: None,
                details: None,
            };
            Envelope {
                source: Source::Settled,
                ..ended(State::Failed, EffectKnown::NotApplied, error)
            }
        }
        Code::ToolGone => failed(
            elsewhere(
                "this version of the tool is not a handler",
                "工具的这个版本不是处理程序（handler）",
                &[],
            ),
            EffectKnown::NotApplied,
        ),
        Code::ToolChanged => failed(
            elsewhere(
                "the MCP server {server} says something else of this tool than when it was applied",
                "MCP 服务器 {server} 对这个工具的描述与应用时不同",
                &[("{server}", "tracker")],
            ),
            EffectKnown::NotApplied,
        ),
        Code::EgressDenied => failed(
            elsewhere(
                "{origin} is not at a public address, and this worker sends requests to no others",
                "{origin} 不在公网地址上，而这个 worker 只向公网地址发送请求",
                &[("{origin}", "https://billing.example")],
            ),
            EffectKnown::NotApplied,
        ),
        // In the words of the program's interceptor.
        Code::Forbidden => failed(
            Message::fixed("the call is not allowed", "不允许这次调用"),
            EffectKnown::NotApplied,
        ),
        Code::Denied => {
            let no = Message::fixed(
                "who had to decide about this call said no",
                "有权决定的人拒绝了这次调用",
            );
            Envelope {
                outcome: CallOutcome::BusinessError,
                attempts: 0,
                ..failed(no, EffectKnown::None)
            }
        }
        Code::BudgetExceeded => failed(
            elsewhere(
                "this run has made {spent} calls of {tool}, and may make {limit}",
                "这个 run 已经调用工具 {tool} {spent} 次，最多可以调用 {limit} 次",
                &[("{spent}", "100"), ("{tool}", "ask"), ("{limit}", "100")],
            ),
            EffectKnown::None,
        ),
        Code::NotFound => {
            refused_of_call(code, "there is no such call", "不存在这个调用", language)
        }
        Code::InvalidId => refused_of_call(
            code,
            "a call id is a UUIDv7 in hyphenated form",
            "call_id 必须是带连字符的 UUIDv7",
            language,
        ),
        Code::Conflict => unchanged(
            &elsewhere("the call is not in doubt", "这次调用不处于存疑状态", &[]),
            Some(json!({"state": "running", "decided_by": null, "decided_at": null})),
        ),
        Code::AlreadyTerminal => unchanged(
            &elsewhere(
                "the call is over, and not by an answer of yours: it is {state}",
                "这次调用已经结束，但不是由你的结果决定的：状态是 {state}",
                &[("{state}", "expired")],
            ),
            Some(json!({"state": "expired"})),
        ),
        Code::WorkerNotFenced => unchanged(
            &elsewhere(
                "that it was not applied cannot be known while the worker that ran it, or a process of it, may still act; prove the worker gone, or decide by_time_only",
                "只要执行它的 worker 或其进程还可能在运行，就无法确定它没有生效；请先证明该 worker 及其进程都已终止，或用 by_time_only 决定",
                &[],
            ),
            None,
        ),
    }
}

/// A sentence that another crate says; it must stand there in both languages.
fn elsewhere(english: &str, chinese: &str, filled: &[(&str, &str)]) -> Message {
    static SOURCES: LazyLock<String> = LazyLock::new(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut sources = String::new();
        for folder in [
            "fleet/src/ending",
            "dispatcher/src",
            "gateway/src",
            "worker/src",
            "migrations",
        ] {
            gather(&root.join(folder), &mut sources);
        }
        sources
    });
    for sentence in [english, chinese] {
        assert!(SOURCES.contains(sentence), "nobody says {sentence:?}");
    }
    let fill = |text: &str| {
        let filled = filled.iter();
        filled.fold(text.to_owned(), |text, (name, value)| {
            text.replace(name, value)
        })
    };
    Message::new(fill(english), fill(chinese))
}

fn gather(folder: &Path, sources: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            gather(&path, sources);
        } else {
            sources.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

fn refused(code: Code, what: &Message, language: Language) -> Envelope {
    Envelope::refused("get_weather", ErrorBody::refused(code, what, language))
}

fn refused_of_call(code: Code, english: &str, chinese: &str, language: Language) -> Envelope {
    let what = elsewhere(english, chinese, &[]);
    Envelope::refused("", ErrorBody::refused(code, &what, language))
}

/// A body that the parser refuses.
fn unread(body: &str, language: Language) -> Envelope {
    let error = arguments::parse(body.as_bytes(), &Limits::DEFAULT).unwrap_err();
    let refused = ErrorBody::refused(error.code.into(), &error.message, language);
    let path = Some(error.path).filter(|path| !path.is_empty());
    Envelope::refused("get_weather", ErrorBody { path, ..refused })
}

fn invalid(language: Language) -> Envelope {
    let schema = Schema::compile(&json!({
        "type": "object", "required": ["city"], "additionalProperties": false,
        "properties": {
            "city": {"type": "string"}, "days": {"type": "integer", "maximum": 14}, "unit": {"enum": ["celsius", "kelvin"]},
        },
    }));
    let violations = schema
        .unwrap()
        .validate(&json!({"days": 30, "unit": "Celsius", "town": "Paris"}));
    let failure = ToolFailure::new(Code::InvalidArguments, violations.summary());
    let error = ErrorBody::refused(failure.code, &failure.message, language);
    Envelope::refused(
        "get_weather",
        error.with_details(violations.details(language)),
    )
}

fn bad_header(name: &str, value: &str, language: Language) -> Envelope {
    let bad = RequestHeaders::read(&[(name, value)]).unwrap_err();
    refused(bad.code, &bad.message(), language)
}

fn late() -> Message {
    elsewhere("the tool did not answer in time", "工具没有按时响应", &[])
}

fn unreachable() -> Message {
    let template = elsewhere(
        "{origin} cannot be reached: {why}",
        "无法连接 {origin}：{why}",
        &[("{origin}", "https://api.example.com")],
    );
    let why = elsewhere("connection refused", "连接被拒绝", &[]);
    Message::new(
        template.english().replace("{why}", why.english()),
        template
            .told(Language::Zh)
            .replace("{why}", why.told(Language::Zh)),
    )
}

/// An answer of a write that is not what was promised: it was done all the same.
fn misfit(language: Language) -> Envelope {
    done(ErrorBody::failed(
        &misfitting(),
        EffectKnown::Applied,
        language,
    ))
}

fn misfitting() -> ToolFailure {
    let manifest = json!({
        "name": "charge", "version": 1, "description": "Charges a card.", "effect": "once",
        "input_schema": {"type": "object"}, "output_schema": {"required": ["receipt"]},
        "executor": {"http": {"method": "POST", "url": "http://a/"}},
    });
    let tool = Tool {
        schema: Schema::compile(&manifest["input_schema"]).unwrap(),
        output: Some(Schema::compile(&manifest["output_schema"]).unwrap()),
        manifest: serde_json::from_value(manifest).unwrap(),
    };
    let answer = RawValue::from_string(r#"{"id":7}"#.to_owned()).unwrap();
    tool.answer_problem(&answer).expect("it does not fit")
}

/// A write that was done, and whose answer has a flaw.
fn done(error: ErrorBody) -> Envelope {
    Envelope {
        outcome: CallOutcome::Success,
        is_error: is_error(CallOutcome::Success),
        source: Source::Live,
        result: RawValue::from_string(r#"{"id":7}"#.to_owned()).ok(),
        ..ended(State::Succeeded, EffectKnown::Applied, error)
    }
}

fn ended(state: State, effect: EffectKnown, error: ErrorBody) -> Envelope {
    Envelope {
        call_id: "0197a3b0-0000-7000-8000-000000000001".parse().ok(),
        tool: "get_weather".to_owned(),
        tool_version: Some(1),
        state: EnvelopeState::Of(state),
        outcome: CallOutcome::SystemError,
        is_error: is_error(CallOutcome::SystemError),
        source: Source::Error,
        effect,
        result: None,
        error: Some(error),
        degraded: None,
        coercions: no_coercions(),
        attempts: 1,
        replayed: false,
        timing: Some(Timing {
            queued_ms: 2,
            run_ms: 30,
        }),
        settled_by: None,
    }
}
