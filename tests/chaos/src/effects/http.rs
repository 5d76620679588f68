//! HTTP tools: `POST /tools/NAME`, and `POST /weather`.

use std::{io, sync::Arc, time::Duration};

use anyhow::Context;
use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::post,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{
    HUGE, SLOW,
    script::Says,
    service::{FOR_EVER, Reply, World, complain},
    told::Told,
};

/// Lets everything fail before anything is done, or nothing any more.
///
/// # Errors
///
/// The service does not answer.
pub async fn weather(effects_url: &str, failing: bool) -> anyhow::Result<()> {
    forecast(effects_url, &json!({ "failing": failing })).await
}

/// The same for the target of the tools with a breaker alone.
///
/// # Errors
///
/// The service does not answer.
pub async fn spell(effects_url: &str, failing: bool) -> anyhow::Result<()> {
    forecast(effects_url, &json!({ "target_failing": failing })).await
}

async fn forecast(effects_url: &str, weather: &Value) -> anyhow::Result<()> {
    // The only failure is that there is one already.
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(10))
        .build()?;
    client
        .post(format!("{effects_url}/weather"))
        .body(weather.to_string())
        .send()
        .await?
        .error_for_status()?;
    Ok(())
}

/// Serves until it cannot any more.
pub(super) async fn serve(world: Arc<World>, listener: TcpListener) -> io::Result<()> {
    let router = Router::new()
        .route("/tools/{name}", post(call))
        .route("/weather", post(change_weather))
        .with_state(world);
    axum::serve(listener, router).await
}

async fn change_weather(State(world): State<Arc<World>>, body: Bytes) -> StatusCode {
    let asked: Option<Value> = serde_json::from_slice(&body).ok();
    let asked = asked.unwrap_or_default();
    match (
        asked["failing"].as_bool(),
        asked["target_failing"].as_bool(),
    ) {
        (Some(failing), None) => world.set_failing(failing),
        (None, Some(failing)) => world.set_target_failing(failing),
        (None, None) | (Some(_), Some(_)) => return StatusCode::BAD_REQUEST,
    }
    StatusCode::OK
}

async fn call(
    State(world): State<Arc<World>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    match answer(&world, &name, &headers, &body).await {
        Ok(response) => response,
        Err(problem) => {
            complain(&problem.context(format!("tool {name}")));
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn answer(
    world: &Arc<World>,
    name: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> anyhow::Result<Response> {
    let told = Told::read(name, body, |fact| {
        let value = headers.get(fact.header())?.to_str().ok()?;
        Some(value.to_owned())
    })?;
    let Reply { says, found } = world.act(&told)?;
    let response = match says {
        Says::NotNow => return Ok(StatusCode::SERVICE_UNAVAILABLE.into_response()),
        Says::End => return Ok(broken_off()),
        Says::Nothing => {
            // The other side hangs up long before.
            tokio::time::sleep(FOR_EVER).await;
            return Ok(broken_off());
        }
        Says::Done | Says::DoneSlowly => {
            if says == Says::DoneSlowly {
                tokio::time::sleep(SLOW).await;
            }
            let mut result = json!({ "n": told.n });
            if name == "was_booked" {
                result["booked"] = found.into();
            }
            if name == "cached_look" {
                let tenant = headers.get("Toolfleet-Tenant").context("its tenant")?;
                result["tenant"] = tenant.to_str().context("read its tenant")?.into();
            }
            json_body(StatusCode::OK, result.to_string())
        }
        Says::No => {
            // So long that equal calls come meanwhile.
            if name == "cached_look" {
                tokio::time::sleep(SLOW).await;
            }
            json_body(
                StatusCode::UNPROCESSABLE_ENTITY,
                r#"{"error": {"message": "not on a Saturday; choose another day"}}"#,
            )
        }
        Says::Broken => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        // Neither JSON nor text.
        Says::Garbage => json_body(StatusCode::OK, vec![0xff, 0xfe, 0x00, 0x80]),
        Says::Huge => json_body(StatusCode::OK, format!("\"{}\"", "x".repeat(HUGE))),
    };
    world.replied(&told)?;
    Ok(response)
}

fn json_body(status: StatusCode, body: impl Into<Body>) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body.into()).into_response()
}

/// An answer in whose middle the connection breaks.
fn broken_off() -> Response {
    let broken = futures_util::stream::once(async {
        Err::<Bytes, _>(io::Error::other("the connection breaks here"))
    });
    Response::new(Body::from_stream(broken))
}
