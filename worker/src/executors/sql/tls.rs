//! TLS to a server of Postgres, as `sslmode` says.

use std::{io, path::PathBuf, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};
use sqlx::postgres::PgSslMode;
use tokio::{fs, net::TcpStream};
use tokio_rustls::TlsConnector;

use super::wire::Stream;

/// How the server has to prove itself, and we ourselves.
#[derive(Debug, Clone, Default)]
pub(super) struct Tls {
    /// Whether a server without TLS is refused.
    pub(super) is_required: bool,
    /// Whether its certificate must come from a known authority.
    pub(super) checks_authority: bool,
    /// Whether its certificate must be that of the host.
    pub(super) checks_host: bool,
    /// Authorities instead of the public ones, PEM.
    pub(super) roots: Option<PathBuf>,
    /// Our certificate, PEM.
    pub(super) certificate: Option<PathBuf>,
    /// Its key, PEM.
    pub(super) key: Option<PathBuf>,
}

/// Why there is no TLS.
#[derive(Debug)]
pub(super) enum TlsError {
    /// The handshake failed, or a file cannot be read.
    Io(io::Error),
    /// A certificate, a key or a name makes no sense.
    Settings,
}

impl Tls {
    /// What a mode asks for; `None`: nothing.
    pub(super) fn of(mode: PgSslMode) -> Option<Self> {
        let (is_required, checks_authority, checks_host) = match mode {
            PgSslMode::Disable | PgSslMode::Allow => return None,
            PgSslMode::Prefer => (false, false, false),
            PgSslMode::Require => (true, false, false),
            PgSslMode::VerifyCa => (true, true, false),
            PgSslMode::VerifyFull => (true, true, true),
        };
        Some(Self {
            is_required,
            checks_authority,
            checks_host,
            ..Self::default()
        })
    }

    /// Encrypts a connection. Files are read each time: they may have been renewed.
    pub(super) async fn handshake(
        &self,
        host: &str,
        tcp: TcpStream,
    ) -> Result<Box<dyn Stream>, TlsError> {
        let config = self.config().await?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_name| TlsError::Settings)?;
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, tcp);
        Ok(Box::new(connecting.await.map_err(TlsError::Io)?))
    }

    async fn config(&self) -> Result<ClientConfig, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let verifier = self.verifier(Arc::clone(&provider)).await?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|_never| TlsError::Settings)?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        match (&self.certificate, &self.key) {
            (None, None) => Ok(builder.with_no_client_auth()),
            (Some(certificate), Some(key)) => {
                let key = fs::read(key).await.map_err(TlsError::Io)?;
                let key =
                    PrivateKeyDer::from_pem_slice(&key).map_err(|_garbage| TlsError::Settings)?;
                let chain = certificates(certificate).await?;
                let with = builder.with_client_auth_cert(chain, key);
                with.map_err(|_mismatch| TlsError::Settings)
            }
            _one_without_the_other => Err(TlsError::Settings),
        }
    }

    async fn verifier(
        &self,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
        if !self.checks_authority {
            return Ok(Arc::new(Lenient {
                provider,
                authority: None,
            }));
        }
        let mut roots = RootCertStore::empty();
        match &self.roots {
            Some(path) => {
                for root in certificates(path).await? {
                    roots.add(root).map_err(|_garbage| TlsError::Settings)?;
                }
            }
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        }
        let authority =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build()
                .map_err(|_garbage| TlsError::Settings)?;
        // A public authority certifies everyone's hosts: without the name its word says nothing.
        if self.checks_host || self.roots.is_none() {
            return Ok(authority);
        }
        Ok(Arc::new(Lenient {
            provider,
            authority: Some(authority),
        }))
    }
}

async fn certificates(path: &PathBuf) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = fs::read(path).await.map_err(TlsError::Io)?;
    CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|_garbage| TlsError::Settings)
}

/// Takes a certificate of any host, and of any authority where none is asked for.
#[derive(Debug)]
struct Lenient {
    provider: Arc<CryptoProvider>,
    authority: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authority) = &self.authority else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified = authority.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
