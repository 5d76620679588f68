//! Files that are no manifests, or manifests of something that cannot be meant.

use super::Mistake;

/// A manifest with nothing wrong, field by field.
const FIELDS: [(&str, &str); 6] = [
    ("name", "look_up"),
    ("version", "1"),
    ("description", "Looks something up and tells what it found."),
    ("effect", "read"),
    (
        "input_schema",
        "{type: object, properties: {what: {type: string, minLength: 1, description: What to look up}}, required: [what]}",
    ),
    ("executor", "{process: {command: [look, up]}}"),
];

/// The manifest with these lines instead of its own; `no FIELD` takes one out.
fn written(lines: &str) -> String {
    let field = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
    let is_replaced = |name: &str| {
        lines
            .lines()
            .any(|line| field(line) == name || line == format!("no {name}"))
    };
    let kept = FIELDS.iter().filter(|(name, _)| !is_replaced(name));
    let kept = kept.map(|(name, value)| format!("{name}: {value}\n"));
    let new = lines.lines().filter(|line| !line.starts_with("no "));
    kept.chain(new.map(|line| format!("{line}\n"))).collect()
}

fn lint(name: &'static str, shown: &str, file: Vec<u8>) -> Mistake {
    Mistake {
        file: Some(file),
        shown: shown.to_owned(),
        ..Mistake::of(name, "tools lint tool.yaml")
    }
}

pub(super) fn all() -> Vec<Mistake> {
    let mut all: Vec<Mistake> = LINES
        .iter()
        .map(|(name, lines)| lint(name, lines, written(lines).into_bytes()))
        .collect();
    let texts = FILES
        .iter()
        .map(|(name, text)| lint(name, text, text.as_bytes().to_vec()));
    all.extend(texts);
    all.push(lint(
        "a file that is no text",
        "(bytes)",
        vec![0xff, 0xfe, 0x00],
    ));
    all.push(Mistake::of(
        "a file that is not there",
        "tools lint missing.yaml",
    ));
    all.push(Mistake::of("a folder without manifests", "tools lint ."));
    all
}

