use super::*;
use crate::manifest::parse;

fn tools() -> Vec<Manifest> {
    let manifest = |name: &str, effect: &str, more: &str| {
        parse(&format!(
            "name: {name}\nversion: 2\ndescription: Does {name}.\neffect: {effect}\n{more}\
             input_schema: {{type: object, properties: {{to: {{type: string}}, key: {{type: string}}}}}}\n\
             executor: {{http: {{method: POST, url: 'https://inner.example.com/', \
             headers: {{Authorization: secret://PAY_TOKEN}}}}}}\n"
        ))
        .unwrap()
    };
    vec![
        manifest("send", "once", ""),
        manifest("look", "read", ""),
        manifest("put", "idempotent", "idempotency: {argument: key}\n"),
    ]
}

fn listed(format: Format) -> Value {
    definitions(tools().iter(), format)
}

#[test]
fn each_format_has_its_shape_and_is_sorted_by_name() {
    let schema = json!({"type": "object", "properties": {"to": {"type": "string"}, "key": {"type": "string"}}});
    assert_eq!(
        listed(Format::Openai)[0],
        json!({"type": "function", "function": {"name": "look", "description": "Does look.", "parameters": schema}})
    );
    assert_eq!(
        listed(Format::Anthropic)[2],
        json!({"name": "send", "description": "Does send.", "input_schema": schema})
    );
    assert_eq!(
        listed(Format::Full)[2],
        json!({
            "name": "send", "version": 2, "description": "Does send.", "effect": "once", "input_schema": schema,
            "key": "required", "timeout_ms": 30_000, "deadline_ms": 300_000, "key_retention_ms": 86_400_000, "queue": "default",
            "coercion": "on", "language": "en",
        })
    );
    assert_eq!(listed(Format::Full)[0]["key"], "optional");
}

#[test]
fn hints_follow_from_the_effect_class() {
    let hints = |index: usize| listed(Format::Mcp)[index]["annotations"].clone();
    let expected = |read_only: bool, idempotent: bool| {
        json!({
            "readOnlyHint": read_only, "destructiveHint": !read_only, "idempotentHint": idempotent,
            "openWorldHint": true,
        })
    };
    assert_eq!(
        [hints(0), hints(1), hints(2)],
        [
            expected(true, true),
            expected(false, true),
            expected(false, false)
        ]
    );
}

#[test]
fn nothing_of_the_inside_is_shown() {
    for format in Format::ALL {
        let text = listed(*format).to_string();
        for hidden in [
            "inner.example.com",
            "PAY_TOKEN",
            "Authorization",
            "executor",
            "POST",
        ] {
            assert!(!text.contains(hidden), "{format}: {hidden}");
        }
    }
    let put = &listed(Format::Anthropic)[1];
    assert_eq!(
        put["input_schema"]["properties"],
        json!({"to": {"type": "string"}})
    );
}

#[test]
fn an_answer_is_described_where_a_format_can() {
    let tool = |output: &Value| {
        parse(
            &json!({
                "name": "look", "version": 1, "description": "Looks something up.", "effect": "read",
                "input_schema": {"type": "object", "$schema": "https://json-schema.org/draft/2020-12/schema"},
                "output_schema": output, "executor": {"process": {"command": ["/bin/cat"]}},
            })
            .to_string(),
        )
        .unwrap()
    };
    let list = json!({"type": "array", "items": {"type": "string"}});
    let object = json!({"type": "object", "properties": {"a": {}}, "$id": "answer"});
    let bare = json!({"type": "object", "properties": {"a": {}}});
    let of = |output: &Value, format| definitions([&tool(output)].into_iter(), format)[0].clone();
    assert_eq!(of(&object, Format::Mcp)["outputSchema"], bare);
    assert!(of(&list, Format::Mcp).get("outputSchema").is_none());
    assert_eq!(of(&object, Format::Full)["output_schema"], bare);
    assert_eq!(of(&list, Format::Full)["output_schema"], list);
    assert_eq!(
        of(&list, Format::Mcp)["inputSchema"],
        json!({"type": "object"})
    );
}

#[test]
fn an_unlisted_tool_is_told_to_programs_alone_and_a_hidden_one_to_models_too() {
    let manifest = |name: &str, more: &str| {
        parse(&format!(
            "name: {name}\nversion: 1\ndescription: Looks something up.\neffect: read\n{more}\n\
             input_schema: {{type: object}}\nexecutor: {{nats: {{subject: a}}}}\n"
        ))
        .unwrap()
    };
    let tools = [
        manifest("a", "visibility: hidden"),
        manifest("b", "visibility: unlisted\npresents: web_search_call"),
        manifest("c", "visibility: shown\nfinal: true"),
    ];
    let count = |format| {
        let listed = definitions(tools.iter(), format);
        listed.as_array().unwrap().len()
    };
    for format in Format::ALL {
        let expected = if *format == Format::Full { 3 } else { 2 };
        assert_eq!(count(*format), expected, "{format}");
    }
    assert_eq!(strict_definitions(tools.iter()).tools.len(), 2);
    // Who asks for one by its name gets it.
    assert_eq!(definition(&tools[1], Format::Mcp)["name"], "b");
    assert_eq!(strict_definition(&tools[1]).0["function"]["name"], "b");
    let full = definitions(tools.iter(), Format::Full);
    let said: Vec<[&Value; 3]> = full
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| ["visibility", "presents", "final"].map(|field| &tool[field]))
        .collect();
    let nothing = &Value::Null;
    assert_eq!(
        said,
        [
            [&json!("hidden"), nothing, nothing],
            [&json!("unlisted"), &json!("web_search_call"), nothing],
            [nothing, nothing, &json!(true)],
        ]
    );
}

#[test]
fn an_answer_of_blocks_is_said_to_programs_and_its_schema_is_that_of_what_is_structured() {
    let tool = parse(
        "name: look\nversion: 1\ndescription: Looks something up.\neffect: read\noutput: content\n\
         output_schema: {type: object, properties: {late: {type: integer}}}\n\
         input_schema: {type: object}\nexecutor: {nats: {subject: a}}\n",
    )
    .unwrap();
    let described = json!({"type": "object", "properties": {"late": {"type": "integer"}}});
    assert_eq!(definition(&tool, Format::Mcp)["outputSchema"], described);
    let full = definition(&tool, Format::Full);
    assert_eq!(
        (&full["output"], &full["output_schema"]),
        (&json!("content"), &described)
    );
}

/// OpenAI and Anthropic take `[a-zA-Z0-9_-]{1,64}`, MCP `[A-Za-z0-9_.-]{1,128}`.
#[test]
fn every_name_is_one_that_each_vendor_takes() {
    use crate::ids::ToolName;
    let taken = |name: &str| {
        (1..=64).contains(&name.len())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    let lengths = (0..200).map(|length| "a".repeat(length));
    let characters = (0..=0x2ff)
        .filter_map(char::from_u32)
        .map(|c| format!("a{c}"));
    let mut names = 0;
    for name in lengths
        .chain(characters)
        .filter(|name| name.parse::<ToolName>().is_ok())
    {
        assert!(taken(&name), "{name}");
        names += 1;
    }
    assert_eq!(names, 64 + 26 + 10 + 1);
    for (format, place) in [
        (Format::Openai, "/function/name"),
        (Format::Anthropic, "/name"),
        (Format::Mcp, "/name"),
        (Format::Full, "/name"),
    ] {
        assert_eq!(
            listed(format)[0].pointer(place),
            Some(&json!("look")),
            "{format}"
        );
    }
}
