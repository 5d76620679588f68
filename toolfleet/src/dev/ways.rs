//! The addresses of a running `dev` for people and their programs: lines to copy, and the private files behind them.
//!
//! No line contains a password: `pgpass` and `env`, which only their owner may read, contain it.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use super::{private, state::DevState};

/// For `psql` without a password on the command line or on the screen.
const PGPASS: &str = "pgpass";
/// Addresses for programs that read them from the environment.
const ENV: &str = "env";
/// The name of a data folder that client commands find by themselves.
pub(crate) const FOUND: &str = ".toolfleet";

/// The folder for them, and the addresses.
#[derive(Debug)]
pub(super) struct Ways<'a> {
    data: &'a Path,
    state: &'a DevState,
    psql: String,
}

impl<'a> Ways<'a> {
    /// `postgres_bin` is used for `psql` where the `PATH` has none.
    pub(super) fn new(data: &'a Path, state: &'a DevState, postgres_bin: Option<&Path>) -> Self {
        let psql = psql(env::var_os("PATH").as_deref(), postgres_bin);
        Self { data, state, psql }
    }

    /// Writes the files. They stay valid in the next run, which uses the same ports and passwords.
    pub(super) fn write(&self) -> io::Result<()> {
        let logins = [&self.state.database_url, &self.state.tool_database_url];
        let pgpass: String = logins
            .into_iter()
            .filter_map(|url| Login::of(url))
            .map(|login| login.pgpass())
            .collect();
        private::replace(&self.data.join(PGPASS), pgpass.as_bytes())?;
        let variables = [
            ("NATS_URL", &self.state.nats_url),
            ("DATABASE_URL", &self.state.database_url),
            ("WORKER_TOOL_DATABASE_URL", &self.state.tool_database_url),
        ];
        let gateway = [
            ("TOOLFLEET_GATEWAY_URL", &self.state.gateway_url),
            ("TOOLFLEET_TOKEN", &self.state.gateway_token),
        ];
        let gateway = gateway
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let lines = variables.into_iter().chain(gateway);
        let lines: String = lines
            .map(|(name, value)| format!("export {name}='{value}'\n"))
            .collect();
        private::replace(&self.data.join(ENV), lines.as_bytes())
    }

    /// The lines to copy, each with its purpose.
    pub(super) fn lines(&self) -> Vec<String> {
        let http = &self.state.http_url;
        let env = quoted(&self.data.join(ENV));
        let clients = match (self.data.file_name(), self.data.parent()) {
            (Some(name), Some(folder)) if name == FOUND => format!(
                "`toolfleet call NAME …` finds it in {} and below; for other programs: . {env}",
                folder.display()
            ),
            _ => format!("first the line `. {env}`, then `toolfleet call NAME …` or any program"),
        };
        let mut lines = vec![
            format!("  NATS      . {env} && nats micro ls"),
            format!("  Postgres  {}", self.psql(&self.state.database_url)),
            format!("  sql tools {}", self.psql(&self.state.tool_database_url)),
        ];
        if let Some(url) = &self.state.gateway_url {
            lines.push(format!(
                "  gateway   . {env} && curl -H \"Authorization: Bearer $TOOLFLEET_TOKEN\" {url}/v1/tools"
            ));
            lines.push(format!(
                "  MCP       . {env} && echo \"$TOOLFLEET_GATEWAY_URL/mcp with Authorization: Bearer $TOOLFLEET_TOKEN\""
            ));
        }
        lines.extend([
            format!("  HTTP      {http}/metrics"),
            format!("  clients   {clients}"),
        ]);
        lines
    }

    fn psql(&self, url: &str) -> String {
        let (pgpass, psql) = (quoted(&self.data.join(PGPASS)), &self.psql);
        let url = Login::of(url).map_or_else(String::new, |login| login.url());
        format!("PGPASSFILE={pgpass} {psql} {url}")
    }
}

