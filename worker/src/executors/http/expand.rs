//! The text of an RFC 6570 expression, for the arguments that it names.
//!
//! One rule is stricter than the RFC: `{+x}` encodes `%` too, so that an argument is always data and never something already
//! encoded.

use std::fmt::Write;

use fleet::manifest::uri_template::{Expression, Operator};

/// What a variable stands for.
#[derive(Debug)]
pub(super) enum Bound {
    Absent,
    Text(String),
    List(Vec<String>),
    Pairs(Vec<(String, String)>),
}

impl Bound {
    /// Every text in it.
    pub(super) fn texts(&self) -> Vec<&str> {
        match self {
            Self::Absent => Vec::new(),
            Self::Text(text) => vec![text],
            Self::List(items) => items.iter().map(String::as_str).collect(),
            Self::Pairs(pairs) => pairs
                .iter()
                .flat_map(|(key, value)| [key.as_str(), value])
                .collect(),
        }
    }
}

/// The text for these values, one per variable.
pub(super) fn expand(expression: &Expression<'_>, values: &[Bound]) -> String {
    let (first, separator, named, if_empty) = match expression.operator {
        Operator::Simple | Operator::Reserved => ("", ",", false, ""),
        Operator::Label => (".", ".", false, ""),
        Operator::Segment => ("/", "/", false, ""),
        Operator::Parameter => (";", ";", true, ""),
        Operator::Query => ("?", "&", true, "="),
        Operator::Continuation => ("&", "&", true, "="),
    };
    let encode = |text: &str| encode(text, expression.operator == Operator::Reserved);
    let mut parts = Vec::new();
    for (variable, value) in expression.variables.iter().zip(values) {
        let bare = |text: String| match (named, text.is_empty()) {
            (false, _) => text,
            (true, true) => format!("{}{if_empty}", variable.name),
            (true, false) => format!("{}={text}", variable.name),
        };
        match value {
            Bound::Absent => {}
            Bound::Text(text) => {
                let cut: String = text
                    .chars()
                    .take(variable.prefix.unwrap_or(usize::MAX))
                    .collect();
                parts.push(bare(encode(&cut)));
            }
            Bound::List(items) if variable.explode => {
                parts.extend(items.iter().map(|item| bare(encode(item))))
            }
            Bound::Pairs(pairs) if variable.explode => {
                parts.extend(
                    pairs
                        .iter()
                        .map(|(key, value)| match (named, value.is_empty()) {
                            (true, true) => format!("{}{if_empty}", encode(key)),
                            (true, false) | (false, _) => {
                                format!("{}={}", encode(key), encode(value))
                            }
                        }),
                );
            }
            Bound::List(_) | Bound::Pairs(_) => {
                let items: Vec<String> = value.texts().into_iter().map(encode).collect();
                if !items.is_empty() {
                    parts.push(bare(items.join(",")));
                }
            }
        }
    }
    if parts.is_empty() {
        String::new()
    } else {
        format!("{first}{}", parts.join(separator))
    }
}

fn encode(text: &str, keep_reserved: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        let unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if unreserved || (keep_reserved && b":/?#[]@!$&'()*+,;=".contains(&byte)) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("a String takes every text");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use fleet::manifest::uri_template::{Piece, UriTemplate, Variable};

    use super::*;

    fn expand(template: &str) -> String {
        let text = |text: &str| Bound::Text(text.to_owned());
        let value = |variable: &Variable<'_>| match variable.name {
            "var" => text("value"),
            "hello" => text("Hello World!"),
            "half" => text("50%"),
            "empty" => text(""),
            "path" => text("/foo/bar"),
            "x" => text("1024"),
            "y" => text("768"),
            "list" => Bound::List(["red", "green", "blue"].map(str::to_owned).into()),
            "keys" => Bound::Pairs(
                [(";", ";"), (".", "."), ("comma", ",")]
                    .map(|(k, v)| (k.into(), v.into()))
                    .into(),
            ),
            "none" => Bound::List(Vec::new()),
            _ => Bound::Absent,
        };
        let parsed = UriTemplate::parse(template).unwrap();
        let piece = |piece: &Piece<'_>| match piece {
            Piece::Literal(literal) => (*literal).to_owned(),
            Piece::Expression(found) => {
                let values: Vec<Bound> = found.variables.iter().map(value).collect();
                super::expand(found, &values)
            }
        };
        parsed.pieces.iter().map(piece).collect()
    }

    #[test]
    fn the_examples_of_the_rfc_hold() {
        for (template, expected) in [
            ("{var}", "value"),
            ("{hello}", "Hello%20World%21"),
            ("{half}", "50%25"),
            ("O{empty}X", "OX"),
            ("O{undef}X", "OX"),
            ("{x,y}", "1024,768"),
            ("{x,hello,y}", "1024,Hello%20World%21,768"),
            ("?{x,empty}", "?1024,"),
            ("?{x,undef}", "?1024"),
            ("?{undef,y}", "?768"),
            ("{var:3}", "val"),
            ("{var:30}", "value"),
            ("{list}", "red,green,blue"),
            ("{list*}", "red,green,blue"),
            ("{keys}", "%3B,%3B,.,.,comma,%2C"),
            ("{keys*}", "%3B=%3B,.=.,comma=%2C"),
            ("{+hello}", "Hello%20World!"),
            ("{+half}", "50%25"),
            ("{+path}/here", "/foo/bar/here"),
            ("{+x,hello,y}", "1024,Hello%20World!,768"),
            ("{+path:6}/here", "/foo/b/here"),
            ("{+keys}", ";,;,.,.,comma,,"),
            ("X{.var}", "X.value"),
            ("X{.x,y}", "X.1024.768"),
            ("X{.list*}", "X.red.green.blue"),
            ("X{.none}", "X"),
            ("{/var}", "/value"),
            ("{/var,undef}", "/value"),
            ("{/var:1,var}", "/v/value"),
            ("{/list*}", "/red/green/blue"),
            ("{/keys*}", "/%3B=%3B/.=./comma=%2C"),
            ("{;x,y,empty}", ";x=1024;y=768;empty"),
            ("{;list*}", ";list=red;list=green;list=blue"),
            ("{?x,y,empty}", "?x=1024&y=768&empty="),
            ("{?list}", "?list=red,green,blue"),
            ("{?list*}", "?list=red&list=green&list=blue"),
            ("{?keys*}", "?%3B=%3B&.=.&comma=%2C"),
            ("{?none*}", ""),
            ("?fixed=yes{&x}", "?fixed=yes&x=1024"),
        ] {
            assert_eq!(expand(template), expected, "{template}");
        }
    }
}
