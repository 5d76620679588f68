//! How a session begins: a connection, TLS where it is wanted, who we are. And how another connection ends a statement.

use std::{io, path::PathBuf};

use fallible_iterator::FallibleIterator as _;
use postgres_protocol::{
    authentication::{
        md5_hash,
        sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256},
    },
    message::{backend::Message, frontend},
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
};

use super::{
    not_committed::{NotCommitted, ServerRefusal},
    tls::{Tls, TlsError},
    wire::{CancelKey, Stream, Wire, refusal},
};

/// Where a server is, and as whom to go there.
pub(super) struct Target {
    pub(super) place: ServerAddress,
    pub(super) user: String,
    pub(super) password: SecretString,
    pub(super) database: Option<String>,
    /// Settings of the session, as the server's command line has them.
    pub(super) options: Option<String>,
    /// `None`: never in TLS.
    pub(super) tls: Option<Tls>,
}

/// Where a server listens.
pub(super) enum ServerAddress {
    /// By name or address, and port.
    Tcp(String, u16),
    /// A socket of this machine, which has no TLS.
    Unix(PathBuf),
}

/// Why there is no session. Nothing of a tool was sent.
#[derive(Debug)]
pub(super) enum NoSession {
    /// The operating system says so.
    Io(io::Error),
    /// The server says so.
    Refused(ServerRefusal),
    /// TLS could not be negotiated.
    Tls,
    /// The server wants the password as it is, and has not proved who it is.
    Exposed,
    /// The server wants what is not known here, or its answer makes no sense.
    NotUnderstood,
}

impl From<io::Error> for NoSession {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<NotCommitted> for NoSession {
    fn from(error: NotCommitted) -> Self {
        match error {
            NotCommitted::Refused(refusal) => Self::Refused(refusal),
            NotCommitted::Lost => Self::Io(io::ErrorKind::ConnectionReset.into()),
            _others => Self::NotUnderstood,
        }
    }
}

impl Target {
    /// Begins a session.
    ///
    /// # Errors
    ///
    /// There is none. Cancel safe: a future that is dropped closes its connection.
    pub(super) async fn connect(&self) -> Result<Wire, NoSession> {
        let (stream, is_trusted) = self.stream().await?;
        let mut wire = Wire::over(stream);
        let mut parameters = vec![
            ("user", self.user.as_str()),
            ("client_encoding", "UTF8"),
            ("DateStyle", "ISO, MDY"),
            ("TimeZone", "UTC"),
            ("extra_float_digits", "2"),
            ("application_name", "toolfleet tool"),
        ];
        parameters.extend(self.database.as_deref().map(|name| ("database", name)));
        parameters.extend(self.options.as_deref().map(|options| ("options", options)));
        frontend::startup_message(parameters, wire.out())?;
        wire.flush().await?;
        self.authenticate(&mut wire, is_trusted).await?;
        loop {
            match wire.message().await? {
                Message::ReadyForQuery(_) => return Ok(wire),
                Message::ErrorResponse(error) => {
                    return Err(NoSession::Refused(refusal(error.fields())));
                }
                Message::BackendKeyData(key) => wire.set_key(CancelKey {
                    pid: key.process_id(),
                    secret: key.secret_key(),
                }),
                _others => return Err(NoSession::NotUnderstood),
            }
        }
    }

    /// Asks the server to end what this session of it is doing. It does not say whether it did.
    pub(super) async fn cancel(&self, key: CancelKey) -> Result<(), NoSession> {
        let (mut stream, _) = self.stream().await?;
        let mut request = bytes::BytesMut::new();
        frontend::cancel_request(key.pid, key.secret, &mut request);
        stream.write_all_buf(&mut request).await?;
        stream.flush().await?;
        // It closes the connection when it has passed the request on.
        match stream.read_u8().await {
            Err(closed) if closed.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_others) => Err(NoSession::NotUnderstood),
        }
    }

