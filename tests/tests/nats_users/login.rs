//! How programs prove to NATS who they are: certificates, nkeys, credentials; on real servers.

use std::{fs, path::Path, process::Stdio};

use fleet::{
    bus::{BusError, connect::Bus},
    config::{BusArgs, LoginArgs},
};
use fleet_tests::wait::until_so;
use nkeys::KeyPair;
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use toolfleet::servers::find::{self, SearchPaths};

const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nats_users/tls");

/// A server with JetStream and these settings beside.
struct Server {
    port: u16,
    _process: Child,
}

impl Server {
    async fn start(folder: &Path, settings: &str) -> Self {
        let ports = folder.join("ports");
        fs::create_dir_all(&ports).unwrap();
        let store = folder.join("store");
        let text = format!(
            "listen: 127.0.0.1:-1\nports_file_dir: {ports:?}\njetstream {{ store_dir: {store:?} }}\n{settings}\n"
        );
        let configuration = folder.join("server.conf");
        fs::write(&configuration, text).unwrap();
        let program = find::nats_server(&SearchPaths::of_this_process()).await;
        let log = fs::File::create(folder.join("server.log")).unwrap();
        let mut command = Command::new(program.unwrap());
        command.arg("-c").arg(&configuration).stdin(Stdio::null());
        let process = command.stderr(log).kill_on_drop(true).spawn().unwrap();
        let port = || {
            let file = fs::read_dir(&ports).ok()?.next()?.ok()?;
            let said: Value = serde_json::from_slice(&fs::read(file.path()).ok()?).ok()?;
            let url = said["nats"].as_array()?.first()?.as_str()?;
            url.rsplit(':').next()?.parse().ok()
        };
        let mut found = None;
        until_so("nats-server to say where it listens", async || {
            found = port();
            found.is_some()
        })
        .await;
        Self {
            port: found.unwrap(),
            _process: process,
        }
    }

    async fn connect(&self, login: &LoginArgs) -> Result<Bus, BusError> {
        let url = format!("nats://127.0.0.1:{}", self.port);
        let args = BusArgs {
            login: login.clone(),
            ..BusArgs::at(url.into())
        };
        let bus = Bus::connect(&args, "tests").await?;
        bus.round_trip().await?;
        Ok(bus)
    }
}

fn tls(file: &str) -> Option<std::path::PathBuf> {
    Some(Path::new(TLS).join(file))
}

#[tokio::test]
async fn both_sides_show_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let settings = format!(
        "tls {{ cert_file: \"{TLS}/server.pem\", key_file: \"{TLS}/server.key\", ca_file: \"{TLS}/authority.pem\", verify: true }}"
    );
    let server = Server::start(folder.path(), &settings).await;
    let full = LoginArgs {
        ca: tls("authority.pem"),
        cert: tls("client.pem"),
        key: tls("client.key"),
        ..LoginArgs::default()
    };
    server.connect(&full).await.unwrap();
    let without = [
        // No certificate of its own; no authority that signed the server's; a key of another.
        LoginArgs {
            cert: None,
            key: None,
            ..full.clone()
        },
        LoginArgs {
            ca: None,
            ..full.clone()
        },
        LoginArgs {
            key: tls("server.key"),
            ..full
        },
    ];
    for login in without {
        let refused = server.connect(&login).await;
        assert!(refused.is_err(), "{login:?}");
    }
}

/// What could be overheard is not sent.
#[tokio::test]
async fn a_program_with_an_authority_does_not_speak_in_the_clear() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), "").await;
    server.connect(&LoginArgs::default()).await.unwrap();
    let login = LoginArgs {
        ca: tls("authority.pem"),
        ..LoginArgs::default()
    };
    assert!(server.connect(&login).await.is_err());
}

#[tokio::test]
async fn a_user_signs_with_its_nkey() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, other) = (KeyPair::new_user(), KeyPair::new_user());
    let settings = format!(
        "authorization {{ users: [{{ nkey: {} }}] }}",
        ours.public_key()
    );
    let server = Server::start(folder.path(), &settings).await;
    let file = folder.path().join("user.nk");
    let login = LoginArgs {
        nkey: Some(file.clone()),
        ..LoginArgs::default()
    };
    fs::write(&file, format!("{}\n", ours.seed().unwrap())).unwrap();
    server.connect(&login).await.unwrap();
    fs::write(&file, other.seed().unwrap()).unwrap();
    assert!(server.connect(&login).await.is_err());
    fs::write(&file, "SUAsecret").unwrap();
    let refused = server.connect(&login).await.unwrap_err();
    let said = refused.to_string();
    assert!(matches!(refused, BusError::BadLogin(_)), "{said}");
    assert!(
        said.contains("NATS_NKEY") && !said.contains("secret"),
        "{said}"
    );
    assert!(server.connect(&LoginArgs::default()).await.is_err());
}

/// A JWT of NATS: claims, signed by a key.
fn jwt(signer: &KeyPair, subject: &KeyPair, name: &str, claims: &Value) -> String {
    let encode = |bytes: &[u8]| base64_url(bytes);
    let header = encode(br#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
    let body = json!({
        "jti": name, "iat": 1, "iss": signer.public_key(), "sub": subject.public_key(), "name": name, "nats": claims
    });
    let signed = format!("{header}.{}", encode(body.to_string().as_bytes()));
    let signature = encode(&signer.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}

fn base64_url(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let padded = [three, &[0, 0]].concat();
        let bits = u32::from_be_bytes([0, padded[0], padded[1], padded[2]]);
        for place in 0..=three.len() {
            let index = (bits >> (18 - 6 * place)) & 63;
            text.push(char::from(LETTERS[index as usize]));
        }
    }
    text
}

#[tokio::test]
async fn a_user_shows_its_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let (operator, account, user) = (
        KeyPair::new_operator(),
        KeyPair::new_account(),
        KeyPair::new_user(),
    );
    let limits = json!({"subs": -1, "data": -1, "payload": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "wildcards": true});
    let system = KeyPair::new_account();
    let of_account = |pair: &KeyPair, name: &str| {
        let claims = json!({"type": "account", "version": 2, "limits": limits});
        jwt(&operator, pair, name, &claims)
    };
    let settings = format!(
        "operator: \"{}\"\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: \"{}\", {}: \"{}\" }}",
        jwt(
            &operator,
            &operator,
            "tests",
            &json!({"type": "operator", "version": 2, "system_account": system.public_key()})
        ),
        system.public_key(),
        system.public_key(),
        of_account(&system, "SYS"),
        account.public_key(),
        of_account(&account, "fleet"),
    );
    let server = Server::start(folder.path(), &settings).await;
    let claims = json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1});
    let credentials = format!(
        "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
        jwt(&account, &user, "dispatcher", &claims),
        user.seed().unwrap(),
    );
    let file = folder.path().join("user.creds");
    fs::write(&file, &credentials).unwrap();
    let login = LoginArgs {
        creds: Some(file.clone()),
        ..LoginArgs::default()
    };
    server.connect(&login).await.unwrap();
    let other = KeyPair::new_user();
    let forged = credentials.replace(&user.seed().unwrap(), &other.seed().unwrap());
    fs::write(&file, forged).unwrap();
    assert!(server.connect(&login).await.is_err());
    fs::write(&file, "not credentials").unwrap();
    let refused = server.connect(&login).await.unwrap_err();
    assert!(matches!(refused, BusError::BadLogin(_)), "{refused}");
}
