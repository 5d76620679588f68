//! What the URL of a tool's database says: where the server is, as whom to go there, and how it has to prove itself.

use std::{path::PathBuf, str::FromStr as _};

use sqlx::postgres::PgConnectOptions;

use super::{
    connect::{ServerAddress, Target},
    tls::Tls,
};

/// Not a URL that a tool can have. The message does not contain it.
#[derive(Debug, thiserror::Error)]
#[error("the database URL cannot be used: write postgres://USER:PASSWORD@HOST:PORT/DATABASE; {0}")]
pub struct BadUrl(&'static str);

/// The URL alone says where to go: what the environment of this process has for other clients stays out of it.
fn options(url: &str) -> Result<PgConnectOptions, BadUrl> {
    const KNOWN: [&str; 16] = [
        "sslmode",
        "ssl-mode",
        "sslrootcert",
        "ssl-root-cert",
        "ssl-ca",
        "sslcert",
        "ssl-cert",
        "sslkey",
        "ssl-key",
        "host",
        "hostaddr",
        "port",
        "dbname",
        "user",
        "password",
        "options",
    ];
    let parsed = reqwest::Url::parse(url).map_err(|_shows_it| BadUrl("it is not a URL"))?;
    if !matches!(parsed.scheme(), "postgres" | "postgresql") {
        return Err(BadUrl("the scheme is postgres"));
    }
    let given = |name: &str| parsed.query_pairs().any(|(key, _)| key == name);
    if parsed.query_pairs().any(|(key, _)| !KNOWN.contains(&&*key)) {
        return Err(BadUrl("it has a parameter that is not known"));
    }
    if parsed.username().is_empty() && !given("user") {
        return Err(BadUrl("it names no user"));
    }
    let hosted = parsed.host_str().is_some_and(|host| !host.is_empty());
    if !hosted && !given("host") && !given("hostaddr") {
        return Err(BadUrl("it names no host"));
    }
    if parsed.path().trim_start_matches('/').is_empty() && !given("dbname") {
        return Err(BadUrl("it names no database"));
    }
    let options = PgConnectOptions::from_str(url)
        .map_err(|_shows_it| BadUrl("a part of it cannot be read"))?;
    if parsed.port().is_none() && !given("port") {
        return Ok(options.port(5432));
    }
    Ok(options)
}

/// As a part of a URL is meant.
pub(super) fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let decoded = (first == b'%').then(|| after.get(..2)).flatten();
        let decoded = decoded.and_then(|digits| std::str::from_utf8(digits).ok());
        match decoded.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Where a URL leads.
pub(super) fn target(url: &str) -> Result<Target, BadUrl> {
    let options = options(url)?;
    let parsed = reqwest::Url::parse(url).map_err(|_shows_it| BadUrl("it is not a URL"))?;
    let given = |names: &[&str]| {
        let pairs = parsed.query_pairs();
        pairs
            .filter(|(key, _)| names.contains(&&**key))
            .last()
            .map(|(_, value)| value.into_owned())
    };
    let port = options.get_port();
    let place = match options.get_socket() {
        Some(folder) => ServerAddress::Unix(folder.join(format!(".s.PGSQL.{port}"))),
        None => ServerAddress::Tcp(options.get_host().to_owned(), port),
    };
    let password = given(&["password"]).or_else(|| parsed.password().map(percent_decoded));
    Ok(Target {
        place,
        user: options.get_username().to_owned(),
        password: password.unwrap_or_default().into(),
        database: options.get_database().map(str::to_owned),
        options: options.get_options().map(str::to_owned),
        tls: Tls::of(options.get_ssl_mode()).map(|tls| Tls {
            roots: given(&["sslrootcert", "ssl-root-cert", "ssl-ca"]).map(PathBuf::from),
            certificate: given(&["sslcert", "ssl-cert"]).map(PathBuf::from),
            key: given(&["sslkey", "ssl-key"]).map(PathBuf::from),
            ..tls
        }),
    })
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn a_url_says_all_there_is_to_say() {
        for url in [
            "postgres://u:p@h/d",
            "postgresql://u@h:1/d?sslmode=require",
            "postgres:///d?host=/tmp&user=u",
        ] {
            assert!(options(url).is_ok(), "{url}");
        }
        for url in [
            "hunter2",
            "mysql://u:hunter2@h/d",
            "postgres://:hunter2@h/d",
            "postgres://u:hunter2@h",
            "postgres://u:hunter2@h/d?pasword=hunter2",
            "postgres:///d?user=u",
            "postgres://u:hunter2@h/d?sslmode=hunter2",
        ] {
            let refused = options(url).unwrap_err();
            assert!(
                !format!("{refused} {refused:?}").contains("hunter2"),
                "{url}"
            );
        }
    }

    #[test]
    fn a_target_is_what_the_url_says() {
        let told = target(
            "postgres://u:a%2Fb@[::1]:1/d?sslmode=verify-ca&sslrootcert=/r&options=-c%20x%3D1",
        )
        .unwrap();
        assert!(matches!(&told.place, ServerAddress::Tcp(host, 1) if host == "[::1]"));
        assert_eq!(told.password.expose_secret(), "a/b");
        assert_eq!(told.database.as_deref(), Some("d"));
        assert_eq!(told.options.as_deref(), Some("-c x=1"));
        let tls = told.tls.unwrap();
        assert!(tls.is_required && tls.checks_authority && !tls.checks_host);
        assert_eq!(tls.roots, Some(PathBuf::from("/r")));
        let local = target("postgres:///d?host=/tmp&user=u&sslmode=disable").unwrap();
        assert!(
            matches!(&local.place, ServerAddress::Unix(path) if path.ends_with(".s.PGSQL.5432"))
        );
        assert!(local.tls.is_none());
    }
}