    /// A connection; `true`: only the server can be at the other end of it, by its certificate or because it is on this machine.
    async fn stream(&self) -> Result<(Box<dyn Stream>, bool), NoSession> {
        let (host, tcp) = match &self.place {
            ServerAddress::Unix(path) => {
                return Ok((Box::new(UnixStream::connect(path).await?), true));
            }
            ServerAddress::Tcp(host, port) => {
                let bare = host.trim_matches(&['[', ']'][..]);
                (bare, TcpStream::connect((bare, *port)).await?)
            }
        };
        tcp.set_nodelay(true)?;
        let is_here = tcp.peer_addr()?.ip().to_canonical().is_loopback();
        match &self.tls {
            None => Ok((Box::new(tcp), is_here)),
            Some(tls) => {
                let stream = self.encrypted(tls, host, tcp).await?;
                Ok((stream, is_here || tls.checks_authority))
            }
        }
    }

    async fn encrypted(
        &self,
        tls: &Tls,
        host: &str,
        mut tcp: TcpStream,
    ) -> Result<Box<dyn Stream>, NoSession> {
        let mut request = bytes::BytesMut::new();
        frontend::ssl_request(&mut request);
        tcp.write_all_buf(&mut request).await?;
        match tcp.read_u8().await? {
            b'S' => match tls.handshake(host, tcp).await {
                Ok(stream) => Ok(stream),
                Err(TlsError::Io(error)) if error.get_ref().is_none() => Err(error.into()),
                Err(TlsError::Io(_) | TlsError::Settings) => Err(NoSession::Tls),
            },
            b'N' if !tls.is_required => Ok(Box::new(tcp)),
            b'N' => Err(NoSession::Tls),
            _others => Err(NoSession::NotUnderstood),
        }
    }

    /// Proves who we are, in one way: a server that could ask for a second one would get the weaker proof too.
    async fn authenticate(&self, wire: &mut Wire, is_trusted: bool) -> Result<(), NoSession> {
        let password = self.password.expose_secret().as_bytes();
        let mut proof = Proof::NotAsked;
        loop {
            proof = match (wire.message().await?, proof) {
                (Message::AuthenticationOk, Proof::NotAsked | Proof::Given) => return Ok(()),
                (Message::AuthenticationCleartextPassword, Proof::NotAsked) => {
                    if !is_trusted {
                        return Err(NoSession::Exposed);
                    }
                    frontend::password_message(password, wire.out())?;
                    Proof::Given
                }
                (Message::AuthenticationMd5Password(asked), Proof::NotAsked) => {
                    let hash = md5_hash(self.user.as_bytes(), password, asked.salt());
                    frontend::password_message(hash.as_bytes(), wire.out())?;
                    Proof::Given
                }
                (Message::AuthenticationSasl(asked), Proof::NotAsked) => {
                    let mut mechanisms = asked.mechanisms();
                    let mut is_known = false;
                    while let Some(mechanism) = mechanisms.next()? {
                        is_known |= mechanism == SCRAM_SHA_256;
                    }
                    if !is_known {
                        return Err(NoSession::NotUnderstood);
                    }
                    let begun = ScramSha256::new(password, ChannelBinding::unsupported());
                    frontend::sasl_initial_response(SCRAM_SHA_256, begun.message(), wire.out())?;
                    Proof::Scram(begun)
                }
                // It refuses more than 100,000 rounds, which would hold this thread.
                (Message::AuthenticationSaslContinue(said), Proof::Scram(mut scram)) => {
                    scram.update(said.data())?;
                    frontend::sasl_response(scram.message(), wire.out())?;
                    Proof::Scram(scram)
                }
                (Message::AuthenticationSaslFinal(said), Proof::Scram(mut scram)) => {
                    // The server proves that it knows the password too. Without this it is not let in.
                    scram.finish(said.data())?;
                    Proof::Given
                }
                (Message::ErrorResponse(error), _) => {
                    return Err(NoSession::Refused(refusal(error.fields())));
                }
                _others => return Err(NoSession::NotUnderstood),
            };
            wire.flush().await?;
        }
    }
}

/// How far we have proved who we are.
enum Proof {
    NotAsked,
    /// Begun; the server has not yet proved that it knows the password.
    Scram(ScramSha256),
    Given,
}

#[cfg(test)]
mod tests;
