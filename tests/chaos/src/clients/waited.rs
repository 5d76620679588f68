//! Those for whom calls wait: people who say yes or no, and the programs of callers that run tools themselves.
//!
//! They hear of a call from whatever a client is told about it, and deal with it once, as its number says.

use std::{collections::HashMap, sync::Arc};

use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{
    call::Call,
    desk::{Desk, Question},
    submit::{Client, id_of},
};
use crate::effects;

/// A call that waits for somebody, as a client was told.
#[derive(Debug, Clone)]
pub(super) struct Waited {
    pub(super) n: u64,
    pub(super) call_id: String,
    pub(super) whom: Whom,
    /// Proves that it was told to who has it; operators have none.
    pub(super) token: Option<String>,
    /// Of the arguments about which is to be decided.
    pub(super) args_hash: String,
}

/// For whom it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Whom {
    /// Somebody who says yes or no.
    Approver,
    /// The program of its caller.
    Program,
}

impl Waited {
    /// What an answer says of that.
    pub(super) fn of(question: &Question, answer: &Value) -> Option<Self> {
        let awaiting = answer.get("awaiting")?;
        let text = |name: &str| awaiting[name].as_str().map(str::to_owned);
        let (whom, token) = match awaiting["for"].as_str()? {
            "approval" => (Whom::Approver, text("token")),
            // Who may decide about a call is not handed it.
            "client" => (Whom::Program, Some(text("token")?)),
            _ => return None,
        };
        Some(Self {
            n: question.n,
            call_id: id_of(answer)?,
            whom,
            token,
            args_hash: text("args_hash").unwrap_or_default(),
        })
    }
}

/// Deals with every call that is heard of, until clients are to stop.
pub(super) async fn serve(
    client: Client,
    mut waited: mpsc::UnboundedReceiver<Waited>,
    file: Arc<effects::File>,
) {
    let mut known = Known::default();
    let mut under_way: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
    loop {
        tokio::select! {
            () = client.desk.stop.cancelled() => break,
            Some(()) = under_way.next() => {}
            Some(waited) = waited.recv() => {
                if known.is_new(&client.desk, &waited) {
                    under_way.push(deal_with(client.clone(), waited, Arc::clone(&file)).boxed());
                }
            }
        }
    }
    // Nothing more is asked, so they come to an end; some have done what they never tell.
    while under_way.next().await.is_some() {}
}

async fn deal_with(client: Client, waited: Waited, file: Arc<effects::File>) {
    let call = Call::as_item(client.desk.seed, waited.n);
    match waited.whom {
        Whom::Approver => client.rule(&call, &waited).await,
        Whom::Program => client.run_handed(&call, &waited, file).await,
    }
}

/// The calls that somebody deals with.
#[derive(Debug, Default)]
struct Known(HashMap<(String, Whom), Option<String>>);

impl Known {
    /// Whether nobody deals with it yet. Nothing is handed out twice: whoever asks has the one token.
    fn is_new(&mut self, desk: &Desk, waited: &Waited) -> bool {
        let place = (waited.call_id.clone(), waited.whom);
        let Some(token) = self.0.get(&place) else {
            self.0.insert(place, waited.token.clone());
            return true;
        };
        if waited.whom == Whom::Program && *token != waited.token {
            let call = &waited.call_id;
            desk.surprised(format!("call {call} was handed out with two tokens"));
        }
        false
    }
}
