use serde_json::{Value, json};

use super::*;
use crate::{
    call::Effect,
    manifest::{ExecutorSpec, KeyPolicy, UnfitTool, WhenOpen, lint},
};

/// A manifest that is accepted, as JSON, with some fields replaced; `null` takes a field out.
fn with(changes: &Value) -> String {
    let mut manifest = json!({
        "name": "get_weather",
        "version": 1,
        "description": "The weather of a city for the next days.",
        "effect": "read",
        "input_schema": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "minLength": 1, "description": "The city, such as Oslo"},
                "days": {"type": "integer", "description": "How many days"},
                "key": {"type": "string", "description": "Filled in by us"},
            },
            "required": ["city"],
            "additionalProperties": false,
        },
        "executor": {"http": {"method": "GET", "url": "https://api.example.com/v1/{city}{?days}"}},
    });
    for (field, value) in changes.as_object().unwrap() {
        manifest[field] = value.clone();
    }
    manifest
        .as_object_mut()
        .unwrap()
        .retain(|_, value| !value.is_null());
    manifest.to_string()
}

fn http(changes: &Value) -> Value {
    let mut spec = json!({"method": "POST", "url": "https://api.example.com/v1"});
    spec.as_object_mut()
        .unwrap()
        .extend(changes.as_object().unwrap().clone());
    json!({"executor": {"http": spec}})
}

fn url(url: &str) -> Value {
    http(&json!({"url": url}))
}

fn process(changes: &Value) -> Value {
    let mut spec = json!({"command": ["python3", "tool.py"]});
    spec.as_object_mut()
        .unwrap()
        .extend(changes.as_object().unwrap().clone());
    json!({"executor": {"process": spec}})
}

/// A program, with other fields of the manifest changed.
fn program(changes: &Value) -> Value {
    let mut manifest = process(&json!({}));
    for (field, value) in changes.as_object().unwrap() {
        manifest[field] = value.clone();
    }
    manifest
}

/// A statement that expects so many rows.
fn rows(rows: &Value) -> Value {
    json!({"executor": {"sql": {"statement": "SELECT 1", "database": "fleet", "rows": rows}}})
}

fn sql(changes: &Value) -> Value {
    let mut manifest = json!({"executor": {"sql": {"statement": "SELECT 1", "database": "fleet"}}});
    let fields = changes.as_object().unwrap().clone();
    manifest.as_object_mut().unwrap().extend(fields);
    manifest
}

fn nats(subject: &str) -> Value {
    json!({"executor": {"nats": {"subject": subject}}})
}

fn problems(changes: &Value) -> Vec<ManifestProblem> {
    parse(&with(changes)).expect_err(&changes.to_string())
}

#[test]
fn a_manifest_in_yaml_is_read_with_its_defaults() {
    let manifest = parse(
        "name: charge_account\nversion: 3\ndescription: Charges an account.\neffect: once\ntimeout: 20s\n\
         output_limit: 64KiB\nretry: {strategy: fixed, max_attempts: 2, factor: 1.5, on: [timeout]}\n\
         input_schema:\n  type: object\n  properties: {amount_cents: {type: integer, maximum: 9007199254740993}}\n\
         executor:\n  process: {command: [python3, tool.py], env: {TOKEN: secret://PAY_TOKEN}}\n",
    )
    .unwrap();
    assert_eq!(manifest.name.as_str(), "charge_account");
    assert_eq!(
        (manifest.version, manifest.effect, manifest.output_limit),
        (3, Effect::Once, 65_536)
    );
    assert_eq!(
        (
            manifest.timeout.longest().as_secs(),
            manifest.deadline.as_secs()
        ),
        (20, 300)
    );
    assert_eq!(
        (manifest.retry.factor, manifest.retry.max_attempts),
        (1.5, 2)
    );
    assert_eq!(manifest.key_policy(), KeyPolicy::Required);
    assert_eq!(manifest.business_statuses, [400, 404, 409, 422]);
    assert_eq!(
        manifest.input_schema["properties"]["amount_cents"]["maximum"].to_string(),
        "9007199254740993"
    );
    assert!(matches!(manifest.executor, ExecutorSpec::Process(_)));
}

#[test]
fn what_is_stored_is_read_back() {
    let changes = [
        json!({}),
        url("http://[::1]:8080{/city}{;days}{&days*}"),
        process(&json!({"cwd": "/srv"})),
        json!({"effect": "idempotent", "idempotency": {"header": "Idempotency-Key", "valid_for": "48h"}}),
        json!({"effect": "idempotent", "idempotency": {"argument": "key"}}),
        json!({"effect": "once", "key": "from_arguments"}),
        json!({"retry": {"factor": 1}, "not_applied_statuses": [503], "key_retention": "8784h", "language": "zh"}),
    ];
    for changes in changes {
        let manifest =
            parse(&with(&changes)).unwrap_or_else(|problems| panic!("{changes}: {problems:?}"));
        assert_eq!(
            parse(&serde_json::to_string(&manifest).unwrap()).unwrap(),
            manifest
        );
    }
}

#[test]
fn a_breaker_takes_all_defaults_and_a_read_fails_while_a_write_waits() {
    let of = |changes: Value| parse(&with(&changes)).unwrap();
    let manifest = of(json!({"breaker": {}}));
    let breaker = manifest.breaker.as_ref().unwrap();
    assert_eq!(
        serde_json::to_value(breaker).unwrap(),
        json!({"window": "10s", "calls": 20, "failures": "50%", "open": "5s", "open_max": "1m", "probes": 1})
    );
    assert_eq!(manifest.when_open(), WhenOpen::Fail);
    let once = json!({"effect": "once", "breaker": {"slow": {"after": "2s"}}});
    assert_eq!(of(once).when_open(), WhenOpen::Wait);
    let written = of(json!({"breaker": {}, "when_open": "wait"}));
    assert_eq!(written.when_open(), WhenOpen::Wait);
    let again = parse(&serde_json::to_string(&written).unwrap()).unwrap();
    assert_eq!(again, written);
    assert_eq!(of(json!({})).breaker, None);
}

#[test]
fn a_caller_may_not_give_the_argument_that_carries_the_key() {
    let changes = json!({"effect": "idempotent", "idempotency": {"argument": "key"}});
    let manifest = parse(&with(&changes)).unwrap();
    let schema = Schema::compile_input(&manifest.caller_schema()).unwrap();
    assert!(schema.is_valid(&json!({"city": "Oslo"})));
    let violations = schema.validate(&json!({"city": "Oslo", "key": "k"}));
    assert_eq!(
        violations.summary().english(),
        r#"/key: expected no value here at all; leave it out, found string "k""#
    );
}

