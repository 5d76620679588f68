//! The two servers of a `dev`: started on their ports, and restarted on the same ones.

use std::path::PathBuf;

use anyhow::ensure;

use super::{
    layout::Layout,
    options::DevOptions,
    ports::{Choice, IsKept, Ports},
    private,
};
use crate::servers::{
    Nats, NatsOptions, Postgres, PostgresOptions, ServerError, nats::MAX_PAYLOAD, process::Process,
};

/// Both servers, and how each is restarted.
pub(super) struct Engines {
    pub(super) postgres: Postgres,
    pub(super) nats: Nats,
    pub(super) postgres_options: PostgresOptions,
    pub(super) nats_options: NatsOptions,
    /// Notes for the person.
    pub(super) notes: Vec<String>,
}

impl Engines {
    /// Starts both at once, on the ports that the options name, or on those of the last run.
    ///
    /// # Errors
    ///
    /// One does not start; the other is ended.
    pub(super) async fn start(
        layout: &Layout,
        options: &DevOptions,
        (kept, is_kept): (Ports, IsKept),
    ) -> Result<Self, ServerError> {
        let file = layout.at("nats.password");
        let password = private::password(&file).map_err(ServerError::prepare(format!(
            "keep the password of NATS in {}",
            file.display()
        )))?;
        let (asked, before) = (options.postgres_port, kept.postgres_port);
        let mut postgres_port = Choice::of("Postgres", "--postgres-port", asked, before, is_kept)?;
        let (asked, before) = (options.nats_port, kept.nats_port);
        let mut nats_port = Choice::of("NATS", "--nats-port", asked, before, is_kept)?;
        let mut postgres_options = PostgresOptions {
            data: layout.at("postgres"),
            port: Some(postgres_port.port),
            log: layout.log("postgres"),
            fsync: true,
            variables: Vec::new(),
        };
        let mut nats_options = NatsOptions {
            store: layout.at("nats"),
            port: Some(nats_port.port),
            log: layout.log("nats-server"),
            max_payload: MAX_PAYLOAD,
            password: Some(password),
            further: String::new(),
        };
        postgres_port.release();
        nats_port.release();
        let (postgres, nats) = tokio::try_join!(
            start_postgres(&postgres_options, postgres_port.may_move),
            start_nats(&nats_options, nats_port.may_move)
        )?;
        postgres_options.port = Some(postgres.port());
        nats_options.port = Some(nats.port());
        let moved = postgres_port.note.into_iter().chain(nats_port.note);
        let notes = postgres.note().map(str::to_owned).into_iter().chain(moved);
        Ok(Self {
            notes: notes.collect(),
            postgres,
            nats,
            postgres_options,
            nats_options,
        })
    }
}

/// If another program took the port meanwhile, a free one is taken, unless an option named this one.
async fn start_postgres(
    options: &PostgresOptions,
    may_move: bool,
) -> Result<Postgres, ServerError> {
    match Postgres::start(options.clone()).await {
        Err(problem) if may_move && problem.is_port_taken() => {
            let (port, options) = (None, options.clone());
            Postgres::start(PostgresOptions { port, ..options }).await
        }
        Err(problem) if problem.is_port_taken() => {
            Err(taken("--postgres-port", options.port, problem))
        }
        other => other,
    }
}

async fn start_nats(options: &NatsOptions, may_move: bool) -> Result<Nats, ServerError> {
    match Nats::start(options.clone()).await {
        Err(problem) if may_move && problem.is_port_taken() => {
            let (port, options) = (None, options.clone());
            Nats::start(NatsOptions { port, ..options }).await
        }
        Err(problem) if problem.is_port_taken() => Err(taken("--nats-port", options.port, problem)),
        other => other,
    }
}

/// What the server's log says, in a sentence.
fn taken(option: &'static str, port: Option<u16>, problem: ServerError) -> ServerError {
    port.map_or(problem, |port| ServerError::PortTaken { option, port })
}

/// Never creates a cluster: a new one would have another password and none of the kept data.
pub(super) async fn restart_postgres(options: PostgresOptions) -> anyhow::Result<Process> {
    let data: PathBuf = options.data.clone();
    ensure!(
        data.join("PG_VERSION").exists(),
        "its data folder {} is gone: stop this `dev`",
        data.display()
    );
    Ok(Postgres::start(options).await?.into_process())
}
