//! Calls in the formats of model APIs, where only the arguments should have been sent.

use serde_json::{Value, json};

use super::{NO, check};
use crate::{Coercing, Level, Schema};

/// Open to any name, nothing required, and a default that would run instead of what was sent.
fn open() -> Value {
    json!({
        "type": "object",
        "properties": {"account": {"type": "string"}, "cents": {"type": "integer", "default": 5}},
    })
}

const UNWRAPPED: (&str, &str) = (r#"{"account":"a","cents":9}"#, " unwrap");
const UNWRAPPED_TWICE: (&str, &str) = (r#"{"account":"a","cents":9}"#, " unwrap,  unwrap");

/// Open or closed, for tools that write and for tools that read.
fn check_all(rows: &[(&str, (&str, &str))]) {
    let mut closed = open();
    closed["additionalProperties"] = json!(false);
    for schema in [open(), closed] {
        for level in [Level::Safe, Level::Read] {
            check(level, schema.clone(), rows);
        }
        let refused: Vec<_> = rows.iter().map(|(sent, _)| (*sent, NO)).collect();
        check(Level::Off, schema, &refused);
    }
}

#[test]
fn the_envelope_of_a_call_of_this_tool_is_taken_off() {
    check_all(&[
        (
            r#"{"type":"tool_use","id":"t1","name":"get_weather","input":{"account":"a","cents":9}}"#,
            UNWRAPPED,
        ),
        (
            r#"{"name":"get_weather","arguments":{"account":"a","cents":9},"id":1}"#,
            UNWRAPPED,
        ),
        (
            r#"{"tool":"get_weather","arguments":{"account":"a","cents":9}}"#,
            UNWRAPPED,
        ),
        (
            r#"{"tool_name":"get_weather","tool_input":{"account":"a","cents":9},"tool_use_id":"t1"}"#,
            UNWRAPPED,
        ),
        (
            r#"{"function":"get_weather","parameters":{"account":"a","cents":9}}"#,
            UNWRAPPED,
        ),
        (
            r#"{"type":"function_call","id":"f","call_id":"c","name":"get_weather","arguments":"{\"account\":\"a\",\"cents\":9}"}"#,
            UNWRAPPED,
        ),
        (
            r#"{"type":"function","function":{"name":"get_weather","arguments":"{\"account\":\"a\",\"cents\":9}"}}"#,
            UNWRAPPED_TWICE,
        ),
        (
            r#"{"id":"c1","type":"function","function":{"name":"get_weather","arguments":"{\"account\":\"a\",\"cents\":9}"}}"#,
            UNWRAPPED_TWICE,
        ),
    ]);
}

/// Each as its vendor publishes it, with every member that it may have.
#[test]
fn the_published_formats_of_calls_are_taken_off_whole() {
    let chat = [
        r#"{"id":"call_1","type":"function","function":{"name":"get_weather","arguments":"{\"account\":\"a\",\"cents\":9}"}}"#,
        r#"{"index":0,"id":"call_1","type":"function","function":{"name":"get_weather","arguments":"{\"account\":\"a\",\"cents\":9}"}}"#,
    ];
    let responses = [
        r#"{"type":"function_call","id":"fc_1","call_id":"call_1","name":"get_weather","arguments":"{\"account\":\"a\",\"cents\":9}","status":"completed"}"#,
        r#"{"type":"function_call","id":"fc_1","call_id":"call_1","name":"get_weather","arguments":"{\"account\":\"a\",\"cents\":9}","status":null,"namespace":null,"caller":null}"#,
        r#"{"type":"function_call","id":"fc_1","call_id":"call_1","name":"get_weather","arguments":"{\"account\":\"a\",\"cents\":9}","status":"completed","namespace":"crm","caller":{"type":"direct"},"created_by":"u1"}"#,
    ];
    let anthropic = [
        r#"{"type":"tool_use","id":"toolu_1","name":"get_weather","input":{"account":"a","cents":9},"caller":{"type":"direct"}}"#,
        r#"{"type":"tool_use","id":"toolu_1","name":"get_weather","input":{"account":"a","cents":9},"cache_control":{"type":"ephemeral"},"toolset_name":null}"#,
    ];
    let gemini_call = [r#"{"id":"c1","name":"get_weather","args":{"account":"a","cents":9}}"#];
    let gemini = [
        r#"{"functionCall":{"name":"get_weather","args":{"account":"a","cents":9}}}"#,
        r#"{"functionCall":{"id":"c1","name":"get_weather","args":{"account":"a","cents":9}},"thoughtSignature":"c2ln"}"#,
        r#"{"function_call":{"id":"c1","name":"get_weather","args":{"account":"a","cents":9}},"thought":false,"thought_signature":"c2ln"}"#,
    ];
    let once = |sent: &[&'static str]| {
        check_all(
            &sent
                .iter()
                .map(|sent| (*sent, UNWRAPPED))
                .collect::<Vec<_>>(),
        )
    };
    let twice = |sent: &[&'static str]| {
        check_all(
            &sent
                .iter()
                .map(|sent| (*sent, UNWRAPPED_TWICE))
                .collect::<Vec<_>>(),
        )
    };
    twice(&chat);
    once(&responses);
    once(&anthropic);
    once(&gemini_call);
    twice(&gemini);
}

#[test]
fn a_call_that_is_not_complete_or_has_more_than_its_format_is_refused() {
    check_all(&[
        // Half of its arguments may be missing.
        (
            r#"{"type":"function_call","call_id":"c","name":"get_weather","arguments":{"cents":9},"status":"in_progress"}"#,
            NO,
        ),
        (
            r#"{"type":"function_call","call_id":"c","name":"get_weather","arguments":{"cents":9},"status":"incomplete"}"#,
            NO,
        ),
        (
            r#"{"type":"function_call","call_id":"c","name":"get_weather","arguments":{"cents":9},"Status":"completed"}"#,
            NO,
        ),
        (
            r#"{"type":"tool_use","id":"t","name":"get_weather","input":{"cents":9},"caller":"direct"}"#,
            NO,
        ),
        (
            r#"{"functionCall":{"name":"get_time","args":{"cents":9}}}"#,
            NO,
        ),
        (r#"{"functionCall":{"cents":9}}"#, NO),
        (r#"{"functionCall":{"name":"get_weather"}}"#, NO),
    ]);
}

#[test]
fn a_detail_of_a_format_is_one_only_in_that_format() {
    let as_it_is = |schema: &Value, sent: &str| {
        check(Level::Safe, schema.clone(), &[(sent, (sent, ""))]);
        check(Level::Read, schema.clone(), &[(sent, (sent, ""))]);
    };
    let mut open = open();
    open["properties"]["cents"] = json!({"type": "integer"});
    as_it_is(&open, r#"{"params":{"cents":9},"status":"open"}"#);
    as_it_is(&open, r#"{"caller":{"name":"ann"},"input":{"cents":9}}"#);
    as_it_is(&open, r#"{"args":{"cents":9},"index":1}"#);
    as_it_is(&open, r#"{"status":"completed"}"#);
    // A tool that declares such a word gets it as it is, and an envelope of its call is still one.
    open["properties"]["status"] = json!({"type": "string"});
    as_it_is(&open, r#"{"cents":9,"status":"completed"}"#);
    let whole = r#"{"type":"function_call","call_id":"c","name":"get_weather","arguments":"{\"cents\":9}","status":"completed"}"#;
    check(
        Level::Safe,
        open.clone(),
        &[(whole, (r#"{"cents":9}"#, " unwrap"))],
    );
}

#[test]
fn an_envelope_that_may_be_of_something_else_is_refused() {
    check_all(&[
        (r#"{"name":null,"arguments":{"cents":9},"id":1}"#, NO),
        (r#"{"name":null,"arguments":{"cents":9}}"#, NO),
        (r#"{"name":5,"arguments":{"cents":9}}"#, NO),
        (r#"{"tool":"get_time","arguments":{"cents":9}}"#, NO),
        (r#"{"function":"get_time","parameters":{"cents":9}}"#, NO),
        (
            r#"{"type":"tool_result","name":"get_weather","input":{"cents":9}}"#,
            NO,
        ),
        (r#"{"id":[1],"name":"get_weather","input":{"cents":9}}"#, NO),
        // Nothing says that the number is the id of a call.
        (r#"{"id":7,"input":{"account":"a"}}"#, NO),
        (r#"{"Arguments":{"cents":9}}"#, NO),
        (r#"{"Name":"get_weather","ARGUMENTS":{"cents":9}}"#, NO),
        (r#"{"input":{"cents":9},"arguments":{"account":"a"}}"#, NO),
        (
            r#"{"name":"get_weather","input":{"cents":9},"arguments":{}}"#,
            NO,
        ),
        (r#"{"function":{"cents":9}}"#, NO),
        (r#"{"function":{"name":"get_weather","cents":9}}"#, NO),
        (
            r#"{"type":"function","function":{"name":"get_time","arguments":{"cents":9}}}"#,
            NO,
        ),
        (
            r#"{"type":"function","function":{"arguments":{"cents":9}}}"#,
            NO,
        ),
    ]);
}

#[test]
fn the_wrapper_of_an_envelope_is_named() {
    let told = |sent: Value| {
        let schema = Schema::compile_input(&open()).unwrap();
        let how = Coercing {
            level: Level::Safe,
            tool: "get_weather",
        };
        schema.fit(sent, how).unwrap_err().items()[0].to_string()
    };
    assert_eq!(
        told(json!({"type": "function", "function": {"name": "get_time", "arguments": "{}"}})),
        r#"/function: expected the arguments themselves, not inside "function", found object with 2 keys"#
    );
    assert_eq!(
        told(json!({"id": 1, "Arguments": {"cents": 9}})),
        r#"/Arguments: expected the arguments themselves, not inside "Arguments", found object with 1 key"#
    );
}

#[test]
fn what_the_tool_declares_and_what_holds_no_arguments_is_no_envelope() {
    let as_it_is = |schema: &Value, sent: &str| {
        check(Level::Safe, schema.clone(), &[(sent, (sent, ""))]);
    };
    let mut declared = open();
    declared["properties"] = json!({"id": {"type": "integer"}, "type": {"type": "string"}});
    as_it_is(&declared, r#"{"arguments":{"cents":9},"id":1}"#);
    as_it_is(&declared, r#"{"input":{"a":1},"type":"tool_use"}"#);
    let mut open = open();
    open["properties"]["cents"] = json!({"type": "integer"});
    as_it_is(&open, r#"{"id":1,"name":"x","type":"y"}"#);
    as_it_is(&open, r#"{"id":1,"input":"x"}"#);
    as_it_is(&open, r#"{"function":"sine"}"#);
    as_it_is(&open, r#"{"input":{"cents":9},"note":"x"}"#);
    as_it_is(&open, "{}");
    let map = json!({"type": "object", "additionalProperties": {"type": ["object", "string"]}});
    as_it_is(&map, r#"{"input":{"a":1},"type":"tool_use"}"#);
}

/// Open tools that also declare members of an envelope.
fn declaring(properties: Value, required: Value) -> Value {
    json!({"type": "object", "properties": properties, "required": required})
}

#[test]
fn what_an_envelope_has_beside_the_arguments_is_no_property_of_the_tool() {
    let record = declaring(json!({"id": {"type": "string"}}), json!(["id"]));
    let once = (r#"{"id":"42"}"#, " unwrap");
    let twice = (r#"{"id":"42"}"#, " unwrap,  unwrap");
    let rows = [
        (
            r#"{"type":"tool_use","id":"toolu_1","name":"get_weather","input":{"id":"42"}}"#,
            once,
        ),
        (
            r#"{"id":"call_1","type":"function","function":{"name":"get_weather","arguments":"{\"id\":\"42\"}"}}"#,
            twice,
        ),
        (
            r#"{"type":"function_call","id":"fc_1","call_id":"c","name":"get_weather","arguments":"{\"id\":\"42\"}","status":"completed"}"#,
            once,
        ),
        (
            r#"{"name":"get_weather","args":{"id":"42"},"id":"call_1","type":"tool_call"}"#,
            once,
        ),
        (
            r#"{"name":"get_weather","arguments":{"id":"42"},"id":"call_1"}"#,
            once,
        ),
        // It may be half of what was meant.
        (r#"{"name":"get_weather","arguments":{},"id":"42"}"#, NO),
        (
            r#"{"name":"get_weather","arguments":{"id":"42"},"id":"call_1","note":"x"}"#,
            NO,
        ),
        (
            r#"{"type":"tool_use","id":"toolu_1","name":"get_time","input":{"id":"42"}}"#,
            NO,
        ),
        (
            r#"{"id":"call_1","type":"function","function":{"name":"get_time","arguments":"{}"}}"#,
            NO,
        ),
    ];
    for level in [Level::Safe, Level::Read] {
        check(level, record.clone(), &rows);
    }
    let refused: Vec<_> = rows.iter().map(|(sent, _)| (*sent, NO)).collect();
    check(Level::Off, record, &refused);

    let bug = declaring(json!({"type": {"type": "string"}}), json!(["type"]));
    check(
        Level::Safe,
        bug,
        &[(
            r#"{"type":"tool_use","id":"t","name":"get_weather","input":{"type":"bug"}}"#,
            (r#"{"type":"bug"}"#, " unwrap"),
        )],
    );
    let zeros = declaring(json!({"function": {"type": "string"}}), json!(["function"]));
    check(
        Level::Safe,
        zeros,
        &[
            (
                r#"{"function":"get_weather","parameters":{"function":"x^2"}}"#,
                (r#"{"function":"x^2"}"#, " unwrap"),
            ),
            (r#"{"function":"get_weather","parameters":{"x":1}}"#, NO),
        ],
    );
    let optional = declaring(
        json!({"id": {"type": "string"}, "n": {"type": "integer"}, "type": {"enum": ["function", "class"]}}),
        json!([]),
    );
    check(
        Level::Safe,
        optional,
        &[
            (
                r#"{"id":"c","type":"tool_use","name":"get_weather","input":{"n":5}}"#,
                (r#"{"n":5}"#, " unwrap"),
            ),
            // Both may be arguments that were left outside.
            (r#"{"id":"c","name":"get_weather","input":{"n":5}}"#, NO),
            (
                r#"{"type":"function","name":"get_weather","input":{"n":5}}"#,
                NO,
            ),
        ],
    );
}

#[test]
fn what_a_tool_declares_to_hold_an_object_is_its_own() {
    let own = declaring(
        json!({"name": {"type": "string"}, "input": {"type": "object"}, "n": {"type": "integer"}}),
        json!([]),
    );
    let as_it_is = r#"{"input":{"a":1},"name":"get_weather"}"#;
    check(
        Level::Safe,
        own,
        &[
            (as_it_is, (as_it_is, "")),
            (
                r#"{"name":"get_weather","input":{"input":{"a":1}}}"#,
                (r#"{"input":{"a":1}}"#, " unwrap"),
            ),
            (
                r#"{"name":"get_weather","arguments":{"n":1}}"#,
                (r#"{"n":1}"#, " unwrap"),
            ),
        ],
    );
}

#[test]
fn a_call_that_names_this_tool_never_runs_whatever_stands_beside() {
    check_all(&[
        (
            r#"{"name":"get_weather","arguments":{"account":"a","cents":9},"_meta":{"progressToken":1}}"#,
            UNWRAPPED,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_weather","arguments":{"account":"a","cents":9}}}"#,
            UNWRAPPED_TWICE,
        ),
        (
            r#"{"toolUse":{"toolUseId":"t","name":"get_weather","input":{"account":"a","cents":9}}}"#,
            UNWRAPPED_TWICE,
        ),
        (
            r#"{"recipient_name":"functions.get_weather","parameters":{"account":"a","cents":9}}"#,
            UNWRAPPED,
        ),
        (
            r#"{"action":"get_weather","action_input":{"account":"a","cents":9}}"#,
            UNWRAPPED,
        ),
        (
            r#"{"type":"tool-call","toolCallId":"c","toolName":"get_weather","args":{"account":"a","cents":9}}"#,
            UNWRAPPED,
        ),
        (
            r#"{"name":"get_weather","args":{"account":"a","cents":9},"id":"1","type":"tool_call","error":null}"#,
            UNWRAPPED,
        ),
        (
            r#"{"id":"x","function":{"name":"get_weather","arguments":"{\"account\":\"a\",\"cents\":9}"},"index":0}"#,
            UNWRAPPED_TWICE,
        ),
        (
            r#"{"tool_calls":[{"name":"get_weather","arguments":{"cents":9}}]}"#,
            NO,
        ),
        (
            r#"{"tool_calls":[{"id":"c","type":"function","function":{"name":"get_weather","arguments":"{}"}}]}"#,
            NO,
        ),
        (
            r#"{"thought":"hm","action":"get_weather","action_input":{"cents":9}}"#,
            NO,
        ),
        (
            r#"{"type":"mcp_call","id":"t","name":"get_weather","arguments":"{\"cents\":9}","server_label":"x"}"#,
            NO,
        ),
        (
            r#"{"name":"get_weather","description":"d","parameters":{"cents":9}}"#,
            NO,
        ),
        (r#"{"action":"get_weather","Params":{"cents":9}}"#, NO),
        (
            r#"{"name":"get_weather","input":{"cents":9},"account":"a"}"#,
            NO,
        ),
    ]);
}

#[test]
fn a_wrapper_around_what_the_tool_does_not_know_at_all_stays() {
    check_all(&[
        (r#"{"arguments":{"data":{"account":"a"}}}"#, NO),
        (
            r#"{"parameters":{"type":"object","properties":{"account":"a"}}}"#,
            NO,
        ),
        (
            r#"{"name":"get_weather","arguments":{"payload":{"account":"a"}}}"#,
            NO,
        ),
        (
            r#"{"arguments":{}}"#,
            (r#"{"cents":5}"#, " unwrap, /cents default"),
        ),
    ]);
}
