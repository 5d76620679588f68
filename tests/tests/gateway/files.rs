//! Files over HTTP: kept, read, deleted, and what is turned away; and the URLs that workers sign.

use fleet::{
    canonical,
    ids::{FileId, Label},
    tokens::Scope,
    wire::file_url::{FileGrant, FileKeys},
};
use fleet_history::calls::now;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::{until, until_so},
    web::{Web, WebAnswer, WebRequest},
    witness::Witness,
};
use sqlx::Row as _;

use crate::{
    bad_input::started,
    tokens::{Held, is, known, token, told, with},
};

/// A text of so many bytes, no two pieces of which are the same.
fn long(bytes: usize) -> String {
    let mut text: String = (0..=bytes / 9).map(|n| format!("{n:08}\n")).collect();
    text.truncate(bytes);
    text
}

fn sha256(text: &str) -> String {
    let hash = canonical::hash_text(text);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sends a file of this name.
fn upload(web: Web, name: &str, body: impl Into<Vec<u8>>) -> WebRequest {
    let request = web.post("/v1/files", body);
    request
        .header("Content-Type", "text/plain; charset=utf-8")
        .header("Toolfleet-File-Name", name)
}

/// The path of a file that was kept.
fn kept(answer: &WebAnswer) -> String {
    assert_eq!(answer.status, 201, "{}", answer.text());
    let file = answer.json()["file_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/files/{file}");
    assert_eq!(answer.header("Location"), path);
    path
}

/// How many files the ledger has, whole ones and others.
async fn files(fleet: &Fleet) -> i64 {
    let mut connection = fleet.database.connect().await;
    let counted = sqlx::query_scalar("SELECT count(*) FROM toolfleet.kept_files");
    counted.fetch_one(&mut connection).await.unwrap()
}

#[tokio::test]
async fn a_file_is_kept_and_read_and_deleted() {
    let (witness, fleet, mut gateway, web) = started(&[]).await;
    let text = long(600_001);
    let hash = sha256(&text);
    let made = upload(web, "r%C3%A9sum%C3%A9.txt", text.clone())
        .send()
        .await;
    let path = kept(&made);
    let said = made.json();
    assert_eq!(said["name"], "r\u{e9}sum\u{e9}.txt");
    assert_eq!(said["mime"], "text/plain");
    assert_eq!(said["bytes"], 600_001);
    assert_eq!(said["sha256"], hash);
    assert!(said["expires_at"].is_string(), "{said}");

    let read = web.get(&path).send().await;
    assert_eq!(read.status, 200);
    assert!(read.body == text.as_bytes());
    let tag = format!("\"{hash}\"");
    for (name, value) in [
        ("Content-Type", "text/plain"),
        ("Content-Length", "600001"),
        (
            "Content-Disposition",
            "attachment; filename=\"r_sum_.txt\"; filename*=UTF-8''r%C3%A9sum%C3%A9.txt",
        ),
        ("X-Content-Type-Options", "nosniff"),
        ("Content-Security-Policy", "sandbox; default-src 'none'"),
        ("Cache-Control", "no-store"),
        ("ETag", tag.as_str()),
        ("Toolfleet-Answer", "door"),
    ] {
        assert_eq!(read.header(name), value, "{name}");
    }
    let digest = read.header("Repr-Digest").to_owned();
    let head = web.request(&format!("HEAD {path} HTTP/1.1")).send().await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("Content-Length"), "600001");
    for (range, first, last) in [
        ("bytes=0-0", 0, 0),
        ("bytes=262143-262144", 262_143, 262_144),
        ("bytes=-5", 599_996, 600_000),
        ("bytes=262144-", 262_144, 600_000),
    ] {
        let part = web.get(&path).header("Range", range).send().await;
        assert_eq!(part.status, 206, "{range}");
        assert!(part.body == text.as_bytes()[first..=last], "{range}");
        let said = format!("bytes {first}-{last}/600001");
        assert_eq!(part.header("Content-Range"), said);
    }
    let beyond = web.get(&path).header("Range", "bytes=600001-").send().await;
    assert_eq!(told(&beyond), is(416, "invalid_arguments"));
    assert_eq!(beyond.header("Content-Range"), "bytes */600001");

    // What it was, it may be sent as again, and as nothing else.
    let again = upload(web, "again.txt", text.clone()).header("Content-Digest", &digest);
    kept(&again.send().await);
    let other = upload(web, "other.txt", text.replace('7', "8"));
    let other = other.header("Repr-Digest", &digest).send().await;
    assert_eq!(told(&other), is(409, "conflict"), "{}", other.text());
    until_so(
        "the file to be gone that was not what it was said to be",
        async || files(&fleet).await == 2,
    )
    .await;

    let line = format!("DELETE {path} HTTP/1.1");
    let deleted = web.request(&line).send().await;
    assert_eq!(
        (deleted.status, deleted.json()["state"].as_str()),
        (200, Some("deleted"))
    );
    let unknown = web
        .get(&format!("/v1/files/{}", FileId::generate()))
        .send()
        .await;
    assert_eq!(told(&unknown), is(404, "not_found"));
    for gone in [web.get(&path).send().await, web.request(&line).send().await] {
        assert_eq!((gone.status, gone.code()), (404, "not_found".to_owned()));
    }
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn what_is_no_file_is_turned_away_and_leaves_nothing() {
    let (witness, fleet, mut gateway, web) = started(&["--files-bytes-max", "1000"]).await;
    let names = [
        "..%2F..%2Fetc%2Fpasswd",
        "../../etc/passwd",
        "..",
        ".",
        "%00",
        "a%0Ab",
        "a%5Cb",
        "%E2%80%AEfdp.exe",
        &"x".repeat(256),
    ];
    for name in names {
        let refused = upload(web, name, "a").send().await;
        let code = match name {
            "%00" => "nul_not_allowed",
            _other => "invalid_arguments",
        };
        assert_eq!(told(&refused), is(400, code), "{name}: {}", refused.text());
        assert_eq!(refused.header("Toolfleet-Answer"), "door");
    }
    let plain = |body: &str| web.post("/v1/files", body);
    for (request, status, code) in [
        (
            plain("").header("Content-Length", "0"),
            400,
            "invalid_arguments",
        ),
        (plain(""), 411, "header_invalid"),
        (
            plain("").header("Transfer-Encoding", "chunked"),
            411,
            "header_invalid",
        ),
        (plain(&"a".repeat(1001)), 413, "payload_too_large"),
        (
            plain("a").header("Content-Encoding", "gzip"),
            415,
            "header_invalid",
        ),
        (
            plain("a").header("Content-Type", "text"),
            400,
            "invalid_arguments",
        ),
        (
            plain("a").header("Content-Type", "a/b/c"),
            400,
            "invalid_arguments",
        ),
        (
            plain("a").header("Toolfleet-File-Name", "%ff"),
            400,
            "header_invalid",
        ),
        (
            plain("a").header("Content-Digest", "sha-256=:AA==:"),
            400,
            "header_invalid",
        ),
        (
            plain("a").header("Content-Disposition", "attachment; filename=\"a"),
            400,
            "header_invalid",
        ),
    ] {
        let answer = request.send().await;
        assert_eq!(told(&answer), is(status, code), "{}", answer.text());
    }
    let unnamed = plain("a").send().await;
    assert_eq!(unnamed.json()["name"], "file");
    assert_eq!(unnamed.json()["mime"], "application/octet-stream");
    // A body that breaks off.
    let head = format!(
        "POST /v1/files HTTP/1.1\r\nHost: {}\r\nContent-Length: 900\r\n\r\nhalf",
        web.address
    );
    let connection = web.open(head.as_bytes()).await;
    until_so("the file to be begun", async || files(&fleet).await == 2).await;
    drop(connection);
    until_so("what was begun to be gone", async || {
        files(&fleet).await == 1
    })
    .await;
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn the_file_of_another_tenant_is_one_that_there_never_was() {
    let (witness, fleet, mut gateway, web) = started(&["--auth", "tokens"]).await;
    let acme = token(&fleet, "ann", "acme", &[Scope::Call], "*").await;
    let reader = token(&fleet, "rob", "acme", &[Scope::Read], "*").await;
    let beta = token(&fleet, "bob", "beta", &[Scope::Call], "*").await;
    for held in [&acme, &reader, &beta] {
        known(web, held).await;
    }
    let path = kept(&with(upload(web, "a.txt", "acme's"), &acme).send().await);
    let nobodys = format!("/v1/files/{}", FileId::generate());
    for method in ["GET", "HEAD", "DELETE"] {
        let ask = async |path: &str, held: &Held| {
            let answer = with(web.request(&format!("{method} {path} HTTP/1.1")), held);
            let answer = answer.send().await;
            (answer.status, answer.text())
        };
        let unknown = ask(&nobodys, &beta).await;
        assert_eq!(unknown.0, 404, "{method}");
        assert_eq!(ask(&path, &beta).await, unknown, "{method}");
    }
    assert_eq!(with(web.get(&path), &reader).send().await.text(), "acme's");
    let deleting = web.request(&format!("DELETE {path} HTTP/1.1"));
    assert_eq!(
        told(&with(deleting, &reader).send().await),
        is(403, "forbidden")
    );
    assert_eq!(with(web.get(&path), &acme).send().await.text(), "acme's");
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_call_that_names_files_over_http_is_that_of_these_files() {
    let witness = Witness::start().await;
    let look = witness.tool("look", "read") + "files: {max: 2}\n";
    let plain = witness.tool("plain", "read");
    let mut fleet = Fleet::start(Spec::with([look, plain]).workers(0, &[])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let own = format!("http://{}", web.address);
    fleet.add_worker(&["--gateway-url", &own]).await;
    let ids: Vec<String> = {
        let mut ids = Vec::new();
        for text in ["one", "two", "three"] {
            let path = kept(&upload(web, &format!("{text}.txt"), text).send().await);
            ids.push(path.rsplit('/').next().unwrap().to_owned());
        }
        ids
    };
    let call = |tool: &str, what: &str, files: &str| {
        let body = format!("{{\"what\":\"{what}\"}}");
        web.post(&format!("/v1/call/{tool}"), body)
            .header("Idempotency-Key", what)
            .header("Toolfleet-Files", files)
    };
    let both = format!("{},{}", ids[0], ids[1]);
    let made = call("look", "a", &both).send().await;
    assert_eq!(
        made.header("Toolfleet-State"),
        "succeeded",
        "{}",
        made.text()
    );
    let (named, urls) = witness.look(|seen| {
        let request = &seen.requests[0];
        let urls = request.header("toolfleet-file-urls").split(", ");
        let urls: Vec<String> = urls.map(ToOwned::to_owned).collect();
        (request.header("toolfleet-files").to_owned(), urls)
    });
    assert_eq!(named, both);
    assert_eq!(urls.len(), 2);
    for ((line, id), text) in urls.iter().zip(&ids).zip(["one", "two"]) {
        let (of, url) = line.split_once(' ').unwrap();
        assert_eq!(of, id);
        let path = url.strip_prefix(&own).unwrap();
        let read = web.get(path).send().await;
        assert_eq!((read.status, read.text().as_str()), (200, text));
        assert_eq!(read.header("Content-Type"), "text/plain");
    }
    // The same key with other files is another call.
    let other = call("look", "a", &ids[2]).send().await;
    assert_eq!(told(&other), is(409, "idempotency_key_reused"));
    let again = call("look", "a", &both).send().await;
    assert_eq!(
        (again.status, again.json()["replayed"].as_bool()),
        (200, Some(true))
    );
    let none = call("plain", "b", &ids[0]).send().await;
    assert_eq!(told(&none), is(400, "invalid_arguments"), "{}", none.text());
    let unknown = call("look", "c", &FileId::generate().to_string())
        .send()
        .await;
    assert_eq!(told(&unknown), is(404, "not_found"), "{}", unknown.text());
    let item = serde_json::json!({"calls": [
        {"tool": "look", "args": {"what": "d"}, "files": [ids[2]]},
    ]});
    let batch = web.post("/v1/batch", item.to_string()).send().await;
    assert_eq!(batch.status, 200, "{}", batch.text());
    let item = serde_json::json!({"calls": [
        {"tool": "look", "args": {"what": "e"}, "files": [ids[2]]},
    ]});
    let turn = web.post("/v1/turns", item.to_string());
    let turn = turn.header("Idempotency-Key", "t").send().await;
    assert_eq!(turn.status, 202, "{}", turn.text());
    for what in ["d", "e"] {
        witness.until_asked(what, 1).await;
        let named = witness.look(|seen| {
            let asked = seen.requests.iter().find(|request| request.what == what);
            asked.unwrap().header("toolfleet-files").to_owned()
        });
        assert_eq!(named, ids[2], "{what}");
    }
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

/// The keys of a ledger, as workers and gateways read them.
async fn keys(fleet: &Fleet) -> FileKeys {
    let mut connection = fleet.database.connect().await;
    let row = sqlx::query("SELECT current, previous FROM toolfleet.file_keys");
    let row = row.fetch_one(&mut connection).await.unwrap();
    let (current, previous): (Vec<u8>, Option<Vec<u8>>) = (row.get(0), row.get(1));
    FileKeys::new(&current, previous.as_deref())
}

async fn renew(fleet: &Fleet) {
    let mut connection = fleet.database.connect().await;
    let renewing = sqlx::query("SELECT toolfleet.renew_file_key()");
    renewing.execute(&mut connection).await.unwrap();
}

#[tokio::test]
async fn a_signed_url_is_for_one_file_of_one_tenant_for_a_while() {
    let (witness, fleet, mut gateway, web) = started(&["--auth", "tokens"]).await;
    let acme = token(&fleet, "ann", "acme", &[Scope::Call], "*").await;
    known(web, &acme).await;
    let path = kept(&with(upload(web, "a.txt", "acme's"), &acme).send().await);
    let file: FileId = path.rsplit('/').next().unwrap().parse().unwrap();
    let other = kept(&with(upload(web, "b.txt", "more"), &acme).send().await);
    let other: FileId = other.rsplit('/').next().unwrap().parse().unwrap();
    let (tenant, beta): (Label, Label) = ("acme".parse().unwrap(), "beta".parse().unwrap());
    let now = now(&fleet.database.pool).await.unwrap().unix_timestamp();
    let grant = FileGrant {
        tenant: &tenant,
        file,
        until: now + 60,
    };
    let first = keys(&fleet).await;
    let right = grant.path(&first.sign(&grant));
    let read = web.get(&right).send().await;
    assert_eq!((read.status, read.text().as_str()), (200, "acme's"));
    assert!(read.header("Content-Disposition").starts_with("attachment"));
    let part = web.get(&right).header("Range", "bytes=1-2").send().await;
    assert_eq!((part.status, part.text().as_str()), (206, "cm"));

    let over = FileGrant {
        until: now - 1,
        ..grant
    };
    let of_other = FileGrant {
        file: other,
        ..grant
    };
    let of_beta = FileGrant {
        tenant: &beta,
        ..grant
    };
    let of_none = FileGrant {
        file: FileId::generate(),
        ..grant
    };
    let signature = first.sign(&grant);
    let tampered = {
        let last = if signature.ends_with('0') { '1' } else { '0' };
        format!("{}{last}", &signature[..63])
    };
    let plain = format!("{path}/signed");
    let mut bodies = Vec::new();
    for wrong in [
        over.path(&first.sign(&over)),
        FileGrant {
            until: now + 3_600,
            ..grant
        }
        .path(&signature),
        of_other.path(&signature),
        of_beta.path(&signature),
        // Signed, and nothing is there.
        of_beta.path(&first.sign(&of_beta)),
        of_none.path(&first.sign(&of_none)),
        grant.path(&tampered),
        grant.path(""),
        plain.clone(),
        format!("{plain}?tenant=acme&until=soon&signature={signature}"),
        format!("{plain}?tenant=a.b&until=1&signature={signature}"),
    ] {
        let answer = web.get(&wrong).send().await;
        assert_eq!(told(&answer), is(404, "not_found"), "{wrong}");
        bodies.push(answer.body);
    }
    assert!(bodies.iter().all(|body| *body == bodies[0]));

    // A new key leaves what the one before has signed, and nothing earlier.
    renew(&fleet).await;
    let second = keys(&fleet).await;
    for key in [&first, &second] {
        let signed = grant.path(&key.sign(&grant));
        until("the new key to be known", async || {
            let answer = web.get(&signed).send().await;
            (answer.status == 200).then_some(())
        })
        .await;
    }
    renew(&fleet).await;
    let third = keys(&fleet).await;
    until_so("the newest key to be known", async || {
        let signed = grant.path(&third.sign(&grant));
        web.get(&signed).send().await.status == 200
    })
    .await;
    assert_eq!(web.get(&right).send().await.status, 404);
    let still = grant.path(&second.sign(&grant));
    assert_eq!(web.get(&still).send().await.status, 200);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
