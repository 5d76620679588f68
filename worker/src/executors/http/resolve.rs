//! Names, resolved once for each connection, to addresses that were judged: the connection goes to these and to no others.

use std::{io, net::IpAddr, sync::Arc};

use fleet::egress::Egress;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::net::lookup_host;

/// Resolves as the system does, and refuses a name with an address to which no request may go, whatever its others are.
pub(super) struct JudgedNames(Egress);

impl JudgedNames {
    pub(super) fn under(egress: Egress) -> Arc<Self> {
        Arc::new(Self(egress))
    }
}

/// A name leads where no request may go.
#[derive(Debug, thiserror::Error)]
#[error("the name leads to {0}, where no request may go")]
pub(super) struct NameDenied(pub(super) IpAddr);

impl Resolve for JudgedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let egress = self.0.clone();
        Box::pin(async move {
            // The port is the connection's.
            let found: Vec<_> = lookup_host((name.as_str(), 0)).await?.collect();
            if found.is_empty() {
                let nothing = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
                return Err(nothing.into());
            }
            let denied = found
                .iter()
                .map(|address| address.ip())
                .find(|address| !egress.allows(name.as_str(), *address));
            match denied {
                Some(address) => Err(NameDenied(address).into()),
                None => Ok(Box::new(found.into_iter()) as Addrs),
            }
        })
    }
}
