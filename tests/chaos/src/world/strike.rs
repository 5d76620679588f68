//! The work of each fault on the world.

use std::{process::Command, time::Duration};

use anyhow::Result;
use async_nats::jetstream;
use tokio::time::{Instant, timeout};

use super::{Undo, World, hog, servers::Keep};
use crate::{
    effects,
    login::Who,
    moment::moment,
    oracle::{ClockMove, How},
    plan::{Member, Server, What},
    wire::Side,
};

/// The stream of pointers under the default prefix.
const STREAM: &str = "TOOLFLEET_JOBS";
/// Its one consumer: every tool of a run is in this queue.
const CONSUMER: &str = "q_default";
/// How long the servers may take to carry out a fault.
const HOG_MAX: Duration = Duration::from_secs(2);
/// How many files a process may have open when nothing is wrong.
const FILES: u32 = 4_096;

impl World {
    /// Lets a fault strike that does not strike on a wire.
    ///
    /// # Errors
    ///
    /// A process or server does not come back.
    pub async fn strike(&mut self, what: What) -> Result<()> {
        *self.times.entry(what.name()).or_default() += 1;
        let from = moment();
        // A process that is killed or leaves has another number afterwards.
        match what {
            What::Kill(member) => self.note(Some(member), How::Killed, from, 0),
            What::KillDispatchers => {
                for member in [Member::Dispatcher(0), Member::Dispatcher(1)] {
                    self.note(Some(member), How::Killed, from, 0);
                }
            }
            _ => {}
        }
        self.inflict(what).await?;
        match what {
            What::Message(_)
            | What::Statement(_)
            | What::Kill(_)
            | What::KillDispatchers
            | What::RollOut
            | What::MoveClock(..) => {}
            What::Pause(member, ms) => self.note(Some(member), How::Paused, from, ms),
            What::KillServer(Server::Postgres)
            | What::RestartServer(Server::Postgres)
            | What::MovePostgresClock(_)
            | What::EndSessions => self.note(None, How::Postgres, from, 0),
            What::PauseServer(Server::Postgres, ms) | What::LockTable(ms) | What::Exhaust(ms) => {
                self.note(None, How::Postgres, from, ms);
            }
            What::KillServer(Server::Nats) | What::RestartServer(Server::Nats) => {
                self.note(None, How::Nats, from, 0);
            }
            What::PauseServer(Server::Nats, ms) => self.note(None, How::Nats, from, ms),
            // The server is down meanwhile.
            What::WipeNats | What::RollBackNats | What::DamageNats => {
                self.note(None, How::Nats, from, 0);
                self.note(None, How::Stream, from, 0);
            }
            What::DeleteStream | What::DeleteConsumer => self.note(None, How::Stream, from, 0),
            What::Isolate(member, Server::Postgres, ms)
            | What::Deafen(member, ms)
            | What::Slow(member, _, ms) => self.note(Some(member), How::Ledger, from, ms),
            What::Isolate(member, Server::Nats, ms) => {
                self.note(Some(member), How::Bus, from, ms);
            }
            What::Cut(member, Server::Postgres) => self.note(Some(member), How::Ledger, from, 0),
            What::Cut(member, Server::Nats) => self.note(Some(member), How::Bus, from, 0),
            // They say that they start nothing now.
            What::BreakTools(_) => {}
            What::BreakTarget(ms) => self.note(None, How::Target, from, ms),
            What::StarveFiles(member, _, ms) => {
                for how in [How::Ledger, How::Bus, How::Tools] {
                    self.note(Some(member), how, from, ms);
                }
            }
        }
        Ok(())
    }

