//! A gateway of a fleet in this process.

use fleet::{store::rights::Duty, telemetry::report};
use tokio::net::TcpListener;

use crate::{fleet::Fleet, process::Process, shipped::User, web::Web};

impl Fleet {
    /// Starts a gateway with these flags, which serves callers on a port of its own, and waits until it is ready. Unless the flags say
    /// otherwise it asks nobody for a token.
    ///
    /// # Panics
    ///
    /// It does not start.
    pub async fn gateway(&self, flags: &[&str]) -> (Process, Web) {
        let own = [&["--auth", "none"], flags].concat();
        let mut config: ::gateway::Config =
            self.settings(User::Gateway, "gateway", &self.database, &own);
        if self.roles {
            config.store.database_url = self.database.url_of(Duty::Gateway.role()).into();
        }
        let callers = TcpListener::bind(("127.0.0.1", 0)).await;
        let callers = callers.expect("a port is free");
        let address = callers.local_addr().expect("a bound port has an address");
        let process = Process::start("gateway", |probes, stop| async move {
            let stop = stop.cancelled_owned();
            let run = Box::pin(::gateway::run(config, Some(callers), probes, stop));
            run.await.map_err(|error| report(&error))
        });
        let mut process = process.await;
        process.ready().await;
        (process, Web { address })
    }
}
