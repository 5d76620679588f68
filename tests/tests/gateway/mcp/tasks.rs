//! Calls that become tasks: when they do, what any gateway says of them, and that nothing of a task is another's.

use fleet::{ids::CallId, tokens::Scope};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    web::{Web, WebAnswer, WebRequest},
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

use crate::tokens::{Held, known, token, with};

use super::{Client, error, legacy, modern, result, said, texts};

/// What a client says that takes tasks and shows forms.
const CAN: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

/// A client that takes tasks.
#[derive(Clone, Copy)]
pub(super) struct TaskClient(Client);

pub(super) const fn takes_tasks(web: Web) -> TaskClient {
    TaskClient(modern(web))
}

impl TaskClient {
    pub(super) fn request(self, method: &str, params: &str) -> WebRequest {
        self.0.saying("1", method, params, CAN, "")
    }

    fn calling(self, tool: &str, what: &str) -> WebRequest {
        let params = format!(r#""name":"{tool}","arguments":{{"what":"{what}"}}"#);
        self.request("tools/call", &params).header("Mcp-Name", tool)
    }

    async fn call(self, tool: &str, what: &str) -> Value {
        result(&self.calling(tool, what).send().await)
    }

    fn of_task(self, method: &str, task: &str, more: &str) -> WebRequest {
        let params = format!(r#""taskId":"{task}"{more}"#);
        self.request(method, &params).header("Mcp-Name", task)
    }

    pub(super) async fn get(self, task: &str) -> Value {
        result(&self.of_task("tasks/get", task, "").send().await)
    }

    pub(super) async fn update(self, task: &str, responses: &Value) -> WebAnswer {
        let more = format!(r#","inputResponses":{responses}"#);
        self.of_task("tasks/update", task, &more).send().await
    }

    pub(super) async fn until(self, task: &str, status: &str) -> Value {
        until_so(&format!("the task to be {status}"), async || {
            self.get(task).await["status"] == status
        })
        .await;
        self.get(task).await
    }
}

pub(super) fn task_of(created: &Value) -> String {
    assert_eq!(created["resultType"], "task", "{created}");
    created["taskId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_call_that_takes_long_is_a_task_for_who_takes_one_and_any_gateway_knows_it() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("look", "read") + "timeout: 60s\nmcp: {task: preferred}\n",
        witness.tool("charge", "once") + "timeout: 60s\n",
        witness.tool("only", "read") + "timeout: 60s\nmcp: {task: required}\n",
        witness.tool("quick", "read"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let (mut other, elsewhere) = fleet.gateway(&[]).await;
    let client = takes_tasks(web);
    assert_eq!(client.call("quick", "a").await["resultType"], "complete");

    // After two seconds, and its client may go away then.
    witness.always("write", Reply::DoneWhenReleased);
    let created = client.call("charge", "write").await;
    let task = task_of(&created);
    assert_eq!(created["status"], "working", "{created}");
    assert_eq!(said(&created)["id"], json!(task));
    let a_day = 24 * 3_600_000 + 300_000;
    assert_eq!(created["ttlMs"], json!(a_day), "{created}");
    assert!(created["pollIntervalMs"].as_u64().unwrap() > 0);
    gateway.drain().await;
    let client = takes_tasks(elsewhere);
    let standing = client.get(&task).await;
    assert_eq!(standing["status"], "working", "{standing}");
    assert_eq!(standing["createdAt"], created["createdAt"]);
    // The same request is the same task.
    assert_eq!(task_of(&client.call("charge", "write").await), task);
    witness.release("write");
    let done = client.until(&task, "completed").await;
    assert_eq!(texts(&done["result"]), [r#"{"done":"write"}"#]);
    assert_eq!(done["result"]["isError"], false, "{done}");
    assert_eq!(witness.applied("write"), 1);

    // At once.
    witness.always("slow", Reply::DoneWhenReleased);
    let task = task_of(&client.call("look", "slow").await);
    witness.release("slow");
    client.until(&task, "completed").await;
    task_of(&client.call("only", "a").await);
    // Who takes none waits, or is told what it lacks.
    let plain = modern(elsewhere).call("look", "plain").await;
    assert_eq!(plain["resultType"], "complete");
    let refused = modern(elsewhere).calling("only", r#"{"what":"a"}"#, "");
    let refused = refused.send().await;
    assert_eq!(error(&refused), (400, -32_021));
    let required = &refused.json()["error"]["data"]["requiredCapabilities"];
    assert!(required["extensions"]["io.modelcontextprotocol/tasks"].is_object());
    // An older revision has no such error.
    let old = legacy(elsewhere).call("only", "b").await;
    assert_eq!(old["isError"], false, "{old}");
    invariants::hold(&fleet, &witness).await;
    other.drain().await;
}

#[tokio::test]
async fn what_a_task_came_to_is_what_the_call_would_have_answered() {
    let witness = Witness::start().await;
    let probe = |tool: &str| {
        format!(
            "{}timeout: 1s\nmcp: {{task: preferred}}\nprobe: {{tool: look, args: {{what: \"{{{{ args.what }}}}-probe\"}}, \
             applied_when: result.found == true, not_applied_when: result.found == false}}\n",
            witness.tool(tool, "once")
        )
    };
    let tools = [
        witness.tool("look", "read") + "timeout: 60s\n",
        witness.tool("charge", "once") + "timeout: 1s\nmcp: {task: preferred}\n",
        probe("probed"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let client = takes_tasks(web);
    witness.always("no", Reply::No("the card is blocked"));
    let task = task_of(&client.call("charge", "no").await);
    let failed = client.until(&task, "completed").await;
    assert_eq!(failed["result"]["isError"], true, "{failed}");
    assert!(
        texts(&failed["result"])[0].contains("The card is blocked"),
        "{failed}"
    );

    witness.always("doubt", Reply::DoneThenHang);
    let task = task_of(&client.call("charge", "doubt").await);
    let doubt = client.until(&task, "completed").await;
    assert!(
        texts(&doubt["result"])[0].contains("do not repeat it"),
        "{doubt}"
    );
    // Its probe may still decide it.
    let task = task_of(&client.call("probed", "doubt").await);
    let call: CallId = task.parse().unwrap();
    fleet.until_state(call, "in_doubt").await;
    let working = client.get(&task).await;
    assert_eq!(working["status"], "working", "{working}");
    assert!(
        working["statusMessage"]
            .as_str()
            .unwrap()
            .contains("do not repeat it"),
        "{working}"
    );
    // What ended as a call is over as a task, too.
    let cancelled = result(&client.of_task("tasks/cancel", &task, "").send().await);
    assert_eq!(cancelled["resultType"], "complete");
    gateway.drain().await;
}

#[tokio::test]
async fn a_task_is_cancelled_as_its_call_is_and_once_it_is_over_that_says_nothing() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read") + "timeout: 60s\nmcp: {task: preferred}\n"];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let client = takes_tasks(web);
    witness.always("slow", Reply::DoneWhenReleased);
    let task = task_of(&client.call("look", "slow").await);
    witness.until_asked("slow", 1).await;
    for _time in 0..2 {
        let cancelled = result(&client.of_task("tasks/cancel", &task, "").send().await);
        assert_eq!(cancelled["resultType"], "complete");
        for none in ["taskId", "status", "result"] {
            assert!(cancelled.get(none).is_none(), "{cancelled}");
        }
        let ended = client.until(&task, "cancelled").await;
        assert!(ended.get("result").is_none(), "{ended}");
        assert!(!ended["statusMessage"].as_str().unwrap().is_empty());
    }
    // Hanging up after the answer cancels nothing.
    witness.always("kept", Reply::DoneWhenReleased);
    let made = client.calling("look", "kept").send().await.json();
    assert_eq!(made["result"]["resultType"], "task", "{made}");
    witness.until_asked("kept", 1).await;
    let kept = witness.look(|seen| {
        let asked = seen.requests.iter().find(|request| request.what == "kept");
        asked.unwrap().header("toolfleet-call-id").to_owned()
    });
    assert_eq!(client.get(&kept).await["status"], "working");
    witness.release("kept");
    client.until(&kept, "completed").await;
    gateway.drain().await;
}

#[tokio::test]
async fn what_a_task_waits_for_is_asked_of_its_client_and_answered_by_it() {
    let witness = Witness::start().await;
    let guarded = |name: &str, by: &str| {
        format!(
            "{}mcp: {{task: preferred}}\napproval: {{by: {by}}}\n",
            witness.tool(name, "once")
        )
    };
    let tools = [
        guarded("charge", "caller"),
        guarded("refund", "operator"),
        guarded("secret", "caller") + "sensitive: {pointers: [/what]}\n",
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let client = takes_tasks(web);
    let form = |task: Value| {
        let requests = task["inputRequests"].as_object().unwrap();
        let (name, form) = requests.iter().next().unwrap();
        (name.clone(), form.clone())
    };
    let answer = |name: &str, yes: bool| {
        let decision = if yes { "approve" } else { "deny" };
        json!({ name: {"action": "accept", "content": {"decision": decision}} })
    };
    for (what, yes) in [("yes", true), ("no", false)] {
        let task = task_of(&client.call("charge", what).await);
        let (name, asked) = form(client.until(&task, "input_required").await);
        let message = asked["params"]["message"].as_str().unwrap();
        assert!(
            message.contains("charge") && message.contains(what),
            "{asked}"
        );
        // What nobody asked for says nothing, and an answer that is none is refused.
        let other = client
            .update(&task, &json!({"other": {"action": "accept"}}))
            .await;
        assert_eq!(result(&other)["resultType"], "complete");
        let wrong = client.update(&task, &json!({ name.clone(): 1 })).await;
        assert_eq!(error(&wrong), (200, -32_602));
        assert_eq!(client.get(&task).await["status"], "input_required");
        let said_so = client.update(&task, &answer(&name, yes)).await;
        assert_eq!(result(&said_so)["resultType"], "complete");
        let ended = client.until(&task, "completed").await;
        assert_eq!(ended["result"]["isError"], json!(!yes), "{ended}");
        assert_eq!(witness.applied(what), usize::from(yes));
        // Too late is no error.
        let late = client.update(&task, &answer(&name, true)).await;
        assert_eq!(result(&late)["resultType"], "complete");
    }
    // What others decide is not asked.
    let task = task_of(&client.call("refund", "a").await);
    let waits = client.get(&task).await;
    assert_eq!(waits["status"], "working", "{waits}");
    assert!(
        waits["statusMessage"]
            .as_str()
            .unwrap()
            .contains("calls approve")
    );
    let call: CallId = task.parse().unwrap();
    let rows = "SELECT actor, note FROM toolfleet.approvals WHERE call_id <> $1";
    assert_eq!(fleet.rows(rows, call).await.len(), 2);
    // What is sensitive is told to nobody here, and the form does not say that it is shown.
    let task = task_of(&client.call("secret", "4711").await);
    let (_name, asked) = form(client.until(&task, "input_required").await);
    let message = asked["params"]["message"].as_str().unwrap();
    assert!(
        message.contains("All of the arguments are withheld") && !message.contains("exactly these"),
        "{message}"
    );
    assert!(!asked.to_string().contains("4711"), "{asked}");
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_task_of_somebody_else_is_one_that_there_is_not() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("look", "read") + "mcp: {task: preferred}\n",
        witness.tool("charge", "once") + "mcp: {task: preferred}\n",
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let own = token(&fleet, "own", "default", &[Scope::Call], "look").await;
    let all = token(&fleet, "all", "default", &[Scope::Call], "*").await;
    let foreign = token(&fleet, "foreign", "other", &[Scope::Call], "*").await;
    for held in [&own, &all, &foreign] {
        known(web, held).await;
    }
    let by = |held: &Held, request: WebRequest| with(request, held);
    let client = takes_tasks(web);
    let made = by(&all, client.calling("charge", "a")).send().await;
    let task = task_of(&result(&made));
    let nobodys = CallId::generate().to_string();
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let more = r#","inputResponses":{}"#;
        let mut told = Vec::new();
        for (held, task) in [
            (&own, &task),
            (&foreign, &task),
            (&all, &nobodys),
            (&all, &"no-task".to_owned()),
        ] {
            let answer = by(held, client.of_task(method, task, more)).send().await;
            assert_eq!(error(&answer), (200, -32_602), "{method}");
            told.push(answer.text().replace(task.as_str(), "ID"));
        }
        told.dedup();
        assert_eq!(told.len(), 1, "{told:?}");
        let known = by(&all, client.of_task(method, &task, more)).send().await;
        assert_eq!(result(&known)["resultType"], "complete");
        let undeclared = modern(web).request("1", method, &format!(r#""taskId":"{task}""#), "");
        let undeclared = by(&all, undeclared.header("Mcp-Name", &task)).send().await;
        assert_eq!(error(&undeclared), (400, -32_021));
        let misnamed = by(
            &all,
            client.request(method, &format!(r#""taskId":"{task}""#)),
        );
        let misnamed = misnamed.header("Mcp-Name", &nobodys).send().await;
        assert_eq!(error(&misnamed), (400, -32_020));
    }
    for method in ["tasks/list", "tasks/result"] {
        let answer = by(&all, client.request(method, "")).send().await;
        assert_eq!(error(&answer), (404, -32_601));
    }
    gateway.drain().await;
}
