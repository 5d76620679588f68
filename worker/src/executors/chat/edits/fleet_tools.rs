//! The tools of the fleet that a model is told of beside those of its request.

use std::collections::HashSet;

use fleet::{
    definitions::{for_model, for_models},
    ids::Label,
    manifest::{ExecutorSpec, FIND_TOOLS, Manifest},
};
use serde_json::Value;

/// Definitions of those of `tools` that this model may be told of, in its protocol and sorted by name; none unless its manifest says
/// `from: fleet`.
///
/// They are those that the fleet lists for the tenant, and of them what `only` names and `find_tools`. The model itself is not among
/// them, nor is what the request has by that name: a vendor refuses a name that stands twice.
pub(in crate::executors::chat) fn definitions<'a>(
    model: &Manifest,
    tenant: &Label,
    tools: impl Iterator<Item = &'a Manifest>,
    in_request: &HashSet<&str>,
) -> Vec<Value> {
    let (ExecutorSpec::Chat(chat), Some(selection)) = (&model.executor, &model.tool_selection)
    else {
        return Vec::new();
    };
    if !selection.is_from_fleet() {
        return Vec::new();
    }
    let may_be_told = |tool: &&Manifest| {
        let name = &tool.name;
        let is_meant = selection.only.is_empty()
            || selection.only.contains(name)
            || name.as_str() == FIND_TOOLS;
        is_meant && *name != model.name && !in_request.contains(name.as_str())
    };
    let told = for_models(tools, tenant).into_iter().filter(may_be_told);
    told.map(|tool| for_model(tool, chat.protocol)).collect()
}

#[cfg(test)]
mod tests {
    use fleet::manifest::parse;

    use super::*;

    fn model(selection: &str) -> Manifest {
        let written = format!(
            "name: ask_model\nversion: 1\ndescription: Answers.\neffect: read\n{selection}\n\
             executor: {{chat: {{protocol: anthropic, routes: [{{name: r, url: https://x/, model: m}}]}}}}\n"
        );
        parse(&written).unwrap()
    }

    fn tool(name: &str, more: &str) -> Manifest {
        let written = format!(
            "name: {name}\nversion: 1\ndescription: Does it.\neffect: read\ninput_schema: {{type: object}}\n\
             executor: {{native: {{handler: it.v1}}}}\n{more}"
        );
        parse(&written).unwrap()
    }

    #[test]
    fn a_model_is_told_of_the_listed_tools_that_its_manifest_and_its_request_leave_open() {
        let all = "tool_selection: {from: fleet}";
        let some = "tool_selection: {from: fleet, only: [weather, secret]}";
        for (selection, tenant, in_request, expected) in [
            ("", "a", &[][..], &[][..]),
            ("tool_selection: {}", "a", &[], &[]),
            (all, "a", &[], &["find_tools", "news", "weather"]),
            (all, "a", &["news", "other"], &["find_tools", "weather"]),
            (some, "a", &[], &["find_tools", "weather"]),
            (some, "_operator", &["find_tools"], &["weather"]),
        ] {
            let model = model(selection);
            let tools = [
                model.clone(),
                tool("weather", ""),
                tool("news", ""),
                tool("secret", "visibility: unlisted"),
                tool("mcp_discover", "visibility: unlisted"),
                tool("find_tools", ""),
            ];
            let in_request = in_request.iter().copied().collect();
            let told = definitions(&model, &tenant.parse().unwrap(), tools.iter(), &in_request);
            let names: Vec<&str> = told.iter().map(|it| it["name"].as_str().unwrap()).collect();
            assert_eq!(names, expected, "{selection} {tenant}");
            assert!(told.iter().all(|it| it["input_schema"]["type"] == "object"));
        }
    }
}
