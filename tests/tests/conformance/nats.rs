//! NATS tools, over a service in this process and a real nats-server.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_nats::{Client, HeaderMap, Message, Subscriber};
use bytes::Bytes;
use conformance::{Behaviour, Case, OUTPUT_LIMIT, REFUSAL, REFUSAL_CODE, Rig, Tool, Watch};
use fleet::{bus::connect::Bus, call::Effect, config::BusArgs, secrets::Secrets};
use futures_util::{StreamExt, future::BoxFuture};
use secrecy::SecretString;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::{
    task::JoinSet,
    time::{Duration, sleep},
};
use toolfleet::servers::{Nats as Server, NatsOptions, nats::MAX_PAYLOAD};
use worker::executors::{Executor, nats::NatsExecutor};

struct Nats {
    executor: NatsExecutor,
    service: Client,
    subjects: AtomicUsize,
    _server: Server,
    _folder: TempDir,
}

impl Nats {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = NatsOptions {
            store: folder.path().join("store"),
            port: None,
            log: folder.path().join("log"),
            max_payload: MAX_PAYLOAD,
            password: None,
            further: String::new(),
        };
        let server = Server::start(options).await.unwrap();
        let url = server.url();
        let service = async_nats::connect(&url).await.unwrap();
        let args = BusArgs::at(SecretString::from(url));
        let bus = Bus::connect(&args, "worker");
        Self {
            executor: NatsExecutor::new(bus.await.unwrap()),
            service,
            subjects: AtomicUsize::new(0),
            _server: server,
            _folder: folder,
        }
    }
}

impl Rig for Nats {
    fn name(&self) -> &'static str {
        "nats"
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
                Behaviour::VeilsSecrets => {
                    return Case::NotApplicable(
                        "a request carries no secret: its manifest has no place for one",
                    );
                }
                _testable => {}
            }
            let number = self.subjects.fetch_add(1, Ordering::SeqCst);
            let subject = format!("tools.t{number}");
            let executor = json!({"nats": {"subject": subject}});
            let service = Service::start(&self.service, subject, behaviour).await;
            Case::Tool(Box::new(Tool {
                manifest: super::manifest(effect, &executor, &super::fields(behaviour)),
                arguments: super::exact(),
                secrets: Secrets::new(None),
                watch: Box::new(service),
            }))
        })
    }

    // The server knows that a service has gone, and does not tell its waiting clients.
    fn hears_of_crashes(&self) -> bool {
        false
    }
}

/// A service that treats every request alike; it ends with its value.
struct Service {
    seen: Arc<Seen>,
    _answering: JoinSet<()>,
}

#[derive(Default)]
struct Seen {
    begun: AtomicUsize,
    working: AtomicUsize,
}

impl Service {
    async fn start(client: &Client, subject: String, behaviour: Behaviour) -> Self {
        let seen = Arc::<Seen>::default();
        let mut answering = JoinSet::new();
        if behaviour != Behaviour::ProvesNotStarted {
            let mut requests = client.subscribe(subject).await.unwrap();
            let mut cancels = client.subscribe("toolfleet.tool.cancel.*").await.unwrap();
            settled(client).await;
            let (client, seen) = (client.clone(), Arc::clone(&seen));
            answering.spawn(async move {
                while let Some(request) = requests.next().await {
                    seen.begun.fetch_add(1, Ordering::SeqCst);
                    seen.working.fetch_add(1, Ordering::SeqCst);
                    if let Some((headers, body)) = answer(behaviour, &request, &mut cancels).await {
                        let inbox = request.reply.unwrap();
                        let replying = client.publish_with_headers(inbox, headers, body);
                        replying.await.unwrap();
                    }
                    seen.working.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
        Self {
            seen,
            _answering: answering,
        }
    }
}

/// The server reads a connection in order: when its echo comes, it knows the subscriptions before it.
async fn settled(client: &Client) {
    let probe = client.new_inbox();
    let mut echo = client.subscribe(probe.clone()).await.unwrap();
    client.publish(probe, Bytes::new()).await.unwrap();
    echo.next().await.unwrap();
}

impl Watch for Service {
    fn begun(&self) -> BoxFuture<'_, usize> {
        Box::pin(async { self.seen.begun.load(Ordering::SeqCst) })
    }

    fn at_rest(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { self.seen.working.load(Ordering::SeqCst) == 0 })
    }
}

/// What it answers, if it does.
async fn answer(
    behaviour: Behaviour,
    request: &Message,
    cancels: &mut Subscriber,
) -> Option<(HeaderMap, Bytes)> {
    let mut headers = HeaderMap::new();
    let body: Bytes = match behaviour {
        Behaviour::CarriesValuesExactly
        | Behaviour::PutsTheKeyIntoAnArgument
        | Behaviour::PreparesQuietly => request.payload.clone(),
        Behaviour::TellsTheFacts | Behaviour::KeepsTheKey => facts(request).to_string().into(),
        Behaviour::PassesOnRefusals => {
            headers.insert("Nats-Service-Error-Code", "409");
            headers.insert("Nats-Service-Error", "Conflict");
            let error = json!({"message": REFUSAL, "code": REFUSAL_CODE});
            json!({ "error": error }).to_string().into()
        }
        Behaviour::DoubtsCrashes => return None,
        Behaviour::KeepsTheDeadline | Behaviour::ObeysCancel | Behaviour::ObeysDrain => {
            let attempt = header(request, "Toolfleet-Attempt-Id");
            loop {
                let cancel = cancels.next().await?;
                if header(&cancel, "Toolfleet-Attempt-Id") == attempt {
                    return None;
                }
            }
        }
        Behaviour::WaitsForSlowAnswers => {
            sleep(Duration::from_secs(1)).await;
            "{}".into()
        }
        Behaviour::BoundsAnswers => format!("\"{}\"", "x".repeat(2 * OUTPUT_LIMIT)).into(),
        Behaviour::FlagsGarbage => "{oops".into(),
        Behaviour::TakesSilence => Bytes::new(),
        Behaviour::MendsText => r#"{"a": "x\u0000y", "b": ["\ud800z"]}"#.into(),
        Behaviour::HidesTheWorker => {
            let body = String::from_utf8(request.payload.to_vec()).unwrap();
            json!({"headers": all(request), "body": body})
                .to_string()
                .into()
        }
        Behaviour::ProvesNotStarted | Behaviour::VeilsSecrets | Behaviour::LeavesNothing => {
            unreachable!("nobody is asked")
        }
    };
    Some((headers, body))
}

fn facts(request: &Message) -> Value {
    let told = |name: &str| header(request, name);
    json!({
        "call_id": told("Toolfleet-Call-Id"), "attempt": told("Toolfleet-Attempt"),
        "tenant": told("Toolfleet-Tenant"), "session": told("Toolfleet-Session"),
        "deadline_ms": told("Toolfleet-Deadline-Ms"), "traceparent": told("traceparent"),
        "idempotency_key": told("Idempotency-Key"),
    })
}

fn header<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    let value = message.headers.as_ref()?.get(name)?;
    Some(value.as_str())
}

fn all(message: &Message) -> Map<String, Value> {
    let headers = message.headers.iter().flat_map(HeaderMap::iter);
    let texts = headers.map(|(name, values)| {
        let values: Vec<&str> = values.iter().map(AsRef::as_ref).collect();
        (name.to_string(), json!(values))
    });
    texts.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_tools_keep_every_promise() {
    let report = conformance::exercise(&Nats::start().await).await;
    super::kept(&report, 34);
}