#[test]
fn everything_that_is_wrong_is_refused_at_its_place() {
    let idempotent =
        |idempotency: Value| json!({"effect": "idempotent", "idempotency": idempotency});
    let idempotent_process = |idempotency: Value| {
        let mut changes = process(&json!({}));
        changes["effect"] = json!("idempotent");
        changes["idempotency"] = idempotency;
        changes
    };
    let rows = [
        (json!({"name": null}), "/name", "missing"),
        (json!({"name": "Get Weather"}), "/name", "a-z, 0-9 and _"),
        (json!({"name": "a".repeat(65)}), "/name", "more than 64"),
        (json!({"version": 0}), "/version", "1 to 2147483647"),
        (
            json!({"version": "1"}),
            "/version",
            "not a whole number; write 1",
        ),
        (
            json!({"version": 3_000_000_000_u64}),
            "/version",
            "1 to 2147483647",
        ),
        (json!({"description": ""}), "/description", "it is empty"),
        (json!({"description": null}), "/description", "missing"),
        (json!({"efect": "read"}), "/efect", "write effect"),
        (json!({"remember": {}}), "/remember", "the fields here are"),
        (json!({"cache": {}}), "/cache/ttl", "missing"),
        (json!({"effect": null}), "/effect", "missing"),
        (json!({"effect": "reads"}), "/effect", "write read"),
        (
            json!({"effect": "transaction"}),
            "/effect",
            "needs a sql executor with database: fleet",
        ),
        (
            sql(&json!({"effect": "transaction", "key": "optional"})),
            "/key",
            "needs a key from every caller",
        ),
        (
            sql(
                &json!({"effect": "transaction", "executor": {"sql": {"statement": "SELECT 1", "database": "secret://DB"}}}),
            ),
            "/effect",
            "with database: fleet",
        ),
        (
            sql(
                &json!({"executor": {"sql": {"statement": "SELECT 1", "database": "postgres://u:p@h/d"}}}),
            ),
            "/executor/sql/database",
            "write fleet, or secret://NAME",
        ),
        (
            sql(
                &json!({"executor": {"sql": {"statement": "SELECT 1", "database": "secret://a b"}}}),
            ),
            "/executor/sql/database",
            "the name of a secret",
        ),
        (
            sql(&json!({"effect": "idempotent", "idempotency": {"header": "K"}})),
            "/idempotency/header",
            "nothing here has headers",
        ),
        (nats("a..b"), "/executor/nats/subject", "tokens with dots"),
        (nats("a.*"), "/executor/nats/subject", "without * and >"),
        (nats("a.>"), "/executor/nats/subject", "without * and >"),
        (
            nats("$JS.API.INFO"),
            "/executor/nats/subject",
            "the server and inboxes",
        ),
        (
            nats("_INBOX.x"),
            "/executor/nats/subject",
            "the server and inboxes",
        ),
        (
            nats("_INBOX_operator.x"),
            "/executor/nats/subject",
            "the server and inboxes",
        ),
        (
            json!({"output_schema": {"type": "nonsense"}}),
            "/output_schema/type",
            "array",
        ),
        (
            json!({"sensitive": {"pointers": ["card"]}}),
            "/sensitive/pointers/0",
            "write /card",
        ),
        (
            json!({"exit_codes": {"business": [0]}}),
            "/exit_codes/business/0",
            "1 to 125",
        ),
        (
            json!({"exit_codes": {"not_applied": [75]}}),
            "/exit_codes",
            "only a program has exit codes",
        ),
        (
            program(&json!({"exit_codes": {"not_applied": [75, 10]}})),
            "/exit_codes/not_applied/1",
            "10 stands in business too",
        ),
        (
            program(&json!({"business_statuses": [400]})),
            "/business_statuses",
            "a process tool has no HTTP statuses",
        ),
        (
            json!({"effect": "once", "key": "optional"}),
            "/key",
            "needs a key from every caller",
        ),
        (
            json!({"key": "sometimes"}),
            "/key",
            "write required, optional or from_arguments",
        ),
        (
            json!({"effect": "idempotent"}),
            "/idempotency",
            "{header: Idempotency-Key}",
        ),
        (idempotent(json!({})), "/idempotency", "exactly one"),
        (
            idempotent(json!({"header": "X-Key", "argument": "key"})),
            "/idempotency",
            "exactly one",
        ),
        (
            idempotent(json!({"argument": "id"})),
            "/idempotency/argument",
            "not a top-level property",
        ),
        (
            idempotent(json!({"argument": "city"})),
            "/idempotency/argument",
            "take it out of `required`",
        ),
        (
            idempotent(json!({"header": "X Key"})),
            "/idempotency/header",
            "no space",
        ),
        (
            idempotent(json!({"header": "Host"})),
            "/idempotency/header",
            "set for every request",
        ),
        (
            idempotent(json!({"header": "X-Key", "valid_for": "1s"})),
            "/idempotency/valid_for",
            "at least the timeout",
        ),
        (
            idempotent_process(json!({"header": "X-Key"})),
            "/idempotency/header",
            "TOOLFLEET_IDEMPOTENCY_KEY",
        ),
        (json!({"timeout": "0ms"}), "/timeout", "1ms or more"),
        (json!({"timeout": "10m"}), "/timeout", "the deadline is 5m"),
        (json!({"timeout": 30}), "/timeout", "write 30s"),
        (
            json!({"large_result": {"preview": "100B"}}),
            "/large_result/preview",
            "256B to 64KiB",
        ),
        (
            json!({"large_result": {"over": "1KiB"}}),
            "/large_result/over",
            "more than preview",
        ),
        (
            json!({"large_result": {"over": "many"}}),
            "/large_result/over",
            "32KiB",
        ),
        (
            json!({"large_result": {}, "sensitive": {"pointers": ["/a"]}}),
            "/large_result",
            "nothing would be masked",
        ),
        (json!({"name": "read_result"}), "/name", "another name"),
        (json!({"name": "find_tools"}), "/name", "another name"),
        (
            json!({"tool_selection": {}}),
            "/tool_selection",
            "only a chat tool",
        ),
        (
            json!({"tool_selection": {"max": 129}}),
            "/tool_selection/max",
            "1 to 128",
        ),
        (
            json!({"tool_selection": {"from": "tools"}}),
            "/tool_selection/from",
            "write request",
        ),
        (
            json!({"tool_selection": {"always": ["a", "a"]}}),
            "/tool_selection/always",
            "twice",
        ),
        (
            json!({"delegates": [{"tool": "a", "keywords": [{"word": "refund", "weight": 5}]}]}),
            "/delegates",
            "only a model",
        ),
        (
            json!({"delegates": [{"tool": "a", "keywords": [{"word": "refund", "weight": 11}]}]}),
            "/delegates/0/keywords/0/weight",
            "1 to 10",
        ),
        (json!({"name": "todo_write"}), "/name", "another name"),
        (json!({"todo": {}}), "/todo", "a chat tool alone"),
        (
            json!({"todo": {"directive": true}}),
            "/todo/directive",
            "directives",
        ),
        (json!({"todo": true}), "/todo", ""),
        (json!({"timeout": "30"}), "/timeout", "write 30s"),
        (json!({"deadline": "25h"}), "/deadline", "at most 24h"),
        (
            json!({"breaker": null, "when_open": "wait"}),
            "/when_open",
            "write breaker: {}",
        ),
        (
            json!({"breaker": {}, "when_open": "later"}),
            "/when_open",
            "write fail or wait",
        ),
        (
            json!({"breaker": {"window": "0s"}}),
            "/breaker/window",
            "at least 1s",
        ),
        (
            json!({"breaker": {"window": "11m"}}),
            "/breaker/window",
            "at most 10m",
        ),
        (
            json!({"breaker": {"window": 10}}),
            "/breaker/window",
            "write 10s",
        ),
        (
            json!({"breaker": {"calls": 0}}),
            "/breaker/calls",
            "1 to 100000",
        ),
        (
            json!({"breaker": {"calls": 100_001}}),
            "/breaker/calls",
            "1 to 100000",
        ),
        (
            json!({"breaker": {"failures": "0%"}}),
            "/breaker/failures",
            "write 50%",
        ),
        (
            json!({"breaker": {"failures": "101%"}}),
            "/breaker/failures",
            "write 50%",
        ),
        (
            json!({"breaker": {"failures": "30"}}),
            "/breaker/failures",
            "write 30%",
        ),
        (
            json!({"breaker": {"failures": 0.5}}),
            "/breaker/failures",
            "50%",
        ),
        (
            json!({"breaker": {"slow": {}}}),
            "/breaker/slow/after",
            "missing",
        ),
        (
            json!({"breaker": {"slow": {"after": "0ms"}}}),
            "/breaker/slow/after",
            "less than the timeout",
        ),
        (
            json!({"breaker": {"slow": {"after": "30s"}}}),
            "/breaker/slow/after",
            "less than the timeout",
        ),
        (
            json!({"breaker": {"slow": {"after": "1s", "share": "0%"}}}),
            "/breaker/slow/share",
            "write 50%",
        ),
        (
            json!({"breaker": {"open": "99ms"}}),
            "/breaker/open",
            "at least 100ms",
        ),
        (
            json!({"breaker": {"open": "61s", "open_max": "1m"}}),
            "/breaker/open",
            "open <= open_max",
        ),
        (
            json!({"breaker": {"open_max": "2h"}}),
            "/breaker/open_max",
            "at most 1h",
        ),
        (
            json!({"breaker": {"probes": 0}}),
            "/breaker/probes",
            "1 to 10",
        ),
        (
            json!({"breaker": {"probes": 11}}),
            "/breaker/probes",
            "1 to 10",
        ),
        (
            json!({"breaker": {"failure": "50%"}}),
            "/breaker/failure",
            "write failures",
        ),
        (json!({"breaker": "on"}), "/breaker", "write {"),
        (
            json!({"key_retention": "1h"}),
            "/key_retention",
            "at least 24h",
        ),
        (
            json!({"key_retention": "8785h"}),
            "/key_retention",
            "366 days",
        ),
        (
            json!({"retry": {"max_attempts": 0}}),
            "/retry/max_attempts",
            "1 to 20",
        ),
        (
            json!({"retry": {"max_attempts": 21}}),
            "/retry/max_attempts",
            "1 to 20",
        ),
        (
            json!({"retry": {"factor": 0.5}}),
            "/retry/factor",
            "1 to 10",
        ),
        (json!({"retry": {"factor": 11}}), "/retry/factor", "1 to 10"),
        (
            json!({"retry": {"budget": -0.1}}),
            "/retry/budget",
            "0 to 1",
        ),
        (json!({"retry": {"budget": 1.1}}), "/retry/budget", "0 to 1"),
        (json!({"timeout": "30"}), "/timeout", "write 30s"),
        (
            json!({"timeout": {"floor": "2s"}}),
            "/timeout/learned",
            "write learned: p95x2",
        ),
        (
            json!({"timeout": {"learned": "p50"}}),
            "/timeout/learned",
            "p95x2",
        ),
        (
            json!({"timeout": {"learned": "p95x2", "floor": "9s", "ceiling": "8s"}}),
            "/timeout/floor",
            "floor <= ceiling",
        ),
        (
            json!({"timeout": {"learned": "p95x2", "floor": "0s"}}),
            "/timeout/floor",
            "1ms or more",
        ),
        (
            json!({"timeout": {"learned": "p95x2", "initial": "31s"}}),
            "/timeout/initial",
            "write 1s to 30s",
        ),
        (
            json!({"timeout": {"learned": "p95x2", "initial": "500ms"}}),
            "/timeout/initial",
            "write 1s to 30s",
        ),
        (
            json!({"timeout": {"learned": "p99x3", "ceiling": "6m"}}),
            "/timeout/ceiling",
            "the deadline is 5m",
        ),
        (
            json!({"retry": {"base": "31s"}}),
            "/retry/base",
            "base <= cap",
        ),
        (
            json!({"retry": {"cap": "25h"}}),
            "/retry/cap",
            "at most 24h",
        ),
        (
            json!({"retry": {"strategy": "linear"}}),
            "/retry/strategy",
            "none, fixed, exponential",
        ),
        (
            json!({"retry": {"on": ["tool_error"]}}),
            "/retry/on/0",
            "is not one of timeout",
        ),
        (json!({"retry": {"on": []}}), "/retry/on", "it is empty"),
        (
            json!({"retry": {"jitter": true}}),
            "/retry/jitter",
            "the fields here are",
        ),
        (
            json!({"business_statuses": [99]}),
            "/business_statuses/0",
            "100 to 599",
        ),
        (
            json!({"business_statuses": [600]}),
            "/business_statuses/0",
            "100 to 599",
        ),
        (
            json!({"business_statuses": [400, 204]}),
            "/business_statuses/1",
            "is a success",
        ),
        (
            json!({"not_applied_statuses": [200]}),
            "/not_applied_statuses/0",
            "is a success",
        ),
        (
            json!({"not_applied_statuses": [503, 409]}),
            "/not_applied_statuses/1",
            "keep it in one list",
        ),
        (json!({"output_limit": 0}), "/output_limit", "1 to 8388608"),
        (json!({"output_limit": "0B"}), "/output_limit", "1B to 8MiB"),
        (
            json!({"output_limit": 8_388_609}),
            "/output_limit",
            "1 to 8388608",
        ),
        (
            json!({"output_limit": "9MiB"}),
            "/output_limit",
            "1B to 8MiB",
        ),
        (
            json!({"output_limit": "1MB"}),
            "/output_limit",
            "64KiB, 1MiB",
        ),
        (json!({"queue": "a.b"}), "/queue", "a-z, 0-9, _ and -"),
        (json!({"language": "de"}), "/language", "write en or zh"),
        (
            rows(&json!({"min": 3, "max": 2})),
            "/executor/sql/rows",
            "write min <= max",
        ),
        (
            rows(&json!({"min": 0})),
            "/executor/sql/rows",
            "write {min: 1}",
        ),
        (rows(&json!({})), "/executor/sql/rows", "{max: 1, min: 1}"),
        (rows(&json!(2)), "/executor/sql/rows", "{max: 1, min: 1}"),
        (
            rows(&json!({"max": 10_001})),
            "/executor/sql/rows/max",
            "write 0 to 10000",
        ),
        (
            rows(&json!({"min": -1})),
            "/executor/sql/rows/min",
            "write 0 to 10000",
        ),
        (
            rows(&json!({"exactly": 2})),
            "/executor/sql/rows/exactly",
            "max",
        ),
        (json!({"executor": null}), "/executor", "missing"),
        (json!({"executor": {}}), "/executor", "it is empty"),
        (
            json!({"executor": {"ftp": {}}}),
            "/executor/ftp",
            "write http",
        ),
        (
            json!({"executor": {"process": {"command": ["a"]}, "http": {"method": "GET", "url": "http://a/"}}}),
            "/executor",
            "keep http or process",
        ),
        (
            http(&json!({"method": "HEAD"})),
            "/executor/http/method",
            "GET, POST",
        ),
        (
            http(&json!({"method": "get"})),
            "/executor/http/method",
            "write GET",
        ),
        (
            url("ftp://api.example.com/"),
            "/executor/http/url",
            "http:// or https://",
        ),
        (
            url("{city}://api.example.com/"),
            "/executor/http/url",
            "http:// or https://",
        ),
        (
            url("https://{city}/"),
            "/executor/http/url",
            "the host must be literal",
        ),
        (
            url("https://{city}.example.com/"),
            "/executor/http/url",
            "the host must be literal",
        ),
        (
            url("https://api.example.com:{days}/"),
            "/executor/http/url",
            "the port must be literal",
        ),
        (
            url("https://api.example.com{city}"),
            "/executor/http/url",
            "scheme, host and port must be literal",
        ),
        (
            url("https://api.example.com\\{city}"),
            "/executor/http/url",
            "scheme, host and port must be literal",
        ),
        (
            url("https://user:pw@api.example.com/"),
            "/executor/http/url",
            "secret://NAME",
        ),
        (
            url("https://api.example.com:99999/"),
            "/executor/http/url",
            "1 to 65535",
        ),
        (
            url("https:///x"),
            "/executor/http/url",
            "the host must be literal",
        ),
        (
            url("https://api.example.com/{town}"),
            "/executor/http/url",
            "{town} is not a top-level property",
        ),
        (
            url("https://api.example.com/{days}"),
            "/executor/http/url",
            "add it to `required`",
        ),
        (
            url("https://api.example.com/{city"),
            "/executor/http/url",
            "in pairs",
        ),
        (
            url("https://api.example.com/city}"),
            "/executor/http/url",
            "in pairs",
        ),
        (
            url("https://api.example.com/{ci ty}"),
            "/executor/http/url",
            "percent-encoded",
        ),
        (
            url("https://api.example.com/{}"),
            "/executor/http/url",
            "not an expression",
        ),
        (
            url("https://api.example.com/{#city}"),
            "/executor/http/url",
            "not an expression",
        ),
        (
            url("https://api.example.com/{city:0}"),
            "/executor/http/url",
            "not an expression",
        ),
        (
            url("https://api.example.com/{city}#top"),
            "/executor/http/url",
            "no fragment",
        ),
        (
            url("https://api.example.com/{city} x"),
            "/executor/http/url",
            "percent-encoded",
        ),
        (
            http(&json!({"headers": {"X Y": "1"}})),
            "/executor/http/headers/X Y",
            "no space",
        ),
        (
            http(&json!({"headers": {"Host": "a"}})),
            "/executor/http/headers/Host",
            "set for every request",
        ),
        (
            http(&json!({"headers": {"Content-Length": "1"}})),
            "/executor/http/headers/Content-Length",
            "leave it out",
        ),
        (
            http(&json!({"headers": {"Toolfleet-X": "1"}})),
            "/executor/http/headers/Toolfleet-X",
            "leave it out",
        ),
        (
            http(&json!({"headers": {"Idempotency-Key": "1"}})),
            "/executor/http/headers/Idempotency-Key",
            "leave it out",
        ),
        (
            http(&json!({"headers": {"Traceparent": "1"}})),
            "/executor/http/headers/Traceparent",
            "leave it out",
        ),
        (
            http(&json!({"headers": {"X-A": "1", "x-a": "2"}})),
            "/executor/http/headers/x-a",
            "twice",
        ),
        (
            http(&json!({"headers": {"X-A": "a\r\nb"}})),
            "/executor/http/headers/X-A",
            "control character",
        ),
        (
            http(&json!({"headers": {"X-A": "{town}"}})),
            "/executor/http/headers/X-A",
            "not a top-level property",
        ),
        (
            http(&json!({"headers": {"X-A": "Bearer {city}"}})),
            "/executor/http/headers/X-A",
            "must stand alone",
        ),
        (
            http(&json!({"headers": {"X-A": "secret://../x"}})),
            "/executor/http/headers/X-A",
            "name of a secret",
        ),
        (
            http(&json!({"query": {"q": "{town}"}})),
            "/executor/http/query/q",
            "not a top-level property",
        ),
        (
            http(&json!({"body": {"a": ["{town}"]}})),
            "/executor/http/body/a/0",
            "not a top-level property",
        ),
        (
            http(&json!({"body": {"a": "secret://X"}})),
            "/executor/http/body/a",
            "not in the body",
        ),
        (
            http(&json!({"method": "GET", "body": {}})),
            "/executor/http/body",
            "a GET has no body",
        ),
        (
            process(&json!({"command": []})),
            "/executor/process/command",
            "it is empty",
        ),
        (
            process(&json!({"command": [""]})),
            "/executor/process/command/0",
            "it is empty",
        ),
        (
            process(&json!({"command": "ls -l"})),
            "/executor/process/command",
            "not a list; write [ls, ",
        ),
        (
            process(&json!({"env": {"1A": "x"}})),
            "/executor/process/env/1A",
            "no digit first",
        ),
        (
            process(&json!({"env": {"A=B": "x"}})),
            "/executor/process/env/A=B",
            "letters, digits and _",
        ),
        (
            process(&json!({"env": {"TOOLFLEET_X": "x"}})),
            "/executor/process/env/TOOLFLEET_X",
            "use another name",
        ),
        (
            process(&json!({"env": {"A": "secret://"}})),
            "/executor/process/env/A",
            "name of a secret",
        ),
        (
            process(&json!({"shell": true})),
            "/executor/process/shell",
            "the fields here are",
        ),
        (
            json!({"executor": {"own": {"kind": "journal", "spec": {"to": [{"a/b": "secret://../x"}]}}}}),
            "/executor/own/spec/to/0/a~1b",
            "name of a secret",
        ),
        (
            json!({"executor": {"own": {"kind": "Journal"}}}),
            "/executor/own/kind",
            "",
        ),
        (
            json!({"executor": {"own": {"kind": "journal", "file": "x"}}}),
            "/executor/own/file",
            "the fields here are",
        ),
        (
            json!({"executor": {"own": {"kind": "journal"}}, "exit_codes": {"business": [3]}}),
            "/exit_codes",
            "this is a journal tool",
        ),
        (
            json!({"input_schema": {"type": "array"}}),
            "/input_schema/type",
            "type: object",
        ),
        (
            json!({"input_schema": {"type": "object", "properties": {"city": {"type": "text"}}, "required": ["city"]}}),
            "/input_schema/properties/city/type",
            "write string",
        ),
        (
            json!({"input_schema": {"type": "object", "properties": {"city": {"$ref": "http://x/y"}}, "required": ["city"]}}),
            "/input_schema/properties/city/$ref",
            "only point into this schema",
        ),
    ];
    for (changes, path, why) in &rows {
        let found = problems(changes);
        let hit = found
            .iter()
            .find(|problem| problem.path == *path && problem.message.contains(why));
        assert!(
            hit.is_some(),
            "{changes}\nexpected {path}: …{why}…\nfound {found:#?}"
        );
    }
}

