//! The client's side: statements are recognised, and spoilt on their way to the server.

use std::{collections::HashMap, future::pending, ops::ControlFlow, time::Duration};

use bytes::{Buf, Bytes, BytesMut};
use tokio::time::sleep;

use super::{
    Fault, Planned, Postgres, Refusal, Statement, Talk,
    frames::{self, HEADER},
    known, refusal,
};
use crate::wire::{
    ends::{Intake, Outlet},
    line::Line,
};

/// So much of a message is waited for before something is done with it. Statements are shorter; what is longer is passed on
/// as it comes.
const WHOLE_MAX: usize = 1024 * 1024;
/// Codes of the first message that ask whether the connection is to be encrypted.
const ASKS_TLS: u32 = 80_877_103;
const ASKS_GSS: u32 = 80_877_104;

/// What a client asks over one connection.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    line: &'a Line<Postgres>,
    talk: &'a Talk,
    to_server: Outlet,
    to_client: Outlet,
    buffer: BytesMut,
    /// So much at the front of the buffer may go.
    ready: usize,
    /// So much of the message at hand has not been read yet, and may go.
    passing: usize,
    /// Whether the first message has been seen, which has no kind.
    begun: bool,
    /// How many times the server will have said that it is ready, once it has answered all of this.
    cycles: u64,
    /// Only those that are of interest, so a handful.
    statements: HashMap<Bytes, Statement>,
    portals: HashMap<Bytes, Statement>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(
        line: &'a Line<Postgres>,
        talk: &'a Talk,
        to_server: Outlet,
        to_client: Outlet,
    ) -> Self {
        Self {
            line,
            talk,
            to_server,
            to_client,
            buffer: BytesMut::new(),
            ready: 0,
            passing: 0,
            begun: false,
            cycles: 1,
            statements: HashMap::new(),
            portals: HashMap::new(),
        }
    }

    /// Carries what the client says. Returns when the connection is to be cut.
    pub(super) async fn carry(mut self, mut from: Intake<'_>) {
        loop {
            if self.take_in().await.is_break() {
                return;
            }
            self.forward().await;
            match from.read(&mut self.buffer).await {
                Ok(true) => {}
                Ok(false) => {
                    self.to_server.end().await;
                    pending::<()>().await;
                }
                Err(_reset) => return,
            }
        }
    }

    /// Looks at every message in the buffer.
    async fn take_in(&mut self) -> ControlFlow<()> {
        loop {
            let here = self.buffer.len() - self.ready;
            if self.passing > 0 {
                let count = self.passing.min(here);
                self.ready += count;
                self.passing -= count;
                if self.passing > 0 {
                    return ControlFlow::Continue(());
                }
            } else if !self.begun {
                if self.begin().await.is_break() {
                    return ControlFlow::Continue(());
                }
            } else {
                let Some((kind, length)) = frames::header(&self.buffer[self.ready..]) else {
                    return ControlFlow::Continue(());
                };
                if b"PBECQS".contains(&kind) && here < length.min(WHOLE_MAX) {
                    return ControlFlow::Continue(());
                }
                self.look_at(kind, length).await?;
            }
        }
    }

    /// The first message. Break: it is not here yet.
    async fn begin(&mut self) -> ControlFlow<()> {
        let mut first = &self.buffer[self.ready..];
        if first.len() < 8 {
            return ControlFlow::Break(());
        }
        let (length, code) = (first.get_u32(), first.get_u32());
        if [ASKS_TLS, ASKS_GSS].contains(&code) {
            // An encrypted connection cannot be spoilt: the wire refuses it, as a server without it does.
            self.buffer.advance(8);
            self.to_client.send(Bytes::from_static(b"N")).await;
        } else {
            self.passing = length as usize;
            self.begun = true;
        }
        ControlFlow::Continue(())
    }

    /// One message, whole unless it is very long.
    async fn look_at(&mut self, kind: u8, length: usize) -> ControlFlow<()> {
        let here = length.min(self.buffer.len() - self.ready);
        let body = &self.buffer[self.ready..][HEADER.min(here)..here];
        match kind {
            b'P' => {
                if let Some((name, rest)) = frames::text(body) {
                    let (sql, rest) = frames::text(rest).unwrap_or((rest, &[]));
                    let statement = known::statement(sql);
                    know(&mut self.statements, name, statement);
                    if here == length
                        && let Some(sql) = self.line.protocol.rewrites.apply(sql)
                    {
                        let changed = [name, b"\0", sql.as_bytes(), b"\0", rest].concat();
                        self.replace(length, frames::message(b'P', &changed)).await;
                        return ControlFlow::Continue(());
                    }
                }
            }
            b'B' => {
                if let Some((portal, rest)) = frames::text(body)
                    && let Some((name, _)) = frames::text(rest)
                {
                    let statement = self.statements.get(name).copied();
                    let statement = statement.unwrap_or(Statement::Other);
                    know(&mut self.portals, portal, statement);
                }
            }
            b'C' => {
                if let Some((what, name)) = body.split_first()
                    && let Some((name, _)) = frames::text(name)
                {
                    let names = if *what == b'S' {
                        &mut self.statements
                    } else {
                        &mut self.portals
                    };
                    names.remove(name);
                }
            }
            b'E' => {
                let portal = frames::text(body).and_then(|(portal, _)| self.portals.get(portal));
                let statement = portal.copied().unwrap_or(Statement::Other);
                return self.execute(statement, length, false).await;
            }
            b'Q' => {
                let statement =
                    known::simple_statement(frames::text(body).map_or(body, |(sql, _)| sql));
                let cut = self.execute(statement, length, true).await;
                self.cycles += 1;
                return cut;
            }
            // `Sync`, and the call of a function.
            b'S' | b'F' => self.cycles += 1,
            _others => {}
        }
        self.passing = length;
        ControlFlow::Continue(())
    }

    /// A statement is about to be executed by the message at hand.
    async fn execute(
        &mut self,
        statement: Statement,
        length: usize,
        simple: bool,
    ) -> ControlFlow<()> {
        let passing = self.line.armed.pass(statement);
        let ready = self.cycles + 1;
        match passing.fault {
            None => {}
            Some(fault @ Fault::CutBefore) => {
                self.line.armed.strike(statement, passing.nth, fault);
                return ControlFlow::Break(());
            }
            Some(fault @ Fault::DelayQuestion(ms)) => {
                self.forward().await;
                self.line.armed.strike(statement, passing.nth, fault);
                sleep(Duration::from_millis(ms.into())).await;
            }
            // Longer than anything of interest, and not all here: it is left in peace.
            Some(Fault::Error(_)) if self.buffer.len() - self.ready < length => {}
            Some(fault @ Fault::Error(refusal)) => {
                self.refuse(refusal, Planned::new(passing, fault, ready, simple), length)
                    .await;
                return ControlFlow::Continue(());
            }
            Some(
                fault @ (Fault::CutAfter
                | Fault::Outage(_)
                | Fault::CutWithin
                | Fault::DelayAnswer(_)
                | Fault::SwallowAnswer
                | Fault::Trickle),
            ) => self.talk.plan(Planned::new(passing, fault, ready, simple)),
        }
        self.passing = length;
        ControlFlow::Continue(())
    }

    /// The message at hand does not arrive, and is answered with an error.
    async fn refuse(&mut self, refusal: Refusal, planned: Planned, length: usize) {
        if refusal.is_fatal() {
            let Planned {
                statement,
                nth,
                fault,
                ..
            } = planned;
            self.line.armed.strike(statement, nth, fault);
            self.to_client.send(refusal::response(refusal)).await;
            self.to_client.end().await;
            pending::<()>().await;
        }
        let impossible = if planned.simple {
            refusal::impossible_query(planned.statement == Statement::Commit)
        } else {
            refusal::impossible_execute()
        };
        self.talk.plan(planned);
        self.replace(length, impossible).await;
    }

    /// Sends something else instead of the message at hand, which is here.
    async fn replace(&mut self, length: usize, instead: Bytes) {
        self.forward().await;
        self.buffer.advance(length);
        self.to_server.send(instead).await;
    }

    /// Sends what may go.
    async fn forward(&mut self) {
        let bytes = self.buffer.split_to(self.ready).freeze();
        self.ready = 0;
        self.to_server.send(bytes).await;
    }
}

/// Remembers what is of interest under this name, and forgets what was.
fn know(names: &mut HashMap<Bytes, Statement>, name: &[u8], statement: Statement) {
    if statement == Statement::Other {
        names.remove(name);
    } else {
        names.insert(Bytes::copy_from_slice(name), statement);
    }
}
