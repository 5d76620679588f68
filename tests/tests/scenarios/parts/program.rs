//! Programs, which write into a named pipe: what they say, and what harm they may mean.

use std::{fs, path::Path};

use fleet::wire::part::ATTEMPT_MAX;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};
use serde_json::{Value, json};

use super::{followed, parts_of, reports, text};

/// A tool that runs this Python program, whose `tell(…)` writes a line into `events`. Its answer is the name of the pipe.
fn program(name: &str, body: &str, more: &str) -> String {
    let source = format!(
        "import json, os, sys, threading, time\n\
         pipe = os.environ.get('TOOLFLEET_EVENTS')\n\
         events = open(pipe, 'wb', buffering=0) if pipe and not {opens} else None\n\
         def tell(part):\n\
         \x20   data = json.dumps(part).encode() + b'\\n'\n\
         \x20   while data: data = data[events.write(data):]\n\
         {body}\n\
         print(json.dumps(pipe))\n",
        opens = if body.contains("open(") {
            "True"
        } else {
            "False"
        },
    );
    let command = json!(["python3", "-c", source]);
    format!(
        "name: {name}\nversion: 1\ndescription: Writes while it runs.\neffect: read\nretry: {{strategy: none}}\n\
         input_schema: {{type: object}}\nexecutor: {{process: {{command: {command}}}}}\n{more}"
    )
}

/// Waits until the pipe is gone, and its folder.
async fn until_removed(pipe: &Value) {
    let pipe = Path::new(pipe.as_str().expect("the program had a pipe"));
    let folder = pipe.parent().unwrap();
    let name = folder.file_name().unwrap().to_string_lossy();
    assert!(name.starts_with("toolfleet-events-"), "{name}");
    until_so("the pipe to be removed", async || !folder.exists()).await;
}

const TELLS: &str = "\
tell({'text': 'once '})
tell({'text': 'upon a time'})
tell({'progress': {'fraction': 0.5, 'message': 'half'}})
tell({'step': 'searching'})
tell({'value': {'rows': [1, 2]}})
events.write(b'{\"text\":\"the end\"}')";

#[tokio::test]
async fn a_program_tells_parts_with_a_sandbox_and_without() {
    let witness = Witness::start().await;
    let tools = [
        program("plain", TELLS, ""),
        program("strict", TELLS, "sandbox: strict\n"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    for tool in ["plain", "strict"] {
        let (answer, told) = followed(&fleet, tool, &json!({})).await;
        assert_eq!(answer["state"], "succeeded", "{tool}: {}", *answer);
        assert_eq!(
            parts_of(&told, 1),
            [
                json!({"text": "once upon a time"}),
                json!({"step": "searching"}),
                json!({"value": {"rows": [1, 2]}}),
                json!({"text": "the end"}),
            ],
            "{tool}"
        );
        assert_eq!(reports(&told), [json!([0.5, "half"])], "{tool}");
        until_removed(&answer["result"]).await;
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn without_a_session_there_is_no_pipe() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([program("plain", "", "")])).await;
    let silent = fleet.submit("plain", &json!({})).wait().await;
    assert_eq!(silent["result"], Value::Null, "{}", *silent);
    let (heard, told) = followed(&fleet, "plain", &json!({})).await;
    assert!(heard["result"].is_string(), "{}", *heard);
    assert_eq!(parts_of(&told, 1), [] as [Value; 0]);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_secret_that_a_program_repeats_is_masked_also_when_it_is_cut() {
    let witness = Witness::start().await;
    let secrets = tempfile::tempdir().unwrap();
    fs::write(secrets.path().join("TOKEN"), "hunter2-hunter2").unwrap();
    let body = "\
token = os.environ['TOKEN']
tell({'text': 'it is ' + token[:9]})
time.sleep(0.2)
tell({'text': token[9:] + '.'})
tell({'progress': {'message': token}})";
    let tool = program("tells", body, "");
    let tool = tool.replace("}}\n", ", env: {TOKEN: 'secret://TOKEN'}}}\n");
    let folder = secrets.path().to_str().unwrap().to_owned();
    let fleet = Fleet::start(Spec::with([tool]).workers(1, &["--secrets", &folder])).await;
    let (answer, told) = followed(&fleet, "tells", &json!({})).await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    assert_eq!(text(&parts_of(&told, 1)), "it is [secret].");
    assert_eq!(reports(&told), [json!([null, "[secret]"])]);
    invariants::hold(&fleet, &witness).await;
}

/// What each hostile program does, and the beginning of the text that is heard of it.
const HOSTILE: [(&str, &str, &str); 9] = [
    (
        "a_million_short_lines",
        "for _ in range(1000): events.write(b'{\"text\":\"x\"}\\n' * 1000)",
        "xxx",
    ),
    (
        "a_million_lines_of_nothing",
        "for _ in range(1000): events.write(b'{}\\n' * 1000)\ntell({'text': 'after'})",
        "after",
    ),
    (
        "one_line_of_ten_megabytes",
        "tell({'text': 'x' * 10_000_000})\ntell({'text': 'after'})",
        "after",
    ),
    (
        "binary",
        "events.write(bytes(range(256)) * 100 + b'\\n')\ntell({'text': 'after'})",
        "after",
    ),
    ("never_written", "time.sleep(0.2)", ""),
    ("never_opened", "open('/dev/null')", ""),
    (
        "open_after_the_end",
        "if os.fork() == 0:\n    os.setsid()\n    os.close(1)\n    os.close(2)\n    for _ in range(1_000_000): tell({'text': 'late'})\n    os._exit(0)",
        "",
    ),
    (
        "removed",
        "tell({'text': 'before'})\nos.remove(pipe)\nos.rmdir(os.path.dirname(pipe))",
        "before",
    ),
    (
        "read_by_itself",
        "events = open(pipe, 'r+b', buffering=0)\nevents.write(b'{\"text\":\"x\"')",
        "",
    ),
];

#[tokio::test]
async fn nothing_that_a_program_does_with_its_pipe_hurts_it_or_others() {
    let witness = Witness::start().await;
    let tools = HOSTILE.map(|(name, body, _)| program(name, body, ""));
    let fleet = Fleet::start(Spec::with(tools)).await;
    for (name, _, begins) in HOSTILE {
        let (answer, told) = followed(&fleet, name, &json!({})).await;
        assert_eq!(answer["state"], "succeeded", "{name}: {}", *answer);
        let text = text(&parts_of(&told, 1));
        assert!(
            text.starts_with(begins) && text.len() <= ATTEMPT_MAX,
            "{name}: {}",
            text.len()
        );
        if begins.is_empty() && name != "open_after_the_end" {
            assert_eq!(text, "", "{name}");
        }
        until_removed(&answer["result"]).await;
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_program_that_never_stops_writing_ends_in_its_time() {
    let witness = Witness::start().await;
    let body = "while True: events.write(b'{\"text\":\"x\"}\\n' * 5000)";
    let tool = program("endless", body, "timeout: 3s\n");
    let fleet = Fleet::start(Spec::with([tool])).await;
    let (answer, told) = followed(&fleet, "endless", &json!({})).await;
    assert_eq!(answer.code(), "timeout", "{}", *answer);
    assert!(!parts_of(&told, 1).is_empty());
    invariants::hold(&fleet, &witness).await;
}
