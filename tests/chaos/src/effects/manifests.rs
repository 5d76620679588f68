//! The manifests of the tools.

use std::path::PathBuf;

use fleet::call::Effect;
use serde_json::{Value, json};

use super::{Executor, TOOLS, Tool, tables, tools::AMOUNT_AGREED};

/// Where the tools are.
#[derive(Debug, Clone)]
pub struct Places {
    /// The HTTP service, without a path: `http://127.0.0.1:PORT`.
    pub effects_url: String,
    /// The program of process tools: `chaos_effects`.
    pub effects_program: PathBuf,
    /// The file of effects.
    pub effects_file: PathBuf,
    /// A port without a listener.
    pub refused_port: u16,
}

/// What the services answer, and the program ends with, before they have done anything.
const NOT_NOW_STATUS: u16 = 503;
/// The exit code of the same.
pub(super) const NOT_NOW_CODE: i32 = 75;

/// The manifests of all tools but the native ones, which the worker applies itself. In this order: a probe must be there
/// before the tool that it is for.
pub fn manifests(places: &Places) -> Vec<String> {
    let (probes, others): (Vec<&Tool>, Vec<&Tool>) =
        TOOLS.iter().partition(|tool| tool.name == "was_booked");
    let made = probes.into_iter().chain(others);
    made.filter(|tool| tool.executor != Executor::Native)
        .map(|tool| manifest(tool, places).to_string())
        .collect()
}

/// So few that a run of minutes sets calls aside.
pub(super) const LOSSES: u32 = 1;

/// Short pauses, so that a call is over in seconds.
pub(super) fn retry() -> Value {
    json!({"strategy": "jittered", "max_attempts": 5, "base": "100ms", "factor": 2.0, "cap": "1s"})
}

/// So long a yes is waited for.
const EXPIRES: &str = "6s";

fn manifest(tool: &Tool, places: &Places) -> Value {
    let mut manifest = json!({
        "name": tool.name,
        "version": 1,
        "description": "Leaves a mark in the file of effects.",
        "effect": tool.effect.as_str(),
        "input_schema": input_schema(tool.name),
        "timeout": "2s",
        "deadline": "10m",
        "output_limit": "64KiB",
        "retry": retry(),
        "losses": LOSSES,
        "executor": executor(tool, places),
    });
    match tool.executor {
        Executor::Http => manifest["not_applied_statuses"] = json!([NOT_NOW_STATUS]),
        Executor::Process => {
            manifest["exit_codes"] = json!({"business": [10], "not_applied": [NOT_NOW_CODE]});
            // A program takes a while to start.
            manifest["timeout"] = "3s".into();
        }
        Executor::Client => {
            // Nobody here runs it, so nobody tries again.
            if let Some(fields) = manifest.as_object_mut() {
                fields.remove("retry");
                fields.remove("losses");
            }
            manifest["timeout"] = "3s".into();
            manifest["output_schema"] = json!({
                "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
            });
        }
        Executor::Nats | Executor::Sql | Executor::Native => {}
    }
    if let Some(approval) = approval(tool) {
        manifest["approval"] = approval;
    }
    if tool.effect == Effect::Idempotent {
        manifest["idempotency"] = json!({"valid_for": "24h"});
        if tool.executor == Executor::Http {
            manifest["idempotency"]["header"] = "Idempotency-Key".into();
        }
    }
    if tool.name == "paced_look" {
        manifest["rate_limit"] = json!({"calls": 3, "per": "1s", "burst": 2});
    }
    match tool.name {
        "cached_look" => {
            manifest["cache"] = json!({"ttl": "4s"});
            // Of its own tenant and question, or nothing. Seldom: what a call is told to do is in its question.
            manifest["fallback"] = json!({"stale": {"max_age": "5m"}});
        }
        // Also where its breaker is open.
        "guarded_look" => manifest["fallback"] = json!({"stub": {"known": false}}),
        // No run is so long that it changes; what it learns from is reported all the same.
        "nats_look" => {
            manifest["timeout"] =
                json!({"learned": "p95x2", "floor": "1s", "ceiling": "4s", "initial": "2s"});
        }
        "ruled_charge" => manifest["policy"] = json!({"at_most": {"calls": 3, "per": "run"}}),
        "ruled_look" => {
            manifest["policy"] = json!({"after": ["ruled_charge"], "never_after": ["ruled_end"]});
        }
        // Clients ask it about calls that are not made yet, and are told for long that there is none: a probe must not be.
        "was_booked" => manifest["cache"] = json!({"ttl": "60s"}),
        _ => {}
    }
    if tool.is_guarded() {
        // Not so few failures that what its calls are told to do would open it.
        manifest["breaker"] = json!({
            "window": "3s", "calls": 6, "failures": "80%", "open": "1s", "open_max": "4s", "probes": 1,
        });
        // A read's default is a write's choice here.
        if tool.effect == Effect::Idempotent {
            manifest["when_open"] = "fail".into();
        }
    }
    if tool.name == "book" {
        manifest["probe"] = json!({
            "tool": "was_booked",
            "args": {"n": "{{ args.n }}", "mode": "ok"},
            "applied_when": "result.booked == true",
            "not_applied_when": "result.booked == false",
            // Longer than a late effect takes.
            "settle": "5s",
        });
    }
    manifest
}

