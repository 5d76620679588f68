//! The executor against the suite that every executor passes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use conformance::{
    Behaviour, BoxFuture, Case, Effect, KEY_ARGUMENT, Manifest, OUTPUT_LIMIT, Rig, SECRET,
    SECRET_NAME, Secrets, Tool, Watch,
};
use example_executor::Lines;
use serde_json::{Value, json};
use tempfile::TempDir;
use worker::executors::Executor;

/// The executor over `tests/server.py`, and what that notes.
struct Own {
    lines: Lines,
    folder: TempDir,
}

impl Own {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(SECRET_NAME), SECRET).unwrap();
        let notes = notes(folder.path());
        fs::write(&notes, "").unwrap();
        let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server.py");
        let args = [server.to_str().unwrap(), notes.to_str().unwrap()];
        let lines = Lines::new("python3", &args);
        Self { lines, folder }
    }
}

fn notes(folder: &Path) -> PathBuf {
    folder.join("notes")
}

/// A manifest that was not applied.
fn manifest(effect: Effect, spec: &Value, more: Value) -> Manifest {
    let mut manifest = json!({
        "name": "t", "version": 1, "description": "d", "effect": effect.as_str(),
        "input_schema": {"type": "object"}, "executor": {"own": {"kind": "lines", "spec": spec}},
    });
    let Value::Object(more) = more else { panic!() };
    manifest.as_object_mut().unwrap().extend(more);
    serde_json::from_value(manifest).unwrap()
}

impl Rig for Own {
    fn name(&self) -> &str {
        "lines"
    }

    fn executor(&self) -> &dyn Executor {
        &self.lines
    }

    fn tool(&self, behaviour: Behaviour, effect: Effect) -> BoxFuture<'_, Case> {
        use Behaviour as B;
        let (method, more) = match behaviour {
            B::CarriesValuesExactly | B::PreparesQuietly => ("echo", json!({})),
            B::TellsTheFacts | B::KeepsTheKey => ("facts", json!({})),
            B::PutsTheKeyIntoAnArgument => {
                ("echo", json!({"idempotency": {"argument": KEY_ARGUMENT}}))
            }
            B::PassesOnRefusals => ("refuse", json!({})),
            B::DoubtsCrashes => ("crash", json!({})),
            B::KeepsTheDeadline | B::ObeysCancel | B::ObeysDrain => ("hang", json!({})),
            B::WaitsForSlowAnswers => ("slow", json!({})),
            B::BoundsAnswers => ("flood", json!({"output_limit": OUTPUT_LIMIT})),
            B::TakesSilence => ("silent", json!({})),
            B::MendsText => ("broken_text", json!({})),
            B::HidesTheWorker => ("environment", json!({})),
            B::VeilsSecrets => ("repeat_secret", json!({})),
            B::ProvesNotStarted => return not_applicable("the other test does"),
            B::FlagsGarbage => {
                return not_applicable(
                    "a line that is no JSON does not say of which request it is",
                );
            }
            B::LeavesNothing => {
                return not_applicable("what a method leaves at work is its server's own");
            }
        };
        let mut spec = json!({ "method": method });
        if behaviour == B::VeilsSecrets {
            spec["token"] = json!(format!("secret://{SECRET_NAME}"));
        }
        let watch = Notes {
            file: notes(self.folder.path()),
            before: count(&notes(self.folder.path()), "begun"),
        };
        let arguments = r#"{"integer": 9007199254740993, "decimal": 0.10000000000000000001, "text": "\u00fc \ud83d\ude00"}"#;
        let tool = Tool {
            manifest: manifest(effect, &spec, more),
            arguments: serde_json::from_str(arguments).unwrap(),
            secrets: Secrets::new(Some(self.folder.path().to_owned())),
            watch: Box::new(watch),
        };
        Box::pin(async { Case::Tool(Box::new(tool)) })
    }
}

fn not_applicable(why: &'static str) -> BoxFuture<'static, Case> {
    Box::pin(async move { Case::NotApplicable(why) })
}

/// What the server has noted.
struct Notes {
    file: PathBuf,
    /// Runs that had begun before this tool was there.
    before: usize,
}

fn count(file: &Path, what: &str) -> usize {
    let notes = fs::read_to_string(file).unwrap();
    notes.lines().filter(|line| *line == what).count()
}

impl Watch for Notes {
    fn begun(&self) -> BoxFuture<'_, usize> {
        Box::pin(async { count(&self.file, "begun") - self.before })
    }

    fn at_rest(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { count(&self.file, "begun") == count(&self.file, "ended") })
    }
}

#[tokio::test]
async fn it_keeps_every_promise() {
    let own = Own::new();
    let report = conformance::exercise(&own).await;
    assert!(report.is_kept(), "{report}");
    own.lines.stop().await;
}

#[tokio::test]
async fn without_a_server_nothing_has_started() {
    struct Nowhere(Lines);

    impl Rig for Nowhere {
        fn name(&self) -> &str {
            "nowhere"
        }

        fn executor(&self) -> &dyn Executor {
            &self.0
        }

        fn tool(&self, _behaviour: Behaviour, effect: Effect) -> BoxFuture<'_, Case> {
            let tool = Tool {
                manifest: manifest(effect, &json!({"method": "echo"}), json!({})),
                arguments: json!({}),
                secrets: Secrets::new(None),
                watch: Box::new(Nothing),
            };
            Box::pin(async { Case::Tool(Box::new(tool)) })
        }
    }

    struct Nothing;

    impl Watch for Nothing {
        fn begun(&self) -> BoxFuture<'_, usize> {
            Box::pin(async { 0 })
        }

        fn at_rest(&self) -> BoxFuture<'_, bool> {
            Box::pin(async { true })
        }
    }

    let nowhere = Nowhere(Lines::new("/nowhere/python3", &[]));
    let cell = conformance::exercise_one(&nowhere, Behaviour::ProvesNotStarted, Effect::Once);
    assert_eq!(cell.await, conformance::Cell::Kept);
}
