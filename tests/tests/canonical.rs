//! The canonical form as a user computes it: the examples in Python and JavaScript, on the published vectors.

use std::process::Command;

#[test]
fn python_computes_the_same_text_and_hash() {
    agree("TOOLFLEET_PYTHON", "python3", "canonical_test.py");
}

#[test]
fn javascript_computes_the_same_text_and_hash() {
    agree("TOOLFLEET_NODE", "node", "canonical_test.mjs");
}

fn agree(variable: &str, default: &str, test: &str) {
    #[expect(clippy::disallowed_methods, reason = "a test has no command line")]
    let program = std::env::var(variable).unwrap_or_else(|_unset| default.to_owned());
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/canonical");
    let ran = Command::new(&program)
        .arg(test)
        .current_dir(folder)
        .output();
    let ran = ran.unwrap_or_else(|error| {
        panic!("{program}: {error}; run `make setup` and `. ./.tools/env`, or set {variable}")
    });
    let said = String::from_utf8_lossy(&ran.stdout);
    let complaint = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{program} {test}: {said}{complaint}");
    assert!(
        said.contains("vectors and") && said.contains("agree"),
        "{program} {test} compared nothing: {said}"
    );
}
