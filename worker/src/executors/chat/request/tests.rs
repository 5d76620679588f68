use fleet::manifest::ChatProtocol;
use serde_json::json;

use super::*;
use crate::executors::chat::dialect;

fn spec(changes: Value) -> ChatSpec {
    let mut spec = json!({"protocol": "openai_chat", "routes": []});
    for (field, value) in changes.as_object().unwrap() {
        spec[field] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

fn made(spec: &ChatSpec, sent: &str) -> Result<String, ToolFailure> {
    let sent: Map<String, Value> = serde_json::from_str(sent).unwrap();
    let request = request(spec, dialect::of(spec.protocol), &sent)?;
    Ok(String::from_utf8(on_route(&request, "large-1")).unwrap())
}

#[test]
fn what_is_fixed_wins_and_defaults_fill_up_and_numbers_stay_as_they_were_sent() {
    let spec = spec(json!({
        "defaults": {"temperature": 0, "top_p": 1, "metadata": {"a": 1}},
        "fixed": {"max_tokens": 100},
    }));
    let sent = r#"{"model":"mine","messages":[{"n":1.50,"m":9007199254740993,"e":1e400}],"top_p":0.10,
        "max_tokens":5,"metadata":{"b":2},"unheard_of":{"x":[null]}}"#;
    let expected = concat!(
        r#"{"max_tokens":100,"messages":[{"e":1e+400,"m":9007199254740993,"n":1.50}],"metadata":{"b":2},"#,
        r#""model":"large-1","temperature":0,"top_p":0.10,"unheard_of":{"x":[null]}}"#
    );
    let made = made(&spec, sent).unwrap();
    assert_eq!(made.replace("1e400", "1e+400"), expected);
}

#[test]
fn a_stream_is_asked_for_with_its_count_of_tokens() {
    for (protocol, sent, expected) in [
        (
            "openai_chat",
            r#"{"stream":true}"#,
            r#"{"model":"large-1","stream":true,"stream_options":{"include_usage":true}}"#,
        ),
        (
            "openai_chat",
            r#"{"stream":true,"stream_options":{"include_usage":false,"x":1.50}}"#,
            r#"{"model":"large-1","stream":true,"stream_options":{"include_usage":true,"x":1.50}}"#,
        ),
        // Whether the vendor counts is not for the caller to say.
        (
            "openai_chat",
            r#"{"stream":true,"stream_options":null}"#,
            r#"{"model":"large-1","stream":true,"stream_options":{"include_usage":true}}"#,
        ),
        (
            "openai_chat",
            r#"{"stream":false,"stream_options":null}"#,
            r#"{"model":"large-1","stream":false}"#,
        ),
        (
            "anthropic",
            r#"{"stream":true}"#,
            r#"{"model":"large-1","stream":true}"#,
        ),
        (
            "openai_responses",
            r#"{"stream":true}"#,
            r#"{"model":"large-1","stream":true}"#,
        ),
    ] {
        let spec = spec(json!({"protocol": protocol}));
        assert_eq!(made(&spec, sent).unwrap(), expected, "{protocol} {sent}");
    }
    let fixed = spec(json!({"fixed": {"stream_options": null}}));
    for sent in [
        r#"{"stream":true}"#,
        r#"{"stream":true,"stream_options":{}}"#,
    ] {
        let expected = r#"{"model":"large-1","stream":true}"#;
        assert_eq!(made(&fixed, sent).unwrap(), expected, "{sent}");
    }
    let spec = spec(json!({"defaults": {"stream": true}}));
    assert!(made(&spec, "{}").unwrap().contains(r#""stream":true"#));
    assert_eq!(
        made(&spec, r#"{"stream":null}"#).unwrap(),
        r#"{"model":"large-1","stream":null}"#
    );
}

#[test]
fn what_is_no_plain_read_is_refused() {
    use ChatProtocol::{Anthropic, OpenaiChat, OpenaiResponses};
    let tools = |tool: &str| format!(r#"{{"tools":[{{"type":"function","name":"f"}},{tool}]}}"#);
    let of_type = |kind: &str| tools(&format!(r#"{{"type":"{kind}"}}"#));
    let rows: &[(ChatProtocol, &[&str], String, &str)] = &[
        (
            OpenaiChat,
            &[],
            r#"{"stream":"yes"}"#.to_owned(),
            "`stream` is true or false",
        ),
        (OpenaiChat, &[], r#"{"stream":true}"#.to_owned(), ""),
        (
            OpenaiChat,
            &[],
            r#"{"stream":false,"background":false,"conversation":null}"#.to_owned(),
            "",
        ),
        (OpenaiChat, &[], of_type("custom"), ""),
        (OpenaiChat, &[], tools(r#"{"function":{"name":"f"}}"#), ""),
        (OpenaiChat, &[], tools("7"), "a tool that is no object"),
        (OpenaiChat, &[], of_type("web_search"), "web_search"),
        (
            OpenaiChat,
            &[],
            r#"{"web_search_options":{}}"#.to_owned(),
            "web_search",
        ),
        (
            OpenaiChat,
            &["web_search"],
            r#"{"web_search_options":{}}"#.to_owned(),
            "",
        ),
        (
            OpenaiResponses,
            &[],
            r#"{"background":true}"#.to_owned(),
            "background",
        ),
        (
            OpenaiResponses,
            &[],
            r#"{"previous_response_id":"resp_1"}"#.to_owned(),
            "previous_response_id",
        ),
        (
            OpenaiResponses,
            &[],
            r#"{"conversation":{"id":"conv_1"}}"#.to_owned(),
            "conversation",
        ),
        (
            OpenaiResponses,
            &[],
            r#"{"input":[{"type":"item_reference","id":"msg_1"}]}"#.to_owned(),
            "vendor keeps",
        ),
        (
            OpenaiResponses,
            &[],
            r#"{"input":[{"role":"user","content":"hi"},{"id":"msg_1"}]}"#.to_owned(),
            "vendor keeps",
        ),
        (
            OpenaiChat,
            &[],
            r#"{"tools":{"type":"web_search"}}"#.to_owned(),
            "tools that are no list",
        ),
        (
            OpenaiResponses,
            &[],
            r#"{"prompt":{"id":"pmpt_1"}}"#.to_owned(),
            "prompt",
        ),
        (
            OpenaiResponses,
            &[],
            tools(r#"{"name":"f"}"#),
            "a tool without a type",
        ),
        (OpenaiResponses, &[], of_type("mcp"), "mcp"),
        (
            OpenaiResponses,
            &[],
            of_type("code_interpreter"),
            "code_interpreter",
        ),
        (
            OpenaiResponses,
            &["code"],
            of_type("code_interpreter"),
            "code_interpreter",
        ),
        (
            OpenaiResponses,
            &["web_search"],
            of_type("web_search_preview_2025_03_11"),
            "",
        ),
        (OpenaiResponses, &["web_search"], of_type("mcp"), "mcp"),
        (OpenaiResponses, &[], of_type("local_shell"), ""),
        (OpenaiResponses, &[], of_type("shell"), "shell"),
        (
            OpenaiResponses,
            &[],
            tools(r#"{"type":"shell","environment":{"type":"local"}}"#),
            "",
        ),
        (
            OpenaiResponses,
            &[],
            tools(r#"{"type":"shell","environment":{"type":"container_auto"}}"#),
            "shell",
        ),
        (Anthropic, &[], of_type("web_search_20250305"), "function"),
        (
            Anthropic,
            &[],
            r#"{"tools":[{"name":"f","input_schema":{}},{"type":"custom","name":"g"}]}"#.to_owned(),
            "",
        ),
        (
            Anthropic,
            &[],
            r#"{"tools":[{"type":"bash_20250124","name":"bash"}]}"#.to_owned(),
            "",
        ),
        (
            Anthropic,
            &[],
            r#"{"tools":[{"type":"bash_code_execution_20250825"}]}"#.to_owned(),
            "bash_code_execution",
        ),
        (
            Anthropic,
            &[],
            r#"{"tools":[{"type":"web_search_20250305"}]}"#.to_owned(),
            "web_search",
        ),
        (
            Anthropic,
            &["web_search"],
            r#"{"tools":[{"type":"web_search_20250305"}]}"#.to_owned(),
            "",
        ),
        (Anthropic, &[], r#"{"mcp_servers":[]}"#.to_owned(), ""),
        (
            Anthropic,
            &[],
            r#"{"mcp_servers":[{"url":"https://x"}]}"#.to_owned(),
            "mcp",
        ),
        (
            Anthropic,
            &["mcp"],
            r#"{"mcp_servers":[{"url":"https://x"}]}"#.to_owned(),
            "",
        ),
    ];
    for (protocol, allowed, sent, why) in rows {
        let spec = spec(json!({"protocol": protocol, "hosted_tools": allowed}));
        match made(&spec, sent) {
            Ok(_) => assert_eq!(*why, "", "{protocol} {sent}"),
            Err(failure) => {
                assert_eq!(failure.code, Code::InvalidArguments);
                let said = failure.message.english();
                assert!(
                    !why.is_empty() && said.contains(*why),
                    "{protocol} {sent}: {said}"
                );
            }
        }
    }
}

#[test]
fn what_the_operator_fixes_is_looked_at_too() {
    let fixed = json!({"protocol": "openai_responses", "fixed": {"tools": [{"type": "mcp"}]}});
    assert!(made(&spec(fixed.clone()), "{}").is_err());
    let mut allowed = fixed;
    allowed["hosted_tools"] = json!(["mcp"]);
    assert!(made(&spec(allowed), r#"{"tools":[{"type":"web_search"}]}"#).is_ok());
}
