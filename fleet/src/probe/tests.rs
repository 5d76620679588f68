use serde_json::json;

use super::*;

fn spec(change: impl FnOnce(&mut Value)) -> ProbeSpec {
    let mut spec = json!({
        "tool": "find_charge", "args": {"key": "{{ key }}"}, "applied_when": "result.charges | length > 0",
    });
    change(&mut spec);
    serde_json::from_value(spec).unwrap()
}

fn subject() -> Subject {
    Subject {
        call_id: "01935a3c-0000-7000-8000-000000000001".parse().unwrap(),
        tool: "charge_account".to_owned(),
        tool_version: 1,
        tenant: "default".to_owned(),
        args: serde_json::from_str(
            r#"{"account": "a 1", "cents": 9007199254740993, "rate": 0.1, "tags": ["x", null, true]}"#,
        )
        .unwrap(),
    }
}

#[test]
fn arguments_keep_their_kinds_and_their_digits() {
    let spec = spec(|spec| {
        spec["args"] = json!({
            "key": "{{ key }}", "cents": "{{ args.cents }}", "rate": "{{args.rate}}", "tags": "{{ args.tags }}",
            "note": "{{ call.tool }} of {{ args.account }}", "depth": [{"plain": 7}], "last": "{{ args.tags[2] }}",
        });
    });
    let filled = filled(&spec.args, &subject()).unwrap();
    assert_eq!(
        crate::canonical::to_text(&filled),
        r#"{"cents":9007199254740993,"depth":[{"plain":7}],"key":"01935a3c-0000-7000-8000-000000000001","last":true,"note":"charge_account of a 1","rate":0.1,"tags":["x",null,true]}"#
    );
}

#[test]
fn no_filter_makes_much_of_little() {
    let spec = spec(|spec| {
        spec["applied_when"] = json!("('x' * 100 | replace('x', 'y' * 100) | length) > 0");
    });
    let finding = judge(&spec, &subject(), &Said::Result(json!({})));
    assert_eq!(
        finding,
        ProbeFinding::Inconclusive("unknown filter".to_owned())
    );
}

#[test]
fn what_the_call_does_not_have_is_not_asked_for() {
    for template in [
        "{{ args.nothing }}",
        "of {{ args.nothing }}",
        "{{ nobody }}",
    ] {
        let spec = spec(|spec| spec["args"] = json!({"key": template}));
        assert!(filled(&spec.args, &subject()).is_err(), "{template}");
    }
}

#[test]
fn a_template_in_the_arguments_of_a_call_is_only_text() {
    let spec = spec(|spec| {
        spec["args"] = json!({"account": "{{ args.account }}", "x": "<{{ args.account }}>"})
    });
    let mut subject = subject();
    subject.args = json!({"account": "{{ key }} {% for x in range(9) %}<&"});
    let filled = filled(&spec.args, &subject).unwrap();
    assert_eq!(filled["account"], subject.args["account"]);
    assert_eq!(filled["x"], "<{{ key }} {% for x in range(9) %}<&>");
}

#[test]
fn an_answer_proves_what_its_author_said_and_nothing_else() {
    let plain = spec(|_| ());
    let careful = spec(|spec| {
        spec["not_applied_when"] =
            json!("(error and error.details.status == 404) or (result and result.charges == [])");
        spec["conflict_when"] = json!("result.charges | length > 1");
    });
    let result = |value: Value| Said::Result(value);
    let no = |status: u16| Said::No(json!({"code": "tool_error", "details": {"status": status}}));
    let unclear = |finding: &ProbeFinding| matches!(finding, ProbeFinding::Inconclusive(_));
    let judged = |spec: &ProbeSpec, said: Said| judge(spec, &subject(), &said);

    assert_eq!(
        judged(&plain, result(json!({"charges": [1]}))),
        ProbeFinding::Applied
    );
    assert_eq!(
        judged(&plain, result(json!({"charges": []}))),
        ProbeFinding::NotApplied
    );
    assert!(unclear(&judged(&plain, result(json!({"busy": true})))));
    assert!(unclear(&judged(&plain, result(json!(null)))));
    assert!(unclear(&judged(&plain, no(404))));

    assert_eq!(
        judged(&careful, result(json!({"charges": [1]}))),
        ProbeFinding::Applied
    );
    assert_eq!(
        judged(&careful, result(json!({"charges": [1, 2]}))),
        ProbeFinding::Conflict
    );
    assert_eq!(
        judged(&careful, result(json!({"charges": []}))),
        ProbeFinding::NotApplied
    );
    assert_eq!(judged(&careful, no(404)), ProbeFinding::NotApplied);
    assert!(unclear(&judged(&careful, no(409))));
}

#[test]
fn only_true_and_false_are_proof() {
    for expression in [
        "result.text",
        "result.number",
        "result.list",
        "result.nothing",
        "1 + 1",
    ] {
        let spec = spec(|spec| spec["applied_when"] = json!(expression));
        let said = Said::Result(json!({"text": "false", "number": 1, "list": [1]}));
        let finding = judge(&spec, &subject(), &said);
        assert!(
            matches!(finding, ProbeFinding::Inconclusive(_)),
            "{expression}: {finding:?}"
        );
    }
}

#[test]
fn what_takes_for_ever_is_inconclusive() {
    let spec = spec(|spec| {
        spec["applied_when"] = json!("range(100000) | map('string') | list | length > 0");
    });
    let finding = judge(&spec, &subject(), &Said::Result(json!({})));
    assert!(
        matches!(
            finding,
            ProbeFinding::Inconclusive(_) | ProbeFinding::Applied
        ),
        "{finding:?}"
    );
    let spec = self::spec(
        |spec| spec["args"] = json!({"x": "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}"}),
    );
    assert!(filled(&spec.args, &subject()).is_err());
}

#[test]
fn pauses_grow_to_five_minutes() {
    let call = subject().call_id;
    assert_eq!(pause(call, 0), Duration::from_secs(1));
    assert_eq!(pause(call, 3), Duration::from_secs(4));
    assert_eq!(pause(call, PROBES_MAX), Duration::from_secs(300));
}

#[test]
fn expressions_that_cannot_be_read_are_named() {
    let spec = spec(|spec| {
        spec["args"] = json!({"a": "{{ key", "b": ["{{ 1 + }}"]});
        spec["applied_when"] = json!("result ==");
        spec["conflict_when"] = json!("(");
    });
    let paths: Vec<String> = unreadable(&spec)
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    assert_eq!(
        paths,
        ["/args/a", "/args/b/0", "/applied_when", "/conflict_when"]
    );
}
