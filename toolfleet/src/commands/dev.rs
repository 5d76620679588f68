//! `toolfleet dev`: its connections to the rest of the program.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::Parser;
use fleet::{
    canonical,
    config::{BusArgs, ConfigError, ParentArgs},
    ids::{ToolName, WorkerId},
    manifest::{AnyManifest, ExecutorSpec, Manifest, McpServer},
    process::asked_to_stop,
    store::{
        askers, mcp_servers,
        migrate::migrate,
        tokens::{self, NewToken, Scope},
        tools::{
            Applied, apply, breaker_forced, fallback_unfit, named_twice, preview_unfit, probe_unfit,
        },
        unknown_tools::unknown_tools,
        workers::{self, Evidence, Fence},
    },
    tokens::NewSecret,
};
use fleet_history::tools::{ToolVersion, repinned_by, tool_version};
use secrecy::SecretString;
use serde_json::Value;
use sqlx::PgConnection;

use super::{
    children, connect,
    tools::{bell, files, servers::AppliedServer},
    usage::UsageError,
};
use crate::dev::{self, DevHooks, DevOptions, Screen};

/// How what `dev` applies is marked, before the name of the file.
const BY_DEV: &str = "dev: ";
/// How often another program may take the version that this one is about to apply.
const RACES_MAX: usize = 5;

/// Runs until it is told to stop.
pub(super) async fn run(options: DevOptions) -> anyhow::Result<ExitCode> {
    ports_differ(&options)?;
    if let Some(tools) = options.tools.as_ref().filter(|tools| !tools.is_dir()) {
        let what = format!(
            "--tools is {}, which is not a folder; name one with manifests in it",
            tools.display()
        );
        return Err(ConfigError(vec![what]).into());
    }
    children::check_dispatcher()?;
    if options.workers > 0 {
        let concurrency = options.concurrency.to_string();
        // With the flags that the workers of a `dev` get, whatever the environment says.
        children::check_worker(&[
            "--concurrency",
            &concurrency,
            "--drain-timeout",
            "10s",
            "--secrets",
            "/",
        ])?;
    }
    if options.gateways > 0 {
        children::check_gateway()?;
    }
    let stopping = asked_to_stop(ParentArgs::default())?;
    dev::run(options, hooks(), Screen::new(std::io::stdout()), stopping).await?;
    Ok(ExitCode::SUCCESS)
}

/// Two servers cannot have one port.
fn ports_differ(options: &DevOptions) -> Result<(), UsageError> {
    let ports = [
        ("--nats-port", options.nats_port),
        ("--postgres-port", options.postgres_port),
        ("--http-port", options.http_port),
        ("--gateway-port", options.gateway_port),
    ];
    let ports = ports.map(|(option, port)| (option, port.filter(|port| *port != 0)));
    for (place, (option, port)) in ports.iter().enumerate() {
        let earlier = ports[..place]
            .iter()
            .find(|(_, earlier)| port.is_some() && earlier == port);
        if let (Some((earlier, _)), Some(port)) = (earlier, port) {
            let what = format!("{earlier} and {option} are both {port}: name another port");
            return Err(UsageError(what));
        }
    }
    Ok(())
}

/// The functions of this program that `dev` calls.
pub(super) fn hooks() -> DevHooks {
    DevHooks {
        migrate: |url| Box::pin(migrate_all(url)),
        token: |url, kept| Box::pin(token_of_dev(url, kept)),
        tool_of: |file| match files::read(file).ok()? {
            AnyManifest::Tool(manifest) => Some(manifest.name),
            AnyManifest::McpServer(_) => None,
        },
        apply_tools: |url, nats_url, file| Box::pin(apply_file(url, nats_url, file)),
        worker_died: |url, pid| Box::pin(note_death(url, pid)),
        fence: |url, worker| Box::pin(note_fence(url, worker)),
    }
}

async fn migrate_all(url: String) -> anyhow::Result<()> {
    let postgres = connect::postgres(&SecretString::from(url))?;
    migrate(&postgres).await?;
    Ok(())
}

/// The kept token where it holds, else a new one: for every tenant, for everything.
async fn token_of_dev(url: String, kept: Option<String>) -> anyhow::Result<String> {
    let url = SecretString::from(url);
    let pool = connect::postgres(&url)?.pool_for_reading(1);
    let live = tokens::live(&pool).await?;
    let holds = |text: &String| {
        let (id, hash) = tokens::parse(text)?;
        let row = live.iter().find(|row| row.token_id == id)?;
        (row.hash == hash && row.expires_at.is_none()).then_some(())
    };
    if let Some(kept) = kept.filter(|text| holds(text).is_some()) {
        return Ok(kept);
    }
    let secret = NewSecret::generate();
    let token = NewToken {
        secret: &secret,
        name: "dev",
        tenant: None,
        scopes: Scope::ALL,
        tools: &["*".to_owned()],
        actor: "dev",
        note: "the gateway of toolfleet dev, for who may read its folder",
        for_ms: None,
    };
    tokens::create(&mut connect::writer(&url).await?, &token).await?;
    Ok(secret.expose().to_owned())
}

