//! `toolfleet mcp diff`.

use std::process::ExitCode;

use fleet::mcp::discovered::{FoundTool, Standing};

use super::{line::lines, looked::Look};
use crate::commands::output;

/// What `mcp diff` is told.
#[derive(Debug, clap::Args)]
pub struct Diff {
    #[command(flatten)]
    look: Look,
    /// Print JSON: an array with an object per tool that is not what was applied: what was applied and what is said now, with its
    /// manifest as it would be
    #[arg(long)]
    json: bool,
}

impl Diff {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let mut found = self.look.look().await?.found;
        let count = found.len();
        found.retain(differs);
        if self.json {
            output::print_json(&found)?;
        } else {
            for one in &found {
                output::print(&lines(one))?;
            }
            if found.is_empty() {
                output::warn(&format!(
                    "none of the applied tools has changed; the server has {count}"
                ));
            }
        }
        Ok(ExitCode::from(u8::from(!found.is_empty())))
    }
}

/// Whether an applied tool is not what it was.
fn differs(found: &FoundTool) -> bool {
    match found.standing {
        Standing::Changed { .. } | Standing::Gone => true,
        Standing::New | Standing::Retired | Standing::Unchanged | Standing::Unfit { .. } => false,
    }
}
