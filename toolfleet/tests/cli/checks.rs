//! What the door would say of arguments, from the command line: as printed.

use std::{fmt::Write as _, fs};

use fleet::store::migrate::migrate;

use crate::{
    decisions::Where,
    support::{folder, ledger, nats, postgres, run},
};

const WEATHER: &str = "\
name: get_weather
version: 3
description: Tells the weather of a city for the next days.
effect: read
input_schema:
  type: object
  properties:
    city: {type: string, minLength: 1, description: What the city is called}
    days: {type: integer, minimum: 1, maximum: 14, default: 3, description: How many days}
  required: [city]
  additionalProperties: false
executor: {process: {command: [weather]}}
";

#[tokio::test]
async fn arguments_are_checked_and_nothing_is_stored() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let nats = nats(folder.path()).await;
    let here = Where {
        database: postgres.url(),
        nats: nats.url(),
    };
    migrate(&ledger(&here.database)).await.unwrap();
    let manifest = folder.path().join("weather.yaml");
    fs::write(&manifest, WEATHER).unwrap();
    let applied = run(here.command(&["tools", "apply", manifest.to_str().unwrap()]));
    assert_eq!(applied.code, 0, "{}", applied.err);
    let _dispatcher = here.dispatcher();

    let mut printed = String::new();
    for arguments in [
        &["get_weather", "city=Oslo"][..],
        &["get_weather", "city=Oslo", "days=\"2\"", "--json"],
        &["get_weather", "--args", r#"{"city": "", "day": 40}"#],
        &["get_weather", "days=40", "--language", "zh", "--json"],
        &["get_weather", "city=Oslo", "--version", "2", "--json"],
        &["get_whether", "city=Oslo", "--json"],
        &["get_weather", "--args", "{", "--json"],
    ] {
        let ran = run(here.command(&[&["tools", "check"], arguments].concat()));
        let (words, code) = (arguments.join(" "), ran.code);
        write!(
            printed,
            "$ toolfleet tools check {words}\n{}{}exit code {code}\n\n",
            ran.out, ran.err
        )
        .unwrap();
    }
    insta::assert_snapshot!(printed);
    let listed = here.calls(0, &["list", "--json"]);
    assert_eq!(listed.json(), serde_json::json!([]));
}