    async fn inflict(&mut self, what: What) -> Result<()> {
        match what {
            // Theirs is a wire.
            What::Message(_) | What::Statement(_) => {}
            What::Kill(member) => self.kill(member).await?,
            What::KillDispatchers => {
                for member in [Member::Dispatcher(0), Member::Dispatcher(1)] {
                    self.kill(member).await?;
                }
            }
            What::Pause(member, ms) => {
                if let Some(seat) = self.seat_mut(member) {
                    seat.pause(millis(ms));
                }
            }
            What::RollOut => self.roll_out().await?,
            What::KillServer(server) => self.servers.bounce(server, false).await?,
            What::RestartServer(server) => self.servers.bounce(server, true).await?,
            What::PauseServer(server, ms) => self.servers.pause(server, millis(ms))?,
            What::WipeNats => self.servers.bounce_nats(false, Keep::Nothing).await?,
            What::RollBackNats => self.servers.bounce_nats(false, Keep::Older).await?,
            What::DamageNats => {
                self.drawn = self.drawn.wrapping_add(1);
                let spoilt = Keep::Spoilt(self.drawn);
                self.servers.bounce_nats(true, spoilt).await?;
            }
            What::DeleteStream => self.delete(true).await,
            What::DeleteConsumer => self.delete(false).await,
            What::Isolate(member, server, ms) => {
                match server {
                    Server::Postgres => {
                        if let Some(wire) = self.postgres(member) {
                            wire.silence(None, true);
                        }
                    }
                    Server::Nats => {
                        if let Some(wire) = self.nats(member) {
                            wire.silence(None, true);
                        }
                    }
                }
                self.later(ms, Undo::Silence(member, server));
            }
            What::Deafen(member, ms) => {
                if let Some(wire) = self.postgres(member) {
                    wire.silence(Some(Side::Server), true);
                }
                self.later(ms, Undo::Silence(member, Server::Postgres));
            }
            What::Slow(member, late, ms) => {
                if let Some(wire) = self.postgres(member) {
                    wire.slow(Some(millis(late)));
                }
                self.later(ms, Undo::Slow(member));
            }
            What::Cut(member, Server::Postgres) => {
                if let Some(wire) = self.postgres(member) {
                    wire.cut();
                }
            }
            What::Cut(member, Server::Nats) => {
                if let Some(wire) = self.nats(member) {
                    wire.cut();
                }
            }
            What::EndSessions => {
                // A server that is stopped ends nothing, and is not waited for: nothing else would continue it.
                let ending = hog::end_sessions(&self.servers.database);
                drop(timeout(HOG_MAX, ending).await);
            }
            What::LockTable(ms) => {
                let url = self.servers.database.url.clone();
                self.hogs.spawn(hog::lock_table(url, millis(ms)));
            }
            What::Exhaust(ms) => {
                let url = self.servers.database.url.clone();
                self.hogs.spawn(hog::exhaust(url, millis(ms)));
            }
            What::BreakTools(ms) => {
                effects::weather(&self.effects_url, true).await?;
                self.later(ms, Undo::BrokenTools);
            }
            What::BreakTarget(ms) => {
                effects::spell(&self.effects_url, true).await?;
                self.later(ms, Undo::BrokenTarget);
            }
            What::StarveFiles(member, files, ms) => {
                self.limit_files(member, Some(files));
                self.later(ms, Undo::FewFiles(member));
            }
            What::MoveClock(member, seconds) => {
                if let Some(seat) = self.seat_mut(member) {
                    seat.clock.jump(seconds)?;
                }
            }
            What::MovePostgresClock(seconds) => {
                let begun = moment();
                self.servers.clock.jump(seconds)?;
                self.clock_moves.push(ClockMove {
                    begun,
                    done: moment(),
                    by: seconds * 1_000,
                });
            }
        }
        Ok(())
    }

    async fn kill(&mut self, member: Member) -> Result<()> {
        if let Some(seat) = self.seat_mut(member) {
            seat.kill().await;
        }
        self.look_after().await
    }

    /// Every process leaves in order and comes back, one after the other.
    async fn roll_out(&mut self) -> Result<()> {
        for member in Member::PROCESSES {
            self.note(Some(member), How::Drained, moment(), 0);
            if let Some(seat) = self.seat_mut(member) {
                seat.leave().await?;
            }
            self.look_after().await?;
        }
        Ok(())
    }

    fn later(&mut self, ms: u32, undo: Undo) {
        self.undo.push((Instant::now() + millis(ms), undo));
    }

    /// Deletes the stream, or its consumer. What is not there, or a server that is away, cannot be deleted.
    async fn delete(&mut self, stream: bool) {
        let deleted = async {
            // Each as who may: nothing here has more at NATS than the shipped users.
            let who = if stream {
                Who::Operator
            } else {
                Who::Dispatcher
            };
            let login = self.servers.login(who)?;
            let client = login.options().connect(&login.url).await?;
            let jetstream = jetstream::new(client);
            if stream {
                jetstream.delete_stream(STREAM).await?;
            } else {
                let stream = jetstream.get_stream(STREAM).await?;
                stream.delete_consumer(CONSUMER).await?;
            }
            anyhow::Ok(())
        };
        drop(timeout(HOG_MAX, deleted).await);
    }

    /// Lets a process have so many files open, or as many as ever.
    pub(super) fn limit_files(&self, member: Member, files: Option<u32>) {
        let Some(pid) = self.seat(member).and_then(super::Seat::pid) else {
            return;
        };
        let files = files.unwrap_or(FILES);
        // The hard limit stays, so that it can be raised again.
        let limit = format!("--nofile={files}:");
        // A process that has just died has no limits: the result does not matter.
        drop(
            Command::new("prlimit")
                .args(["--pid", &pid.to_string(), &limit])
                .status(),
        );
    }
}

fn millis(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}
