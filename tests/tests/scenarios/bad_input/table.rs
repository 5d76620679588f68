//! What a caller may get wrong about one call, row by row.

use serde_json::value::RawValue;

/// One bad call.
pub(crate) struct Bad {
    /// What is wrong with it.
    pub(crate) name: &'static str,
    pub(crate) tool: String,
    pub(crate) tenant: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    /// Whether it is sent with a key of its own.
    pub(crate) keyed: bool,
    pub(crate) body: Vec<u8>,
    pub(crate) code: &'static str,
}

impl Bad {
    /// Whether it can be said as an item of a batch: its body is JSON, and it is bad for that body alone.
    pub(crate) fn fits_a_batch(&self) -> bool {
        self.tool == "charge"
            && self.tenant == "default"
            && self.headers.is_empty()
            && self.keyed
            && serde_json::from_slice::<&RawValue>(&self.body)
                .is_ok_and(|args| args.get().len() == self.body.len())
    }
}

const GOOD: &[u8] = br#"{"what":"bad"}"#;

fn body(name: &'static str, code: &'static str, body: impl AsRef<[u8]>) -> Bad {
    Bad {
        name,
        tool: "charge".into(),
        tenant: "default".into(),
        headers: Vec::new(),
        keyed: true,
        body: body.as_ref().to_vec(),
        code,
    }
}

