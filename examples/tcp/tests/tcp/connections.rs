//! What the suite does not ask: connections that are kept, and lines that are no answers.

use std::time::Duration;

use conformance::{Effect, Secrets};
use example_tcp::Tcp;
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt, net::TcpListener};
use worker::executors::{AttemptContext, Code, Executor, Outcome};

use crate::server::{Act, Server, manifest, nowhere};

const AMPLE: Duration = Duration::from_secs(20);
const OUTPUT_LIMIT: usize = 1000;

/// One attempt of a `once` tool.
async fn attempt(tcp: &Tcp, context: AttemptContext) -> Outcome {
    attempt_with(tcp, context, &json!({})).await
}

async fn attempt_with(tcp: &Tcp, context: AttemptContext, arguments: &Value) -> Outcome {
    let more = json!({"output_limit": OUTPUT_LIMIT});
    let manifest = manifest(Effect::Once, &json!({"method": "m"}), &more);
    let prepared = tcp.prepare(&manifest, arguments, &Secrets::new(None));
    let returned = prepared.unwrap().run(context).await;
    assert!(!returned.left_behind);
    returned.outcome
}

/// What two attempts come to, one after the other, and how many connections they took.
async fn twice(act: impl Fn(&Value) -> Act + Clone + Send + 'static) -> (Outcome, Outcome, usize) {
    let server = Server::start(act).await;
    let tcp = Tcp::new(&server.address);
    let first = attempt(&tcp, conformance::context(AMPLE)).await;
    let second = attempt(&tcp, conformance::context(AMPLE)).await;
    assert_eq!(server.lines(), 2);
    (first, second, server.connected())
}

fn done(value: &str) -> Act {
    Act::Answer("done", value.to_owned())
}

fn is_done(outcome: &Outcome, expected: &str) -> bool {
    matches!(outcome, Outcome::Applied { result, flaw: None } if result.get() == expected)
}

fn is_unknown(outcome: &Outcome, code: Code) -> bool {
    matches!(outcome, Outcome::Unknown(failure) if failure.code == code)
}

