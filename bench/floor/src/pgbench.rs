//! The same rows by `pgbench`, which every Postgres has: one call after the other, each commit on its own.

use std::{
    env,
    io::Write,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, ensure};
use percent_encoding::percent_decode_str;
use tokio::{process::Command, time::timeout};

const CLIENTS: &str = "64";
const THREADS: &str = "2";
/// How much longer than its time it may take.
const SLOW_MAX: Duration = Duration::from_secs(30);

/// A call in three statements; `ARGS` is replaced. Ids ascend, as the program's own do.
const SCRIPT: &str = "
WITH opened AS (
    INSERT INTO toolfleet_floor.open_calls (call_id, tenant, tool, key, args)
    SELECT (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || right(replace(key, '-', ''), 20))::uuid,
        'default', 'noop', key, 'ARGS'
    FROM (SELECT gen_random_uuid()::text AS key OFFSET 0) new
    RETURNING call_id, tenant, key
), keyed AS (
    INSERT INTO toolfleet_floor.keys (tenant, key, call_id)
    SELECT tenant, key, call_id FROM opened
    ON CONFLICT DO NOTHING
)
SELECT call_id FROM opened \\gset
UPDATE toolfleet_floor.open_calls
SET state = 'running', attempt_id = gen_random_uuid(), worker = 'floor', started_at = now()
WHERE call_id = :call_id AND state = 'queued';
WITH ended AS (
    DELETE FROM toolfleet_floor.open_calls WHERE call_id = :call_id AND state = 'running'
    RETURNING call_id, tenant, tool, key, args, accepted_at, attempt_id, worker, started_at
), finished AS (
    INSERT INTO toolfleet_floor.history (call_id, tenant, tool, key, args, state, result, accepted_at, finished_at)
    SELECT call_id, tenant, tool, key, args, 'succeeded', 'RESULT', accepted_at, now() FROM ended
)
INSERT INTO toolfleet_floor.attempts (call_id, attempt_id, worker, started_at, finished_at, outcome)
SELECT call_id, attempt_id, worker, started_at, now(), 'applied' FROM ended;
";

/// The program: the one that was named, or one beside the server's, or one on the path.
pub fn find(named: &Path, beside_server: Option<String>) -> Option<PathBuf> {
    // A bare name is searched for; a path is used as it is.
    if named.components().nth(1).is_some() {
        return named.is_file().then(|| named.to_path_buf());
    }
    let told = ["TOOLFLEET_POSTGRES_BIN", "POSTGRES_BIN"].map(env::var_os);
    let told = told.into_iter().flatten().map(PathBuf::from);
    let beside_server = beside_server.map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).filter(|folder| folder.is_absolute());
    let mut programs = told
        .chain(beside_server)
        .chain(on_path)
        .map(|folder| folder.join(named));
    programs.find(|program| program.is_file())
}

/// Calls per second.
///
/// # Errors
///
/// It fails, does not end, or prints no number.
pub async fn run(
    program: &Path,
    database_url: &str,
    args: &str,
    result: &str,
    seconds: u64,
) -> anyhow::Result<f64> {
    let mut script = tempfile::NamedTempFile::new().context("make a file for the script")?;
    // `pgbench` takes a colon before a letter for a variable, in texts too; these texts have none.
    let text = SCRIPT.replace("ARGS", args).replace("RESULT", result);
    script
        .write_all(text.as_bytes())
        .context("write the script")?;
    let (url, password) = without_password(database_url);
    let mut command = Command::new(program);
    command
        .args(["--no-vacuum", "--protocol=prepared", "--client", CLIENTS])
        .args(["--jobs", THREADS, "--time", &seconds.to_string(), "--file"])
        .arg(script.path())
        .arg(url)
        .env("LC_ALL", "C")
        .env("PGAPPNAME", "toolfleet-floor pgbench")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    if let Some(password) = password {
        command.env("PGPASSWORD", password);
    }
    let limit = Duration::from_secs(seconds) + SLOW_MAX;
    let output = timeout(limit, command.output()).await;
    let output = output.context("pgbench does not end")?;
    let output = output.with_context(|| format!("run {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or_default();
    ensure!(output.status.success(), "pgbench failed: {said}");
    tps(&String::from_utf8_lossy(&output.stdout)).context("pgbench says no number")
}

/// The figure in what it prints.
fn tps(printed: &str) -> Option<f64> {
    let line = printed
        .lines()
        .find_map(|line| line.strip_prefix("tps = "))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The URL for the command line, which every user of the machine can read, and the password for the environment.
fn without_password(url: &str) -> (String, Option<String>) {
    let parts = url.split_once("://").and_then(|(scheme, rest)| {
        let (login, place) = rest.rsplit_once('@')?;
        let (user, password) = login.split_once(':')?;
        Some((format!("{scheme}://{user}@{place}"), password))
    });
    match parts {
        Some((url, password)) => {
            let password = percent_decode_str(password).decode_utf8_lossy();
            (url, Some(password.into_owned()))
        }
        None => (url.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_is_read_from_what_pgbench_prints() {
        let printed =
            "latency average = 8.123 ms\ntps = 7878.345 (without initial connection time)\n";
        assert_eq!(tps(printed), Some(7878.345));
        assert_eq!(tps("pgbench: error"), None);
    }

    #[test]
    fn the_password_stays_off_the_command_line() {
        let (url, password) =
            without_password("postgres://fleet:a%40b@127.0.0.1:5432/ledger?sslmode=disable");
        assert_eq!(
            url,
            "postgres://fleet@127.0.0.1:5432/ledger?sslmode=disable"
        );
        assert_eq!(password.as_deref(), Some("a@b"));
        let plain = "postgres://127.0.0.1/ledger";
        assert_eq!(without_password(plain), (plain.to_owned(), None));
    }
}
