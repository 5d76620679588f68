//! `toolfleet migrate`.

use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use fleet::{
    config::{ConfigError, StoreArgs},
    store::{
        migrate,
        rights::{self, Duty},
        session::Postgres,
        tool_role::{self, ToolRole},
    },
};
use serde_json::json;

use super::{connect, output};

/// What `migrate` is told.
#[derive(Debug, clap::Args)]
pub struct Migrate {
    #[command(flatten)]
    store: StoreArgs,
    /// The role that sql tools with `database: fleet` log in as: checks that it cannot reach the ledger, and grants it the
    /// one function that it needs. Create it first: `CREATE ROLE toolfleet_tool LOGIN PASSWORD '…'`
    #[arg(long, env = "TOOLFLEET_TOOL_ROLE", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    tool_role: Option<String>,
    /// Grants the roles of deploy/postgres/roles.sql what each needs and nothing else, and checks that none has more. Make them
    /// first: `psql -f deploy/postgres/roles.sql`
    #[arg(long, env = "TOOLFLEET_GRANT", num_args = 0..=1, default_missing_value = "true", default_value_t = false)]
    grant: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Migrate {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let postgres = connect::postgres(&self.store.database_url)?;
        // Before there is a schema: the server is refused if it may lose what it commits. Whether it lost writes is for
        // dispatchers, which may need the schema before they can start.
        postgres.check_server().await?;
        let applied = migrate::migrate(&postgres).await?;
        if let Some(name) = &self.tool_role {
            admit(&postgres, name).await?;
        }
        if self.grant {
            let wrong = rights::grant(&postgres).await?;
            if !wrong.is_empty() {
                return Err(ConfigError(wrong).into());
            }
        }
        if self.json {
            let mut answer = json!({ "applied": applied });
            if let Some(name) = &self.tool_role {
                answer["tool_role"] = json!(name);
            }
            if self.grant {
                answer["granted"] = json!(Duty::ALL.map(Duty::role));
            }
            output::print_json(&answer)?;
        } else {
            output::print(&sentence(applied))?;
            if let Some(name) = &self.tool_role {
                output::print(&format!(
                    "role {name} may end the calls of its transactions"
                ))?;
            }
            if self.grant {
                let roles = Duty::ALL.map(Duty::role).join(", ");
                output::print(&format!("{roles} may do what they need, and no more"))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Grants the tools' role what it needs, if the role is fit.
async fn admit(postgres: &Postgres, name: &str) -> anyhow::Result<()> {
    let role = ToolRole::look(&mut postgres.connect_to_look().await?, name).await?;
    let wrong: Vec<String> = role.findings().iter().map(ToString::to_string).collect();
    if !wrong.is_empty() {
        return Err(ConfigError(wrong).into());
    }
    if !role.is_granted() {
        tool_role::grant(postgres, name).await?;
    }
    Ok(())
}

fn sentence(applied: usize) -> String {
    match applied {
        0 => "nothing to do".to_owned(),
        1 => "1 migration applied".to_owned(),
        several => format!("{several} migrations applied"),
    }
}
