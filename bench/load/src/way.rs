//! The ways on which requests go to a fleet and answers come back: NATS, or a gateway over HTTP.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context;
use async_nats::{Client, Message};
use bytes::Bytes;
use fleet_client::inbox::{Inbox, is_no_responders};
use futures_util::{StreamExt, stream::BoxStream};
use http_body_util::{BodyExt, Full};
use hyper::{Request as HttpRequest, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use secrecy::{ExposeSecret, SecretString};
use tokio::{
    net::TcpStream,
    sync::mpsc::{self, Receiver, Sender},
    task::JoinSet,
};

use crate::{
    mcp,
    workload::{Request, Spoken},
};

/// Where a gateway is.
#[derive(Debug, Clone)]
pub struct GatewayPlace {
    /// Its address.
    pub address: SocketAddr,
    /// A token with the scope `call`, for every tenant.
    pub token: SecretString,
}

/// What came back for a request.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) slot: usize,
    pub(crate) number: u64,
    pub(crate) answer: Back,
}

/// An answer, or none.
#[derive(Debug)]
pub(crate) enum Back {
    Answer(Bytes),
    /// Nobody took the request.
    NobodyThere,
    /// The connection broke before an answer: nobody knows whether it was taken.
    Broken,
}

/// Sends requests. Each has a slot, which has one request in the air at a time.
pub(crate) enum Way {
    Nats {
        client: Client,
        inbox: Arc<Inbox>,
    },
    Http {
        /// By slot.
        connections: Vec<Sender<(u64, Request)>>,
        /// Aborted when the way is dropped.
        _serving: JoinSet<()>,
    },
}

impl Way {
    /// Over NATS, with its answers.
    pub(crate) async fn nats(
        client: &Client,
    ) -> anyhow::Result<(Self, BoxStream<'static, Arrival>)> {
        let (inbox, answers) = Inbox::open(client).await?;
        let inbox = Arc::new(inbox);
        let way = Self::Nats {
            client: client.clone(),
            inbox: Arc::clone(&inbox),
        };
        let answers =
            answers.filter_map(move |message| std::future::ready(arrival(&inbox, &message)));
        Ok((way, answers.boxed()))
    }

    /// Over HTTP, with its answers.
    pub(crate) fn http(
        place: &GatewayPlace,
        spoken: Spoken,
        slots: usize,
    ) -> (Self, BoxStream<'static, Arrival>) {
        let (answers, heard) = mpsc::channel(slots);
        let mut serving = JoinSet::new();
        let mut connections = Vec::with_capacity(slots);
        for slot in 0..slots {
            let (sender, requests) = mpsc::channel(1);
            connections.push(sender);
            serving.spawn(serve(
                place.clone(),
                spoken,
                slot,
                requests,
                answers.clone(),
            ));
        }
        let way = Self::Http {
            connections,
            _serving: serving,
        };
        let heard = futures_util::stream::unfold(heard, async |mut heard| {
            let arrival = heard.recv().await?;
            Some((arrival, heard))
        });
        (way, heard.boxed())
    }

    /// Sends a request of this slot. Its answer has the slot and the number.
    pub(crate) async fn send(
        &self,
        slot: usize,
        number: u64,
        request: Request,
    ) -> anyhow::Result<()> {
        match self {
            Self::Nats { client, inbox } => {
                let reply = inbox.address(format_args!("{slot}-{number}"));
                let Request {
                    subject,
                    headers,
                    body,
                } = request;
                let sending = client.publish_with_reply_and_headers(subject, reply, headers, body);
                sending.await.context("send a request")
            }
            Self::Http { connections, .. } => {
                let sending = connections[slot].send((number, request));
                sending.await.context("send a request")
            }
        }
    }
}

/// The answer in a message; `None` if it is none of this inbox.
fn arrival(inbox: &Inbox, message: &Message) -> Option<Arrival> {
    let (slot, number) = inbox.token(message.subject.as_str())?.split_once('-')?;
    let answer = if is_no_responders(message) {
        Back::NobodyThere
    } else {
        Back::Answer(message.payload.clone())
    };
    Some(Arrival {
        slot: slot.parse().ok()?,
        number: number.parse().ok()?,
        answer,
    })
}