/// Who has to say yes to its calls.
pub fn approval(tool: &Tool) -> Option<Value> {
    let count = tool.yeses()?;
    let mut approval = json!({"count": count, "expires": EXPIRES});
    match tool.name {
        "agreed_charge" => {
            approval["when"] = json!([{"pointer": "/amount", "op": "gt", "value": AMOUNT_AGREED}]);
        }
        "agreed_put" => approval["by"] = "caller".into(),
        _ => {}
    }
    Some(approval)
}

fn input_schema(name: &str) -> Value {
    let number = json!({"type": "integer", "minimum": 0});
    let text = json!({"type": "string", "maxLength": 200});
    let mut properties = json!({"n": number, "mode": text, "memo": text});
    let mut required = vec!["n", "mode"];
    if name == "transfer" {
        for each in ["from", "to", "amount"] {
            properties[each] = number.clone();
            required.push(each);
        }
    }
    if name == "agreed_charge" {
        properties["amount"] = number;
        required.push("amount");
    }
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn executor(tool: &Tool, places: &Places) -> Value {
    let name = tool.name;
    match tool.executor {
        Executor::Http => {
            let base = if name == "unreachable" {
                &format!("http://127.0.0.1:{}", places.refused_port)
            } else {
                &places.effects_url
            };
            json!({"http": {"method": "POST", "url": format!("{base}/tools/{name}")}})
        }
        Executor::Process => json!({"process": {
            "command": [places.effects_program, "tool", name, "--file", places.effects_file],
        }}),
        Executor::Nats => json!({"nats": {"subject": format!("tools.{name}")}}),
        Executor::Sql => {
            let (statement, params) = tables::statement(name);
            json!({"sql": {"database": "fleet", "statement": statement, "params": params}})
        }
        Executor::Client => json!({"client": {}}),
        Executor::Native => unreachable!("a worker applies its own tools"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_manifest_is_a_good_one_and_says_what_the_list_says() {
        let places = Places {
            effects_url: "http://127.0.0.1:9000".to_owned(),
            effects_program: "/bin/chaos_effects".into(),
            effects_file: "/run/effects".into(),
            refused_port: 1,
        };
        for text in manifests(&places) {
            let manifest = fleet::manifest::parse(&text).unwrap();
            let tool = super::super::tool(manifest.name.as_str()).unwrap();
            assert_eq!(manifest.effect, tool.effect, "{}", tool.name);
            assert!(manifest.output_limit < super::super::HUGE);
        }
    }
}
