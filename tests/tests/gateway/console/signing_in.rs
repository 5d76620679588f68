//! Who gets in, for how long, and what pages offer whom.

use fleet::{store::tokens::revoke, tokens::Scope};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    web::Web,
    witness::Witness,
};

use super::browser::Browser;
use crate::tokens::{Held, known, token, with};

/// Every page that needs no name.
const PAGES: [&str; 8] = [
    "/console",
    "/console/doubts",
    "/console/waiting",
    "/console/tools",
    "/console/tools/look",
    "/console/workers",
    "/console/protection",
    "/console/streams",
];

async fn fleet(witness: &Witness) -> Fleet {
    Fleet::start(Spec::with([witness.tool("look", "read")])).await
}

async fn held(fleet: &Fleet, web: Web, name: &str, scopes: &[Scope]) -> Held {
    let token = token(fleet, name, "*", scopes, "*").await;
    known(web, &token).await;
    token
}

#[tokio::test]
async fn a_token_signs_in_and_its_end_signs_out() {
    let witness = Witness::start().await;
    let fleet = fleet(&witness).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let (mut other, other_web) = fleet.gateway(&["--auth", "tokens"]).await;
    let ann = held(&fleet, web, "ann", Scope::ALL).await;
    known(other_web, &ann).await;
    let stranger = Browser::new(web);
    for page in PAGES {
        let answer = stranger.get(page).await;
        assert_eq!(answer.status, 303, "{page}");
        assert!(answer.header("Location").starts_with("/console/login?to="));
    }
    let wrong = stranger
        .send("/console/login", &[("token", "tf_no_token")])
        .await;
    assert_eq!(wrong.status, 401);
    assert!(wrong.text().contains("unauthenticated") && wrong.header("Set-Cookie").is_empty());

    let browser = Browser::signed_in(web, &ann.text).await;
    assert!(
        !browser.cookie().contains(&ann.text),
        "no cookie has a token"
    );
    for page in PAGES {
        let text = browser.page(page).await;
        assert!(text.contains(">ann<"), "{page}: {text}");
    }
    // Any gateway of the fleet knows who has signed in at another one.
    let (_, value) = browser.cookie().split_once('=').unwrap();
    let its_cookie = format!("toolfleet_console_{}={value}", other_web.address.port());
    let elsewhere = Browser::new(other_web).with_cookie(&its_cookie);
    elsewhere.page("/console").await;
    // A cookie that nobody has signed is none, whatever was cut off it or changed.
    let cookie = browser.cookie();
    let last = if cookie.ends_with('0') { "1" } else { "0" };
    for bad in [
        &cookie[..cookie.len() - 1],
        &format!("{}{last}", &cookie[..cookie.len() - 1]),
        &format!("{}=", cookie.split('=').next().unwrap()),
        &format!("{cookie}; {cookie}"),
    ] {
        let answer = browser.with_cookie(bad).get("/console").await;
        assert_eq!(answer.status, 303, "{bad}");
    }
    let mut gone = browser.clone();
    let out = gone.send("/console/logout", &[]).await;
    gone.keep(&out);
    assert_eq!(gone.get("/console").await.status, 303);

    let mut connection = fleet.database.connect().await;
    revoke(&mut connection, &ann.id, "ann", "a test")
        .await
        .unwrap();
    fleet.ring().await;
    until_so(
        "the token to be over for those who have signed in",
        async || browser.get("/console").await.status == 303,
    )
    .await;
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
    other.drain().await;
}

#[tokio::test]
async fn a_link_says_under_which_name_it_signs_in_and_does_so_once() {
    let witness = Witness::start().await;
    let fleet = fleet(&witness).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let ann = held(&fleet, web, "ann", &[Scope::Read]).await;
    let nobody = web.post("/console/links", "").send().await;
    assert_eq!(nobody.status, 401, "{}", nobody.text());
    let made = with(web.post("/console/links", ""), &ann).send().await;
    let path = made.json()["path"].as_str().unwrap().to_owned();
    let browser = Browser::new(web);
    // To look at it, however often, signs nobody in.
    for _look in 0..2 {
        let shown = browser.ask_from("GET", &path, &[], "none").await;
        assert!(
            shown.header("Set-Cookie").is_empty() && shown.text().contains("<strong>ann</strong>")
        );
    }
    let planted = browser.ask_from("POST", &path, &[], "cross-site").await;
    assert_eq!(planted.status, 403, "another site signs nobody in");
    // Neither does a sign-in that leads to it.
    let led = [("token", ann.text.as_str()), ("to", path.as_str())];
    let led = browser.send("/console/login", &led).await;
    assert_eq!((led.status, led.header("Location")), (303, "/console"));
    let entered = browser.send(&path, &[]).await;
    assert_eq!(entered.status, 303, "{}", entered.text());
    let mut signed_in = browser.clone();
    signed_in.keep(&entered);
    assert!(signed_in.page("/console").await.contains(">ann<"));
    for again in [browser.send(&path, &[]).await, browser.get(&path).await] {
        assert_eq!(again.status, 403);
    }
    gateway.drain().await;
}

