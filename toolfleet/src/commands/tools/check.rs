//! `toolfleet tools check`.

use std::process::ExitCode;

use fleet::{
    call::Language,
    config::BusArgs,
    ids::{Label, ToolName},
};
use fleet_client::{Options, calls::Submission};
use serde::Deserialize;

use crate::commands::{
    ask::unanswered,
    call::{pair::Pair, request::written},
    connect, output,
    words::one_of,
};

/// What `tools check` is told.
#[derive(Debug, clap::Args)]
pub struct CheckTool {
    /// The tool's name
    tool: ToolName,
    /// Arguments; a value that is JSON is sent as that JSON (days=2, tags=["a"]), everything else as a string
    #[arg(value_name = "NAME=VALUE", conflicts_with = "args")]
    pairs: Vec<Pair>,
    /// The arguments as one JSON object, sent as it stands: the text itself, @FILE, or @- for standard input
    #[arg(long, value_name = "JSON|@FILE|@-")]
    args: Option<String>,
    /// Who would call
    #[arg(long, default_value = "default")]
    tenant: Label,
    /// The tool's version; the current one without it
    #[arg(long = "version", value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    tool_version: Option<i32>,
    /// The language of messages; the tool's own without it
    #[arg(long, value_parser = one_of::<Language>(Language::ALL, Language::as_str))]
    language: Option<Language>,
    #[command(flatten)]
    bus: BusArgs,
    /// Print the verdict on one line
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct Told {
    verdict: Option<String>,
}

impl CheckTool {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let submission = Submission {
            args: written(self.args.as_deref(), &self.pairs)?.into(),
            tenant: self.tenant,
            tool: self.tool,
            options: Options {
                tool_version: self.tool_version,
                language: self.language,
                ..Options::default()
            },
        };
        let client = connect::client(&self.bus).await?;
        let answer = client
            .check(submission)
            .await
            .map_err(|problem| unanswered(problem, "nothing was stored; check again"))?;
        output::print_text(answer.text()?, self.json)?;
        let told: Told = answer.read()?;
        let is_accepted = told.verdict.as_deref() == Some("accepted");
        Ok(ExitCode::from(u8::from(!is_accepted)))
    }
}
