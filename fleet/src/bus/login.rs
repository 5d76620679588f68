//! Who a connection to NATS is, and how both sides prove it: what the URL and the files of the settings come to.

use std::path::{Path, PathBuf};

use async_nats::{ConnectOptions, ServerAddr};
use percent_encoding::percent_decode_str;
use secrecy::ExposeSecret;

use super::BusError;
use crate::config::{BusArgs, LoginArgs};

/// What of the settings cannot be used together or not be read, in sentences without secrets. Reads no secret.
pub fn check(args: &BusArgs) -> Vec<String> {
    let LoginArgs {
        ca,
        cert,
        key,
        creds,
        nkey,
    } = &args.login;
    let mut wrong = Vec::new();
    if cert.is_some() != key.is_some() {
        wrong.push("NATS_CERT and NATS_KEY belong together: set both or none".to_owned());
    }
    let named = args.nats_url.expose_secret().parse::<ServerAddr>();
    let has_user = named.is_ok_and(|address| address.username().is_some());
    let ways = [
        ("a user in NATS_URL", has_user),
        ("NATS_CREDS", creds.is_some()),
        ("NATS_NKEY", nkey.is_some()),
    ];
    let ways: Vec<&str> = ways
        .into_iter()
        .filter_map(|(way, is_set)| is_set.then_some(way))
        .collect();
    if ways.len() > 1 {
        wrong.push(format!(
            "{} say who connects to NATS: leave one of them",
            ways.join(" and ")
        ));
    }
    let files = [
        ("NATS_CA", ca),
        ("NATS_CERT", cert),
        ("NATS_KEY", key),
        ("NATS_CREDS", creds),
        ("NATS_NKEY", nkey),
    ];
    for (setting, file) in files {
        let Some(file) = file else { continue };
        if let Err(problem) = std::fs::File::open(file) {
            wrong.push(unreadable(setting, file, &problem));
        }
    }
    wrong
}

/// Where to connect, and as whom.
///
/// # Errors
///
/// The URL is none, or a file cannot be used.
pub(super) async fn read(args: &BusArgs) -> Result<(ServerAddr, ConnectOptions), BusError> {
    let url: Result<ServerAddr, _> = args.nats_url.expose_secret().parse();
    // Its message may quote the URL.
    let address = url.map_err(|_has_the_url| BusError::BadUrl)?;
    let wrong = check(args);
    if !wrong.is_empty() {
        return Err(BusError::BadLogin(wrong));
    }
    let LoginArgs {
        ca,
        cert,
        key,
        creds,
        nkey,
    } = args.login.clone();
    let mut options = match (creds, nkey, in_url(&address)) {
        (Some(file), _, _) => {
            let read = ConnectOptions::with_credentials_file(&file).await;
            read.map_err(|_may_quote_it| unfit("NATS_CREDS", &file, "credentials of a NATS user"))?
        }
        (None, Some(file), _) => ConnectOptions::with_nkey(seed(&file)?),
        (None, None, Some((user, Some(password)))) => {
            ConnectOptions::with_user_and_password(user, password)
        }
        (None, None, Some((token, None))) => ConnectOptions::with_token(token),
        (None, None, None) => ConnectOptions::new(),
    };
    // The client falls back to a connection in the clear where it is not told to insist.
    options = options.require_tls(ca.is_some() || cert.is_some() || address.tls_required());
    if let Some(file) = ca {
        options = options.add_root_certificates(file);
    }
    if let (Some(cert), Some(key)) = (cert, key) {
        options = options.add_client_certificate(cert, key);
    }
    Ok((address, options))
}

/// The seed in a file, if it is one of a user.
fn seed(file: &PathBuf) -> Result<String, BusError> {
    let text = std::fs::read_to_string(file)
        .map_err(|problem| BusError::BadLogin(vec![unreadable("NATS_NKEY", file, &problem)]))?;
    // As `nsc` and `nk` write it: alone, or among lines that say what it is.
    let seed = text
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("SU"));
    let seed = seed.filter(|seed| nkeys::KeyPair::from_seed(seed).is_ok());
    let seed = seed.ok_or_else(|| unfit("NATS_NKEY", file, "the seed of a NATS user (SU…)"))?;
    Ok(seed.to_owned())
}

fn unreadable(setting: &str, file: &Path, problem: &std::io::Error) -> String {
    format!(
        "{setting} names {}, which cannot be read: {problem}",
        file.display()
    )
}

fn unfit(setting: &str, file: &Path, wanted: &str) -> BusError {
    let file = file.display();
    BusError::BadLogin(vec![format!(
        "{setting} names {file}, which has not {wanted}"
    )])
}

/// User and password of a URL, or a token alone. The client itself does not read them from there.
pub(super) fn in_url(address: &ServerAddr) -> Option<(String, Option<String>)> {
    let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let user = address.username().map(plain)?;
    Some((user, address.password().map(plain)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Option<(String, Option<String>)> {
        in_url(&url.parse().unwrap())
    }

    #[test]
    fn the_url_says_who_connects() {
        let (user, password) = read("nats://fleet:a%40b%3Ac@127.0.0.1:4222").unwrap();
        assert_eq!(
            (user.as_str(), password.as_deref()),
            ("fleet", Some("a@b:c"))
        );
        assert_eq!(
            read("tls://t0ken@nats.example"),
            Some(("t0ken".to_owned(), None))
        );
        assert_eq!(read("nats://127.0.0.1:4222"), None);
    }

    #[test]
    fn files_that_do_not_fit_together_are_all_named_and_no_secret_is() {
        let missing = || Some("/no/such/file".into());
        let mut args = BusArgs::at("nats://dispatcher:hidden@127.0.0.1:4222".to_owned().into());
        assert_eq!(check(&args), Vec::<String>::new());
        args.login = LoginArgs {
            cert: missing(),
            creds: missing(),
            nkey: missing(),
            ..LoginArgs::default()
        };
        let wrong = check(&args).join("; ");
        for part in [
            "NATS_CERT and NATS_KEY belong together",
            "a user in NATS_URL and NATS_CREDS and NATS_NKEY",
            "NATS_CERT names /no/such/file",
        ] {
            assert!(wrong.contains(part), "{wrong}");
        }
        assert!(!wrong.contains("hidden"), "{wrong}");
    }
}