#[test]
fn everything_is_said_at_once() {
    let fields = problems(&json!({"name": "A", "version": 0, "effect": "x", "colour": 1}));
    let paths: Vec<_> = fields.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["/colour", "/effect", "/name", "/version"]);

    let together = problems(
        &json!({"timeout": "10m", "key_retention": "1h", "retry": {"base": "1m"}, "effect": "idempotent"}),
    );
    let paths: Vec<_> = together
        .iter()
        .map(|problem| problem.path.as_str())
        .collect();
    assert_eq!(
        paths,
        ["/idempotency", "/timeout", "/key_retention", "/retry/base"]
    );

    let many: Value = (0..50)
        .map(|n| (format!("x{n}"), json!(1)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    assert!(
        problems(&many)
            .last()
            .unwrap()
            .message
            .contains("more problems")
    );
}

#[test]
fn a_text_that_is_no_manifest_is_refused() {
    for (text, why) in [
        ("", "an empty file is no manifest"),
        ("just words", "a text is no manifest"),
        ("a: [", "not a manifest in YAML or JSON"),
        ("name: a\nname: b\n", "stands twice"),
        (&"#".repeat(256 * 1024 + 1), "at most 262144"),
    ] {
        let found = parse(text).unwrap_err();
        assert!(found[0].message.contains(why), "{found:?}");
    }
}

#[test]
fn every_effect_may_take_its_key_from_the_arguments() {
    for changes in [
        json!({"effect": "read"}),
        json!({"effect": "once"}),
        json!({"effect": "idempotent", "idempotency": {"header": "Idempotency-Key"}}),
    ] {
        let mut changes = changes;
        changes["key"] = json!("from_arguments");
        let manifest = parse(&with(&changes)).unwrap();
        assert_eq!(manifest.key_policy(), KeyPolicy::FromArguments, "{changes}");
        // The answer to a question grows old; the outcome of a write does not.
        let warned = lint(&manifest).iter().any(|warning| warning.path == "/key");
        assert_eq!(warned, manifest.effect == Effect::Read, "{changes}");
    }
}

#[test]
fn a_limit_is_a_number_that_a_fleet_can_have() {
    for limit in [1, 1_000] {
        let manifest = parse(&with(&json!({"concurrency": limit}))).unwrap();
        assert_eq!(manifest.concurrency, Some(limit));
    }
    for refused in [json!(0), json!(-1), json!(1_001), json!(1.5), json!("4")] {
        let problems = parse(&with(&json!({"concurrency": refused}))).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].path, "/concurrency");
        assert!(problems[0].message.contains("; write "), "{problems:?}");
    }
}

