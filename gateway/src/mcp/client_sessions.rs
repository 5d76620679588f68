//! The sessions of clients that speak an older revision and can be asked something: there a server asks over a stream, and the answer comes as
//! a message of its own.
//!
//! They are in the memory of this gateway and nothing durable depends on them: where one is lost, its client begins anew. A client that can be
//! asked nothing gets none, and any gateway serves its next request.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{sync::oneshot, time::Instant};
use uuid::Uuid;

use super::{askable::Askable, log_level::LogLevel};
use crate::auth::principal::Principal;

/// The most sessions, and of each token.
const SESSIONS_MAX: usize = 8_192;
const OF_EACH_MAX: usize = 1_024;
/// How long a session may be silent.
const SILENT_MAX: Duration = Duration::from_secs(60 * 60);
/// The most questions of a session that are not answered.
const ASKED_MAX: usize = 64;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct ClientSessions(Mutex<HashMap<String, Arc<ClientSession>>>);

/// One of them.
#[derive(Debug)]
pub(super) struct ClientSession {
    /// The token of its client, by its id; `None`: nobody is asked for one.
    token: Option<String>,
    pub(super) askable: Askable,
    state: Mutex<SessionState>,
    numbers: AtomicU64,
}

#[derive(Debug)]
struct SessionState {
    used_at: Instant,
    /// From which level on it wants log messages, where it has said so.
    log: Option<LogLevel>,
    /// The questions that are not answered, by their ids.
    asked: HashMap<String, oneshot::Sender<ClientAnswer>>,
}

/// What a client answers.
#[derive(Debug)]
pub(super) enum ClientAnswer {
    /// A result, JSON text.
    Result(Bytes),
    /// That it cannot.
    Error,
}

/// A question that waits for its answer. Dropping it forgets the question.
#[derive(Debug)]
pub(super) struct AskedInSession {
    /// Of the request.
    pub(super) id: String,
    answer: oneshot::Receiver<ClientAnswer>,
    session: Arc<ClientSession>,
}

impl ClientSessions {
    /// A session more for this client, by its id; `None`: there is no room.
    pub(super) fn begin(&self, by: &Principal, askable: Askable) -> Option<String> {
        let now = Instant::now();
        let token = token_of(by);
        let mut sessions = self.sessions();
        if sessions.len() >= SESSIONS_MAX {
            sessions.retain(|_, session| !session.is_silent(now));
        }
        let own = sessions
            .iter()
            .filter(|(_, session)| session.token == token);
        // Where nobody is asked for a token, all have the same none.
        if token.is_some() && own.clone().count() >= OF_EACH_MAX {
            let oldest = own.min_by_key(|(_, session)| session.state().used_at);
            let oldest = oldest.map(|(id, _)| id.clone());
            if let Some(oldest) = oldest {
                sessions.remove(&oldest);
            }
        }
        if sessions.len() >= SESSIONS_MAX {
            return None;
        }
        let id = format!("mcp-{}", Uuid::new_v4().simple());
        let session = ClientSession {
            token,
            askable,
            state: Mutex::new(SessionState {
                used_at: now,
                log: None,
                asked: HashMap::new(),
            }),
            numbers: AtomicU64::new(0),
        };
        sessions.insert(id.clone(), Arc::new(session));
        Some(id)
    }

    /// The session with this id, if it is one of this client's.
    pub(super) fn find(&self, id: &str, by: &Principal) -> Option<Arc<ClientSession>> {
        let now = Instant::now();
        let mut sessions = self.sessions();
        let session = Arc::clone(sessions.get(id)?);
        if session.token != token_of(by) {
            return None;
        }
        if session.is_silent(now) {
            sessions.remove(id);
            return None;
        }
        session.state().used_at = now;
        Some(session)
    }

