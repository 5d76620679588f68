//! The program of process tools.
//!
//! Its arguments come on the standard input, the rest in its environment; see `docs/executors/process.md`.

use std::{
    env,
    io::{self, BufRead, BufReader, Read, Write},
    path::Path,
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::Context;
use fleet::call::Effect;
use nix::{
    sys::signal::{Signal, raise},
    unistd::setsid,
};
use serde_json::json;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::sleep,
};

use super::{
    Did, File, HUGE, LATE, Mode, SLOW,
    manifests::NOT_NOW_CODE,
    script::{Applies, Says, Script, script},
    service::FOR_EVER,
    told::Told,
    tools,
};

/// The exit code that says no.
const NO: u8 = 10;
/// What broke.
const BROKEN: u8 = 1;
/// A gigabyte, if it is not stopped.
const PIECES_MAX: u32 = 4096;
/// Much longer than anything of an attempt may live on.
const LINGER: Duration = Duration::from_secs(20);

/// Runs a tool.
///
/// # Errors
///
/// It cannot do what it is told to. Its exit code says then that something broke.
pub async fn run(name: &str, path: &Path) -> anyhow::Result<ExitCode> {
    let mut arguments = Vec::new();
    io::stdin().read_to_end(&mut arguments)?;
    let told = told(name, &arguments)?;
    let tool = tools::tool(name).context("there is no such tool")?;
    let Script { applies, says } = script(told.mode, told.attempt);
    if says == Says::NotNow {
        return Ok(ExitCode::from(u8::try_from(NOT_NOW_CODE)?));
    }
    let file = File::open(path).context("open the file of effects")?;
    file.note(&told, Did::Started)?;
    let apply = || match tool.effect {
        Effect::Read => Ok(()),
        Effect::Idempotent | Effect::Once | Effect::Transaction => file.note(&told, Did::Applied),
    };
    match applies {
        Applies::Never => {}
        Applies::Now => apply()?,
        Applies::Late => {
            let _deaf = deaf()?;
            sleep(told.remaining + LATE).await;
            apply()?;
        }
    }
    if told.mode == Mode::Escape {
        leave_behind(&arguments, name, path)?;
    }
    match says {
        Says::Nothing => {
            sleep(FOR_EVER).await;
            return Ok(ExitCode::from(BROKEN));
        }
        Says::End => raise(Signal::SIGKILL)?,
        Says::DoneSlowly => sleep(SLOW).await,
        Says::Done | Says::NotNow | Says::No | Says::Broken | Says::Garbage | Says::Huge => {}
    }
    file.note(&told, Did::Replied)?;
    if says == Says::Huge {
        pour_out();
        sleep(FOR_EVER).await;
    }
    let done = json!({ "n": told.n }).to_string();
    let (answer, code) = match says {
        Says::Done | Says::DoneSlowly | Says::Nothing | Says::End | Says::NotNow | Says::Huge => {
            (done, 0)
        }
        Says::No => {
            let no = r#"{"error": {"message": "not on a Saturday; choose another day"}}"#;
            (no.to_owned(), NO)
        }
        Says::Broken => (String::new(), BROKEN),
        Says::Garbage => ("{\"n\": ".to_owned(), 0),
    };
    // The reader may have closed its end.
    io::stdout()
        .write_all(answer.as_bytes())
        .unwrap_or_default();
    Ok(ExitCode::from(code))
}

/// Writes and does not stop: one that came to an end might have succeeded before it was noticed how much it was.
fn pour_out() {
    let piece = vec![b'x'; HUGE];
    for _ in 0..PIECES_MAX {
        if io::stdout().write_all(&piece).is_err() {
            return;
        }
    }
}

/// What an escaped tool leaves behind.
///
/// It is in a session of its own, does not hear SIGTERM, and repeats the effect after a while. So an effect that took place twice
/// is the trace of one that was not ended.
///
/// # Errors
///
/// It cannot do what it is told to.
pub async fn linger(name: &str, path: &Path, arguments: &str) -> anyhow::Result<()> {
    let told = told(name, arguments.as_bytes())?;
    setsid()?;
    let _deaf = deaf()?;
    writeln!(io::stdout(), "away")?;
    sleep(LINGER).await;
    File::open(path)?.note(&told, Did::Applied)?;
    Ok(())
}

/// Starts it, and returns when it is out of reach.
fn leave_behind(arguments: &[u8], name: &str, path: &Path) -> anyhow::Result<()> {
    let mut left = Command::new(env::current_exe()?)
        .args(["linger", name, "--arguments", str::from_utf8(arguments)?])
        .arg("--file")
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("leave a process behind")?;
    let told = left.stdout.take().context("its output is ours")?;
    let mut word = String::new();
    BufReader::new(told).read_line(&mut word)?;
    anyhow::ensure!(word == "away\n", "what was left behind did not get away");
    Ok(())
}

/// As long as this process lives, SIGTERM does nothing to it.
fn deaf() -> io::Result<tokio::signal::unix::Signal> {
    signal(SignalKind::terminate())
}

fn told(name: &str, arguments: &[u8]) -> anyhow::Result<Told> {
    Told::read(name, arguments, |fact| {
        env::var_os(fact.variable()).and_then(|value| value.into_string().ok())
    })
}