#[test]
fn a_repeat_cap_is_a_number_and_the_default_is_not_written_down() {
    let manifest = parse(&with(&json!({}))).unwrap();
    assert_eq!(manifest.repeat_cap, Manifest::REPEAT_CAP);
    let written = serde_json::to_value(&manifest).unwrap();
    assert_eq!(written.get("repeat_cap"), None);
    for cap in [0, 1, 1_000] {
        let manifest = parse(&with(&json!({"repeat_cap": cap}))).unwrap();
        assert_eq!(serde_json::to_value(&manifest).unwrap()["repeat_cap"], cap);
    }
    for refused in [json!(-1), json!(1_001), json!(1.5), json!("5")] {
        let problems = parse(&with(&json!({"repeat_cap": refused}))).unwrap_err();
        let [problem] = problems.as_slice() else {
            panic!("{problems:?}");
        };
        assert_eq!(problem.path, "/repeat_cap");
    }
}

#[test]
fn a_fallback_is_of_a_read_and_answers_as_the_tool_could() {
    let output = json!({"type": "object", "required": ["temp"], "properties": {"temp": {"type": "integer"}}});
    let cache = json!({"ttl": "5m"});
    let whole = json!({
        "tool": {"name": "get_climate", "args": {"place": "{{ args.city }}"}},
        "stale": {"max_age": "168h"},
        "stub": {"temp": 10},
    });
    let all = json!({"fallback": whole, "cache": cache, "output_schema": output});
    let written = serde_json::to_value(parse(&with(&all)).unwrap()).unwrap();
    // What is stored is what was written.
    assert_eq!(written["fallback"], whole);
    for fallback in [
        json!({"tool": {"name": "get_climate"}}),
        json!({"stub": []}),
        json!({"stub": false}),
    ] {
        parse(&with(&json!({"fallback": fallback}))).unwrap();
    }
    let masked = json!({"fallback": {"stub": 1}, "sensitive": {"pointers": ["/a"]}});
    parse(&with(&masked)).unwrap();
    // The release before reads every manifest that does not use it.
    let written = serde_json::to_value(parse(&with(&json!({}))).unwrap()).unwrap();
    assert_eq!(written.get("fallback"), None);

    let stale =
        |max_age: &str| json!({"fallback": {"stale": {"max_age": max_age}}, "cache": cache});
    let stub = |stub: Value| json!({"fallback": {"stub": stub}, "output_schema": output});
    let tool =
        |name: &str, args: Value| json!({"fallback": {"tool": {"name": name, "args": args}}});
    for (refused, path, write) in [
        (json!({"fallback": true}), "/fallback", ""),
        (json!({"fallback": {}}), "/fallback", "write"),
        (
            json!({"fallback": {"stub": null}}),
            "/fallback",
            "it names nothing",
        ),
        (json!({"fallback": {"answer": 1}}), "/fallback/answer", ""),
        (
            json!({"fallback": {"stub": 1}, "effect": "once"}),
            "/fallback",
            "leave fallback out",
        ),
        (
            json!({"fallback": {"stub": 1}, "sensitive": {"pointers": ["/a"], "mode": "omit"}}),
            "/fallback",
            "write mode: mask",
        ),
        (
            json!({"fallback": {"stale": {"max_age": "1h"}}}),
            "/fallback/stale",
            "write a cache",
        ),
        (
            json!({"fallback": {"stale": {}}}),
            "/fallback/stale/max_age",
            "missing",
        ),
        (stale("0s"), "/fallback/stale/max_age", "write 1ms to 168h"),
        (
            stale("169h"),
            "/fallback/stale/max_age",
            "write 1ms to 168h",
        ),
        (
            stub(json!({"temp": "cold"})),
            "/fallback/stub/temp",
            "output_schema",
        ),
        (stub(json!({})), "/fallback/stub/temp", "output_schema"),
        (stub(json!("x".repeat(70_000))), "/fallback/stub", "64KiB"),
        (
            tool("get_weather", json!({})),
            "/fallback/tool/name",
            "cannot stand in for itself",
        ),
        (tool("get_climate", json!([])), "/fallback/tool/args", ""),
        (
            tool("get_climate", json!({"place": "{{ args. }}"})),
            "/fallback/tool/args/place",
            "",
        ),
        (
            json!({"fallback": {"tool": {"args": {}}}}),
            "/fallback/tool/name",
            "missing",
        ),
    ] {
        let problems = parse(&with(&refused)).unwrap_err();
        let [problem] = problems.as_slice() else {
            panic!("{problems:?}");
        };
        assert_eq!(problem.path, path, "{refused}: {problem:?}");
        assert!(problem.message.contains(write), "{problem:?}");
    }
}