/// Applies a file under its own version, or as the next version if the newest version says something else.
///
/// With a fleet at `nats_url`, rings its bell and returns when a dispatcher offers the version.
async fn apply_file(
    url: String,
    nats_url: Option<String>,
    file: PathBuf,
) -> anyhow::Result<Vec<String>> {
    let manifest = match files::read(&file) {
        Ok(AnyManifest::Tool(manifest)) => *manifest,
        Ok(AnyManifest::McpServer(server)) => return apply_server(&url, &server, &file).await,
        Err(problems) => bail!(files::sentences("", &problems).join("; ")),
    };
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let by = format!("{BY_DEV}{name}");
    let mut connection = connect::writer(&SecretString::from(url)).await?;
    for tool in worker::built_in_of([&manifest]) {
        apply(&mut connection, &tool, &by).await?;
    }
    for _race in 0..RACES_MAX {
        let newest = tool_version(&mut connection, &manifest.name, None).await?;
        let Some(version) = next_version(&manifest, newest.as_ref())? else {
            let retired = newest.filter(|newest| newest.retired_at.is_some());
            let line = |newest: ToolVersion| {
                format!(
                    "{} is retired: raise version in the file above {} to offer it again",
                    manifest.name, newest.version
                )
            };
            return Ok(retired.map(line).into_iter().collect());
        };
        if let Some(newest) = newest.filter(|newest| manifest.version <= newest.version)
            && let Some(line) = older_pin(&manifest, newest.version, &mut connection).await?
        {
            return Ok(vec![line]);
        }
        let next = Manifest {
            version,
            ..manifest.clone()
        };
        let (changed, own) = match manifest.version {
            own if own == version => ("", String::new()),
            own => ("changed, ", format!(" (the file says {own})")),
        };
        match apply(&mut connection, &next, &by).await? {
            Applied::Created => {
                let is_offered = match nats_url {
                    None => true,
                    Some(nats_url) => {
                        let bus = bus_at(&nats_url)?;
                        bell::ring_until_offered(&bus, &next.name, version).await
                    }
                };
                let late = if is_offered { "" } else { ", not yet offered" };
                let let_down = askers::let_down(&mut connection, &next).await?;
                let let_down = let_down.iter().map(|one| one.sentence(&next));
                let applied = format!(
                    "{}: {changed}applied as version {version}{own}{late}",
                    next.name
                );
                let unknown = unknown_tools(&mut connection, &next).await?;
                let beside = match unknown.is_empty() {
                    true => Vec::new(),
                    false => tools_beside(&file),
                };
                let unknown = unknown.iter().filter(|one| !beside.contains(&one.tool));
                let unknown = unknown.map(|one| one.sentence(&next));
                let lines = std::iter::once(applied).chain(let_down);
                return Ok(lines.chain(unknown).collect());
            }
            Applied::Unchanged => return Ok(Vec::new()),
            // Another program took it just now: look again.
            Applied::Conflict => {}
            Applied::ProbeUnfit => bail!(probe_unfit(&next)),
            Applied::PreviewUnfit(unfit) => bail!(preview_unfit(&next, unfit)),
            Applied::LimitNamedTwice => bail!(named_twice(&next)),
            Applied::BreakerForced => bail!(breaker_forced(&next)),
            Applied::FallbackUnfit(unfit) => bail!(fallback_unfit(&next, unfit)),
        }
    }
    bail!(
        "others keep applying new versions of {} at this moment",
        manifest.name
    )
}

/// The tools of all files in the folder of this one: they are applied one after the other.
fn tools_beside(file: &Path) -> Vec<ToolName> {
    let folder = file.parent().and_then(|folder| folder.read_dir().ok());
    let files = folder.into_iter().flatten().flatten();
    let read = files.filter_map(|file| files::read(&file.path()).ok());
    let tools = read.filter_map(|manifest| match manifest {
        AnyManifest::Tool(manifest) => Some(manifest.name),
        AnyManifest::McpServer(_) => None,
    });
    tools.collect()
}

/// Applies a manifest of an MCP server under its own version; the fleet sees it within a second.
async fn apply_server(url: &str, server: &McpServer, file: &Path) -> anyhow::Result<Vec<String>> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let mut connection = connect::writer(&SecretString::from(url)).await?;
    let by = format!("{BY_DEV}{name}");
    let applied = mcp_servers::apply(&mut connection, server, &by).await?;
    apply(&mut connection, &worker::discoverer_of(&server.queue), &by).await?;
    if applied == Applied::Unchanged {
        return Ok(Vec::new());
    }
    let done = AppliedServer {
        file,
        server,
        applied,
    };
    if done.is_refused() {
        bail!(done.line());
    }
    Ok(vec![done.line()])
}

