//! The users' secrets: made once, and kept when the command runs again.

use std::{collections::BTreeMap, fmt, fs, io, path::Path};

use anyhow::Context;
use nkeys::KeyPair;
use uuid::Uuid;

use super::users::{Roster, wrong};

/// How users prove who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Password,
    Nkey,
}

impl Kind {
    /// The variable of a user's secret in the configuration.
    pub(super) fn variable(self, user: &str) -> String {
        match self {
            Self::Password => format!("password-{user}"),
            Self::Nkey => format!("nkey-{user}"),
        }
    }
}

/// One user's secret.
pub(super) enum UserSecret {
    Password(String),
    /// The seed, and the public key that belongs to it.
    Nkey {
        seed: String,
        public: String,
    },
}

impl UserSecret {
    pub(super) fn seed(&self) -> Option<&str> {
        match self {
            Self::Password(_) => None,
            Self::Nkey { seed, .. } => Some(seed),
        }
    }

    /// What the server is told.
    fn for_the_server(&self) -> &str {
        match self {
            Self::Password(password) => password,
            Self::Nkey { public, .. } => public,
        }
    }
}

/// By user.
pub(super) struct Secrets {
    kind: Kind,
    logins: BTreeMap<String, UserSecret>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl Secrets {
    /// Those that are in the folder, and new ones for the users that have none.
    ///
    /// # Errors
    ///
    /// A file that is there cannot be read, or is not what this command has written.
    pub(super) fn read_or_make(dir: &Path, kind: Kind, roster: &Roster) -> anyhow::Result<Self> {
        let passwords = match kind {
            Kind::Password => passwords(&dir.join("secrets.conf"))?,
            Kind::Nkey => BTreeMap::new(),
        };
        let mut logins = BTreeMap::new();
        for user in &roster.users {
            let name = &user.name;
            let login = match kind {
                Kind::Password => {
                    let kept = passwords.get(&kind.variable(name)).cloned();
                    UserSecret::Password(kept.unwrap_or_else(password))
                }
                Kind::Nkey => nkey(&dir.join(format!("{name}.nk")))?,
            };
            logins.insert(name.clone(), login);
        }
        Ok(Self { kind, logins })
    }

    /// This user's.
    pub(super) fn of(&self, user: &str) -> &UserSecret {
        &self.logins[user]
    }

    /// The file that the server includes.
    pub(super) fn text(&self) -> String {
        let mut text = String::from(
            "# Written by `toolfleet nats-config`. Keep it from everybody but nats-server.\n",
        );
        for (user, login) in &self.logins {
            let variable = self.kind.variable(user);
            text.push_str(&format!("\"{variable}\": \"{}\"\n", login.for_the_server()));
        }
        text
    }
}

/// 244 random bits, in letters that need no quoting in a URL, a file of variables or a configuration.
fn password() -> String {
    format!("p{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

/// The passwords in a file that this command has written; none where there is no file.
fn passwords(file: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let Some(text) = text_of(file)? else {
        return Ok(BTreeMap::new());
    };
    let quoted = |text: &str| Some(text.trim().strip_prefix('"')?.strip_suffix('"')?.to_owned());
    let pair = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        Some((quoted(name)?, quoted(value)?))
    };
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let pairs: Option<BTreeMap<String, String>> = lines.map(pair).collect();
    pairs.ok_or_else(|| {
        let file = file.display();
        wrong(format!(
            "{file} is not as this command writes it: move it away, or choose another --out"
        ))
    })
}

/// The key whose seed is in this file, or a new one.
fn nkey(file: &Path) -> anyhow::Result<UserSecret> {
    let pair = match text_of(file)? {
        Some(seed) => KeyPair::from_seed(seed.trim()).map_err(|_may_quote_it| {
            wrong(format!(
                "{} has no seed of a NATS user: move it away",
                file.display()
            ))
        })?,
        None => KeyPair::new_user(),
    };
    let seed = pair
        .seed()
        .map_err(|_no_seed| wrong(format!("{} has no seed", file.display())))?;
    let public = pair.public_key();
    Ok(UserSecret::Nkey { seed, public })
}

fn text_of(file: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(reason) if reason.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(reason) => Err(reason).with_context(|| format!("read {}", file.display())),
    }
}