#[test]
fn a_tool_stands_in_for_another_only_if_it_changes_nothing_and_needs_nothing_of_its_own() {
    let queue = "default".parse().unwrap();
    let fit = |changes: Value| parse(&with(&changes)).unwrap().unfit_to_stand_in(&queue);
    assert_eq!(fit(json!({})), None);
    assert_eq!(fit(json!({"cache": {"ttl": "5m"}, "breaker": {}})), None);
    let put = json!({"effect": "once"});
    for (changes, why) in [
        (put, UnfitTool::Writes),
        (json!({"concurrency": 2}), UnfitTool::Limited),
        (
            json!({"rate_limit": {"calls": 1, "per": "1s"}}),
            UnfitTool::Limited,
        ),
        (json!({"policy": {"after": ["confirm"]}}), UnfitTool::Ruled),
        (json!({"fallback": {"stub": 1}}), UnfitTool::FallsBack),
        (json!({"queue": "dmz"}), UnfitTool::Elsewhere),
        (
            json!({"sensitive": {"pointers": ["/a"]}}),
            UnfitTool::Sensitive,
        ),
    ] {
        assert_eq!(fit(changes.clone()), Some(why), "{changes}");
        assert!(!why.reason().is_empty());
    }
}

#[test]
fn a_cache_is_of_a_read_whose_answers_are_kept_whole() {
    for ttl in ["1ms", "5m", "24h"] {
        let manifest = parse(&with(&json!({"cache": {"ttl": ttl}}))).unwrap();
        // What is stored is what was written.
        let written = serde_json::to_value(&manifest).unwrap();
        assert_eq!(written["cache"], json!({"ttl": ttl}));
    }
    let masked = json!({"cache": {"ttl": "5m"}, "sensitive": {"pointers": ["/a"]}});
    parse(&with(&masked)).unwrap();
    // The release before reads every manifest that does not use it.
    let written = serde_json::to_value(parse(&with(&json!({}))).unwrap()).unwrap();
    assert_eq!(written.get("cache"), None);
    let omitted =
        json!({"cache": {"ttl": "5m"}, "sensitive": {"pointers": ["/a"], "mode": "omit"}});
    let ttl = |ttl: Value| json!({"cache": {"ttl": ttl}});
    for (refused, path, write) in [
        (json!({"cache": {}}), "/cache/ttl", "missing"),
        (
            json!({"cache": {"ttl": "5m", "by": "tenant"}}),
            "/cache/by",
            "",
        ),
        (ttl(json!("0s")), "/cache/ttl", "write 1ms to 24h"),
        (ttl(json!("25h")), "/cache/ttl", "write 1ms to 24h"),
        (ttl(json!(300)), "/cache/ttl", "write 300s"),
        (ttl(json!("1d")), "/cache/ttl", "write 24h"),
        (omitted, "/cache", "write mode: mask"),
        (
            json!({"effect": "once", "cache": {"ttl": "5m"}}),
            "/cache",
            "leave cache out",
        ),
    ] {
        let problems = parse(&with(&refused)).unwrap_err();
        let [problem] = problems.as_slice() else {
            panic!("{problems:?}");
        };
        assert_eq!(problem.path, path, "{refused}");
        assert!(problem.message.contains(write), "{problem:?}");
    }
}