/// The connection of one caller, made when it is needed.
async fn serve(
    place: GatewayPlace,
    spoken: Spoken,
    slot: usize,
    mut requests: Receiver<(u64, Request)>,
    answers: Sender<Arrival>,
) {
    let mut connection = None;
    while let Some((number, request)) = requests.recv().await {
        let answer = ask(&place, spoken, &mut connection, number, request).await;
        let arrival = Arrival {
            slot,
            number,
            answer,
        };
        if answers.send(arrival).await.is_err() {
            return;
        }
    }
}

struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// Moves its bytes; ends with it.
    _driving: JoinSet<()>,
}

async fn ask(
    place: &GatewayPlace,
    spoken: Spoken,
    kept: &mut Option<Connection>,
    number: u64,
    request: Request,
) -> Back {
    let connection = match kept.take() {
        Some(connection) if !connection.sender.is_closed() => connection,
        _none => match connect(place.address).await {
            Ok(connection) => connection,
            Err(_refused) => return Back::NobodyThere,
        },
    };
    let connection = kept.insert(connection);
    let request = http(place, spoken, number, request);
    let answered = async {
        let answer = connection.sender.send_request(request).await?;
        answer.into_body().collect().await
    };
    match answered.await {
        Ok(body) => Back::Answer(match spoken {
            Spoken::Api => body.to_bytes(),
            Spoken::Mcp { .. } => mcp::answer(&body.to_bytes()),
        }),
        Err(_broken) => {
            *kept = None;
            Back::Broken
        }
    }
}

async fn connect(address: SocketAddr) -> anyhow::Result<Connection> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
    let mut driving = JoinSet::new();
    driving.spawn(async {
        // Who waits for the answer is told.
        let _broken = driver.await;
    });
    Ok(Connection {
        sender,
        _driving: driving,
    })
}

/// The same request over HTTP.
fn http(
    place: &GatewayPlace,
    spoken: Spoken,
    number: u64,
    mut request: Request,
) -> HttpRequest<Full<Bytes>> {
    let (path, tenant) = path(&request.subject);
    let path = match (spoken, path.strip_prefix(CALL)) {
        (Spoken::Mcp { keys }, Some(tool)) => {
            mcp::ask(number, tool, keys, &mut request.headers, &mut request.body);
            mcp::PATH.to_owned()
        }
        (Spoken::Api | Spoken::Mcp { .. }, _) => path,
    };
    let token = format!("Bearer {}", place.token.expose_secret());
    let mut http = HttpRequest::post(path)
        .header(header::HOST, place.address.to_string())
        .header(header::AUTHORIZATION, token)
        .header("Toolfleet-Tenant", tenant);
    for (name, values) in request.headers.iter() {
        for value in values {
            http = http.header(AsRef::<str>::as_ref(name), value.as_str());
        }
    }
    let http = http.body(Full::new(request.body));
    http.expect("the headers of a workload are fit for HTTP")
}

/// What the path of a call begins with.
const CALL: &str = "/v1/call/";

/// The endpoint and the tenant of a subject: `<prefix>.v1.<tenant>.call.<tool>`, or `<prefix>.v1.<tenant>.batch`.
fn path(subject: &str) -> (String, &str) {
    let mut words = subject.rsplit('.');
    match (words.next(), words.next(), words.next()) {
        (Some("batch"), Some(tenant), _) => ("/v1/batch".to_owned(), tenant),
        (Some(tool), Some(_call), Some(tenant)) => (format!("{CALL}{tool}"), tenant),
        _other => unreachable!("a workload makes no other subjects"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_says_which_endpoint_and_which_tenant() {
        let call = path("toolfleet.v1.bench-2.call.bench_once");
        assert_eq!(call, ("/v1/call/bench_once".to_owned(), "bench-2"));
        let batch = path("toolfleet.v1.bench.batch");
        assert_eq!(batch, ("/v1/batch".to_owned(), "bench"));
    }
}
