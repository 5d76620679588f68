//! Valid arguments as models send them.

use std::fmt::Write;

/// A body, and the schema it is valid under.
pub(crate) struct Body {
    pub(crate) name: &'static str,
    pub(crate) text: String,
    pub(crate) schema: &'static str,
    /// Whether the budget is about this one.
    pub(crate) is_the_case: bool,
}

/// From the smallest to the largest that the door admits.
pub(crate) fn all() -> Vec<Body> {
    vec![
        Body {
            name: "60 B",
            text: r#"{"city":"Paris","days":5,"units":"metric","alerts":false}   "#.to_owned(),
            schema: WEATHER,
            is_the_case: false,
        },
        Body {
            name: "1 KiB",
            is_the_case: true,
            ..order("1 KiB", 4, 0, 1024)
        },
        order("64 KiB", 170, 115, 64 * 1024),
        order("256 KiB", 680, 115, 256 * 1024),
    ]
}

/// An order of so many lines, filled up with its note and with the descriptions of its lines to this many bytes.
fn order(name: &'static str, lines: usize, description: usize, bytes: usize) -> Body {
    let mut items = String::new();
    for line in 0..lines {
        let separator = if line == 0 { "" } else { "," };
        let quantity = 1 + line % 12;
        write!(
            items,
            r#"{separator}{{"sku":"K-{:04}","title":"Kettle, 1.7 l","quantity":{quantity},"price":39.90,"tags":["kitchen","steel"],"gift":false"#,
            1000 + line
        )
        .expect("writing to a string does not fail");
        if description > 0 {
            write!(items, r#","description":"{:é<description$}""#, "")
                .expect("writing to a string does not fail");
        }
        items.push('}');
    }
    let head = format!(
        r#"{{"order_id":9007199254740993,"customer":{{"name":"Zoë Müller","email":"zoe.mueller@example.org","phone":null,"vip":true}},"lines":[{items}],"address":{{"street":"12 rue de la Paix","city":"Paris","zip":"75002","country":"FR","location":{{"lat":48.8698,"lon":2.3311}}}},"currency":"EUR","max_total":250.00,"priority":"normal","note":"Ring \"twice\";\nthen wait. "#
    );
    let tail = "\"}";
    let fill = bytes.saturating_sub(head.len() + tail.len());
    Body {
        name,
        text: format!("{head}{}{tail}", "x".repeat(fill)),
        schema: ORDER,
        is_the_case: false,
    }
}

const WEATHER: &str = r#"{
  "type": "object", "additionalProperties": false, "required": ["city"],
  "properties": {
    "city": {"type": "string", "minLength": 1, "maxLength": 100},
    "days": {"type": "integer", "minimum": 1, "maximum": 14, "default": 3},
    "units": {"enum": ["metric", "imperial"], "default": "metric"},
    "alerts": {"type": "boolean", "default": false}
  }
}"#;

const ORDER: &str = r##"{
  "type": "object", "additionalProperties": false, "required": ["order_id", "customer", "lines", "address"],
  "properties": {
    "order_id": {"type": "integer", "minimum": 1},
    "customer": {
      "type": "object", "additionalProperties": false, "required": ["name", "email"],
      "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 200},
        "email": {"type": "string", "format": "email"},
        "phone": {"type": ["string", "null"], "maxLength": 30},
        "vip": {"type": "boolean", "default": false}
      }
    },
    "lines": {"type": "array", "minItems": 1, "maxItems": 1000, "items": {"$ref": "#/$defs/line"}},
    "address": {
      "type": "object", "additionalProperties": false, "required": ["city", "country"],
      "properties": {
        "street": {"type": "string", "maxLength": 200},
        "city": {"type": "string", "minLength": 1, "maxLength": 100},
        "zip": {"type": "string", "pattern": "^[0-9A-Z -]{3,10}$"},
        "country": {"type": "string", "pattern": "^[A-Z]{2}$"},
        "location": {
          "type": "object", "additionalProperties": false, "required": ["lat", "lon"],
          "properties": {
            "lat": {"type": "number", "minimum": -90, "maximum": 90},
            "lon": {"type": "number", "minimum": -180, "maximum": 180}
          }
        }
      }
    },
    "currency": {"enum": ["EUR", "USD", "CNY"], "default": "EUR"},
    "max_total": {"type": "number", "exclusiveMinimum": 0},
    "priority": {"enum": ["low", "normal", "high"], "default": "normal"},
    "note": {"type": "string", "maxLength": 200000}
  },
  "$defs": {
    "line": {
      "type": "object", "additionalProperties": false, "required": ["sku", "quantity"],
      "properties": {
        "sku": {"type": "string", "pattern": "^[A-Z]-[0-9]{4}$"},
        "title": {"type": "string", "maxLength": 200},
        "description": {"type": "string", "maxLength": 2000},
        "quantity": {"type": "integer", "minimum": 1, "maximum": 100},
        "price": {"type": "number", "minimum": 0},
        "tags": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 30}},
        "gift": {"type": "boolean", "default": false}
      }
    }
  }
}"##;