/// Arguments that are good but for `more`, which is this JSON text.
fn more(name: &'static str, code: &'static str, text: impl AsRef<[u8]>) -> Bad {
    let whole = [br#"{"what":"bad","more":"#, text.as_ref(), b"}"].concat();
    body(name, code, whole)
}

fn header(
    name: &'static str,
    code: &'static str,
    header: &'static str,
    value: impl Into<String>,
) -> Bad {
    Bad {
        headers: vec![(header, value.into())],
        ..body(name, code, GOOD)
    }
}

fn key(name: &'static str, value: impl Into<String>) -> Bad {
    Bad {
        keyed: false,
        ..header(name, "invalid_idempotency_key", "Idempotency-Key", value)
    }
}

fn tool(name: &'static str, code: &'static str, tool: &str) -> Bad {
    Bad {
        tool: tool.to_owned(),
        ..body(name, code, GOOD)
    }
}

fn tenant(name: &'static str, tenant: &str) -> Bad {
    Bad {
        tenant: tenant.to_owned(),
        ..body(name, "invalid_tenant", GOOD)
    }
}

/// All of them.
pub(crate) fn all() -> Vec<Bad> {
    [
        text(),
        unicode(),
        sizes(),
        numbers(),
        arguments(),
        names(),
        headers(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Not JSON.
fn text() -> Vec<Bad> {
    const MALFORMED: &str = "malformed_json";
    const CUT: &str = "truncated_arguments";
    vec![
        body("nothing", MALFORMED, ""),
        body("only space", MALFORMED, " \r\n\t"),
        body("cut off in an object", CUT, r#"{"a":1"#),
        body("cut off in a string", CUT, r#"{"what":"ba"#),
        body("cut off in an escape", CUT, r#"{"what":"\u00"#),
        body("cut off in a character", CUT, b"{\"what\":\"\xe4\xbd"),
        body("cut off in a word", CUT, r#"{"what":"bad","more":tru"#),
        body("cut off in a number", CUT, r#"{"what":"bad","more":-"#),
        body("two documents", MALFORMED, "{}{}"),
        body(
            "something behind the object",
            MALFORMED,
            r#"{"what":"bad"} x"#,
        ),
        body(
            "a byte order mark",
            MALFORMED,
            b"\xef\xbb\xbf{\"what\":\"bad\"}",
        ),
        body("a comment", MALFORMED, r#"{"what":"bad" /* why */}"#),
        body(
            "a comment in a line",
            MALFORMED,
            "{\"what\":\"bad\" // why\n}",
        ),
        body("a comma too many", MALFORMED, r#"{"what":"bad",}"#),
        body("single quotes", MALFORMED, "{'what':'bad'}"),
        body("a key without quotes", MALFORMED, r#"{what:"bad"}"#),
        body(
            "a code fence",
            MALFORMED,
            "```json\n{\"what\":\"bad\"}\n```",
        ),
        more("NaN", MALFORMED, "NaN"),
        more("Infinity", MALFORMED, "Infinity"),
        more("-Infinity", MALFORMED, "-Infinity"),
        more("True", MALFORMED, "True"),
        more("None", MALFORMED, "None"),
        more("a zero in front", MALFORMED, "01"),
        more("a plus in front", MALFORMED, "+1"),
        more("a point in front", MALFORMED, ".5"),
        more("a point at the end", MALFORMED, "1."),
        more("hexadecimal", MALFORMED, "0x10"),
        more("a line end in a string", MALFORMED, "\"a\nb\""),
        more("an escape that JSON has not", MALFORMED, r#""\x41""#),
        more("a raw NUL", MALFORMED, b"\"a\0b\""),
    ]
}

fn unicode() -> Vec<Bad> {
    const BROKEN: &str = "invalid_unicode";
    const NUL: &str = "nul_not_allowed";
    const TWICE: &str = "duplicate_key";
    vec![
        more("a byte that is not UTF-8", BROKEN, b"\"\xff\""),
        more("an overlong form", BROKEN, b"\"\xc0\xaf\""),
        more("half a character", BROKEN, b"\"\xe2\x82\""),
        more("a surrogate in UTF-8", BROKEN, b"\"\xed\xa0\x80\""),
        more("half of a surrogate pair", BROKEN, r#""\ud800""#),
        more("a surrogate pair turned round", BROKEN, r#""\udc00\ud800""#),
        body(
            "half of a surrogate pair in a key",
            BROKEN,
            r#"{"\ud800":1}"#,
        ),
        more("an escaped NUL", NUL, r#""a\u0000b""#),
        body(
            "an escaped NUL in a key",
            NUL,
            r#"{"what":"bad","\u0000":1}"#,
        ),
        body("a key twice", TWICE, r#"{"what":"bad","what":"bad"}"#),
        body(
            "a key twice, once escaped",
            TWICE,
            r#"{"what":"bad","wh\u0061t":"bad"}"#,
        ),
        more(
            "a key twice, deep inside",
            TWICE,
            r#"[{"a":{"b":1,"b":1}}]"#,
        ),
    ]
}

fn sizes() -> Vec<Bad> {
    let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    let keys: Vec<String> = (0..1_001).map(|n| format!("\"k{n}\":1")).collect();
    let large = "x".repeat(100_000);
    let large = format!("[\"{large}\",\"{large}\",\"{large}\"]");
    let blank = |bytes: usize| format!("{{\"what\":\"bad\"}}{}", " ".repeat(bytes - 14));
    vec![
        more("65 levels", "depth_exceeded", nested(64)),
        more("100,000 levels", "depth_exceeded", nested(100_000)),
        body("100,000 brackets", "depth_exceeded", "[".repeat(100_000)),
        more(
            "10,001 values",
            "too_many_nodes",
            format!("[{}1]", "1,".repeat(9_997)),
        ),
        more(
            "an object of 1,001 keys",
            "too_many_nodes",
            format!("{{{}}}", keys.join(",")),
        ),
        more(
            "a key of 257 bytes",
            "key_too_long",
            format!("{{\"{}\":1}}", "k".repeat(257)),
        ),
        more(
            "a string of 128 KiB and a byte",
            "string_too_long",
            format!("\"{}\"", "x".repeat(131_073)),
        ),
        more("a body of 300 KB", "payload_too_large", large),
        body(
            "a body of 256 KiB and a byte",
            "payload_too_large",
            blank(256 * 1024 + 1),
        ),
        body("a body of 1 MiB", "payload_too_large", blank(1024 * 1024)),
    ]
}

fn numbers() -> Vec<Bad> {
    const RANGE: &str = "number_out_of_range";
    vec![
        more("2^64", RANGE, "18446744073709551616"),
        more("10^30", RANGE, format!("1{}", "0".repeat(30))),
        more("1e400", RANGE, "1e400"),
        more("1e131071", RANGE, "1e131071"),
        more("an exponent of 20 digits", RANGE, "1e-99999999999999999999"),
        more("65 digits", "number_too_long", "1".repeat(65)),
        more("10,000 digits", "number_too_long", "1".repeat(10_000)),
    ]
}

/// JSON, but not what the tool wants.
fn arguments() -> Vec<Bad> {
    const WRONG: &str = "invalid_arguments";
    vec![
        body("an array", WRONG, "[]"),
        body("a string", WRONG, "\"x\""),
        body("null", WRONG, "null"),
        body("a number", WRONG, "12"),
        body("the text of the object", WRONG, r#""{\"what\":\"bad\"}""#),
        body("a required property is missing", WRONG, "{}"),
        body("another kind", WRONG, r#"{"what":{"deep":[1]}}"#),
        body(
            "none of the words",
            WRONG,
            r#"{"what":"bad","unit":"furlong"}"#,
        ),
        body("out of range", WRONG, r#"{"what":"bad","count":99}"#),
        body(
            "not of the format",
            WRONG,
            r#"{"what":"bad","on":"tomorrow"}"#,
        ),
        body(
            "a property that is not known",
            WRONG,
            r#"{"what":"bad","colour":"red"}"#,
        ),
        body(
            "wrong in four ways",
            WRONG,
            r#"{"what":"","unit":"x","count":1.5,"colour":1}"#,
        ),
        body(
            "a reserved key",
            WRONG,
            r#"{"what":"bad","$serde_json::private::Number":"1"}"#,
        ),
        body(
            "a pattern and 50 KB that nearly fit",
            WRONG,
            format!(r#"{{"what":"bad","slow":"{}!"}}"#, "a".repeat(50_000)),
        ),
    ]
}

fn names() -> Vec<Bad> {
    const NAME: &str = "invalid_tool_name";
    vec![
        tool("a tool that does not exist", "unknown_tool", "no_such_tool"),
        tool("a tool in capitals", NAME, "Charge"),
        tool("a tool with a hyphen", NAME, "charge-card"),
        tool("a tool of two tokens", NAME, "charge.card"),
        tool("a tool with a path", NAME, "charge/refund"),
        tool("a tool that is a wildcard", NAME, "*"),
        tool("a tool that is every tool", NAME, ">"),
        tool("a tool that is not ASCII", NAME, "météo"),
        tool("a tool with a NUL", NAME, "charge\0"),
        tool("a tool of 65 letters", NAME, &"x".repeat(65)),
        tool("a tool of 500 letters", NAME, &"x".repeat(500)),
        tenant("a tenant with a tilde", "a~b"),
        tenant("a tenant of 65 letters", &"x".repeat(65)),
        tenant("a tenant that is not ASCII", "租户"),
    ]
}

fn headers() -> Vec<Bad> {
    const DEADLINE: &str = "deadline_invalid";
    const INVALID: &str = "header_invalid";
    let deadline = |name, value: &str| header(name, DEADLINE, "Toolfleet-Deadline-Ms", value);
    let meta = |name, value: String| header(name, INVALID, "Toolfleet-Meta", value);
    vec![
        header(
            "a version that is not there",
            "unknown_tool_version",
            "Toolfleet-Tool-Version",
            "99",
        ),
        header(
            "a version in words",
            INVALID,
            "Toolfleet-Tool-Version",
            "one",
        ),
        Bad {
            keyed: false,
            ..body("no key", "missing_idempotency_key", GOOD)
        },
        key("an empty key", ""),
        key("a key of 256 letters", "k".repeat(256)),
        key("a key with a space", "a b"),
        key("a key with a tab", "a\tb"),
        key("a key with a control character", "a\u{1}b"),
        key("a key that is not ASCII", "ключ"),
        Bad {
            headers: vec![
                ("Idempotency-Key", "one".into()),
                ("Idempotency-Key", "two".into()),
            ],
            ..key("two keys", "")
        },
        deadline("no time at all", "0"),
        deadline("less than no time", "-5"),
        deadline("a millisecond more than a day", "86400001"),
        deadline("10^18 ms", "1000000000000000000"),
        deadline("a deadline in words", "soon"),
        header(
            "a run that is over",
            DEADLINE,
            "Toolfleet-Run-Deadline",
            "2020-01-01T00:00:00Z",
        ),
        header("a wait of 301 s", INVALID, "Prefer", "wait=301"),
        header("a wish that is not known", INVALID, "Prefer", "never"),
        header("a session with a dot", INVALID, "Toolfleet-Session", "a.b"),
        header(
            "a run of 65 letters",
            INVALID,
            "Toolfleet-Run",
            "r".repeat(65),
        ),
        header(
            "an urgent priority",
            INVALID,
            "Toolfleet-Priority",
            "urgent",
        ),
        header(
            "a language that is not spoken",
            INVALID,
            "Toolfleet-Language",
            "fr",
        ),
        meta("meta that is no JSON", "{".into()),
        meta("meta that is no object", "[1]".into()),
        meta("meta with a NUL", r#"{"a":"\u0000"}"#.into()),
        meta(
            "meta of 5 KiB",
            format!("{{\"a\":\"{}\"}}", "m".repeat(5_000)),
        ),
        header("20 KB of headers", INVALID, "X-Large", "x".repeat(20_000)),
        Bad {
            headers: (0..70).map(|_| ("X-Many", "x".to_owned())).collect(),
            ..body("70 headers", INVALID, GOOD)
        },
    ]
}
