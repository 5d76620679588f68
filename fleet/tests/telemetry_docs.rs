//! Goal: what is written about telemetry is what the program does.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use fleet::telemetry::{definitions, fields, spans::Step};

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the package is in the workspace");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every name of a metric in a text, without the endings of a histogram's parts.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let names =
        words.filter(|word| word.starts_with("toolfleet_") || word.starts_with("gen_ai_client_"));
    names
        .map(|name| name.trim_end_matches("_bucket").to_owned())
        .collect()
}

fn defined() -> BTreeSet<String> {
    definitions::ALL
        .iter()
        .map(definitions::Definition::prometheus_name)
        .collect()
}

#[test]
fn every_metric_is_documented_as_it_is_defined() {
    let page = read("docs/telemetry.md");
    for define in definitions::ALL {
        let label = |label: &&str| format!("`{}`", label.replace('.', "_"));
        let labels: Vec<String> = define.labels.iter().map(label).collect();
        let labels = if labels.is_empty() {
            "–".to_owned()
        } else {
            labels.join(", ")
        };
        let kind = format!("{:?}", define.kind).to_lowercase();
        let (name, unit, help) = (define.prometheus_name(), define.unit, define.help);
        let row = format!("\n| `{name}` | {kind} | {unit} | {labels} | {help} |\n");
        assert!(page.contains(&row), "docs/telemetry.md lacks the row {row}");
    }
    assert_eq!(
        metrics_in(&page),
        defined(),
        "docs/telemetry.md names a metric that does not exist"
    );
}

#[test]
fn every_step_and_field_is_documented() {
    let page = read("docs/telemetry.md");
    for step in Step::ALL {
        assert!(
            page.contains(&format!("\n| `{step}` |")),
            "docs/telemetry.md lacks the span {step}"
        );
    }
    for field in [
        fields::CALL_ID,
        fields::ATTEMPT,
        fields::STEP,
        fields::WORKER_ID,
        fields::ERROR_TYPE,
        fields::MESSAGING_SYSTEM,
        fields::MESSAGING_OPERATION_NAME,
        fields::MESSAGING_OPERATION_TYPE,
        fields::MESSAGING_DESTINATION_NAME,
        fields::GEN_AI_OPERATION_NAME,
        fields::GEN_AI_TOOL_NAME,
        fields::GEN_AI_TOOL_CALL_ID,
        fields::GEN_AI_PROVIDER_NAME,
        fields::GEN_AI_REQUEST_MODEL,
        fields::GEN_AI_RESPONSE_MODEL,
        fields::GEN_AI_USAGE_INPUT_TOKENS,
        fields::GEN_AI_USAGE_OUTPUT_TOKENS,
        fields::MODEL_ROUTE,
    ] {
        assert!(
            page.contains(&format!("`{field}`")),
            "docs/telemetry.md lacks the field {field}"
        );
    }
}

#[test]
fn every_alert_names_what_there_is_and_one_section() {
    let page = read("docs/operations.md");
    let anchors: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(anchor)
        .collect();
    let alerts: serde_json::Value =
        yaml_serde::from_str(&read("deploy/alerts.yaml")).expect("alerts.yaml is YAML");
    let rules = alerts["groups"][0]["rules"]
        .as_array()
        .expect("a group has rules");
    let mut used = BTreeSet::new();
    for rule in rules {
        let name = rule["alert"].as_str().expect("an alert has a name");
        let expression = rule["expr"].as_str().expect("an alert has an expression");
        let metrics = metrics_in(expression);
        // Whether a process is reached at all Prometheus says itself.
        assert!(
            !metrics.is_empty() || expression.starts_with("up{"),
            "{name} names no metric"
        );
        assert!(
            metrics.is_subset(&defined()),
            "{name} names {metrics:?}, which does not exist"
        );
        let runbook = rule["annotations"]["runbook"]
            .as_str()
            .expect("an alert names its section");
        let section = runbook
            .strip_prefix("docs/operations.md#")
            .expect("a section of docs/operations.md");
        assert!(
            anchors.contains(section),
            "{name}: docs/operations.md has no section {section}"
        );
        used.insert(section.to_owned());
    }
    assert_eq!(
        used, anchors,
        "docs/operations.md has a section without an alert"
    );
    assert!(
        metrics_in(&page).is_subset(&defined()),
        "docs/operations.md names a metric that does not exist"
    );
}

#[test]
fn every_query_of_the_dashboard_names_metrics_that_exist() {
    let board: serde_json::Value =
        serde_json::from_str(&read("deploy/grafana/toolfleet.json")).expect("it is JSON");
    let panels = board["panels"].as_array().expect("panels").iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array());
    let queries = targets
        .flatten()
        .map(|target| target["expr"].as_str().expect("a query"));
    let variables = board["templating"]["list"].as_array().expect("variables");
    let definitions = variables
        .iter()
        .filter_map(|variable| variable["definition"].as_str());
    let named: BTreeSet<String> = queries.chain(definitions).flat_map(metrics_in).collect();
    assert!(!named.is_empty(), "the dashboard asks nothing");
    let unknown: Vec<_> = named.difference(&defined()).cloned().collect();
    assert!(unknown.is_empty(), "the dashboard names {unknown:?}");
}

/// The names of the alerts of a test that fire in some case, or that stay silent in one.
fn tried(cases: &serde_json::Value, fires: bool) -> BTreeSet<&str> {
    let groups = cases["tests"].as_array().expect("cases").iter();
    let tests = groups.flat_map(|group| group["alert_rule_test"].as_array().expect("a test"));
    let expected = |test: &&serde_json::Value| {
        let alerts = test["exp_alerts"].as_array().expect("what is expected");
        alerts.is_empty() != fires
    };
    let tests = tests.filter(expected);
    tests
        .map(|test| test["alertname"].as_str().expect("a name"))
        .collect()
}

#[test]
fn every_alert_fires_and_stays_silent_as_its_cases_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let alerts: serde_json::Value =
        yaml_serde::from_str(&read("deploy/alerts.yaml")).expect("alerts.yaml is YAML");
    let rules = alerts["groups"][0]["rules"].as_array().expect("rules");
    let names: BTreeSet<_> = rules
        .iter()
        .filter_map(|rule| rule["alert"].as_str())
        .collect();
    let cases: serde_json::Value =
        yaml_serde::from_str(&read("deploy/alerts.test.yaml")).expect("alerts.test.yaml is YAML");
    for fires in [true, false] {
        assert_eq!(
            tried(&cases, fires),
            names,
            "a case in which it fires: {fires}"
        );
    }
    #[expect(clippy::disallowed_methods, reason = "a test has no command line")]
    let promtool = std::env::var("TOOLFLEET_PROMTOOL").unwrap_or_else(|_unset| "promtool".into());
    for arguments in [
        ["check", "rules", "alerts.yaml"],
        ["test", "rules", "alerts.test.yaml"],
    ] {
        let mut command = Command::new(&promtool);
        let ran = command.args(arguments).current_dir(&folder).output();
        let ran = ran.unwrap_or_else(|error| {
            panic!("{promtool}: {error}; run `make setup`, then `. ./.tools/env`")
        });
        let said = [ran.stdout, ran.stderr].concat();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&said));
    }
}

fn anchor(heading: &str) -> String {
    heading.to_lowercase().replace(' ', "-")
}