#[test]
fn a_rate_is_a_number_in_a_time_or_the_name_of_a_shared_one() {
    for accepted in [
        json!({"calls": 50, "per": "1s"}),
        json!({"calls": 1, "per": "24h", "burst": 10_000, "by": "tenant"}),
        json!({"calls": 100, "per": "1ms", "burst": 1, "by": "tool"}),
        json!({"calls": 1_000_000, "per": "10s"}),
        json!({"calls": 5, "per": "1s", "by": "/city"}),
        json!({"share": "bank-1"}),
    ] {
        let manifest = parse(&with(&json!({"rate_limit": accepted}))).unwrap();
        assert!(manifest.is_limited());
        // What is stored is what was written.
        let written = serde_json::to_value(&manifest).unwrap();
        assert_eq!(written["rate_limit"], accepted);
    }
    let manifest = parse(&with(&json!({}))).unwrap();
    assert!(!manifest.is_limited());
    // The release before reads every manifest that does not use it.
    let written = serde_json::to_value(&manifest).unwrap();
    assert_eq!(written.get("rate_limit"), None);
}

#[test]
fn a_rate_that_makes_no_sense_is_refused_with_what_to_write() {
    let per = |per: &str| json!({"calls": 5, "per": per});
    let of = |field: &str, value: Value| {
        let mut limit = json!({"calls": 5, "per": "1s"});
        limit[field] = value;
        limit
    };
    for (refused, path, write) in [
        (json!({}), "", "write calls and per, or share"),
        (json!({"burst": 3}), "", "such as {calls: 50, per: 1s}"),
        (json!({"calls": 5}), "", "such as {calls: 50, per: 1s}"),
        (json!({"per": "1s"}), "", "such as {calls: 50, per: 1s}"),
        (json!({"by": "tenant"}), "", "such as {calls: 50, per: 1s}"),
        (
            of("calls", json!(0)),
            "/calls",
            "write 1 to 1000000, or leave the field out",
        ),
        (of("calls", json!(1_000_001)), "/calls", "write 1 to 1000"),
        (of("calls", json!(1.5)), "/calls", "; write "),
        (of("calls", json!("5")), "/calls", "write 5"),
        (json!({"calls": 101, "per": "1ms"}), "/calls", "write fewer"),
        (per("0s"), "/per", "write 1ms to 24h"),
        (per("25h"), "/per", "write 1ms to 24h"),
        (per("1d"), "/per", "write 24h"),
        (of("per", json!(1)), "/per", "write 1s"),
        (of("burst", json!(0)), "/burst", "write 1 to 10000"),
        (of("burst", json!(10_001)), "/burst", "write 1 to 10000"),
        (
            of("by", json!("session")),
            "/by",
            "write tool, tenant, or /session for each value of that argument",
        ),
        (
            of("by", json!("account.id")),
            "/by",
            "or /account/id for each value of that argument",
        ),
        (
            of("by", json!("")),
            "/by",
            "write tool, tenant, or the JSON pointer of an argument, such as /account/id",
        ),
        (of("by", json!("/a~2")), "/by", "such as /account/id"),
        (of("by", json!("/a/")), "/by", "write tool, tenant"),
        (of("by", json!(7)), "/by", "; write "),
        (
            of("by", json!("/account/id")),
            "/by",
            "/account/id is no property that input_schema declares; write the pointer of a required argument",
        ),
        (
            json!({"by": "/account/id"}),
            "",
            "such as {calls: 50, per: 1s}",
        ),
        (
            json!({"share": "bank", "by": "/a"}),
            "/share",
            "write share alone",
        ),
        (
            of("share", json!("bank")),
            "/share",
            "write share alone, or calls and per",
        ),
        (
            json!({"share": "bank", "burst": 2}),
            "/share",
            "write share alone",
        ),
        (
            json!({"share": "bank", "by": "tool"}),
            "/share",
            "write share alone",
        ),
        (json!({"share": "The Bank"}), "/share", "write the_bank"),
        (
            of("window", json!("1s")),
            "/window",
            "there is no such field",
        ),
        (json!("50/s"), "", "; write "),
    ] {
        let problems = parse(&with(&json!({"rate_limit": refused}))).unwrap_err();
        let [problem] = problems.as_slice() else {
            panic!("{refused}: {problems:?}");
        };
        assert_eq!(problem.path, format!("/rate_limit{path}"), "{refused}");
        assert!(problem.message.contains(write), "{refused}: {problem:?}");
    }
}