    /// Ends a session of this client; whether there was one.
    pub(super) fn end(&self, id: &str, by: &Principal) -> bool {
        self.find(id, by).is_some() && self.sessions().remove(id).is_some()
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Arc<ClientSession>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSession {
    /// From which level on it wants log messages.
    pub(super) fn log(&self) -> Option<LogLevel> {
        self.state().log
    }

    /// Wants log messages from this level on.
    pub(super) fn set_log(&self, level: LogLevel) {
        self.state().log = Some(level);
    }

    /// Asks something; `None`: too much is asked already.
    pub(super) fn ask(self: &Arc<Self>) -> Option<AskedInSession> {
        let mut state = self.state();
        if state.asked.len() >= ASKED_MAX {
            return None;
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let id = format!("toolfleet-{number}");
        let (tell, answer) = oneshot::channel();
        state.asked.insert(id.clone(), tell);
        drop(state);
        Some(AskedInSession {
            id,
            answer,
            session: Arc::clone(self),
        })
    }

    /// Takes the answer to a question of this id; one that nobody has asked, or not any more, is passed over.
    pub(super) fn answered(&self, id: &str, answer: ClientAnswer) {
        let asked = self.state().asked.remove(id);
        if let Some(asked) = asked {
            // Who has asked may have gone meanwhile.
            drop(asked.send(answer));
        }
    }

    fn is_silent(&self, now: Instant) -> bool {
        let state = self.state();
        state.asked.is_empty() && now.duration_since(state.used_at) > SILENT_MAX
    }

    fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AskedInSession {
    /// The answer; `None`: there is none any more. Cancel-safe.
    pub(super) async fn answer(&mut self) -> Option<ClientAnswer> {
        (&mut self.answer).await.ok()
    }
}

impl Drop for AskedInSession {
    fn drop(&mut self) {
        self.session.state().asked.remove(&self.id);
    }
}

fn token_of(principal: &Principal) -> Option<String> {
    match principal {
        Principal::Anyone | Principal::Named(_) => None,
        Principal::Token(token) => Some(token.token_id.clone()),
    }
}

#[cfg(test)]
mod tests {
    use fleet::tokens::TokenRow;

    use super::*;

    fn token(id: &str) -> Principal {
        Principal::Token(Arc::new(TokenRow {
            token_id: id.to_owned(),
            name: "ann".to_owned(),
            hash: [0; 32],
            tenant: None,
            scopes: Vec::new(),
            tools: Vec::new(),
            expires_at: None,
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_of_one_token_and_ends_when_it_is_ended_or_silent() {
        let sessions = ClientSessions::default();
        let (ann, bob) = (token("a"), token("b"));
        let id = sessions.begin(&ann, Askable::default()).unwrap();
        assert!(sessions.find(&id, &ann).is_some());
        assert!(sessions.find(&id, &bob).is_none() && !sessions.end(&id, &bob));
        assert!(sessions.find(&id, &Principal::Anyone).is_none());
        tokio::time::advance(SILENT_MAX).await;
        assert!(sessions.find(&id, &ann).is_some());
        tokio::time::advance(SILENT_MAX + Duration::from_secs(1)).await;
        assert!(sessions.find(&id, &ann).is_none());
        let id = sessions.begin(&ann, Askable::default()).unwrap();
        assert!(sessions.end(&id, &ann) && !sessions.end(&id, &ann));
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_so_many_and_the_oldest_of_a_token_goes_first() {
        let sessions = ClientSessions::default();
        let ann = token("a");
        let first = sessions.begin(&ann, Askable::default()).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..OF_EACH_MAX {
            sessions.begin(&ann, Askable::default()).unwrap();
        }
        assert!(sessions.find(&first, &ann).is_none());
        assert_eq!(sessions.sessions().len(), OF_EACH_MAX);
        for other in 0..SESSIONS_MAX - OF_EACH_MAX {
            let own = token(&format!("t{other}"));
            sessions.begin(&own, Askable::default()).unwrap();
        }
        assert!(sessions.begin(&token("z"), Askable::default()).is_none());
        tokio::time::advance(SILENT_MAX + Duration::from_secs(2)).await;
        assert!(sessions.begin(&token("z"), Askable::default()).is_some());
    }

    #[tokio::test]
    async fn an_answer_comes_to_who_has_asked_and_once() {
        let sessions = ClientSessions::default();
        let ann = token("a");
        let id = sessions.begin(&ann, Askable::default()).unwrap();
        let session = sessions.find(&id, &ann).unwrap();
        let (mut one, two) = (session.ask().unwrap(), session.ask().unwrap());
        assert_ne!(one.id, two.id);
        session.answered("toolfleet-9", ClientAnswer::Error);
        session.answered(&one.id, ClientAnswer::Result(Bytes::from_static(b"1")));
        session.answered(&one.id, ClientAnswer::Error);
        let Some(ClientAnswer::Result(answer)) = one.answer().await else {
            panic!("a result");
        };
        assert_eq!(&answer[..], b"1");
        drop((one, two));
        assert!(session.state().asked.is_empty());
        let asked: Vec<_> = (0..ASKED_MAX).map(|_| session.ask().unwrap()).collect();
        assert!(session.ask().is_none());
        drop(asked);
        session.set_log(LogLevel::Error);
        assert_eq!(session.log(), Some(LogLevel::Error));
    }
}
