//! `toolfleet control purge`.

use std::process::ExitCode;

use fleet::{
    config::StoreArgs,
    ids::{Label, ToolName},
    store::answers::{self, Purge, Purged},
};
use serde_json::json;

use super::answered;
use crate::commands::{actor::user_at_host, connect, output, words};

/// What `control purge` is told.
#[derive(Debug, clap::Args)]
pub struct PurgeAnswers {
    /// The tool whose kept answers count no more
    #[arg(long, value_name = "NAME")]
    tool: ToolName,
    /// Only the answers to this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<Label>,
    /// Why, for who asks later
    #[arg(long, value_name = "TEXT", value_parser = words::note)]
    note: String,
    /// Who says so, as the log will say; user@host without it
    #[arg(long, value_name = "NAME", default_value_t = user_at_host(), hide_default_value = true, value_parser = words::name)]
    actor: String,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON: an object with the result, and the numbers of answers that counted, of calls that fetch one, and of old answers
    #[arg(long)]
    json: bool,
}

impl PurgeAnswers {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let mut connection = connect::writer(&self.store.database_url).await?;
        let purge = Purge {
            tool: self.tool.as_str(),
            tenant: self.tenant.as_ref().map(Label::as_str),
            actor: &self.actor,
            note: &self.note,
            in_tenant: None,
        };
        let purged = answered(answers::purge(&mut connection, &purge).await)?;
        if self.json {
            let Purged {
                answers,
                fetching,
                old,
            } = purged;
            output::print_json(
                &json!({"result": "purged", "answers": answers, "fetching": fetching, "old": old}),
            )?;
        } else {
            output::print(&told(&self.tool, self.tenant.as_ref(), purged))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What was taken away, in a sentence.
fn told(tool: &ToolName, tenant: Option<&Label>, purged: Purged) -> String {
    let of = match tenant {
        Some(tenant) => format!("of {tool} for the tenant {tenant}"),
        None => format!("of {tool}"),
    };
    let kept = match purged.answers {
        0 => format!("no answer {of} was kept"),
        1 => format!("1 answer {of} counts no more"),
        some => format!("{some} answers {of} count no more"),
    };
    let fetching = match purged.fetching {
        0 => String::new(),
        1 => "; 1 call is fetching one, which no other call gets".to_owned(),
        some => format!("; {some} calls are fetching one each, which no other call gets"),
    };
    let old = match purged.old {
        0 => String::new(),
        1 => "; 1 answer whose time was over stands in for none any more".to_owned(),
        some => format!("; {some} answers whose time was over stand in for none any more"),
    };
    format!("{kept}{fetching}{old}: the next call asks the tool")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_purge_took_away_is_told_in_numbers_and_grammar() {
        let says = |tenant: Option<&str>, answers, fetching, old| {
            let tool = "get_rate".parse().unwrap();
            let tenant: Option<Label> = tenant.map(|tenant| tenant.parse().unwrap());
            let purged = Purged {
                answers,
                fetching,
                old,
            };
            told(&tool, tenant.as_ref(), purged)
        };
        assert_eq!(
            says(None, 0, 0, 0),
            "no answer of get_rate was kept: the next call asks the tool"
        );
        assert_eq!(
            says(Some("acme"), 1, 1, 1),
            "1 answer of get_rate for the tenant acme counts no more; 1 call is fetching one, which no other call gets; 1 answer whose \
             time was over stands in for none any more: the next call asks the tool"
        );
        assert_eq!(
            says(None, 2, 3, 4),
            "2 answers of get_rate count no more; 3 calls are fetching one each, which no other call gets; 4 answers whose time was over \
             stand in for none any more: the next call asks the tool"
        );
    }
}
