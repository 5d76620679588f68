//! `toolfleet calls dead`: what failed by the system and nobody has dealt with, in groups of one cause.

use std::process::ExitCode;

use fleet::{config::StoreArgs, wire::code::Code};
use fleet_history::{
    calls,
    dead::{DeadGroup, abandoned, dead_groups},
    filter::Filter,
    instant,
};

use super::filter::{EndFlags, FilterFlags, WhichCalls};
use crate::commands::{connect, output};

/// What `calls dead` is told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without --since it looks at the last 24 hours before --until. \
                  CODE is `--code: --last-code` where the last attempt came to another one. \
                  Calls in doubt are none of them (docs/dead-letters.md); `calls retry` makes them again and `calls discard` gives \
                  them up, with the same flags"
)]
pub struct Dead {
    #[command(flatten)]
    flags: FilterFlags,
    /// At most so many groups, the largest first
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=1000))]
    limit: i64,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON: an array of the groups
    #[arg(long)]
    json: bool,
}

impl Dead {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let which = WhichCalls {
            flags: self.flags,
            ends: EndFlags::default(),
        };
        let filter = Filter {
            limit: self.limit,
            ..which.recent(calls::now(&pool).await?)?
        };
        which.of_a_tool_that_is(&pool).await?;
        let groups = dead_groups(&pool, &filter).await?;
        if !self.json {
            let abandoned = abandoned(&pool, &filter).await?;
            if abandoned > 0 {
                let (is, they) = match abandoned {
                    1 => ("is", "it was"),
                    _many => ("are", "they were"),
                };
                output::warn(&format!(
                    "besides, {abandoned} of these calls {is} abandoned: whether {they} carried out will never be known, and the view \
                     toolfleet.abandoned lists them"
                ));
            }
        }
        let headings = [
            "CALLS",
            "TOOL",
            "CODE",
            "OLDEST",
            "NEWEST",
            "EXAMPLE",
            "LAST ERROR OF THE EXAMPLE",
        ];
        output::print_rows(&groups, self.json, &headings, cells)
    }
}

fn cells(group: DeadGroup) -> Vec<String> {
    let none = || "-".to_owned();
    let code = group.code.unwrap_or_else(none);
    // The error of one that was settled is a sentence for the model.
    let last = match code.parse() {
        Ok(Code::NotApplied) => "found out not to have been carried out".to_owned(),
        Ok(_) | Err(_) => group.example_error.unwrap_or_else(none),
    };
    vec![
        group.calls.to_string(),
        group.tool,
        match group.last_code {
            Some(inner) if inner != code => format!("{code}: {inner}"),
            Some(_) | None => code,
        },
        instant(group.oldest_at),
        instant(group.newest_at),
        group.example,
        last,
    ]
}
