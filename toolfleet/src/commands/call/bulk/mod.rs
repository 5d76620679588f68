//! `call --bulk`: a file of calls, one per line, in batches. Run again, it continues where it was.
//!
//! Only the keys make that safe: a line without a key gets one of its place and its text, so the same file sent again finds its
//! own calls. Nothing is remembered on this machine.

pub(super) mod flags;
mod lines;
mod outcome;
mod summary;

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, anyhow};
use async_nats::HeaderMap;
use fleet::{
    config::ConfigError,
    explain::chain,
    ids::{CallId, Label},
};
use fleet_client::{
    FleetClient, Head,
    batch::BatchLimits,
    rounds::{BatchCall, BatchError},
};
use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use self::{
    lines::{CallLines, FileLine, SendableLine},
    summary::BulkSummary,
};
use super::{flags::Call, request};
use crate::commands::{
    ask::unanswered,
    connect,
    exit::{FAILED, OK},
    given, json, output,
    progress::Progress,
    usage::UsageError,
};

/// How many calls are waited for at a time.
const WAITING_MAX: usize = 64;

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
    let client = connect::client(&call.bus).await?;
    let mut sending = Sending {
        tenant: &call.tenant,
        headers: request::options(call).headers(),
        limits: BatchLimits::of(client.connection().max_payload()),
        out,
        summary: BulkSummary::default(),
        progress: Progress::new(bytes, call.json, io::stderr().is_terminal()),
        accepted: options.wait_all.map(|_| Vec::new()),
        client,
    };
    let tool = call.tool.as_ref();
    sending
        .all(CallLines::new(reader, tool, &options.key_prefix))
        .await?;
    if let Some(seconds) = options.wait_all {
        sending.wait(Duration::from_secs(seconds)).await;
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

struct Sending<'a> {
    client: FleetClient,
    tenant: &'a Label,
    headers: HeaderMap,
    limits: BatchLimits,
    out: Option<BufWriter<File>>,
    summary: BulkSummary,
    progress: Progress,
    /// Kept only if they are to be waited for.
    accepted: Option<Vec<CallId>>,
}

impl Sending<'_> {
    async fn all(&mut self, mut lines: CallLines<'_>) -> anyhow::Result<()> {
        let mut batch: Vec<SendableLine> = Vec::new();
        let mut bytes = 0;
        while let Some(line) = lines.next_line()? {
            match line {
                FileLine::Unfit { number, code, what } => {
                    self.tell(number, None, &outcome::unfit(code, &what))?;
                }
                FileLine::Fit(line) => {
                    let BatchLimits { calls, bytes: most } = self.limits;
                    if batch.len() >= calls || bytes + line.text.len() > most {
                        self.batch(std::mem::take(&mut batch)).await?;
                        bytes = 0;
                    }
                    bytes += line.text.len() + 1;
                    batch.push(line);
                }
            }
            self.progress.at(lines.bytes_read());
        }
        self.batch(batch).await?;
        self.flush()
    }

    /// Sends one batch until every line of it has an answer.
    async fn batch(&mut self, batch: Vec<SendableLine>) -> anyhow::Result<()> {
        let (mut told, mut calls) = (Vec::new(), Vec::new());
        for SendableLine { number, text, key } in batch {
            let has_key = key.is_some();
            calls.push(BatchCall { text, has_key });
            told.push((number, key));
        }
        let (client, headers) = (self.client.clone(), self.headers.clone());
        let mut rounds = client.rounds(self.tenant, &headers, calls);
        while let Some(answered) = rounds
            .next()
            .await
            .map_err(|problem| stopped(problem, &told))?
        {
            for one in answered {
                let (number, key) = &told[one.place];
                match one.answer {
                    Some(envelope) => self.tell(*number, key.as_deref(), &envelope)?,
                    None => self.tell(*number, None, &outcome::unanswered())?,
                }
            }
        }
        self.progress.say(&self.summary.to_string());
        self.flush()
    }

    /// Prints the answer to a line.
    fn tell(&mut self, number: u64, key: Option<&str>, envelope: &str) -> anyhow::Result<()> {
        let head = Head::of(envelope.as_bytes()).context("read the answer")?;
        if let (Some(accepted), Some(call)) = (&mut self.accepted, head.call_id) {
            accepted.push(call);
        }
        self.summary.count(&head);
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

    /// Waits until every accepted call is over or in doubt, or the time is over.
    async fn wait(&mut self, patience: Duration) {
        let until = Instant::now() + patience;
        let calls = self.accepted.take().unwrap_or_default();
        self.progress.waits_for(calls.len());
        let (client, tenant) = (&self.client, self.tenant);
        let waiting = calls
            .into_iter()
            .map(async |call| client.wait(tenant, call, until).await);
        let mut waiting = stream::iter(waiting).buffer_unordered(WAITING_MAX);
        while let Some(waited) = waiting.next().await {
            // A call that cannot be read is not known to be over either.
            let state = waited.ok().flatten().map(|head| head.state);
            self.summary.ended(state);
            self.progress.at(self.summary.over());
            self.progress.say(&self.summary.to_string());
        }
    }
}

/// Why a batch of these lines cannot continue.
fn stopped(problem: BatchError, lines: &[(u64, Option<String>)]) -> anyhow::Error {
    match problem {
        BatchError::Ask(problem) => unanswered(
            problem,
            "run the same command again: what was accepted is not sent a second time",
        ),
        BatchError::Refused { head, first } => {
            let first = lines.get(first).map_or(0, |(number, _)| *number);
            let why = head.message();
            anyhow!("the batch from line {first} on was refused: {why}")
        }
        BatchError::Miscounted { .. } => problem.into(),
    }
}
