//! `call --bulk`: a file of calls, a line each, in batches; run again it goes on where it was.
//!
//! What makes that safe is the keys and nothing else: a line without one gets one of its place and its text, so that the
//! same file sent again finds its own calls. Nothing is remembered on this machine.

mod lines;
mod outcome;
mod progress;

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, bail};
use fleet::{
    bus::connect::Bus,
    config::ConfigError,
    delay::Reconnect,
    explain::chain,
    ids::{CallId, IdempotencyKey},
};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use self::{
    lines::{Line, Lines, Sendable},
    outcome::{Said, Summary},
    progress::Progress,
};
use super::{Call, request};
use crate::commands::{
    ask::{DECISION_MAX, Question, ask},
    connect,
    exit::{FAILED, OK, UsageError},
    given, json, output,
};

/// Lines in one batch.
const BATCH_LINES: usize = 1_000;
/// Bytes that a dispatcher may need to answer one call, whatever becomes of it.
const ANSWER_BYTES: usize = 1_100;
/// What headers may take of a message.
const HEADERS_BYTES: usize = 20 * 1024;
/// Bytes that a dispatcher takes in one batch, whatever its server carries.
const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// How often a batch is sent that is not answered, or whose calls cannot be taken just now: for about a minute.
const TRIES_MAX: u32 = 16;
/// Calls that are waited for at a time.
const WAITING_MAX: usize = 64;

/// The flags that only `--bulk` knows.
#[derive(Debug, clap::Args)]
pub(super) struct BulkArgs {
    /// Send a file of calls in batches, an object {"tool", "args", …} on each line; - is standard input. TOOL is for
    /// lines that name none. Running it again doubles nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pairs", "args", "key", "detach", "wait"])]
    bulk: Option<PathBuf>,
    /// With --bulk: how the keys begin that lines without one get; another one makes new calls of the same lines
    #[arg(long, value_name = "NAME", requires = "bulk", default_value = "bulk")]
    key_prefix: IdempotencyKey,
    /// With --bulk: where the answers go, a line of JSON each; standard output without it
    #[arg(long, value_name = "FILE", requires = "bulk")]
    out: Option<PathBuf>,
    /// With --bulk: after everything is sent, wait this long until all of it is over, and count what came of it
    #[arg(long, value_name = "SECONDS", requires = "bulk", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    wait_all: Option<u64>,
}

impl BulkArgs {
    /// Whether this is what was asked for.
    pub(super) const fn is_asked(&self) -> bool {
        self.bulk.is_some()
    }
}