/// What is wrong with a field.
const LINES: [(&str, &str); 80] = [
    (
        "a required property that is refused",
        "input_schema: {type: object, properties: {what: {type: string, minLength: 1, description: What to look up}}, required: [where], additionalProperties: false}",
    ),
    ("a duration without its unit", "timeout: 30"),
    ("a duration without its unit, as a text", "timeout: '30'"),
    ("a duration in words", "timeout: 30 seconds"),
    ("a duration with a fraction", "timeout: 1.5s"),
    ("a duration in days", "key_retention: 7d"),
    ("a duration that is a list", "deadline: [30s]"),
    ("a timeout beyond the deadline", "timeout: 10m"),
    ("a deadline that is too long", "deadline: 25h"),
    ("a field with a slip of the pen", "no effect\nefect: read"),
    ("a field that nothing is like", "remembering: true"),
    ("answers that are kept for no time", "cache: {ttl: 0s}"),
    ("answers that are kept, as a word", "cache: true"),
    ("a fallback that names nothing", "fallback: {}"),
    ("a fallback, as a word", "fallback: stub"),
    (
        "an old answer of a tool that keeps none",
        "fallback: {stale: {max_age: 30m}}",
    ),
    (
        "a stub that the tool could not answer",
        "output_schema: {type: object, required: [found]}\nfallback: {stub: {}}",
    ),
    (
        "a field of another system",
        "no input_schema\nparameters: {type: object}",
    ),
    (
        "a field in camel case",
        "no input_schema\ninputSchema: {type: object}",
    ),
    (
        "a field in the wrong place",
        "no executor\ncommand: [look, up]",
    ),
    (
        "a field in the wrong executor",
        "executor: {process: {command: [look], url: 'http://a/'}}",
    ),
    ("no name", "no name"),
    ("no version", "no version"),
    ("no effect", "no effect"),
    ("no input schema", "no input_schema"),
    ("no executor", "no executor"),
    ("an executor that is empty", "executor: {}"),
    ("an executor that is a word", "executor: http"),
    (
        "two executors",
        "executor: {process: {command: [look]}, http: {method: GET, url: 'http://a.example/'}}",
    ),
    (
        "an executor that does not exist",
        "executor: {docker: {image: look}}",
    ),
    (
        "an executor without what it needs",
        "executor: {http: {method: GET}}",
    ),
    (
        "a command as one text",
        "executor: {process: {command: look up}}",
    ),
    ("an effect with a slip of the pen", "effect: reads"),
    ("an effect that does not exist", "effect: write"),
    ("an effect that is a yes", "effect: true"),
    ("a name with spaces and capitals", "name: Look Up"),
    ("a name with a dash", "name: look-up"),
    ("a version that is a text", "version: '1'"),
    ("a version with a point", "version: 1.2"),
    ("a version of zero", "version: 0"),
    ("a description that is empty", "description: ''"),
    ("a queue with a point", "queue: a.b"),
    ("a concurrency of zero", "concurrency: 0"),
    ("a refusal over no rate", "on_limit: refuse"),
    ("a rate of nothing", "rate_limit: {calls: 0, per: 1s}"),
    ("a rate without a time", "rate_limit: {calls: 50}"),
    (
        "a rate by an argument",
        "rate_limit: {calls: 50, per: 1s, by: /account/id}",
    ),
    (
        "a shared rate with numbers",
        "rate_limit: {share: bank, calls: 50, per: 1s}",
    ),
    ("a policy without a rule", "policy: {}"),
    (
        "a policy that lets nothing happen",
        "policy: {at_most: {calls: 0, per: run}}",
    ),
    (
        "a policy that counts too far",
        "policy: {at_most: {calls: 1001, per: run}}",
    ),
    (
        "a policy that counts by something else",
        "policy: {at_most: {calls: 5, per: day}}",
    ),
    (
        "a policy with a tool in both lists",
        "policy: {after: [look], never_after: [look]}",
    ),
    ("a size in decimal units", "output_limit: 1MB"),
    ("a size that is too large", "output_limit: 9MiB"),
    (
        "a method in small letters",
        "executor: {http: {method: get, url: 'http://a.example/'}}",
    ),
    (
        "a URL without its scheme",
        "executor: {http: {method: GET, url: api.example.com/v1}}",
    ),
    (
        "a URL with another scheme",
        "executor: {http: {method: GET, url: 'ftp://a.example/'}}",
    ),
    (
        "a URL with a password",
        "executor: {http: {method: GET, url: 'https://u:hunter2@a.example/'}}",
    ),
    (
        "a URL whose host is an argument",
        "executor: {http: {method: GET, url: 'https://{what}/'}}",
    ),
    (
        "a URL with an argument that is not declared",
        "executor: {http: {method: GET, url: 'https://a.example/{city}'}}",
    ),
    (
        "a header with an argument in the middle",
        "executor: {http: {method: GET, url: 'https://a.example/', headers: {X-Key: Bearer {what}}}}",
    ),
    ("a status that does not exist", "business_statuses: [99]"),
    (
        "a status alone",
        "executor: {http: {method: GET, url: 'https://a.example/'}}\nbusiness_statuses: 404",
    ),
    ("a retry that is a number", "retry: 3"),
    ("too many attempts", "retry: {max_attempts: 50}"),
    (
        "a retry of what is never retried",
        "retry: {on: [tool_error]}",
    ),
    (
        "a tool that recognises repetitions, but by what",
        "effect: idempotent",
    ),
    ("a once tool without keys", "effect: once\nkey: optional"),
    ("a transaction that is no statement", "effect: transaction"),
    (
        "a database URL in a manifest",
        "executor: {sql: {statement: SELECT 1, database: 'postgres://u:hunter2@h/d'}}",
    ),
    (
        "a subject with a wildcard",
        "executor: {nats: {subject: 'look.*'}}",
    ),
    (
        "a subject of the fleet",
        "executor: {nats: {subject: toolfleet.v1.look}}",
    ),
    (
        "a sensitive field without its slash",
        "sensitive: {pointers: [card]}",
    ),
    (
        "an input schema that is no object",
        "input_schema: {type: array}",
    ),
    (
        "a type that does not exist",
        "input_schema: {type: object, properties: {what: {type: text}}}",
    ),
    (
        "a pattern that is none",
        "input_schema: {type: object, properties: {what: {type: string, pattern: '[a-'}}}",
    ),
    (
        "a pattern with look-around",
        "input_schema: {type: object, properties: {what: {type: string, pattern: '(?=a)b'}}}",
    ),
    (
        "a reference to another document",
        "input_schema: {type: object, properties: {what: {$ref: 'https://a.example/what.json'}}}",
    ),
    (
        "a default that does not fit",
        "input_schema: {type: object, properties: {days: {type: integer, default: three}}}",
    ),
];

/// What is wrong with a whole file.
const FILES: [(&str, &str); 7] = [
    ("an empty file", ""),
    ("a file of words", "look something up"),
    ("a list instead of a manifest", "- name: look_up"),
    ("a bracket that is not closed", "name: [look_up"),
    (
        "tabs instead of spaces",
        "name: look_up\nexecutor:\n\tprocess: {command: [look]}",
    ),
    (
        "two manifests in a file",
        "name: look_up\n---\nname: look_down",
    ),
    ("a field twice", "name: look_up\nname: look_down"),
];
