//! `toolfleet control interceptors`.

use std::process::ExitCode;

use fleet::{config::StoreArgs, modes::Brake};
use fleet_history::{
    instant,
    interceptors::{ListedInterceptor, ListedMode, interceptors},
};

use crate::commands::{connect, output};

/// What `control interceptors` is told.
#[derive(Debug, clap::Args)]
pub struct ListInterceptors {
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON: an array of rows of the view toolfleet.interceptors
    #[arg(long)]
    json: bool,
}

impl ListInterceptors {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let rows = interceptors(&pool).await?;
        let headings = [
            "ORDER",
            "NAME",
            "MANDATORY",
            "FAILS",
            "MODE",
            "WORKERS",
            "CALLS",
            "REFUSED",
            "WAITED",
            "CHANGED",
            "ANSWERED",
            "ERRORS",
            "MEAN MS",
            "LAST ERROR",
            "NOTE",
        ];
        output::print_rows(&rows, self.json, &headings, cells)
    }
}

fn cells(row: ListedInterceptor) -> Vec<String> {
    let none = || "-".to_owned();
    let (note, modes) = (note(&row), modes(&row.modes));
    let last_error = row.last_error.as_ref().zip(row.last_error_at);
    // The engine's own come from no worker's program; with 0 of them a program's own is on none now.
    let workers = match row.name.parse::<Brake>() {
        Ok(_) => none(),
        Err(_) => row.workers.to_string(),
    };
    vec![
        row.order.map_or_else(none, |order| order.to_string()),
        row.name,
        match row.mandatory {
            Some(true) => "yes".to_owned(),
            Some(false) => "no".to_owned(),
            None => none(),
        },
        row.fails.unwrap_or_else(none),
        modes,
        workers,
        row.calls.to_string(),
        row.refused.to_string(),
        row.waited.to_string(),
        row.changed.to_string(),
        row.answered.to_string(),
        row.errors.to_string(),
        row.mean_ms.map_or_else(none, |mean| format!("{mean:.3}")),
        last_error.map_or_else(none, |(error, at)| format!("{} {error}", instant(at))),
        note,
    ]
}

/// What operators have said of it: the mode, and of which calls.
fn modes(modes: &[ListedMode]) -> String {
    let told = modes.iter().map(|mode| {
        let scopes = [("tool", &mode.tool), ("tenant", &mode.tenant)];
        let scopes = scopes.iter();
        let scopes = scopes.filter_map(|(what, name)| Some(format!("{what} {}", name.as_ref()?)));
        let scopes: Vec<String> = scopes.collect();
        match scopes.is_empty() {
            true => mode.mode.clone(),
            false => format!("{} ({})", mode.mode, scopes.join(", ")),
        }
    });
    let told: Vec<String> = told.collect();
    match told.is_empty() {
        true => "enforce".to_owned(),
        false => told.join("; "),
    }
}

/// What an operator should look at.
fn note(row: &ListedInterceptor) -> String {
    let mut notes = Vec::new();
    if row.differ {
        notes.push("workers say different things of it".to_owned());
    }
    if !row.lacking.is_empty() {
        notes.push(format!("not on {}", row.lacking.join(", ")));
    }
    match notes.is_empty() {
        true => "-".to_owned(),
        false => notes.join("; "),
    }
}