#[test]
fn a_limit_by_value_needs_an_argument_that_every_call_has_and_anybody_may_see() {
    let with_schema = |a: Value, by: &str, more: Value| {
        let mut changes = json!({
            "rate_limit": {"calls": 5, "per": "1s", "by": by},
            "input_schema": {"type": "object", "required": ["a"], "properties": {"a": a, "b": {"type": "string"}}},
            "executor": {"native": {"handler": "weather"}},
        });
        for (name, value) in more.as_object().unwrap() {
            changes[name] = value.clone();
        }
        parse(&with(&changes))
    };
    let account = json!({"type": "object", "required": ["id"], "properties": {
        "id": {"type": "integer"}, "name": {"type": "string"}}});
    let manifest = with_schema(account.clone(), "/a/id", json!({})).unwrap();
    assert_eq!(manifest.rate_pointer(), Some("/a/id"));
    let masked = |pointer: &str| json!({"sensitive": {"pointers": [pointer]}});
    with_schema(account.clone(), "/a/id", masked("/b")).unwrap();
    for (by, more, why) in [
        ("/b", json!({}), "/b may be missing"),
        ("/a/name", json!({}), "/a/name may be missing"),
        (
            "/a",
            json!({}),
            "/a is not always a text, a number, or true or false",
        ),
        (
            "/c",
            json!({}),
            "/c is no property that input_schema declares",
        ),
        ("/a/id", masked("/a/id"), "/a/id is sensitive"),
        ("/a/id", masked("/a"), "/a/id is sensitive"),
        ("/a/id", masked("/*/id"), "/a/id is sensitive"),
    ] {
        let problems = with_schema(account.clone(), by, more).unwrap_err();
        let [problem] = problems.as_slice() else {
            panic!("{by}: {problems:?}");
        };
        assert_eq!(problem.path, "/rate_limit/by", "{by}");
        assert!(problem.message.contains(why), "{problem:?}");
        assert!(
            problem.message.contains("; write the pointer of "),
            "{problem:?}"
        );
    }
    for kind in ["array", "null", "object"] {
        let problems = with_schema(json!({"type": kind}), "/a", json!({})).unwrap_err();
        assert!(
            problems[0].message.contains("is not always a text"),
            "{kind}: {problems:?}"
        );
    }
}

#[test]
fn a_call_can_be_refused_over_a_limit_that_is_there() {
    let with_limit = |on_limit: &str| {
        let limit = json!({"rate_limit": {"calls": 5, "per": "1s"}, "on_limit": on_limit});
        parse(&with(&limit))
    };
    let refuses = with_limit("refuse").unwrap();
    assert!(refuses.refuses_over_limit());
    assert_eq!(
        serde_json::to_value(&refuses).unwrap()["on_limit"],
        "refuse"
    );
    assert!(!with_limit("wait").unwrap().refuses_over_limit());
    let problems = with_limit("drop").unwrap_err();
    assert_eq!(problems[0].path, "/on_limit");
    assert!(
        problems[0].message.contains("write wait or refuse"),
        "{problems:?}"
    );
    let problems = parse(&with(&json!({"on_limit": "refuse"}))).unwrap_err();
    assert_eq!(problems[0].path, "/on_limit");
    assert!(
        problems[0]
            .message
            .contains("; write one, or leave on_limit out"),
        "{problems:?}"
    );
}

#[test]
fn a_policy_has_rules_and_is_stored_as_it_is_written() {
    let names: Vec<String> = (0..32).map(|n| format!("tool_{n}")).collect();
    for accepted in [
        json!({"at_most": {"calls": 1, "per": "run"}}),
        json!({"at_most": {"calls": 1_000, "per": "session"}}),
        json!({"after": ["confirm"]}),
        json!({"never_after": names}),
        json!({"at_most": {"calls": 5, "per": "run"}, "after": ["confirm", "look"], "never_after": ["read_secrets"]}),
    ] {
        let manifest = parse(&with(&json!({"policy": accepted}))).unwrap();
        assert!(manifest.is_judged_by_claim() && !manifest.is_limited());
        let written = serde_json::to_value(&manifest).unwrap();
        assert_eq!(written["policy"], accepted);
    }
    let manifest = parse(&with(&json!({}))).unwrap();
    assert!(!manifest.is_judged_by_claim());
    // The release before reads every manifest that does not use it.
    let written = serde_json::to_value(&manifest).unwrap();
    assert_eq!(written.get("policy"), None);
}

