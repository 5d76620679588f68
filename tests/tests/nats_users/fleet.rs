//! A whole fleet as the users that are shipped: every verb, two tenants of the fleet's account and one of an account of its own,
//! a tool that is a service, the operator's commands; and the same after a cut. The server has refused nothing.

use std::{fs, path::Path, process::Stdio, time::Duration};

use fleet::{
    bus::{connect::Bus, excess, prefix::PrefixClaim, rights::NatsRole},
    config::BusArgs,
    definitions::Format,
    ids::{CallId, Label},
    process::{UNREACHABLE, exit_code},
    telemetry,
};
use fleet_client::{
    FleetClient, Options,
    calls::{Cancelling, Submission},
};
use fleet_tests::{
    fleet::{Fleet, Spec, built},
    invariants,
    postgres::Database,
    proxy::Proxy,
    raw::{RawClient, without_headers},
    shipped::{Shipped, User},
    wait::{LONG, until_so},
    witness::{Reply, Witness},
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

const SERVICES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/services");

/// A tenant's caller.
struct Agent {
    tenant: Label,
    client: FleetClient,
}

impl Agent {
    async fn of(fleet: &Fleet, user: User, tenant: &str) -> Self {
        Self {
            tenant: tenant.parse().unwrap(),
            client: fleet.client_of(user).await,
        }
    }

    async fn call(&self, tool: &str, args: &Value, options: Options) -> Value {
        let submission = Submission {
            tenant: self.tenant.clone(),
            tool: tool.parse().unwrap(),
            args: args.to_string().into(),
            options,
        };
        let answer = self.client.submit(submission).await;
        let answer = answer.unwrap_or_else(|problem| panic!("{}: {problem}", self.tenant));
        answer.read().unwrap()
    }
}

fn accepted() -> Options {
    Options {
        prefer: Some(fleet::wire::headers::Prefer::RespondAsync),
        ..Options::default()
    }
}

fn id(answer: &Value) -> CallId {
    answer["call_id"].as_str().unwrap().parse().unwrap()
}

/// The example that is a service, as its user.
async fn service(fleet: &Fleet, folder: &Path) -> Child {
    #[expect(clippy::disallowed_methods, reason = "a test has no command line")]
    let python = std::env::var("TOOLFLEET_PYTHON").unwrap_or_else(|_unset| "python3".to_owned());
    let mut command = Command::new(python);
    command.arg(Path::new(SERVICES).join("translate.py"));
    command
        .arg("--nats")
        .arg(User::Service.url(fleet.nats_port()));
    command.current_dir(folder).stdout(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = timeout(LONG, lines.next_line()).await.unwrap().unwrap();
    assert_eq!(line.as_deref(), Some("{\"ready\": true}"));
    child
}

/// What every tenant does.
async fn every_verb(fleet: &Fleet, witness: &Witness, agent: &Agent, round: &str) {
    let Agent { tenant, client } = agent;
    let what = |verb: &str| json!({"what": format!("{verb} of {tenant} {round}")});
    let answer = agent.call("look", &what("call"), Options::default()).await;
    assert_eq!(answer["state"], "succeeded", "{tenant}: {answer}");

    let listing = client.tools(tenant, Format::Full).await.unwrap();
    let listing: Value = listing.read().unwrap();
    assert_eq!(listing["tools"].as_array().unwrap().len(), 4, "{listing}");

    let batch = json!({"calls": [
        {"tool": "look", "args": what("first")}, {"tool": "look", "args": what("second")}
    ]});
    let batch = client.batch(
        tenant,
        async_nats::HeaderMap::new(),
        batch.to_string().into(),
    );
    let batch: Value = batch.await.unwrap().read().unwrap();
    for item in batch["items"].as_array().unwrap() {
        fleet.until_state(id(item), "succeeded").await;
    }

    let session: Label = "s".parse().unwrap();
    let mut follow = client.follow(tenant, &session).await.unwrap();
    let options = Options {
        session: Some(session),
        ..accepted()
    };
    let followed = agent.call("look", &what("follow"), options).await;
    loop {
        let event = timeout(LONG, follow.next())
            .await
            .expect("an event comes")
            .unwrap();
        if event.call_id == id(&followed)
            && event.to_bytes().windows(8).any(|part| part == b"finished")
        {
            break;
        }
    }
    let got = client.get(tenant, id(&followed), LONG).await.unwrap();
    let got: Value = got.read().unwrap();
    assert_eq!(got["state"], "succeeded", "{got}");

    let slow = what("cancel");
    let name = slow["what"].as_str().unwrap();
    witness.always(name, Reply::Hang);
    let call = id(&agent.call("look", &slow, accepted()).await);
    witness.until_asked(name, 1).await;
    let answer = client
        .cancel(
            tenant,
            &Cancelling {
                call_id: call,
                reason: None,
                actor: None,
            },
        )
        .await
        .unwrap();
    let answer: Value = answer.read().unwrap();
    assert_eq!(answer["result"], "cancel_requested", "{answer}");
    fleet.until_state(call, "cancelled").await;

    let term = json!({"term": format!("fox-{tenant}-{round}"), "to": "fr", "is": "renard"});
    let keyed = Options {
        key: Some(format!("{tenant}-{round}").parse().unwrap()),
        ..Options::default()
    };
    let added = agent.call("add_term", &term, keyed).await;
    assert_eq!(added["state"], "succeeded", "{added}");
    let asked = json!({"text": term["term"], "to": "fr"});
    let told = agent.call("translate", &asked, Options::default()).await;
    assert_eq!(told["result"], json!({"text": "renard"}), "{told}");
}

/// A doubt that the operator settles.
async fn settled(fleet: &Fleet, witness: &Witness, agent: &Agent, round: &str) {
    let what = json!({"what": format!("doubt {round}")});
    witness.always(what["what"].as_str().unwrap(), Reply::DoneThenHang);
    let keyed = Options {
        key: Some(format!("doubt-{round}").parse().unwrap()),
        ..Options::default()
    };
    let doubt = agent.call("charge", &what, keyed).await;
    assert_eq!(doubt["state"], "in_doubt", "{doubt}");
    let call = doubt["call_id"].as_str().unwrap();
    let tenant = agent.tenant.as_str();
    let settle = [
        "calls",
        "settle",
        call,
        "--outcome",
        "applied",
        "--note",
        "seen",
        "--tenant",
        tenant,
        "--json",
    ];
    let settled = command(fleet, &settle).await;
    assert_eq!(settled["state"], "succeeded", "{settled}");
}

/// What a command of the operator prints as JSON.
async fn command(fleet: &Fleet, arguments: &[&str]) -> Value {
    let mut command = Command::new(built("fleet_tests_toolfleet"));
    command.args(arguments).env_clear();
    command.env("DATABASE_URL", &fleet.database.url);
    command.env("NATS_URL", User::Operator.url(fleet.nats_port()));
    command.env("NATS_INBOX", User::Operator.inbox());
    let ran = command.output().await.unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    assert!(ran.status.success(), "{arguments:?}: {out}{err}");
    serde_json::from_str(&out).unwrap_or_else(|_| panic!("{arguments:?}: {out}{err}"))
}

#[tokio::test]
async fn a_fleet_runs_as_the_users_that_are_shipped_and_over_a_cut() {
    let witness = Witness::start().await;
    let example = |name: &str| fs::read_to_string(Path::new(SERVICES).join(name)).unwrap();
    let tools = [
        witness.tool("look", "read"),
        witness.tool("charge", "once") + "timeout: 300ms\n",
        example("translate.yaml"),
        example("add_term.yaml"),
    ];
    let spec = Spec::with(tools).shipped().dispatchers(0).workers(0, &[]);
    let mut fleet = Fleet::start(spec).await;
    let wire = Proxy::to(fleet.nats_port()).await;
    let url = fleet.nats_url_at(wire.port());
    fleet.add_dispatcher_with(&["--nats-url", &url]).await;
    fleet.add_worker(&[]).await;
    let folder = tempfile::tempdir().unwrap();
    let _service = service(&fleet, folder.path()).await;
    let agents = [
        Agent::of(&fleet, User::Agent, "default").await,
        Agent::of(&fleet, User::Acme, "acme").await,
        Agent::of(&fleet, User::Beta, "beta").await,
    ];
    for agent in &agents {
        every_verb(&fleet, &witness, agent, "before").await;
    }
    settled(&fleet, &witness, &agents[1], "before").await;

    // Waiters over a cut, in both kinds of account.
    witness.always("cut", Reply::DoneWhenReleased);
    let what = json!({"what": "cut"});
    let waiting = agents
        .iter()
        .map(|agent| agent.call("look", &what, Options::default()));
    let (answers, ()) = tokio::join!(join_all(waiting), async {
        witness.until_asked("cut", agents.len()).await;
        wire.cut();
        until_so("the dispatcher to be heard again", async || {
            wire.connections() == 2 && fleet.dispatchers_heard().await == 1
        })
        .await;
        witness.release("cut");
    });
    for answer in &answers {
        assert_eq!(answer["state"], "succeeded", "{answer}");
    }
    for agent in &agents {
        every_verb(&fleet, &witness, agent, "after").await;
    }
    settled(&fleet, &witness, &agents[2], "after").await;

    let report = command(&fleet, &["doctor", "--json"]).await;
    let checks = report["checks"].as_array().unwrap();
    let rights = checks
        .iter()
        .find(|check| check["check"] == "nats_rights")
        .unwrap();
    assert_eq!(
        rights["found"], "no more than an operator needs",
        "{rights}"
    );
    assert!(
        checks.iter().all(|check| check["status"] != "fail"),
        "{report}"
    );
    command(&fleet, &["doctor", "--rebuild-stream", "--json"]).await;
    let call = command(&fleet, &["call", "look", "what=cli", "--json"]).await;
    assert_eq!(call["state"], "succeeded", "{call}");
    invariants::hold(&fleet, &witness).await;

    let log = fleet.shipped_log();
    let refused: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("Violation"))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

/// A worker's user may make no stream.
#[tokio::test]
async fn a_worker_that_is_first_waits_for_a_dispatcher() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("look", "read")]).shipped();
    let mut fleet = Fleet::start(spec.dispatchers(0).workers(0, &[])).await;
    let mut worker = fleet.real_worker("early", &[], None);
    until_so("the worker to be refused", async || {
        fleet
            .shipped_log()
            .contains("STREAM.CREATE.TOOLFLEET_GROUND")
    })
    .await;
    fleet.add_dispatcher().await;
    worker.ready().await;
    let answer = fleet.submit("look", &json!({"what": "a"})).wait().await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    worker.terminate().await;
    invariants::hold(&fleet, &witness).await;
}

