//! An executor that says which files its attempt has, and what is in them.

use fleet_tests::fleet::{Fleet, Spec};
use serde_json::{Value, json, value::to_raw_value};
use sha2::{Digest, Sha256};
use worker::{
    Worker,
    executors::{
        AttemptContext, BoxFuture, Code, Executor, Manifest, Message, Outcome, Prepared, Returned,
        Secrets, ToolFailure,
    },
};

/// The kind of its tools.
const KIND: &str = "reading";

/// The manifest of a tool of this name, which takes these files.
pub(super) fn tool(name: &str, effect: &str, more: &str) -> String {
    format!(
        "name: {name}\nversion: 1\ndescription: Says what is in its files.\neffect: {effect}\n\
         input_schema: {{type: object, properties: {{fails: {{type: integer}}}}}}\n\
         executor: {{own: {{kind: {KIND}, spec: {{}}}}}}\n{more}\n"
    )
}

/// A fleet with these tools, and a worker that runs them.
pub(super) async fn fleet(tools: impl IntoIterator<Item = String>) -> Fleet {
    let mut fleet = Fleet::start(Spec::with(tools).workers(0, &[]).roles()).await;
    fleet.add_worker_with(builder(), &[]).await;
    fleet
}

pub(super) fn builder() -> worker::Builder {
    Worker::builder().executor(KIND, Reading)
}

struct Reading;

struct Asked {
    fails: u32,
}

impl Executor for Reading {
    fn prepare(
        &self,
        _manifest: &Manifest,
        arguments: &Value,
        _secrets: &Secrets,
    ) -> Result<Box<dyn Prepared>, ToolFailure> {
        let fails = arguments["fails"].as_u64().unwrap_or_default();
        Ok(Box::new(Asked {
            fails: u32::try_from(fails).unwrap(),
        }))
    }
}

impl Prepared for Asked {
    fn run(self: Box<Self>, context: AttemptContext) -> BoxFuture<'static, Returned> {
        Box::pin(async move {
            if context.attempt <= self.fails {
                let what = Message::fixed("not now", "现在不行");
                return Outcome::DefiniteFailure(ToolFailure::new(Code::Unavailable, what)).into();
            }
            let mut told = Vec::new();
            for file in context.files.list() {
                let (mut hash, mut at) = (Sha256::new(), 0);
                loop {
                    let part = context.files.read(file.file_id, at).await.unwrap();
                    if part.is_empty() {
                        break;
                    }
                    at += part.len() as u64;
                    hash.update(&part);
                }
                assert_eq!(
                    (at, hash.finalize()[..].to_vec()),
                    (file.bytes, file.sha256.to_vec())
                );
                told.push(json!(file));
            }
            let answer = json!({"attempt": context.attempt, "tool": context.tool, "files": told});
            let (result, flaw) = (to_raw_value(&answer).unwrap(), None);
            Outcome::Applied { result, flaw }.into()
        })
    }
}
