//! Which tools the models of a tenant are told of, and how, where the fleet itself tells them.

use serde_json::{Value, json};

use super::{Format, definition, is_listed, sorted};
use crate::{
    ids::Label,
    manifest::{ChatProtocol, Manifest},
    mcp,
};

/// Those of the tools that this tenant may know of. They are the same for every tenant, but for what looks at MCP servers.
pub fn shown_to<'a>(
    tools: impl Iterator<Item = &'a Manifest>,
    tenant: &Label,
) -> impl Iterator<Item = &'a Manifest> {
    let is_operators = tenant.as_str() == mcp::OPERATORS;
    tools.filter(move |tool| is_operators || !mcp::is_for_operators(tool.name.as_str()))
}

/// Those of the tools that models of this tenant are told of, sorted by name.
pub fn for_models<'a>(
    tools: impl Iterator<Item = &'a Manifest>,
    tenant: &Label,
) -> Vec<&'a Manifest> {
    sorted(shown_to(tools, tenant).filter(|tool| is_listed(tool)))
}

/// The definition of a tool as a request in this protocol has it.
pub fn for_model(tool: &Manifest, protocol: ChatProtocol) -> Value {
    match protocol {
        ChatProtocol::OpenaiChat => definition(tool, Format::Openai),
        ChatProtocol::Anthropic => definition(tool, Format::Anthropic),
        ChatProtocol::OpenaiResponses => {
            let mut definition = definition(tool, Format::Openai)["function"].take();
            definition["type"] = json!("function");
            // What is left out there means true, which few schemas are fit for.
            definition["strict"] = json!(false);
            definition
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::parse;

    fn tool(name: &str, more: &str) -> Manifest {
        let written = format!(
            "name: {name}\nversion: 1\ndescription: Does it.\neffect: read\ninput_schema: {{type: object, properties: {{}}}}\n\
             executor: {{native: {{handler: it.v1}}}}\n{more}"
        );
        parse(&written).unwrap()
    }

    #[test]
    fn models_are_told_of_what_is_listed_and_for_their_tenant() {
        let tools = [
            tool("weather", ""),
            tool("quiet", "visibility: hidden"),
            tool("ask_model", "visibility: unlisted"),
            tool("mcp_discover", ""),
        ];
        for (tenant, expected) in [
            ("default", &["quiet", "weather"][..]),
            ("_operator", &["mcp_discover", "quiet", "weather"]),
        ] {
            let told = for_models(tools.iter(), &tenant.parse().unwrap());
            let names: Vec<&str> = told.iter().map(|tool| tool.name.as_str()).collect();
            assert_eq!(names, expected, "{tenant}");
        }
    }

    #[test]
    fn a_definition_has_the_form_of_its_protocol() {
        let tool = tool("weather", "");
        let schema = json!({"type": "object", "properties": {}});
        let function = json!({"name": "weather", "description": "Does it.", "parameters": schema});
        for (protocol, expected) in [
            (
                ChatProtocol::OpenaiChat,
                json!({"type": "function", "function": function}),
            ),
            (
                ChatProtocol::OpenaiResponses,
                json!({"type": "function", "name": "weather", "description": "Does it.", "parameters": schema, "strict": false}),
            ),
            (
                ChatProtocol::Anthropic,
                json!({"name": "weather", "description": "Does it.", "input_schema": schema}),
            ),
        ] {
            assert_eq!(for_model(&tool, protocol), expected);
        }
    }
}
