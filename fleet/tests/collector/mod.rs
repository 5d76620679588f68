//! A collector of spans: OTLP over HTTP on a free port, on a thread and a runtime of its own.

use std::{
    net::TcpListener,
    sync::{Arc, Mutex},
    thread,
};

use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest, common::v1::any_value::Value, trace::v1::Span,
};
use prost::Message;
use tokio::runtime::Builder;

type Received = Arc<Mutex<Vec<ExportTraceServiceRequest>>>;

/// What was received so far. The server lives as long as the test's process.
pub(crate) struct Collector {
    endpoint: String,
    received: Received,
}

impl Collector {
    pub(crate) fn start() -> Self {
        let received = Received::default();
        let router = Router::new()
            .route("/v1/traces", post(receive))
            .with_state(Arc::clone(&received));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                axum::serve(listener, router).await.unwrap();
            });
        });
        Self { endpoint, received }
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        let received = self.received.lock().unwrap();
        let resources = received.iter().flat_map(|request| &request.resource_spans);
        resources
            .flat_map(|spans| &spans.scope_spans)
            .flat_map(|scope| scope.spans.clone())
            .collect()
    }

    pub(crate) fn service(&self) -> String {
        let received = self.received.lock().unwrap();
        let resource = received[0].resource_spans[0].resource.clone().unwrap();
        let name = resource
            .attributes
            .into_iter()
            .find(|attribute| attribute.key == "service.name");
        match name.unwrap().value.unwrap().value {
            Some(Value::StringValue(name)) => name,
            other => panic!("service.name is {other:?}"),
        }
    }
}

async fn receive(State(received): State<Received>, body: Bytes) -> StatusCode {
    match ExportTraceServiceRequest::decode(body) {
        Ok(request) => {
            received.lock().unwrap().push(request);
            StatusCode::OK
        }
        Err(_) => StatusCode::BAD_REQUEST,
    }
}
