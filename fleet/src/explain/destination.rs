//! Where a server is and which user logs in, in a form that may be shown: without the password.

use std::{fmt, str::FromStr};

use async_nats::ServerAddr;
use secrecy::{ExposeSecret, SecretString};
use sqlx::postgres::PgConnectOptions;

use crate::store::StoreError;

/// Where an address comes from, which decides the advice when it leads nowhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Origin {
    /// A person: a variable or an option.
    #[default]
    Given,
    /// A `toolfleet dev`: the setting is its file.
    Dev,
    /// The default of this option, and of the variable with the same meaning.
    Usual {
        /// Such as `--nats-url`.
        option: &'static str,
        /// Such as `NATS_URL`.
        variable: &'static str,
    },
}

/// One server that a setting leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// The setting: a variable, a flag, or a file.
    pub setting: String,
    /// Where its value comes from.
    pub origin: Origin,
    /// Host and port.
    pub address: String,
    /// The user, where the URL names one.
    pub role: Option<String>,
    /// The database.
    pub database: Option<String>,
}

impl Destination {
    /// Where a `postgres://` URL leads; `None` if it is not one.
    pub fn of_postgres(setting: impl Into<String>, url: &SecretString) -> Option<Self> {
        let options = PgConnectOptions::from_str(url.expose_secret()).ok()?;
        let socket = options.get_socket().map(|path| path.display().to_string());
        let role = options.get_username().to_owned();
        Some(Self {
            setting: setting.into(),
            origin: Origin::Given,
            address: socket
                .unwrap_or_else(|| format!("{}:{}", options.get_host(), options.get_port())),
            database: Some(options.get_database().unwrap_or(&role).to_owned()),
            role: Some(role),
        })
    }

    /// Where a `nats://` URL leads; `None` if it is not one.
    pub fn of_nats(setting: impl Into<String>, url: &SecretString) -> Option<Self> {
        let address: ServerAddr = url.expose_secret().parse().ok()?;
        let with_password = address.password().is_some();
        Some(Self {
            setting: setting.into(),
            origin: Origin::Given,
            address: format!("{}:{}", address.host(), address.port()),
            // A name without a password is a token, and that is a secret.
            role: address
                .username()
                .filter(|_| with_password)
                .map(str::to_owned),
            database: None,
        })
    }

    /// The same place, from another origin.
    #[must_use]
    pub fn by(self, origin: Origin) -> Self {
        Self { origin, ..self }
    }

    /// The advice where it is the wrong address.
    pub(super) fn correction(&self) -> String {
        match self.origin {
            Origin::Given => format!("correct {}", self.setting),
            Origin::Dev => "start its `toolfleet dev` again".to_owned(),
            Origin::Usual { option, variable } => format!("set {variable} or {option}"),
        }
    }

    /// The advice where no server listens.
    pub(super) fn revival(&self) -> String {
        match self.origin {
            Origin::Given => format!("start it, or correct {}", self.setting),
            Origin::Dev => {
                "see whether its `toolfleet dev` runs, which starts what has died".to_owned()
            }
            Origin::Usual { option, variable } => {
                format!("start `toolfleet dev` here, or set {variable} or {option}")
            }
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.address, self.setting)
    }
}

/// The servers in a command's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Servers {
    /// Postgres.
    pub ledger: Option<Destination>,
    /// NATS.
    pub bus: Option<Destination>,
}

impl Servers {
    /// Those that these variables name.
    pub fn of_variables(database_url: &SecretString, nats_url: &SecretString) -> Self {
        Self {
            ledger: Destination::of_postgres("DATABASE_URL", database_url),
            bus: Destination::of_nats("NATS_URL", nats_url),
        }
    }
}

/// An error of another Postgres than the ledger's.
#[derive(Debug, thiserror::Error)]
#[error("{}", place.setting)]
pub struct Located {
    /// Where.
    pub place: Destination,
    /// What.
    #[source]
    pub source: StoreError,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_shows_all_of_a_url_but_the_secret() {
        let url = SecretString::from("postgres://u:hunter2@db.example:5433/fleet".to_owned());
        let place = Destination::of_postgres("DATABASE_URL", &url).unwrap();
        assert_eq!(place.to_string(), "db.example:5433 (DATABASE_URL)");
        assert_eq!(
            (place.role.as_deref(), place.database.as_deref()),
            (Some("u"), Some("fleet"))
        );
        for (url, role) in [
            ("nats://u:hunter2@nats.example", Some("u")),
            ("nats://hunter2@nats.example", None),
        ] {
            let place =
                Destination::of_nats("NATS_URL", &SecretString::from(url.to_owned())).unwrap();
            assert_eq!(place.to_string(), "nats.example:4222 (NATS_URL)");
            assert_eq!(place.role.as_deref(), role);
            assert!(!format!("{place:?}").contains("hunter2"));
        }
    }
}