/// The parts of a URL of ours: `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, none of which needs an escape.
struct Login<'a> {
    user: &'a str,
    password: &'a str,
    place: &'a str,
    database: &'a str,
}

impl<'a> Login<'a> {
    fn of(url: &'a str) -> Option<Self> {
        let (login, place) = url.strip_prefix("postgres://")?.split_once('@')?;
        let (user, password) = login.split_once(':')?;
        let (place, database) = place.split_once('/')?;
        Some(Self {
            user,
            password,
            place,
            database,
        })
    }

    fn url(&self) -> String {
        format!("postgres://{}@{}/{}", self.user, self.place, self.database)
    }

    fn pgpass(&self) -> String {
        let (user, password) = (self.user, self.password);
        format!("{}:{}:{user}:{password}\n", self.place, self.database)
    }
}

/// `psql` if the shell finds it, else with its folder.
fn psql(path: Option<&std::ffi::OsStr>, postgres_bin: Option<&Path>) -> String {
    let mut on_path = path.into_iter().flat_map(env::split_paths);
    let beside: Option<PathBuf> = postgres_bin.map(|bin| bin.join("psql"));
    match beside.filter(|program| program.is_file()) {
        Some(program) if !on_path.any(|folder| folder.join("psql").is_file()) => quoted(&program),
        _ => "psql".to_owned(),
    }
}

/// The path in the form of a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%".contains(c);
    if text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn state() -> DevState {
        DevState {
            nats_url: "nats://toolfleet:c3@127.0.0.1:14222".into(),
            database_url: "postgres://toolfleet:a1@127.0.0.1:15432/toolfleet".into(),
            tool_database_url: "postgres://toolfleet_tool:b2@127.0.0.1:15432/toolfleet".into(),
            http_url: "http://127.0.0.1:18080".into(),
            gateway_url: Some("http://127.0.0.1:8233".into()),
            gateway_token: Some("tf_0123456789ab_secret".into()),
            ..DevState::default()
        }
    }

    #[test]
    fn the_lines_have_no_password_and_the_files_have_all() {
        let folder = tempfile::tempdir().unwrap();
        let state = state();
        let ways = Ways::new(folder.path(), &state, None);
        let lines = ways.lines().join("\n");
        assert!(
            [":a1@", ":b2@", ":c3@", "tf_"]
                .iter()
                .all(|password| !lines.contains(password)),
            "{lines}"
        );
        assert!(lines.contains("psql postgres://toolfleet@127.0.0.1:15432/toolfleet\n"));
        ways.write().unwrap();
        assert_eq!(
            fs::read_to_string(folder.path().join(PGPASS)).unwrap(),
            "127.0.0.1:15432:toolfleet:toolfleet:a1\n127.0.0.1:15432:toolfleet:toolfleet_tool:b2\n"
        );
        let env = fs::read_to_string(folder.path().join(ENV)).unwrap();
        assert!(env.contains("export DATABASE_URL='postgres://toolfleet:a1@"));
        assert!(env.contains("export NATS_URL='nats://toolfleet:c3@"));
        assert!(env.contains("export TOOLFLEET_TOKEN='tf_0123456789ab_secret'\n"));
    }

    #[test]
    fn only_a_folder_of_the_known_name_is_found_without_help() {
        let state = state();
        let told = |data: &str| {
            let ways = Ways::new(Path::new(data), &state, None);
            ways.lines().pop().unwrap()
        };
        assert!(told("/home/ada/project/.toolfleet").contains("in /home/ada/project and below"));
        assert!(told("/tmp/it's").contains(r". '/tmp/it'\''s/env'"));
    }

    #[test]
    fn psql_is_named_as_a_shell_finds_it() {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        assert_eq!(psql(None, Some(&bin)), "psql");
        fs::write(bin.join("psql"), "").unwrap();
        assert_eq!(psql(None, Some(&bin)), quoted(&bin.join("psql")));
        assert_eq!(psql(Some(bin.as_os_str()), Some(&bin)), "psql");
    }
}