#[test]
fn a_policy_that_makes_no_sense_is_refused_with_what_to_write() {
    let own = parse(&with(&json!({}))).unwrap().name;
    let at_most = |calls: Value, per: &str| json!({"at_most": {"calls": calls, "per": per}});
    let many: Vec<String> = (0..33).map(|n| format!("tool_{n}")).collect();
    let mut rows = [
        (
            json!({}),
            "",
            "it is empty; write after, at_most or never_after",
        ),
        (json!("at most 5"), "", "; write "),
        (
            json!({"before": ["x"]}),
            "/before",
            "there is no such field",
        ),
        (
            at_most(json!(0), "run"),
            "/at_most/calls",
            "write 1 to 1000",
        ),
        (
            at_most(json!(1_001), "run"),
            "/at_most/calls",
            "write 1 to 1000",
        ),
        (at_most(json!("5"), "run"), "/at_most/calls", "write 5"),
        (
            at_most(json!(5), "day"),
            "/at_most/per",
            "write run or session",
        ),
        (
            at_most(json!(5), "tenant"),
            "/at_most/per",
            "write run or session",
        ),
        (json!({"at_most": {"calls": 5}}), "/at_most/per", "write "),
        (
            json!({"at_most": {"per": "run"}}),
            "/at_most/calls",
            "write ",
        ),
        (json!({"at_most": 5}), "/at_most", "; write "),
        (
            json!({"after": ["confirm"], "never_after": ["confirm"]}),
            "/after/0",
            "keep it in one list",
        ),
        (json!({"after": [own]}), "/after/0", "name other tools"),
        (
            json!({"never_after": ["x", own]}),
            "/never_after/1",
            "write at_most: {calls: 1, per: run}",
        ),
    ]
    .map(|(refused, path, write)| (refused, path.to_owned(), write))
    .to_vec();
    for list in ["after", "never_after"] {
        let of = |names: Value| json!({ list: names });
        rows.extend(
            [
                (of(json!([])), "", "it is empty; write something such as ["),
                (of(json!(many)), "", "32"),
                (of(json!(["x", "x"])), "", "keep one"),
                (of(json!(["Send mail"])), "/0", "write send_mail"),
                (of(json!([""])), "/0", "; write "),
                (of(json!("confirm")), "", "; write "),
            ]
            .map(|(refused, path, write)| (refused, format!("/{list}{path}"), write)),
        );
    }
    let derived = json!({"policy": {"after": ["confirm"]}, "key": "from_arguments"});
    let problems = parse(&with(&derived)).unwrap_err();
    let [problem] = problems.as_slice() else {
        panic!("{problems:?}");
    };
    assert_eq!(problem.path, "/policy");
    assert!(
        problem.message.contains("write key: required"),
        "{problem:?}"
    );
    for (refused, path, write) in rows {
        let problems = parse(&with(&json!({"policy": refused}))).unwrap_err();
        let [problem] = problems.as_slice() else {
            panic!("{refused}: {problems:?}");
        };
        assert_eq!(problem.path, format!("/policy{path}"), "{refused}");
        assert!(problem.message.contains(write), "{refused}: {problem:?}");
    }
}

#[test]
fn losses_are_a_number_and_the_default_is_not_written_down() {
    let manifest = parse(&with(&json!({}))).unwrap();
    assert_eq!(manifest.losses, Manifest::LOSSES);
    // The release before reads every manifest that does not use it.
    let written = serde_json::to_value(&manifest).unwrap();
    assert_eq!(written.get("losses"), None);
    for losses in [0, 1, 100] {
        let manifest = parse(&with(&json!({"losses": losses}))).unwrap();
        assert_eq!(manifest.losses, losses);
        let written = serde_json::to_value(&manifest).unwrap();
        assert_eq!(written["losses"], losses);
    }
    for refused in [json!(-1), json!(101), json!(1.5), json!("5")] {
        let problems = parse(&with(&json!({"losses": refused}))).unwrap_err();
        let [problem] = problems.as_slice() else {
            panic!("{problems:?}");
        };
        assert_eq!(problem.path, "/losses");
        assert!(problem.message.contains("; write "), "{problem:?}");
    }
}

#[test]
fn how_calls_are_shown_is_said_in_words_and_not_written_down_where_it_is_as_usual() {
    let of = |changes: &Value| parse(&with(changes)).unwrap_or_else(|found| panic!("{found:?}"));
    let plain = of(&json!({"visibility": "shown", "final": false}));
    assert_eq!(plain, of(&json!({})));
    let stored = serde_json::to_value(&plain).unwrap();
    for field in ["visibility", "presents", "final"] {
        assert!(stored.get(field).is_none(), "{field}");
    }
    let changes = json!({"visibility": "unlisted", "presents": "shell_call", "final": true});
    let manifest = of(&changes);
    let stored = serde_json::to_value(&manifest).unwrap();
    for (field, value) in changes.as_object().unwrap() {
        assert_eq!(stored[field], *value);
    }
    assert_eq!(parse(&stored.to_string()).unwrap(), manifest);
    assert_eq!(lint(&manifest), []);
}

#[test]
fn what_nobody_would_be_shown_is_refused_with_what_to_write() {
    let client = |changes: Value| {
        let mut manifest = json!({"executor": {"client": {}}});
        for (field, value) in changes.as_object().unwrap() {
            manifest[field] = value.clone();
        }
        manifest
    };
    for (changes, place, why) in [
        (
            json!({"visibility": "secret"}),
            "/visibility",
            "write shown, hidden or unlisted",
        ),
        (
            json!({"presents": "function_call"}),
            "/presents",
            "image_generation_call, file_search_call, web_search_call",
        ),
        (json!({"final": "yes"}), "/final", "true or false"),
        (
            json!({"visibility": "hidden", "final": true}),
            "/final",
            "calls of a hidden tool",
        ),
        (
            json!({"visibility": "hidden", "presents": "shell_call"}),
            "/presents",
            "calls of a hidden tool",
        ),
        (
            json!({"visibility": "hidden", "approval": {"by": "caller"}}),
            "/visibility",
            "by: operator",
        ),
        (
            client(json!({"visibility": "hidden"})),
            "/visibility",
            "write unlisted",
        ),
        (
            client(json!({"presents": "shell_call"})),
            "/presents",
            "in its executor",
        ),
        (client(json!({"final": true})), "/final", "leave final out"),
    ] {
        let found = problems(&changes);
        let is_it =
            |problem: &ManifestProblem| problem.path == place && problem.message.contains(why);
        assert!(found.iter().any(is_it), "{changes}: {found:?}");
    }
    for changes in [
        json!({"visibility": "hidden", "approval": {}}),
        client(json!({"visibility": "unlisted"})),
    ] {
        assert!(parse(&with(&changes)).is_ok(), "{changes}");
    }
}

#[test]
fn an_answer_of_blocks_is_none_of_a_statement_and_its_stub_is_one_too() {
    let content = |more: Value| {
        let mut changes = json!({"output": "content"});
        for (field, value) in more.as_object().unwrap() {
            changes[field] = value.clone();
        }
        changes
    };
    let schema = json!({"type": "object", "required": ["late"]});
    let stub = |stub: Value| content(json!({"output_schema": schema, "fallback": {"stub": stub}}));
    let good = json!({"content": [{"type": "text", "text": "none"}], "structured": {"late": 0}});
    let manifest = parse(&with(&stub(good))).unwrap();
    assert_eq!(
        serde_json::to_value(&manifest).unwrap()["output"],
        "content"
    );
    for (changes, place) in [
        (json!({"output": "blocks"}), "/output"),
        (sql(&json!({"output": "content"})), "/output"),
        (stub(json!({"late": 0})), "/fallback/stub"),
        (stub(json!({"content": [1]})), "/fallback/stub/content/0"),
        (stub(json!({"content": []})), "/fallback/stub/structured"),
        (
            stub(json!({"content": [], "structured": {}})),
            "/fallback/stub/structured",
        ),
    ] {
        let found = problems(&changes);
        let is_it = |problem: &ManifestProblem| problem.path.starts_with(place);
        assert!(found.iter().any(is_it), "{changes}: {found:?}");
    }
}
