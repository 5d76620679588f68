//! Names, resolved once for each connection, to addresses that were judged: the connection goes to these and to no others.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use fleet::egress::Egress;
use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::net::lookup_host;

/// Resolves as the system does, and refuses a name with an address to which no request may go, whatever its others are.
pub(super) struct JudgedNames {
    egress: Egress,
    lookup: Lookup,
}

/// How a name becomes addresses.
pub(super) type Lookup = fn(&str) -> BoxFuture<'_, io::Result<Vec<SocketAddr>>>;

impl JudgedNames {
    pub(super) fn under(egress: Egress) -> Arc<Self> {
        Self::by(as_the_system, egress)
    }

    pub(super) fn by(lookup: Lookup, egress: Egress) -> Arc<Self> {
        Arc::new(Self { egress, lookup })
    }
}

fn as_the_system(name: &str) -> BoxFuture<'_, io::Result<Vec<SocketAddr>>> {
    // The port is the connection's.
    Box::pin(async move { Ok(lookup_host((name, 0)).await?.collect()) })
}

/// A name leads where no request may go.
#[derive(Debug, thiserror::Error)]
#[error("the name leads to {0}, where no request may go")]
pub(super) struct NameDenied(pub(super) IpAddr);

impl Resolve for JudgedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let (egress, lookup) = (self.egress.clone(), self.lookup);
        Box::pin(async move {
            let found = lookup(name.as_str()).await?;
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

#[cfg(test)]
mod tests {
    use std::{
        net::Ipv4Addr,
        sync::{
            LazyLock,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use fleet::egress::Reach;
    use reqwest::Client;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
        task::JoinSet,
    };

    use super::*;

    static ASKED: AtomicUsize = AtomicUsize::new(0);
    static PORT: LazyLock<u16> = LazyLock::new(|| {
        let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        free.local_addr().unwrap().port()
    });

    /// The first answer is the one that may be reached, every later one the canary.
    fn rebinding(_name: &str) -> BoxFuture<'_, io::Result<Vec<SocketAddr>>> {
        let last = if ASKED.fetch_add(1, Ordering::SeqCst) == 0 {
            2
        } else {
            1
        };
        let address = Ipv4Addr::new(127, 0, 0, last);
        Box::pin(async move { Ok(vec![(address, 0).into()]) })
    }

    async fn answering(address: Ipv4Addr, reached: Arc<AtomicUsize>) {
        let listener = TcpListener::bind((address, *PORT)).await.unwrap();
        while let Ok((mut stream, _)) = listener.accept().await {
            reached.fetch_add(1, Ordering::SeqCst);
            let mut head = [0; 1024];
            let read = stream.read(&mut head).await;
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            drop((read, stream.write_all(answer).await));
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_elsewhere_later_is_judged_again() {
        let (service, canary) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let mut servers = JoinSet::new();
        servers.spawn(answering(Ipv4Addr::new(127, 0, 0, 2), Arc::clone(&service)));
        servers.spawn(answering(Ipv4Addr::LOCALHOST, Arc::clone(&canary)));
        // Where the tests run there is no other public address.
        let egress = Egress::new(Reach::Public, "127.0.0.2/32".parse().unwrap());
        drop(rustls::crypto::ring::default_provider().install_default());
        let resolver = JudgedNames::by(rebinding, egress);
        let client = Client::builder()
            .dns_resolver(resolver)
            .no_proxy()
            .build()
            .unwrap();
        let url = format!("http://rebinding.example:{}/", *PORT);
        let mut reached = 0;
        while reached == 0 {
            ASKED.store(0, Ordering::SeqCst);
            reached = usize::from(client.get(&url).send().await.is_ok());
            // One look for one connection.
            assert_eq!(ASKED.load(Ordering::SeqCst), 1);
        }
        for _ in 0..20 {
            let refused = client.get(&url).send().await.unwrap_err();
            let mut causes =
                std::iter::successors(Some(&refused as &dyn std::error::Error), |cause| {
                    cause.source()
                });
            assert!(causes.any(|cause| cause.is::<NameDenied>()), "{refused:?}");
        }
        let (service, canary) = (
            service.load(Ordering::SeqCst),
            canary.load(Ordering::SeqCst),
        );
        println!("connections: {service} to where the name led first, {canary} to the canary");
        assert_eq!((service, canary), (1, 0));
    }
}