/// Sends the file.
pub(super) async fn run(call: &Call) -> anyhow::Result<ExitCode> {
    let options = &call.bulk;
    if options.key_prefix.as_str().len() > lines::PREFIX_MAX {
        let what = format!("--key-prefix may have {} characters", lines::PREFIX_MAX);
        return Err(UsageError(what).into());
    }
    let path = options.bulk.as_deref().expect("clap has seen to it");
    let (reader, bytes): (Box<dyn BufRead>, Option<u64>) = if path.as_os_str() == "-" {
        (Box::new(BufReader::new(io::stdin())), None)
    } else {
        let shown = path.display().to_string();
        let unreadable = |problem: io::Error| given::unreadable("--bulk", &shown, &problem);
        let file = File::open(path).map_err(unreadable)?;
        let facts = file.metadata().map_err(unreadable)?;
        if facts.is_dir() {
            return Err(unreadable(io::ErrorKind::IsADirectory.into()).into());
        }
        let size = Some(facts).filter(|facts| facts.is_file());
        (
            Box::new(BufReader::new(file)),
            size.map(|facts| facts.len()),
        )
    };
    if let Some(out) = &options.out
        && let (Ok(out), Ok(file)) = (out.canonicalize(), path.canonicalize())
        && out == file
    {
        let what = "--out is the file of --bulk, which it would empty before it is read".to_owned();
        return Err(UsageError(what).into());
    }
    let out = options.out.as_ref().map(|path| {
        let file = File::create(path).map_err(|problem| {
            ConfigError(vec![format!(
                "--out is {}, which cannot be written: {}; name a file that this user may write",
                path.display(),
                chain(&problem)
            )])
        });
        file.map(BufWriter::new)
    });
    let out = out.transpose()?;
    let headers = request::headers(call)?;
    let bus = connect::bus(&call.bus).await?;
    let payload_max = bus.payload_max();
    let mut sending = Sending {
        subject: bus.subjects.batch(&call.tenant),
        headers,
        bytes_max: payload_max.min(BATCH_BYTES).saturating_sub(HEADERS_BYTES),
        lines_max: (payload_max / ANSWER_BYTES).clamp(1, BATCH_LINES),
        out,
        summary: Summary::default(),
        progress: Progress::new(bytes, call.json, io::stderr().is_terminal()),
        accepted: options.wait_all.map(|_| Vec::new()),
        bus,
    };
    let tool = call.tool.as_ref();
    sending
        .all(Lines::new(reader, tool, &options.key_prefix))
        .await?;
    if let Some(seconds) = options.wait_all {
        let subject = sending.bus.subjects.get(&call.tenant);
        sending.wait(subject, Duration::from_secs(seconds)).await?;
    }
    sending.progress.end();
    let summary = sending.summary;
    if call.json {
        output::print_json(&serde_json::json!({ "summary": summary }))?;
    } else {
        output::warn(&summary.to_string());
    }
    Ok(ExitCode::from(if summary.is_good() { OK } else { FAILED }))
}

struct Sending {
    bus: Bus,
    subject: String,
    headers: async_nats::HeaderMap,
    bytes_max: usize,
    lines_max: usize,
    out: Option<BufWriter<File>>,
    summary: Summary,
    progress: Progress,
    /// Kept only if they are to be waited for.
    accepted: Option<Vec<CallId>>,
}

/// The answer to a batch, or the envelope that refuses all of it.
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

impl Sending {
    async fn all(&mut self, mut lines: Lines<'_>) -> anyhow::Result<()> {
        let mut batch: Vec<Sendable> = Vec::new();
        let mut bytes = 0;
        while let Some(line) = lines.next_line()? {
            match line {
                Line::Unfit { number, code, what } => {
                    self.tell(number, None, &outcome::unfit(code, &what))?;
                }
                Line::Fit(line) => {
                    if batch.len() >= self.lines_max || bytes + line.text.len() > self.bytes_max {
                        self.batch(std::mem::take(&mut batch)).await?;
                        bytes = 0;
                    }
                    bytes += line.text.len() + 1;
                    batch.push(line);
                }
            }
            self.progress.read(lines.bytes_read());
        }
        self.batch(batch).await?;
        self.flush()
    }

    /// Sends one batch until every line of it has its answer.
    async fn batch(&mut self, mut batch: Vec<Sendable>) -> anyhow::Result<()> {
        let mut pauses = Reconnect::default();
        for attempt in 1.. {
            if batch.is_empty() {
                break;
            }
            let last = attempt >= TRIES_MAX;
            match self.send(&batch).await {
                Ok(text) => batch = self.hear(batch, &text, last)?,
                Err(problem) if last => return Err(problem),
                Err(_silence) => {
                    // Nobody knows whether they were accepted, and without a key it would be found out by doing it twice.
                    let (keyed, unkeyed): (Vec<_>, Vec<_>) =
                        batch.into_iter().partition(|line| line.key.is_some());
                    for line in unkeyed {
                        self.tell(line.number, None, &outcome::unanswered())?;
                    }
                    batch = keyed;
                }
            }
            if !batch.is_empty() {
                pauses.pause().await;
            }
        }
        self.progress.sent(&self.summary);
        self.flush()
    }

