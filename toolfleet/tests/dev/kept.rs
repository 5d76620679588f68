//! What a `dev` keeps between its runs, and what it prints of it.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use toolfleet::{dev::DevState, servers::free_ports};

use crate::support::{DevProcess, folder};

#[tokio::test]
async fn addresses_and_passwords_are_the_same_in_the_next_run() {
    let folder = folder(0o755);
    let data = folder.path().join("data");
    let (first, _) = one_run(&data, true).await;
    let (second, _) = one_run(&data, false).await;
    let places = |state: &DevState| {
        let urls = [
            &state.nats_url,
            &state.database_url,
            &state.tool_database_url,
        ];
        let gateway = (state.gateway_url.clone(), state.gateway_token.clone());
        (urls.map(String::clone), state.http_url.clone(), gateway)
    };
    assert_eq!(places(&first), places(&second));
}

#[tokio::test]
async fn a_kept_port_that_a_stranger_has_gives_way_to_one_that_then_stays() {
    let folder = folder(0o755);
    let data = folder.path().join("data");
    let (first, _) = one_run(&data, true).await;
    let taken = TcpListener::bind(("127.0.0.1", port_of(&first.nats_url))).unwrap();
    let also = TcpListener::bind(("127.0.0.1", port_of(&first.http_url))).unwrap();
    let (second, said) = one_run(&data, false).await;
    assert_ne!(first.nats_url, second.nats_url);
    assert_ne!(first.http_url, second.http_url);
    assert_eq!(first.database_url, second.database_url);
    let told = |line: &str| {
        line.contains("is taken") && line.contains(&port_of(&first.nats_url).to_string())
    };
    assert!(said.lines().any(told), "{said}");
    drop((taken, also));
    let (third, _) = one_run(&data, false).await;
    assert_eq!(
        (second.nats_url, second.http_url),
        (third.nats_url, third.http_url)
    );
}

#[tokio::test]
async fn no_password_is_printed_and_the_lines_to_copy_work() {
    let folder = folder(0o755);
    let data = folder.path().join("data of ada");
    let ports = ports();
    let flags: Vec<&str> = ports.iter().map(String::as_str).collect();
    let mut dev = DevProcess::start_on(&data, &[&["--workers", "0"], &flags[..]].concat()).await;
    let state = dev.state();
    let private = [
        "dev.json",
        "env",
        "pgpass",
        "postgres.password",
        "tools.password",
        "nats.password",
        "gateway.token",
        "nats/nats-server.conf",
    ];
    for name in private {
        let mode = fs::metadata(data.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let ignored = fs::read_to_string(data.join(".gitignore")).unwrap();
    assert_eq!(ignored, "*\n", "nothing of it is committed by accident");
    let env = data.join("env");
    let sourced = shell(&format!(
        ". '{}' && printf '%s %s' \"$NATS_URL\" \"$DATABASE_URL\"",
        env.display()
    ));
    assert_eq!(
        String::from_utf8_lossy(&sourced.stdout),
        format!("{} {}", state.nats_url, state.database_url)
    );
    let mut said = dev.printed().await;
    let lines = said
        .lines()
        .filter_map(|line| line.find("PGPASSFILE=").map(|at| &line[at..]));
    let answers: Vec<Output> = lines
        .map(|line| shell(&format!("{line} -Atc 'SELECT current_user'")))
        .collect();
    let output = dev.stop().await;
    for rest in [output.stdout, output.stderr] {
        said += &String::from_utf8(rest).unwrap();
    }
    for url in [
        &state.database_url,
        &state.tool_database_url,
        &state.nats_url,
    ] {
        let password = url.split([':', '@']).nth(2).unwrap();
        assert!(password.len() >= 32 && !said.contains(password), "{said}");
    }
    let token = state.gateway_token.unwrap();
    assert!(
        !said.contains(&token) && said.contains("$TOOLFLEET_TOKEN"),
        "{said}"
    );
    let users: Vec<_> = answers
        .iter()
        .map(|ran| String::from_utf8_lossy(&ran.stdout).trim().to_owned())
        .collect();
    assert_eq!(users, ["toolfleet", "toolfleet_tool"], "{answers:?} {said}");
    assert!(said.contains("data of ada/env' && nats micro ls"), "{said}");
    assert!(said.contains("data of ada/env'"), "{said}");
}

/// Starts it on this folder, on ports of its own the first time, and stops it: where it was, and what it printed.
async fn one_run(data: &Path, is_first: bool) -> (DevState, String) {
    let ports = if is_first { ports() } else { Vec::new() };
    let mut flags = vec!["--workers", "0"];
    flags.extend(ports.iter().map(String::as_str));
    let dev = DevProcess::start_on(data, &flags).await;
    let state = dev.state();
    let output = dev.stop().await;
    (state, String::from_utf8(output.stdout).unwrap())
}

fn ports() -> Vec<String> {
    let flags = [
        "--nats-port",
        "--postgres-port",
        "--http-port",
        "--gateway-port",
    ];
    let ports = free_ports(flags.len()).unwrap();
    let pairs = flags.into_iter().zip(ports);
    pairs
        .flat_map(|(flag, port)| [flag.to_owned(), port.to_string()])
        .collect()
}

fn port_of(url: &str) -> u16 {
    url.rsplit(':').next().unwrap().parse().unwrap()
}

fn shell(line: &str) -> Output {
    Command::new("/bin/sh").args(["-c", line]).output().unwrap()
}