/// Its supervisor starts it again: what is missing may be there then.
#[tokio::test]
async fn a_worker_that_waits_in_vain_ends_as_without_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = Shipped::start(folder.path()).await;
    let bus = Bus::connect(&User::Worker.args(server.port()), "tests").await;
    let database = Database::fresh().await;
    let ledger = &database.postgres;
    let claim = PrefixClaim::new(bus.unwrap(), ledger.name().await.unwrap());
    let claim = claim.waiting(Duration::from_millis(50));
    ledger.recalled(claim.recall().await.unwrap());
    drop(ledger.connect().await.unwrap());
    let watermark = ledger.watermark().unwrap();
    let late = claim.hold(&watermark).await.unwrap_err();
    let said = telemetry::report(&late);
    assert!(
        said.contains("wait for a dispatcher to make the streams")
            && said.contains("STREAM.CREATE.TOOLFLEET_GROUND"),
        "{said}"
    );
    assert_eq!(exit_code(&late), UNREACHABLE, "{said}");
}

/// What a program with these settings and this role would say at its start.
async fn said(args: BusArgs, role: NatsRole<'_>) -> Vec<String> {
    let bus = Bus::connect(&args, "tests").await.unwrap();
    let found = excess::look(&bus, &args, role).await;
    // Asking is no reason to call later failures a lack of permission.
    assert_eq!(bus.denied(), None);
    found.into_iter().map(|finding| finding.what).collect()
}