#[tokio::test]
async fn attempts_take_turns_on_a_kept_connection() {
    let (first, second, connections) = twice(|_| done("1")).await;
    assert!(is_done(&first, "1") && is_done(&second, "1"));
    assert_eq!(connections, 1);
    // A no is an answer as well.
    let no = r#"{"message": "no", "code": "E"}"#;
    let (first, _, connections) = twice(|_| Act::Answer("refused", no.to_owned())).await;
    assert!(matches!(first, Outcome::DefiniteFailure(failure) if failure.code == Code::ToolError));
    assert_eq!(connections, 1);
    let (first, _, connections) = twice(|_| Act::Answer("busy", no.to_owned())).await;
    assert!(matches!(first, Outcome::NotStarted(failure) if failure.code == Code::Unavailable));
    assert_eq!(connections, 1);
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_is_replaced_before_anything_is_sent() {
    let close = |_: &Value| Act::AnswerAndClose("done", "1".to_owned());
    let (first, second, connections) = twice(close).await;
    assert!(is_done(&first, "1") && is_done(&second, "1"), "{second:?}");
    assert_eq!(connections, 2);
}

#[tokio::test]
async fn a_line_without_a_word_proves_nothing_and_ends_its_connection() {
    let long = "x".repeat(OUTPUT_LIMIT + 1);
    for (said, code) in [
        ("Traceback (most recent call last):", Code::OutputInvalid),
        ("", Code::OutputInvalid),
        ("{}", Code::OutputInvalid),
        (r#"["another", "done", 1]"#, Code::OutputInvalid),
        (r#"["another"]"#, Code::OutputInvalid),
        (long.as_str(), Code::OutputTooLarge),
    ] {
        let say = said.to_owned();
        let (first, second, connections) = twice(move |_| Act::Say(say.clone())).await;
        assert!(is_unknown(&first, code), "{said}: {first:?}");
        assert!(is_unknown(&second, code), "{said}: {second:?}");
        assert_eq!(connections, 2, "{said}");
    }
}

#[tokio::test]
async fn a_word_that_is_none_proves_nothing() {
    let (first, _, connections) = twice(|_| Act::Answer("finished", "1".to_owned())).await;
    assert!(is_unknown(&first, Code::OutputInvalid), "{first:?}");
    assert_eq!(connections, 2);
}

#[tokio::test]
async fn what_follows_the_word_does_not_undo_what_was_done() {
    for (beginning, goes_on, code) in [
        (r#"[ID, "done", "abc"#, true, Code::OutputTooLarge),
        (r#"[ID, "done", {"a": "#, false, Code::OutputInvalid),
    ] {
        let begin = move |_: &Value| Act::Begin(beginning.to_owned(), goes_on);
        let (first, _, connections) = twice(begin).await;
        let Outcome::Applied { result, flaw } = first else {
            panic!("{first:?}");
        };
        assert_eq!(flaw.map(|flaw| flaw.code), Some(code));
        assert!(result.get().ends_with("… [cut]\""), "{result}");
        assert_eq!(connections, 2);
    }
    // Before the word has come to its end it is none.
    for (goes_on, code) in [(true, Code::OutputTooLarge), (false, Code::Unavailable)] {
        let begin = move |_: &Value| Act::Begin(r#"[ID, "done"#.to_owned(), goes_on);
        let (first, _, _) = twice(begin).await;
        assert!(is_unknown(&first, code), "{first:?}");
    }
    let (first, _, _) = twice(|_| Act::Begin(r#"[ID, "refused", {}"#.to_owned(), false)).await;
    assert!(is_unknown(&first, Code::Unavailable), "{first:?}");
}

#[tokio::test]
async fn what_answers_after_it_was_called_off_counts() {
    let server = Server::start(|_| Act::Hang(true)).await;
    let tcp = Tcp::new(&server.address);
    let short = conformance::context(Duration::from_millis(200));
    assert!(is_done(&attempt(&tcp, short).await, "1"));
    let context = conformance::context(AMPLE);
    context.stop.cancel();
    // It is told before it sends anything.
    let outcome = attempt(&tcp, context).await;
    assert!(matches!(outcome, Outcome::NotStarted(failure) if failure.code == Code::Cancelled));
    assert_eq!((server.lines(), server.connected()), (1, 1));
}

#[tokio::test]
async fn an_answer_of_exactly_the_limit_is_read() {
    let fills = |more: usize| {
        move |request: &Value| {
            let around = format!("[{}, \"done\", \"\"]", request["id"]).len();
            done(&format!("\"{}\"", "x".repeat(OUTPUT_LIMIT - around + more)))
        }
    };
    let (first, _, connections) = twice(fills(0)).await;
    assert!(
        matches!(first, Outcome::Applied { flaw: None, .. }),
        "{first:?}"
    );
    assert_eq!(connections, 1);
    let (first, _, _) = twice(fills(1)).await;
    let too_large = matches!(&first, Outcome::Applied { flaw: Some(flaw), .. } if flaw.code == Code::OutputTooLarge);
    assert!(too_large, "{first:?}");
}

#[tokio::test]
async fn without_a_server_nothing_has_started() {
    let outcome = attempt(&Tcp::new(&nowhere()), conformance::context(AMPLE)).await;
    assert!(matches!(outcome, Outcome::NotStarted(failure) if failure.code == Code::Unavailable));
}

#[tokio::test]
async fn a_line_of_which_a_part_was_sent_may_have_arrived() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp = Tcp::new(&listener.local_addr().unwrap().to_string());
    let reads_a_byte = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_u8().await.unwrap();
    };
    // More than the sockets of both sides hold.
    let arguments = json!({"text": "x".repeat(32 << 20)});
    let attempt = attempt_with(&tcp, conformance::context(AMPLE), &arguments);
    let (outcome, ()) = tokio::join!(attempt, reads_a_byte);
    assert!(is_unknown(&outcome, Code::Unavailable), "{outcome:?}");
}
