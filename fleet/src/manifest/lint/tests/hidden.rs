use serde_json::json;

use super::warned;

#[test]
fn what_is_not_seen_is_warned_of_wherever_a_model_reads_it() {
    let schema = json!({
        "type": "object", "additionalProperties": false,
        "properties": {
            "to\u{200b}wn": {"type": "string", "description": "A city,\u{e0041}\u{e0042} such as Bern"},
            "day": {"type": "string", "description": "The day 👩\u{200d}🚀 of the weather"},
        },
    });
    let described = "The weather\u{202e} of a city for the next days.";
    let answer = json!({"type": "object", "description": "The\u{2066} weather", "properties": {}});
    let warned =
        warned(&json!({"description": described, "input_schema": schema, "output_schema": answer}));
    let hidden = warned
        .iter()
        .filter(|(_, message)| message.contains("not seen"));
    let places: Vec<_> = hidden.map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        places,
        [
            "/description",
            "/input_schema/properties",
            "/input_schema/properties/to\u{200b}wn/description",
            "/output_schema/description"
        ]
    );
}
