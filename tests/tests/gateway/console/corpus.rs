//! What strangers write is text on every page, whatever it looks like.

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::{Reply, Witness},
};
use serde_json::json;

use super::browser::Browser;

/// Script, markup, templates, tables, directions, controls.
const CORPUS: [&str; 9] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "</script><svg onload=alert(1)>",
    "javascript:alert(1)//",
    "{{constructor.constructor('alert(1)')()}}",
    "=HYPERLINK(\"https://evil.example\")",
    "\u{202e}txt.exe\u{202c}",
    "\u{0}\u{1b}[2J\u{7}",
    "'; DROP TABLE calls; --",
];

/// What no page may have outside of its own markup.
fn is_text_only(page: &str) {
    let lower = page.to_lowercase();
    for alive in [
        "<script>alert",
        "<img",
        "onload=alert(1)>",
        "onerror=alert(1)>",
        "<svg onload",
    ] {
        assert!(!lower.contains(alive), "{alive} is alive in {page}");
    }
    let scripts = lower.matches("<script").count();
    let own = lower.matches("<script src=\"/console/assets/").count()
        + lower
            .matches("<script id=\"schema\" type=\"application/json\"")
            .count();
    assert_eq!(scripts, own, "{page}");
    let odd = |character: &char| matches!(character, '\u{202a}'..='\u{202e}' | '\u{0}'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}');
    assert_eq!(page.chars().find(odd), None, "it leads the eye astray");
}

#[tokio::test]
async fn no_text_of_a_stranger_is_markup_on_any_page() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("look", "read"),
        witness.tool("charge", "once") + "timeout: 300ms\n",
        format!(
            "{}\napproval: {{by: operator}}\n",
            witness.tool("pay", "once")
        ),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let browser = Browser::new(web);
    let mut pages: Vec<String> = [
        "",
        "/doubts",
        "/waiting",
        "/tools",
        "/tools/look",
        "/workers",
        "/protection",
    ]
    .map(|page| format!("/console{page}"))
    .to_vec();
    for (number, text) in CORPUS.into_iter().enumerate() {
        let text_of_it = text.replace('\0', "");
        witness.always(
            &text_of_it,
            Reply::Body(json!({ "said": text_of_it }).to_string()),
        );
        let key = format!("key-{number}");
        for (tool, wait) in [
            ("look", "wait=10"),
            ("charge", "wait=10"),
            ("pay", "respond-async"),
        ] {
            if tool == "charge" {
                witness.always(&text_of_it, Reply::DoneThenHang);
            }
            let body = json!({ "what": text_of_it }).to_string();
            let made = web
                .post(&format!("/v1/call/{tool}"), body)
                .header("Idempotency-Key", &format!("{key}-{tool}"))
                .header("Toolfleet-Session", &format!("s-{number}"))
                .header("Prefer", wait)
                .send()
                .await;
            let call = made.json()["call_id"].as_str().map(ToOwned::to_owned);
            let call = call.unwrap_or_else(|| panic!("{}", made.text()));
            pages.push(format!("/console/calls/{call}"));
            if tool == "charge" {
                let settled = browser
                    .send(
                        &format!("/console/calls/{call}/settle"),
                        &[
                            ("outcome", "applied"),
                            ("note", &text_of_it),
                            ("actor", "ann"),
                        ],
                    )
                    .await;
                is_text_only(&settled.text());
            }
        }
        for place in [
            "/console/find?q=",
            "/console?tool=",
            "/console?session=",
            "/console/calls/",
            "/console/streams?session=",
            "/console/login?to=",
        ] {
            let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
            is_text_only(&browser.get(&format!("{place}{encoded}")).await.text());
        }
    }
    for page in &pages {
        is_text_only(&browser.page(page).await);
    }
    let live = browser.page("/console").await;
    assert!(live.contains("&lt;script&gt;"), "it is shown all the same");
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