/// The bus as the fleet's processes see it; they inherit `TOOLFLEET_PREFIX`.
fn bus_at(nats_url: &str) -> anyhow::Result<BusArgs> {
    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        bus: BusArgs,
    }

    let flags = Flags::try_parse_from(["dev", "--nats-url", nats_url]);
    Ok(flags.context("read TOOLFLEET_PREFIX")?.bus)
}

/// What is said of a file with a pin that a newer version has replaced; then its tool is left as it is.
///
/// A pin is copied from what an MCP server says and not written by hand. With the older one every call would fail as `tool_changed`. Where
/// `dev` itself applied the newer version, the file was changed back since, and counts.
async fn older_pin(
    manifest: &Manifest,
    newest: i32,
    connection: &mut PgConnection,
) -> anyhow::Result<Option<String>> {
    let ExecutorSpec::Mcp(spec) = &manifest.executor else {
        return Ok(None);
    };
    let name = &manifest.name;
    let by = repinned_by(connection, name, &spec.pin).await?;
    let by = by.filter(|by| !by.starts_with(BY_DEV));
    Ok(by.map(|by| {
        format!(
            "{name}: left as it is: its pin is older than that of version {newest}, which {by} has applied; write that into the \
             file (toolfleet tools show {name} prints it), or raise version in the file above {newest} to offer the older one"
        )
    }))
}

/// The version under which the content of this file must be applied; `None` if the newest version has it already.
///
/// The newest version is what callers get, so it alone is compared, whichever file or program applied it.
fn next_version(manifest: &Manifest, newest: Option<&ToolVersion>) -> anyhow::Result<Option<i32>> {
    let Some(newest) = newest else {
        return Ok(Some(manifest.version));
    };
    if manifest.version > newest.version {
        return Ok(Some(manifest.version));
    }
    if content(&serde_json::to_string(manifest)?)? == content(&newest.manifest)? {
        return Ok(None);
    }
    let following = newest.version.checked_add(1);
    following.context("the versions are used up").map(Some)
}

/// A manifest without its version.
fn content(manifest: &str) -> anyhow::Result<String> {
    let mut value: Value = serde_json::from_str(manifest).context("read a stored manifest")?;
    value["version"] = Value::Null;
    Ok(canonical::to_text(&value))
}

async fn note_death(url: String, pid: u32) -> anyhow::Result<Vec<WorkerId>> {
    let host = nix::unistd::gethostname().context("ask for the name of this machine")?;
    let host = host.to_string_lossy();
    let mut connection = connect::writer(&SecretString::from(url)).await?;
    let pid = i32::try_from(pid).context("read a pid")?;
    workers::report_death(&mut connection, &host, pid, "dev: the process ended").await?;
    Ok(workers::not_fenced(&mut connection, &host, pid).await?)
}

async fn note_fence(url: String, worker: WorkerId) -> anyhow::Result<()> {
    let mut connection = connect::writer(&SecretString::from(url)).await?;
    let fence = Fence {
        worker,
        by: "dev",
        note: "lock released",
        evidence: Evidence::Lock,
    };
    workers::fence(&mut connection, fence).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use fleet::manifest::parse;

    use super::*;

    fn manifest(version: i32, description: &str) -> Manifest {
        parse(&format!(
            "name: look\nversion: {version}\ndescription: {description}\neffect: read\n\
             input_schema: {{type: object}}\nexecutor: {{process: {{command: [look]}}}}\n"
        ))
        .unwrap()
    }

    fn newest(version: i32, description: &str) -> ToolVersion {
        ToolVersion {
            version,
            manifest: serde_json::to_string(&manifest(version, description)).unwrap(),
            retired_at: None,
            retired_by: None,
            retired_note: None,
        }
    }

    #[test]
    fn what_the_newest_version_does_not_say_becomes_the_next() {
        let cases = [
            ("new", None, Some(1)),
            ("as it is", Some(newest(1, "wanted")), None),
            (
                "as it is, and edited before",
                Some(newest(3, "wanted")),
                None,
            ),
            ("edited", Some(newest(3, "other")), Some(4)),
        ];
        for (case, newest, expected) in cases {
            let next = next_version(&manifest(1, "wanted"), newest.as_ref()).unwrap();
            assert_eq!(next, expected, "{case}");
        }
        let raised = next_version(&manifest(3, "wanted"), Some(&newest(1, "wanted")));
        assert_eq!(raised.unwrap(), Some(3));
    }
}
