//! The request of a call: the arguments, and the headers.

use std::{collections::BTreeSet, time::Duration};

use fleet::wire::headers::Prefer;
use fleet_client::Options;

use super::{flags::Call, pair::Pair};
use crate::commands::{given, json, usage::UsageError};

/// The arguments, byte for byte: from the pairs, or from where `--args` says.
pub(super) fn body(call: &Call) -> anyhow::Result<Vec<u8>> {
    written(call.args.as_deref(), &call.pairs)
}

/// These arguments, byte for byte, or from these pairs where there are none.
pub(in crate::commands) fn written(args: Option<&str>, pairs: &[Pair]) -> anyhow::Result<Vec<u8>> {
    match args {
        None => from_pairs(pairs),
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

/// The headers, from the flags.
pub(super) fn options(call: &Call) -> Options {
    let prefer = match (call.detach, call.wait) {
        (true, _) => Some(Prefer::RespondAsync),
        (false, Some(seconds)) => Some(Prefer::Wait(Duration::from_secs(seconds))),
        (false, None) => None,
    };
    Options {
        key: call.key.clone(),
        prefer,
        deadline: call.deadline_ms.map(Duration::from_millis),
        session: call.session.clone(),
        run: call.run.clone(),
        tool_version: call.tool_version,
        language: call.language,
        priority: call.priority,
        meta: call.meta.as_ref().map(|meta| json::raw(meta.get())),
        no_store: call.no_store,
        files: call.file_ids.clone(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CallLine {
        #[command(flatten)]
        call: Call,
    }

    fn call(arguments: &[&str]) -> Call {
        CallLine::try_parse_from([&["call"], arguments].concat())
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
                CallLine::try_parse_from([&["call"], wrong].concat()).is_err(),
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
        let headers = options(&asked).headers();
        let mut lines: Vec<_> = headers
            .iter()
            .map(|(name, values)| format!("{name}: {}", values[0]))
            .collect();
        lines.sort();
        insta::assert_snapshot!(lines.join("\n"));
        let detached = options(&call(&["t", "--async"])).headers();
        assert_eq!(detached.get("Prefer").unwrap().as_str(), "respond-async");
        assert!(options(&call(&["t"])).headers().is_empty());
    }
}