#[tokio::test]
async fn a_tenant_that_cannot_be_read_is_refused_and_not_every_tenant() {
    let witness = Witness::start().await;
    let fleet = fleet(&witness).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let ann = held(&fleet, web, "ann", Scope::ALL).await;
    let browser = Browser::signed_in(web, &ann.text).await;
    let pause = [("do", "pause"), ("tool", "look"), ("note", "repairs")];
    for bad in [
        "tenant=a%20b",
        "tenant=+a",
        "tenant=a&tenant=b",
        "Tenant=acme",
    ] {
        let path = format!("/console/protection?{bad}");
        for answer in [browser.get(&path).await, browser.send(&path, &pause).await] {
            assert_eq!(answer.status, 400, "{bad}: {}", answer.text());
        }
    }
    let controls = with(web.get("/v1/control"), &ann).send().await;
    assert_eq!(
        controls.json()["controls"],
        serde_json::json!([]),
        "nothing is paused"
    );
    // Written in another way it is the same tenant, and nobody else's.
    let paused = browser
        .send("/console/protection?tenant=acm%65", &pause)
        .await;
    assert_eq!(paused.status, 303, "{}", paused.text());
    let controls = with(web.get("/v1/control"), &ann).send().await;
    assert_eq!(controls.json()["controls"][0]["tenant"], "acme");
    gateway.drain().await;
}

#[tokio::test]
async fn forms_of_other_sites_are_not_taken_and_pages_load_nothing_of_others() {
    let witness = Witness::start().await;
    let fleet = fleet(&witness).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let ann = held(&fleet, web, "ann", Scope::ALL).await;
    let browser = Browser::signed_in(web, &ann.text).await;
    let pause = [("do", "pause"), ("tool", "look"), ("note", "planted")];
    for site in ["cross-site", "same-site"] {
        let planted = browser
            .ask_from("POST", "/console/protection", &pause, site)
            .await;
        assert_eq!(planted.status, 403, "{site}");
    }
    let page = browser.page("/console/protection").await;
    assert!(!page.contains("planted"));
    // Nor does a page elsewhere load one of these, and learn from how long that takes.
    let loaded = browser
        .ask_from("GET", "/console?text=secret", &[], "same-site")
        .await;
    assert_eq!((loaded.status, loaded.text()), (403, String::new()));
    for path in PAGES {
        let answer = browser.get(path).await;
        let policy = answer.header("Content-Security-Policy");
        assert!(
            policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'")
        );
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("X-Content-Type-Options"), "nosniff");
        assert_eq!(answer.header("Cache-Control"), "no-store");
        let text = answer.text();
        for inline in ["style=\"", "onclick=", "javascript:", "<style"] {
            assert!(!text.contains(inline), "{path} has {inline}");
        }
        assert!(text.len() < 30_000, "{path} has {} bytes", text.len());
    }
    let page = browser.page("/console").await;
    let (_, script) = page.split_once("<script src=\"").unwrap();
    let script = browser.get(script.split('"').next().unwrap()).await;
    assert_eq!(script.status, 200);
    assert!(script.header("Cache-Control").contains("immutable"));
    gateway.drain().await;
}

#[tokio::test]
async fn pages_offer_what_a_token_may_do_and_say_why_they_show_nothing() {
    let witness = Witness::start().await;
    let fleet = fleet(&witness).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let reader = held(&fleet, web, "reader", &[Scope::Read]).await;
    let browser = Browser::signed_in(web, &reader.text).await;
    let tool = browser.page("/console/tools/look").await;
    assert!(tool.contains("value=\"check\"") && !tool.contains("value=\"run\""));
    assert!(
        !browser
            .page("/console/protection")
            .await
            .contains("<fieldset")
    );
    let acme = token(&fleet, "acme", "acme", Scope::ALL, "*").await;
    known(web, &acme).await;
    let acme = Browser::signed_in(web, &acme.text).await;
    let workers = acme.get("/console/workers").await;
    assert_eq!(workers.status, 403);
    assert!(workers.text().contains("forbidden") && workers.text().contains("<nav"));
    // Another language, for this browser from now on.
    let chosen = acme
        .send(
            "/console/language",
            &[("language", "zh"), ("back", "//evil")],
        )
        .await;
    assert_eq!(
        (chosen.status, chosen.header("Location")),
        (303, "/console")
    );
    let zh = acme.with_cookie(&format!("{}; toolfleet_language=zh", acme.cookie()));
    assert!(zh.page("/console/doubts").await.contains("没有存疑的调用"));
    gateway.drain().await;
}
