//! Models, over a server that can do whatever a server can do. What follows an answer: `chat_routes`.

use conformance::{Behaviour, Case, Rig, SECRET_NAME, Tool};
use fleet::{call::Effect, egress::Egress, registry::Registry, secrets::Secrets};
use fleet_tests::postgres::Database;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tempfile::TempDir;
use worker::executors::{Executor, chat::ChatExecutor};

use super::http::Server;

struct Chat {
    executor: ChatExecutor,
    secrets: Secrets,
    _database: Database,
    _folder: TempDir,
}

impl Chat {
    async fn new() -> Self {
        super::provider();
        let (folder, secrets) = super::secrets();
        let database = Database::fresh().await;
        Self {
            executor: ChatExecutor::new(
                Egress::default(),
                database.pool.clone(),
                Registry::default(),
            )
            .unwrap(),
            _database: database,
            secrets,
            _folder: folder,
        }
    }
}

/// What a model's server makes of the answer of a tool: a reply that has it in a field of its own.
fn reply(behaviour: Behaviour, status: u16, body: String) -> (u16, String) {
    match behaviour {
        Behaviour::FlagsGarbage | Behaviour::TakesSilence | Behaviour::VeilsSecrets => {
            (status, body)
        }
        // "In conflict" is said of a server and not of a request.
        Behaviour::PassesOnRefusals => (422, body),
        _answers => {
            let choice = r#"{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}"#;
            (
                status,
                format!(r#"{{"model": "m-1", "choices": [{choice}], "echo": {body}}}"#),
            )
        }
    }
}

impl Rig for Chat {
    fn name(&self) -> &'static str {
        "chat"
    }

    fn executor(&self) -> &dyn Executor {
        &self.executor
    }

    fn tool(&self, behaviour: Behaviour, effect: Effect) -> BoxFuture<'_, Case> {
        Box::pin(async move {
            match behaviour {
                Behaviour::LeavesNothing => {
                    return Case::NotApplicable("a request starts nothing on this machine");
                }
                Behaviour::TellsTheFacts => {
                    return Case::NotApplicable("a vendor is told nothing of who calls");
                }
                Behaviour::KeepsTheKey => {
                    return Case::NotApplicable("the number of the attempt is not told");
                }
                Behaviour::PutsTheKeyIntoAnArgument => {
                    return Case::NotApplicable("the key has a header of its own");
                }
                _others => {}
            }
            let server = Server::start(behaviour, reply).await;
            let route = json!({"name": "main", "url": server.url, "model": "m", "headers": {"X-Token": format!("secret://{SECRET_NAME}")}});
            let executor = json!({"chat": {"protocol": "openai_chat", "routes": [route]}});
            Case::Tool(Box::new(Tool {
                manifest: super::manifest(effect, &executor, &super::fields(behaviour)),
                arguments: super::exact(),
                secrets: self.secrets.clone(),
                watch: Box::new(server),
            }))
        })
    }

    fn effects(&self) -> &[Effect] {
        &[Effect::Read]
    }

    fn answer(&self, mut result: Value) -> Value {
        let mut answer = result["reply"]["echo"].take();
        if let Some(members) = answer.as_object_mut() {
            members.remove("model");
        }
        answer
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chat_tools_keep_every_promise() {
    let report = conformance::exercise(&Chat::new().await).await;
    super::kept(&report, 15);
}
