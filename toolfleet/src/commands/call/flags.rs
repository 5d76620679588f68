//! The flags of `toolfleet call`.

use std::path::PathBuf;

use fleet::{
    call::{Language, Priority},
    config::BusArgs,
    ids::{FileId, IdempotencyKey, Label, ToolName},
};
use serde_json::value::RawValue;

use super::{bulk::flags::BulkFlags, pair::Pair};
use crate::commands::words::one_of;

/// What `call` is told.
#[derive(Debug, clap::Args)]
pub struct Call {
    /// The tool's name
    #[arg(required_unless_present = "bulk")]
    pub(super) tool: Option<ToolName>,
    /// Arguments; a value that is JSON is sent as that JSON (days=2, tags=["a"]), everything else as a string
    #[arg(value_name = "NAME=VALUE", conflicts_with = "args")]
    pub(super) pairs: Vec<Pair>,
    /// The arguments as one JSON object, sent as it stands: the text itself, @FILE, or @- for standard input
    #[arg(long, value_name = "JSON|@FILE|@-")]
    pub(super) args: Option<String>,
    /// The idempotency key: the same key is the same call, however often it is sent
    #[arg(long, visible_alias = "idempotency-key")]
    pub(super) key: Option<IdempotencyKey>,
    /// Do not wait for the result: print the accepted envelope
    #[arg(long = "async", conflicts_with = "wait")]
    pub(super) detach: bool,
    /// How long to wait for the result, 0 to 300; 30 without it
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=300))]
    pub(super) wait: Option<u64>,
    /// Who calls
    #[arg(long, default_value = "default")]
    pub(super) tenant: Label,
    /// How long the whole call may take from its acceptance; the tool's own deadline without it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    pub(super) deadline_ms: Option<u64>,
    /// The session it belongs to
    #[arg(long)]
    pub(super) session: Option<Label>,
    /// The run it belongs to
    #[arg(long)]
    pub(super) run: Option<Label>,
    /// The tool's version; the current one without it
    #[arg(long = "version", value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub(super) tool_version: Option<i32>,
    /// The language of messages; the tool's own without it
    #[arg(long, value_parser = one_of::<Language>(Language::ALL, Language::as_str))]
    pub(super) language: Option<Language>,
    /// A JSON object that is stored with the call and handed to the tool
    #[arg(long, value_name = "JSON", value_parser = meta)]
    pub(super) meta: Option<Box<RawValue>>,
    /// Which calls of the tenant go first; normal without it
    #[arg(long, value_parser = one_of::<Priority>(Priority::ALL, Priority::as_str))]
    pub(super) priority: Option<Priority>,
    /// Ask the tool, whatever answer of an equal call is kept, and keep this one for none
    #[arg(long)]
    pub(super) no_store: bool,
    /// Hand in this file and name it in the call; may be given several times. Sent again it is another file: with --key, hand it in once
    /// (`toolfleet files put`) and name it with --file-id
    #[arg(long = "file", value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    /// Name this file in the call, before those of --file; may be given several times
    #[arg(long = "file-id", value_name = "FILE_ID")]
    pub(super) file_ids: Vec<FileId>,
    #[command(flatten)]
    pub(super) bus: BusArgs,
    /// Print the envelope on one line; with --bulk, the summary as the last line, and no progress
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) bulk: BulkFlags,
}

fn meta(text: &str) -> Result<Box<RawValue>, String> {
    let value: Box<RawValue> =
        serde_json::from_str(text).map_err(|wrong| format!("it is not JSON: {wrong}"))?;
    if value.get().trim_start().starts_with('{') {
        Ok(value)
    } else {
        Err("it must be a JSON object".to_owned())
    }
}
