//! `toolfleet mcp serve` as the callers that are shipped, of both kinds of account: every method that it has, and the server has refused
//! nothing.

use std::{process::Stdio, time::Duration};

use fleet::bus::connect::Bus;
use fleet_client::{AskError, FleetClient, Question, files::NewFile};
use fleet_tests::{
    fleet::{Fleet, Spec, built},
    invariants,
    shipped::User,
    wait::{LONG, until_so},
    witness::{Reply, Witness},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

/// The program, and a client of it.
struct Served {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    id: u32,
}

impl Served {
    fn start(fleet: &Fleet, user: User, tenant: &str) -> Self {
        let mut command = Command::new(built("fleet_tests_toolfleet"));
        command
            .args(["mcp", "serve", "--tenant", tenant])
            .env_clear();
        command.env("NATS_URL", user.url(fleet.nats_port()));
        command.env("NATS_INBOX", user.inbox());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()).lines(),
            _child: child,
            id: 0,
        }
    }

    async fn ask(&mut self, method: &str, params: &Value) -> Value {
        let told = self.hear(method, params).await;
        assert!(told["error"].is_null(), "{method}: {told}");
        told["result"].clone()
    }

    async fn hear(&mut self, method: &str, params: &Value) -> Value {
        self.id += 1;
        let can = json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
        let mut params = params.clone();
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": can,
        });
        let request = json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params});
        self.input
            .write_all(format!("{request}\n").as_bytes())
            .await
            .unwrap();
        let line = timeout(LONG, self.output.next_line()).await.unwrap();
        let told: Value = serde_json::from_str(&line.unwrap().unwrap()).unwrap();
        assert_eq!(told["id"], self.id, "{told}");
        told
    }

    async fn call(&mut self, tool: &str, what: &str) -> Value {
        let params = json!({"name": tool, "arguments": {"what": what}});
        self.ask("tools/call", &params).await
    }

    async fn until(&mut self, task: &Value, status: &str) -> Value {
        timeout(LONG, async {
            loop {
                let task = self.ask("tasks/get", &json!({ "taskId": task })).await;
                if task["status"] == status {
                    return task;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await
        .unwrap_or_else(|_elapsed| panic!("the task to be {status}"))
    }
}

#[tokio::test]
async fn what_serves_mcp_over_a_pipe_needs_the_rights_of_a_caller_and_no_more() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("look", "read"),
        witness.tool("charge", "once"),
        witness.tool("slow", "read") + "mcp: {task: preferred}\ntimeout: 60s\n",
        witness.tool("refund", "once") + "mcp: {task: preferred}\napproval: {by: caller}\n",
        witness.tool("transfer", "once") + "approval: {by: caller}\n",
    ];
    let fleet = Fleet::start(Spec::with(tools).shipped()).await;
    for (user, tenant) in [
        (User::Agent, "default"),
        (User::Acme, "acme"),
        (User::Beta, "beta"),
    ] {
        let mut client = Served::start(&fleet, user, tenant);
        let listed = client.ask("tools/list", &json!({})).await;
        assert_eq!(listed["tools"].as_array().unwrap().len(), 6, "{listed}");
        // The same request again looks for the calls of its keys.
        let name = |what: &str| format!("{what} of {tenant}");
        let first = client.call("charge", &name("charge")).await;
        let again = client.call("charge", &name("charge")).await;
        let call = first["_meta"]["io.toolfleet/call"]["id"].clone();
        assert_eq!(again["_meta"]["io.toolfleet/call"]["id"], call, "{again}");
        client
            .ask(
                "tools/call",
                &json!({"name": "toolfleet_get", "arguments": {"call_id": call}}),
            )
            .await;

        // Resources, prompts, completion.
        for (method, of) in [
            ("resources/list", "resources"),
            ("resources/templates/list", "resourceTemplates"),
            ("prompts/list", "prompts"),
        ] {
            let listed = client.ask(method, &json!({})).await;
            assert!(listed[of].is_array(), "{listed}");
        }
        let uri = format!("toolfleet://call/{}", call.as_str().unwrap());
        let read = client.ask("resources/read", &json!({ "uri": uri })).await;
        assert!(read.to_string().contains("succeeded"), "{read}");
        let uri = format!("toolfleet://file/{}", put(&fleet, user, tenant).await);
        let read = client.ask("resources/read", &json!({ "uri": uri })).await;
        assert_eq!(read["contents"][0]["text"], "seven", "{read}");
        client
            .ask("prompts/get", &json!({"name": "toolfleet_instructions"}))
            .await;

        // A yes by the result and in a task, and a task that is cancelled.
        let asked = client.call("transfer", &name("transfer")).await;
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let yes = json!({"action": "accept", "content": {"decision": "approve"}});
        let answered = json!({
            "name": "transfer", "arguments": {"what": name("transfer")}, "requestState": asked["requestState"],
            "inputResponses": {"approval": yes},
        });
        let done = client.ask("tools/call", &answered).await;
        assert_eq!(done["isError"], false, "{done}");
        let task = client.call("refund", &name("refund")).await["taskId"].clone();
        let asks = client.until(&task, "input_required").await;
        let asked = asks["inputRequests"].as_object().unwrap().keys().next();
        let responses = json!({ asked.unwrap().clone(): yes });
        client
            .ask(
                "tasks/update",
                &json!({"taskId": task, "inputResponses": responses}),
            )
            .await;
        client.until(&task, "completed").await;
        witness.always(&name("slow"), Reply::DoneWhenReleased);
        let task = client.call("slow", &name("slow")).await["taskId"].clone();
        client.ask("tasks/cancel", &json!({ "taskId": task })).await;
        client.until(&task, "cancelled").await;
    }
    invariants::hold(&fleet, &witness).await;
    let refused: Vec<String> = fleet
        .shipped_log()
        .lines()
        .filter(|line| line.contains("Violation"))
        .map(ToOwned::to_owned)
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

#[tokio::test]
async fn a_user_without_the_rights_is_told_so_and_does_not_wait() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")]).shipped()).await;
    let mut client = Served::start(&fleet, User::Acme, "beta");
    let told = client.hear("tools/list", &json!({})).await;
    let message = told["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("docs/nats-users.md"), "{told}");
    let told = client.call("look", "a").await;
    assert!(told.to_string().contains("docs/nats-users.md"), "{told}");

    // What the server says ends the wait, however long that may be.
    let user = User::Acme.args(fleet.nats_port());
    let bus = Bus::connect(&user, "acme").await.unwrap();
    let caller = FleetClient::of(&bus).await.unwrap();
    let question = Question {
        patience: 20 * LONG,
        ..Question::new(caller.subjects().tools(&"beta".parse().unwrap()), "{}")
    };
    let asked = timeout(LONG, caller.ask(question)).await.unwrap();
    assert!(matches!(asked, Err(AskError::Denied { .. })), "{asked:?}");
    let question = Question::new(caller.subjects().tools(&"acme".parse().unwrap()), "{}");
    assert!(caller.ask(question).await.is_ok());
    assert_eq!(witness.asked("a"), 0);
}

/// A file of this tenant, by its id.
async fn put(fleet: &Fleet, user: User, tenant: &str) -> String {
    let (client, tenant) = (fleet.client_of(user).await, tenant.parse().unwrap());
    let new = NewFile {
        name: "a.txt",
        mime: "text/plain",
        bytes: 5,
    };
    let begun = client.begin_file(&tenant, &new).await.unwrap();
    let begun: Value = begun.read().unwrap();
    let id = begun["file_id"].as_str().unwrap().to_owned();
    let file = id.parse().unwrap();
    until_so("the file to be there", async || {
        let bytes = bytes::Bytes::from("seven");
        client.send_chunk(&tenant, file, 0, bytes).await.unwrap();
        let hash = hex::encode(Sha256::digest("seven"));
        let ended = client.finish_file(&tenant, file, &hash).await.unwrap();
        let ended: Value = ended.read().unwrap();
        ended["state"] == "ready"
    })
    .await;
    id
}