#[tokio::test]
async fn a_process_says_what_it_may_do_beyond_its_needs() {
    let fleet = Fleet::start(Spec::with([]).shipped().dispatchers(0).workers(0, &[])).await;
    let port = fleet.nats_port();
    let queues = ["default".parse().unwrap()];
    let worker = NatsRole::Worker {
        queues: &queues,
        services: &[],
    };
    let dispatcher = NatsRole::Dispatcher { tenants: None };
    for (user, role) in [
        (User::Dispatcher, dispatcher),
        (User::Worker, worker),
        (User::Operator, NatsRole::Operator),
    ] {
        assert_eq!(
            said(user.args(port), role).await,
            Vec::<String>::new(),
            "{user:?}"
        );
    }
    let broad = said(User::Dispatcher.args(port), worker).await.join("; ");
    assert!(
        broad.contains("publish to more than its role needs: $JS.API.CONSUMER.CREATE."),
        "{broad}"
    );
    // It may not ask, and nothing is known against it.
    assert_eq!(
        said(User::Agent.args(port), worker).await,
        Vec::<String>::new()
    );

    let open = Fleet::start(Spec::with([]).dispatchers(0).workers(0, &[])).await;
    let anonymous = said(BusArgs::at(open.nats_url().into()), dispatcher).await;
    assert!(anonymous[0].contains("without a user"), "{anonymous:?}");
}

/// The limits of an account hold for its tenant alone.
#[tokio::test]
async fn an_account_of_its_own_has_limits() {
    let folder = tempfile::tempdir().unwrap();
    let server = Shipped::start(folder.path()).await;
    for (user, tenant, bytes, taken) in [
        (User::Beta, "beta", 1_200 * 1024, true),
        (User::Beta, "beta", 1_300 * 1024, false),
        (User::Acme, "acme", 1_300 * 1024, true),
    ] {
        let mut client = RawClient::connect(server.port(), &user.login()).await;
        let subject = format!("toolfleet.v1.{tenant}.batch");
        let body = vec![b'x'; bytes];
        let message = without_headers(subject.as_bytes(), b"", &body);
        let is_taken = client.is_taken(&message).await;
        assert_eq!(is_taken, taken, "{tenant} {bytes}");
    }
}
