use super::*;

const PATH: &str = "/executor/process";

fn warned_of(effect: &str, sandbox: Option<Value>) -> Vec<String> {
    let mut changes = json!({"effect": effect, "executor": {"process": {"command": ["/bin/cat"]}}, "timeout": "10s",
        "input_schema": {"type": "object", "additionalProperties": false}});
    if let Some(sandbox) = sandbox {
        changes["sandbox"] = sandbox;
    }
    warned(&changes).into_iter().map(|(path, _)| path).collect()
}

#[test]
fn a_program_that_writes_is_asked_for_a_sandbox() {
    assert_eq!(warned_of("once", None), [PATH]);
    assert!(warned_of("read", None).is_empty());
    assert!(warned_of("once", Some(json!("strict"))).is_empty());
    let refused = "{name: pay_bill, version: 1, description: Pays one bill of the account., effect: once, bogus: 1, \
                   input_schema: {type: object}, executor: {process: {command: [pay]}}}";
    let found = lint_text(refused);
    assert!(
        found.iter().any(|warning| warning.path == PATH),
        "{found:?}"
    );
}

#[test]
fn settings_that_take_the_sandbox_back_are_named() {
    for (sandbox, path) in [
        (json!({"memory": "4MiB"}), "/sandbox/memory"),
        (json!({"cpu": "20s", "processes": 1}), "/sandbox/cpu"),
        (json!({"read": ["/"]}), "/sandbox/read"),
        (json!({"write": ["/"]}), "/sandbox/write"),
        (
            json!({"read": ["/srv/a"], "write": ["/srv/a"]}),
            "/sandbox/read",
        ),
    ] {
        assert_eq!(
            warned_of("once", Some(sandbox.clone())),
            [path],
            "{sandbox}"
        );
    }
    // Several processes have each as much.
    assert!(warned_of("once", Some(json!({"cpu": "20s"}))).is_empty());
}
