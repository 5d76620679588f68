//! `toolfleet mcp diff`.

use std::process::ExitCode;

use fleet::mcp::discovered::{FoundTool, Standing};

use super::{discover::line, looked::Look};
use crate::commands::output;

/// What `mcp diff` is told.
#[derive(Debug, clap::Args)]
pub struct Diff {
    #[command(flatten)]
    look: Look,
    /// Print JSON: an array with an object per tool that is not what was applied, with its manifest as it would be
    #[arg(long)]
    json: bool,
}

impl Diff {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let mut found = self.look.look().await?;
        found.retain(differs);
        if self.json {
            output::print_json(&found)?;
        } else {
            for one in &found {
                output::print(&line(one))?;
            }
        }
        Ok(ExitCode::from(u8::from(!found.is_empty())))
    }
}

/// Whether an applied tool is not what it was.
fn differs(found: &FoundTool) -> bool {
    match found.standing {
        Standing::Changed { .. } | Standing::Gone => true,
        Standing::New | Standing::Unchanged | Standing::Unfit { .. } => false,
    }
}
