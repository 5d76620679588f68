//! `toolfleet nats-config`: what it writes is what is shipped, and its secrets are private and stay.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use fleet_tests::{
    fleet::built,
    shipped::{EXAMPLE, Shipped, User},
};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/nats");

fn write(out: &Path, more: &[&str]) -> String {
    let mut command = Command::new(built("fleet_tests_toolfleet"));
    command.args(EXAMPLE).args(more).arg("--out").arg(out);
    let ran = command.output().unwrap();
    let said = [ran.stdout, ran.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    assert!(ran.status.success(), "{said}");
    said
}

fn files(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let file = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read_to_string(entry.path()).unwrap())
    };
    entries.map(file).collect()
}

#[test]
fn what_is_shipped_is_what_the_command_writes() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[]);
    let written = files(folder.path());
    let shipped = files(Path::new(DEPLOY));
    let names: Vec<&String> = shipped.keys().collect();
    assert_eq!(names, ["nats-server.conf", "users.conf"]);
    for (name, text) in &shipped {
        assert!(text == &written[name], "write deploy/nats/{name} anew");
    }
    let of_dispatchers = &written["dispatcher.env"];
    let replies = format!("DISPATCHER_REPLIES={}\n", Shipped::REPLIES);
    assert!(of_dispatchers.ends_with(&replies), "{of_dispatchers}");
    let here = fs::canonicalize(folder.path()).unwrap();
    for user in User::ALL {
        let env = &written[&format!("{}.env", user.name())];
        let inbox = format!("NATS_INBOX={}\n", user.inbox());
        assert!(env.contains(&inbox), "{env}");
        // What only systemd may read is no part of what a process finds in its environment.
        let is_process = matches!(
            user,
            User::Dispatcher | User::Worker | User::Programs | User::Gateway
        );
        let (file, login) = (
            format!("{}.url", user.name()),
            format!("nats://{}:", user.name()),
        );
        let named = format!("NATS_URL=file:{}\n", here.join(&file).display());
        assert_eq!(env.contains(&named), is_process, "{env}");
        assert_eq!(env.contains(&login), !is_process, "{env}");
        let has_login = written
            .get(&file)
            .is_some_and(|url| url.starts_with(&login));
        assert_eq!(has_login, is_process, "{file}");
    }
}

/// The values of a setting of a unit, in their order.
fn settings<'a>(unit: &'a str, name: &str) -> Vec<&'a str> {
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    let named = lines.filter(|(setting, _)| *setting == name);
    named.map(|(_, value)| value).collect()
}

#[test]
fn the_units_hand_secrets_over_as_credentials_and_set_none() {
    for (file, process, user) in [
        (
            "toolfleet-dispatcher.service",
            "dispatcher",
            User::Dispatcher,
        ),
        ("toolfleet-worker@.service", "worker", User::Worker),
    ] {
        let path = Path::new(DEPLOY).parent().unwrap().join(file);
        let unit = fs::read_to_string(&path).unwrap();
        let user = user.name();
        let credentials = settings(&unit, "LoadCredential");
        let of_the_ledger = format!("database-url:/etc/toolfleet/{process}-database-url");
        let of_nats = format!("nats-url:/etc/toolfleet/nats/{user}.url");
        assert_eq!(credentials, [of_the_ledger, of_nats], "{file}");
        let start = settings(&unit, "ExecStart");
        let with = format!("/usr/local/bin/toolfleet {process} --nats-url file:%d/nats-url");
        assert_eq!(start, [with], "{file}");
        assert!(settings(&unit, "Environment").contains(&"DATABASE_URL=file:%d/database-url"));
        // It has the inbox, and of the address only where the file with the password is.
        let env = format!("-/etc/toolfleet/nats/{user}.env");
        assert!(settings(&unit, "EnvironmentFile").contains(&env.as_str()));
    }
}

#[test]
fn secrets_are_private_are_never_told_and_stay() {
    for kind in [&[][..], &["--nkeys"]] {
        let folder = tempfile::tempdir().unwrap();
        let said = write(folder.path(), kind);
        let first = files(folder.path());
        for name in first.keys() {
            let mode = fs::metadata(folder.path().join(name))
                .unwrap()
                .permissions();
            let is_public = ["nats-server.conf", "users.conf"].contains(&name.as_str());
            let mode = mode.mode() & 0o777;
            assert!(is_public || mode == 0o600, "{name} {mode:o}");
        }
        let secrets = first["secrets.conf"].lines().skip(1);
        let secrets = secrets.map(|line| line.rsplit('"').nth(1).unwrap());
        let seeds = first.iter().filter(|(name, _)| name.ends_with(".nk"));
        let secrets: Vec<&str> = secrets.chain(seeds.map(|(_, seed)| seed.trim())).collect();
        assert!(secrets.len() >= User::ALL.len());
        for secret in &secrets {
            assert!(secret.len() >= 56 && !said.contains(secret), "{said}");
            assert!(!first["users.conf"].contains(secret));
        }
        // A machine's own settings, and one tenant more.
        let server = folder.path().join("nats-server.conf");
        fs::write(&server, "# mine\n").unwrap();
        let more = [kind, &["--tenant", "gamma"]].concat();
        write(folder.path(), &more);
        let second = files(folder.path());
        assert_eq!(second["nats-server.conf"], "# mine\n");
        assert!(second.contains_key("agent-gamma.env"));
        for (name, text) in first.iter().filter(|(name, _)| !name.ends_with(".conf")) {
            assert_eq!(text, &second[name], "{name}");
        }
        for secret in first["secrets.conf"].lines() {
            assert!(second["secrets.conf"].contains(secret));
        }
    }
}
