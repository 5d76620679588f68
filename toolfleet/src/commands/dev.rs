//! `toolfleet dev`: its connections to the rest of the program.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, bail};
use clap::Parser;
use fleet::{
    canonical,
    config::{BusArgs, ConfigError, ParentArgs},
    ids::WorkerId,
    manifest::Manifest,
    process::asked_to_stop,
    store::{
        migrate::migrate,
        tools::{Applied, apply},
        workers::{self, Evidence, Fence},
    },
};
use fleet_history::tools::{Versions, versions};
use secrecy::SecretString;
use serde_json::Value;

use super::{
    children, connect,
    tools::{bell, files},
    usage::UsageError,
};
use crate::dev::{self, DevHooks, DevOptions, Screen};

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
        tool_of: |file| Some(files::read(file).ok()?.name),
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

/// Applies a file under its own version, or as the next version if it was edited since it was last applied.
///
/// With a fleet at `nats_url`, rings its bell and returns when a dispatcher offers the version.
async fn apply_file(
    url: String,
    nats_url: Option<String>,
    file: PathBuf,
) -> anyhow::Result<Vec<String>> {
    let manifest = match files::read(&file) {
        Ok(manifest) => manifest,
        Err(problems) => bail!(files::sentences("", &problems).join("; ")),
    };
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let by = format!("dev: {name}");
    let mut connection = connect::writer(&SecretString::from(url)).await?;
    for _race in 0..RACES_MAX {
        let there = versions(&mut connection, &manifest.name, manifest.version, &by).await?;
        let Some(version) = next_version(&manifest, &there)? else {
            return Ok(Vec::new());
        };
        let next = Manifest {
            version,
            ..manifest.clone()
        };
        let changed = if version == manifest.version {
            ""
        } else {
            "changed, "
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
                return Ok(vec![format!(
                    "{}: {changed}applied as version {version}{late}",
                    next.name
                )]);
            }
            Applied::Unchanged => return Ok(Vec::new()),
            // Another program took it just now: look again.
            Applied::Conflict => {}
            Applied::ProbeUnfit => {
                bail!("the tool of its probe is not applied, or has another effect than read")
            }
        }
    }
    bail!(
        "others keep applying new versions of {} at this moment",
        manifest.name
    )
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

/// The version under which the content of this file must be applied; `None` if it is applied already.
///
/// It is compared with the last content of the same file. So an edit that is taken back is a change too, and two files with
/// versions of one tool do not overwrite each other at every start.
fn next_version(manifest: &Manifest, there: &Versions) -> anyhow::Result<Option<i32>> {
    let (wanted, _own_version) = content(&serde_json::to_string(manifest)?)?;
    let is_there = match (&there.own, &there.named) {
        (Some(own), _) => {
            let (said, version) = content(own)?;
            said == wanted && i64::from(manifest.version) <= version
        }
        (None, Some(named)) => content(named)?.0 == wanted,
        (None, None) => false,
    };
    if is_there {
        Ok(None)
    } else if there.named.is_none() {
        Ok(Some(manifest.version))
    } else {
        let following = there.newest.unwrap_or_default().checked_add(1);
        following.context("the versions are used up").map(Some)
    }
}

/// A manifest without its version, and its version.
fn content(manifest: &str) -> anyhow::Result<(String, i64)> {
    let mut value: Value = serde_json::from_str(manifest).context("read a stored manifest")?;
    let version = value["version"].as_i64().unwrap_or_default();
    value["version"] = Value::Null;
    Ok((canonical::to_text(&value), version))
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

    fn stored(version: i32, description: &str) -> Option<String> {
        Some(serde_json::to_string(&manifest(version, description)).unwrap())
    }

    #[test]
    fn only_what_the_file_did_not_say_last_becomes_a_version() {
        let there = |newest, named, own| Versions { newest, named, own };
        let cases = [
            ("new", there(None, None, None), Some(1)),
            (
                "there by another hand",
                there(Some(1), stored(1, "old"), None),
                None,
            ),
            (
                "another content there",
                there(Some(4), stored(1, "other"), None),
                Some(5),
            ),
            ("a free number", there(Some(4), None, None), Some(1)),
            (
                "unchanged",
                there(Some(1), stored(1, "old"), stored(1, "old")),
                None,
            ),
            (
                "edited before",
                there(Some(3), stored(1, "first"), stored(3, "old")),
                None,
            ),
            (
                "edited now",
                there(Some(3), stored(1, "first"), stored(3, "second")),
                Some(4),
            ),
            (
                "taken back",
                there(Some(2), stored(1, "old"), stored(2, "edited")),
                Some(3),
            ),
            (
                "another file is newer",
                there(Some(9), stored(1, "old"), stored(1, "old")),
                None,
            ),
        ];
        for (case, there, expected) in cases {
            assert_eq!(
                next_version(&manifest(1, "old"), &there).unwrap(),
                expected,
                "{case}"
            );
        }
        let raised = there(Some(2), None, stored(2, "old"));
        assert_eq!(next_version(&manifest(3, "old"), &raised).unwrap(), Some(3));
    }
}
