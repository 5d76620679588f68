//! The servers that a command's settings lead to, and the origin of each setting: for messages about wrong settings.

use clap::{ArgMatches, Command, parser::ValueSource};
use fleet::explain::{Destination, Origin, Servers};
use secrecy::SecretString;

/// Where settings come from, if not from the variable that messages name.
#[derive(Debug, Default)]
pub struct Named(Vec<(String, String)>);

impl Named {
    /// Those on the command line of the innermost command; addresses may come from a `dev`.
    pub(super) fn of(command: &Command, matches: &ArgMatches, dev: Option<&str>) -> Self {
        let (command, matches) = innermost(command, matches);
        let names = command.get_arguments().filter_map(|arg| {
            let variable = arg.get_env()?.to_str()?.to_owned();
            let id = arg.get_id().as_str();
            let given = match (matches.value_source(id)?, dev) {
                (ValueSource::CommandLine, _) => format!("--{}", arg.get_long()?),
                (ValueSource::DefaultValue, Some(file)) if id.ends_with("_url") => file.to_owned(),
                _as_messages_have_it => return None,
            };
            Some((variable, given))
        });
        Self(names.collect())
    }

    /// The text with every setting under the name by which it was given.
    pub(super) fn rename(&self, text: &str) -> String {
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let mut renamed = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            let is_name = is_of_name(letter);
            let end = rest.find(|other| is_of_name(other) != is_name);
            let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
            let known = self.0.iter().find(|(variable, _)| variable == part);
            renamed.push_str(known.map_or(part, |(_, given)| given));
            rest = after;
        }
        renamed
    }
}

/// The servers in the settings of the innermost command, or in the file of a `dev`.
pub(super) fn servers(command: &Command, matches: &ArgMatches, dev: Option<&str>) -> Servers {
    let (_, matches) = innermost(command, matches);
    Servers {
        ledger: place(matches, "database_url", dev, Destination::of_postgres),
        bus: place(matches, "nats_url", dev, Destination::of_nats),
    }
}

fn innermost<'a>(
    mut command: &'a Command,
    mut matches: &'a ArgMatches,
) -> (&'a Command, &'a ArgMatches) {
    while let Some((name, inner)) = matches.subcommand()
        && let Some(found) = command.find_subcommand(name)
    {
        (command, matches) = (found, inner);
    }
    (command, matches)
}

fn place(
    command: &ArgMatches,
    id: &str,
    dev: Option<&str>,
    of: fn(String, &SecretString) -> Option<Destination>,
) -> Option<Destination> {
    // An error means that this command has no such setting.
    let url = command.try_get_one::<SecretString>(id).ok().flatten()?;
    let (setting, origin) = match (command.value_source(id), dev) {
        (Some(ValueSource::CommandLine), _) => {
            (format!("--{}", id.replace('_', "-")), Origin::Given)
        }
        (Some(ValueSource::DefaultValue), Some(file)) => (file.to_owned(), Origin::Dev),
        // Only the bus has a default address.
        (Some(ValueSource::DefaultValue), None) => (
            "no address is given".to_owned(),
            Origin::Usual {
                option: "--nats-url",
                variable: "NATS_URL",
            },
        ),
        (Some(_) | None, _) => (id.to_uppercase(), Origin::Given),
    };
    Some(of(setting, url)?.by(origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_are_renamed() {
        let named = Named(vec![(
            "DATABASE_URL".to_owned(),
            "--database-url".to_owned(),
        )]);
        assert_eq!(
            named.rename(
                "DATABASE_URL: not that of WORKER_TOOL_DATABASE_URL, but of (DATABASE_URL)"
            ),
            "--database-url: not that of WORKER_TOOL_DATABASE_URL, but of (--database-url)"
        );
    }
}
