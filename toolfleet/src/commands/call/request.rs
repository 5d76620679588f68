//! What is sent for a call: the arguments and the headers, as the contract of `call.<tool>` has them.

use std::collections::BTreeSet;

use anyhow::Context;
use async_nats::HeaderMap;
use serde_json::value::RawValue;

use super::Call;
use crate::commands::{exit::UsageError, given, json};

/// One `k=v`. The value is sent as the JSON that it is, else as a string.
#[derive(Debug, Clone)]
pub(super) struct Pair {
    name: String,
    value: Box<RawValue>,
}

impl std::str::FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(
                "write name=value; a value that is JSON is sent as JSON, else as text".into(),
            );
        };
        let value = match serde_json::from_str::<&RawValue>(value) {
            Ok(json) => json.to_owned(),
            Err(_text) => {
                serde_json::value::to_raw_value(value).map_err(|wrong| wrong.to_string())?
            }
        };
        Ok(Self {
            name: name.to_owned(),
            value,
        })
    }
}

/// The arguments: from the pairs, or from wherever `--args` says, byte for byte.
pub(super) fn body(call: &Call) -> anyhow::Result<Vec<u8>> {
    match call.args.as_deref() {
        None => from_pairs(&call.pairs),
        Some(text) => given::bytes("--args", text),
    }
}

fn from_pairs(pairs: &[Pair]) -> anyhow::Result<Vec<u8>> {
    let mut names = BTreeSet::new();
    let mut members = Vec::new();
    for Pair { name, value } in pairs {
        if !names.insert(name) {
            return Err(UsageError(format!("{name} is given twice")).into());
        }
        members.push(format!("{}:{}", serde_json::to_string(name)?, value.get()));
    }
    Ok(format!("{{{}}}", members.join(",")).into_bytes())
}

/// The headers for everything that was asked for beside the arguments.
pub(super) fn headers(call: &Call) -> anyhow::Result<HeaderMap> {
    let prefer = match (call.detach, call.wait) {
        (true, _) => Some("respond-async".to_owned()),
        (false, Some(seconds)) => Some(format!("wait={seconds}")),
        (false, None) => None,
    };
    let lines = [
        (
            "Idempotency-Key",
            call.key.as_ref().map(ToString::to_string),
        ),
        ("Prefer", prefer),
        (
            "Toolfleet-Deadline-Ms",
            call.deadline_ms.map(|ms| ms.to_string()),
        ),
        (
            "Toolfleet-Session",
            call.session.as_ref().map(ToString::to_string),
        ),
        ("Toolfleet-Run", call.run.as_ref().map(ToString::to_string)),
        (
            "Toolfleet-Tool-Version",
            call.tool_version.map(|version| version.to_string()),
        ),
        (
            "Toolfleet-Language",
            call.language.map(|language| language.to_string()),
        ),
        (
            "Toolfleet-Priority",
            call.priority.map(|priority| priority.to_string()),
        ),
        (
            "Toolfleet-Meta",
            call.meta.as_ref().map(|meta| json::compact(meta.get())),
        ),
    ];
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        if let Some(value) = value {
            let value: async_nats::HeaderValue = value
                .parse()
                .with_context(|| format!("write the header {name}"))?;
            headers.insert(name, value);
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        call: Call,
    }

    fn call(arguments: &[&str]) -> Call {
        Line::try_parse_from([&["call"], arguments].concat())
            .unwrap()
            .call
    }

    fn body_of(arguments: &[&str]) -> String {
        String::from_utf8(body(&call(arguments)).unwrap()).unwrap()
    }

    #[test]
    fn a_value_that_is_json_is_sent_as_it_stands_and_all_else_as_text() {
        let sent = body_of(&[
            "t",
            "city=Oslo",
            "days=2",
            "big=9007199254740993",
            "zip=00123",
            "yes=true",
            "text=\"2\"",
            "list=[1, 2]",
            "sum=1+1=2",
            "empty=",
            "q=say \"hi\"",
        ]);
        assert_eq!(
            sent,
            r#"{"city":"Oslo","days":2,"big":9007199254740993,"zip":"00123","yes":true,"text":"2","#
                .to_owned()
                + r#""list":[1, 2],"sum":"1+1=2","empty":"","q":"say \"hi\""}"#
        );
        assert_eq!(body_of(&["t"]), "{}");
    }

    #[test]
    fn arguments_from_elsewhere_are_sent_byte_for_byte() {
        assert_eq!(
            body_of(&["t", "--args", "{\"a\": 1, \"a\": 2"]),
            "{\"a\": 1, \"a\": 2"
        );
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("args.json");
        std::fs::write(&file, "{ }\n").unwrap();
        assert_eq!(
            body_of(&["t", "--args", &format!("@{}", file.display())]),
            "{ }\n"
        );
        let missing = format!("@{}", folder.path().join("missing").display());
        assert!(body(&call(&["t", "--args", &missing])).is_err());
    }

    #[test]
    fn what_does_not_make_sense_is_a_matter_of_usage() {
        let twice = body(&call(&["t", "a=1", "a=2"])).unwrap_err();
        assert!(twice.is::<UsageError>());
        for wrong in [
            &["t", "a"][..],
            &["t", "=1"],
            &["t", "a=1", "--args", "{}"],
            &["t", "--async", "--wait", "3"],
            &["t", "--wait", "301"],
            &["t", "--meta", "{"],
            &["t", "--key", "a b"],
            &["t", "--deadline-ms", "0"],
            &["t.x"],
        ] {
            assert!(
                Line::try_parse_from([&["call"], wrong].concat()).is_err(),
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn every_flag_becomes_its_header() {
        let asked = call(&[
            "t",
            "--key",
            "k-1",
            "--wait",
            "3",
            "--deadline-ms",
            "5000",
            "--session",
            "s",
            "--run",
            "r",
            "--version",
            "2",
            "--language",
            "zh",
            "--meta",
            "{\n \"a\": \"\u{202e}\"}",
            "--priority",
            "low",
        ]);
        let headers = headers(&asked).unwrap();
        let mut lines: Vec<_> = headers
            .iter()
            .map(|(name, values)| format!("{name}: {}", values[0]))
            .collect();
        lines.sort();
        insta::assert_snapshot!(lines.join("\n"));
        let detached = super::headers(&call(&["t", "--async"])).unwrap();
        assert_eq!(detached.get("Prefer").unwrap().as_str(), "respond-async");
        assert!(super::headers(&call(&["t"])).unwrap().is_empty());
    }
}
