//! Tokens from the command line, while NATS is away.

use std::fs;

use fleet::{
    store::{migrate::migrate, tokens},
    tokens::parse,
};
use serde_json::{Value, json};

use crate::support::{Ran, folder, ledger, postgres, program, run};

const ANN: [&str; 9] = [
    "--name",
    "ann",
    "--tenant",
    "acme",
    "--note",
    "for the shop",
    "--actor",
    "ada",
    "--scope",
];

#[tokio::test]
async fn a_token_is_made_shown_once_listed_and_revoked_without_nats() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let ledger = ledger(&postgres.url());
    migrate(&ledger).await.unwrap();
    let pool = ledger.pool_for_reading(1);
    let command = |code: i32, arguments: &[&str]| -> Ran {
        let mut command = program(&[&["tokens"], arguments].concat());
        command.env("DATABASE_URL", postgres.url());
        command.env("NATS_URL", "nats://127.0.0.1:1");
        let ran = run(command);
        assert_eq!(ran.code, code, "{arguments:?}: {}{}", ran.out, ran.err);
        ran
    };
    let create =
        |code: i32, arguments: &[&str]| command(code, &[&["create"], &ANN[..], arguments].concat());

    // The token alone is the output, and the list has no part of it but its id.
    let made = create(0, &["call,read", "--scope", "call"]);
    let token = made.out.trim_end();
    let (id, hash) = parse(token).unwrap();
    let said = format!(
        "token {id} of ann: call, read in tenant acme, every tool, until it is revoked; it is not shown again"
    );
    assert!(made.err.contains(&said), "{}", made.err);
    assert!(
        made.err
            .contains("every gateway takes it within two seconds"),
        "{}",
        made.err
    );
    assert!(
        made.err.contains("will see it within a few seconds"),
        "{}",
        made.err
    );
    assert!(!made.err.contains(&token[16..]), "{}", made.err);
    let live = tokens::live(&pool).await.unwrap();
    assert_eq!((live.len(), live[0].hash), (1, hash));

    let narrow = create(
        0,
        &[
            "approve",
            "--tools",
            "pay_*,look_up",
            "--tools",
            "x",
            "--expires",
            "90d",
            "--json",
        ],
    );
    let narrow = narrow.json();
    let other = narrow["secret"].as_str().unwrap();
    let row = &narrow["token"];
    assert_eq!(row["token_id"], parse(other).unwrap().0);
    assert_eq!(row["tools"], json!(["pay_*", "look_up", "x"]));
    let until = row["expires_at"].as_str().unwrap().to_owned();

    let listed = command(0, &["list", "--json"]).json();
    let ids = |listed: &Value| -> Vec<String> {
        let rows = listed.as_array().unwrap().iter();
        rows.map(|row| row["token_id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids(&listed), [parse(other).unwrap().0, id]);
    assert_eq!(listed[1]["created_by"], "ada");
    for listed in [listed.to_string(), command(0, &["list"]).out] {
        for token in [token, other] {
            assert!(!listed.contains(&token[16..]), "{listed}");
            let hash = hex(&parse(token).unwrap().1);
            assert!(!listed.contains(&hash), "{listed}");
        }
    }
    let table = command(0, &["list"]).out;
    assert!(table.contains("pay_*,look_up,x"), "{table}");
    assert!(table.contains(&until[..10]), "{table}");

    let why = ["--note", "it\u{1b}[2J leaked", "--actor", "bob"];
    let revoke = |code: i32, id: &str| command(code, &[&["revoke", id], &why[..]].concat());
    // The token itself will do.
    let said = revoke(0, token).out;
    assert_eq!(
        said,
        format!("token {id} of ann is revoked: every gateway refuses it within two seconds\n")
    );
    let again = revoke(0, &format!("tf_{id}")).out;
    assert!(again.contains("was revoked before, at"), "{again}");
    let unknown = revoke(1, "0123456789ab").err;
    assert!(
        unknown.contains("there is no token 0123456789ab; `toolfleet tokens list --all`"),
        "{unknown}"
    );
    let narrow = command(
        0,
        &["revoke", parse(other).unwrap().0, "--note", "x", "--json"],
    );
    assert_eq!(narrow.json()["result"], "revoked");
    assert!(tokens::live(&pool).await.unwrap().is_empty());
    assert_eq!(command(0, &["list", "--json"]).json(), json!([]));
    let all = command(0, &["list", "--all"]).out;
    assert!(
        all.contains("for the shop; revoked by bob: it\\u{1b}[2J leaked"),
        "{all}"
    );

    // What the ledger says is wrong is said in the words of the command.
    for (flag, value) in [("--note", "a\u{200b}b"), ("--actor", "a\u{202e}b")] {
        let mut arguments = [&["create"], &ANN[..], &["call"]].concat();
        let at = arguments.iter().position(|word| *word == flag).unwrap();
        arguments[at + 1] = value;
        let refused = command(1, &arguments).err;
        assert!(
            refused.contains(&format!("{flag} must not have")),
            "{refused}"
        );
    }
    postgres.stop().await;
    // Nothing that the server has written has a secret.
    let log = fs::read_to_string(folder.path().join("postgres.log")).unwrap_or_default();
    for token in [token, other] {
        assert!(!log.contains(&token[16..]));
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