    async fn send(&self, batch: &[Sendable]) -> anyhow::Result<String> {
        let texts: Vec<&str> = batch.iter().map(|line| line.text.as_str()).collect();
        let question = Question {
            subject: self.subject.clone(),
            headers: self.headers.clone(),
            body: format!("{{\"calls\":[{}]}}", texts.join(",")).into_bytes(),
            wait: 2 * DECISION_MAX,
            advice: "run the same command again: what was accepted is not sent a second time",
        };
        ask(&self.bus, question).await
    }

    /// Tells what is answered for good; gives those back that are to be sent again.
    fn hear(
        &mut self,
        batch: Vec<Sendable>,
        text: &str,
        last: bool,
    ) -> anyhow::Result<Vec<Sendable>> {
        let answer: Answer<'_> = serde_json::from_str(text).context("read the answer")?;
        let Some(items) = answer.items else {
            let said = Said::of(text)?;
            if said.may_pass() && !last {
                return Ok(batch);
            }
            let first = batch.first().map_or(0, |line| line.number);
            bail!(
                "the batch from line {first} on was refused: {}",
                said.message()
            );
        };
        if items.len() != batch.len() {
            bail!("{} answers came for {} calls", items.len(), batch.len());
        }
        let mut again = Vec::new();
        for (line, item) in batch.into_iter().zip(items) {
            let said = Said::of(item.get())?;
            if said.may_pass() && !last && (line.key.is_some() || said.nothing_happened()) {
                again.push(line);
                continue;
            }
            if let (Some(accepted), Some(call)) = (&mut self.accepted, said.call_id) {
                accepted.push(call);
            }
            self.tell(line.number, line.key.as_deref(), item.get())?;
        }
        Ok(again)
    }

    /// A line about a line.
    fn tell(&mut self, number: u64, key: Option<&str>, envelope: &str) -> anyhow::Result<()> {
        self.summary.count(&Said::of(envelope)?);
        let key = serde_json::to_string(&key)?;
        let envelope = json::compact(envelope);
        let text = format!("{{\"line\":{number},\"idempotency_key\":{key},\"answer\":{envelope}}}");
        match &mut self.out {
            Some(out) => writeln!(out, "{text}").context("write what was answered")?,
            None => self.progress.aside(|| output::print(&text))?,
        }
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        let flushed = self.out.as_mut().map_or(Ok(()), Write::flush);
        flushed.context("write what was answered")
    }

    /// Waits until every accepted call is over or in doubt, or the time is.
    async fn wait(&mut self, subject: String, patience: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + patience;
        let calls = self.accepted.take().unwrap_or_default();
        self.progress.waits_for(calls.len());
        let (bus, subject) = (&self.bus, &subject);
        let waiting = calls
            .into_iter()
            .map(async |call| outcome_of(bus, subject, call, until).await);
        let mut waiting = stream::iter(waiting).buffer_unordered(WAITING_MAX);
        while let Some(state) = waiting.next().await {
            self.summary.ended(state);
            self.progress.ended(&self.summary);
        }
        Ok(())
    }
}

/// How a call ended; `None` when it has not, or nobody says so.
async fn outcome_of(bus: &Bus, subject: &str, call: CallId, until: Instant) -> Option<String> {
    const GLANCE: Duration = Duration::from_secs(20);
    let mut pauses = Reconnect::default();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let wait = left.min(GLANCE);
        let question = Question {
            subject: subject.to_owned(),
            headers: async_nats::HeaderMap::new(),
            body: serde_json::json!({"call_id": call, "wait_ms": wait.as_millis() as u64})
                .to_string()
                .into_bytes(),
            wait: wait + DECISION_MAX,
            advice: "",
        };
        match ask(bus, question).await.and_then(|text| Said::of(&text)) {
            Ok(said) if said.is_decided() => return Some(said.state),
            Ok(_) | Err(_) if left.is_zero() => return None,
            Ok(said) if said.is_refused() => pauses.pause().await,
            Ok(_undecided) => {}
            Err(_silence) => pauses.pause().await,
        }
    }
}
