//! The sessions of clients that speak an older revision and can be asked something: there a server asks over a stream, and the
//! answer comes as a message of its own.
//!
//! They are in the memory of this gateway and nothing durable depends on them: where one is lost, its client begins anew. A client
//! that can be asked nothing gets none, and any gateway serves its next request.

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

use super::{askable::Askable, log_level::LogLevel, session_requests::SessionRequests};
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
    /// Its requests that a message may cancel.
    pub(super) requests: SessionRequests,
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
    /// A session more for this client, by its id. Where there is no room, another one ends: of this token where that has its share or more,
    /// else of the token that has most.
    pub(super) fn begin(&self, by: &Principal, askable: Askable) -> String {
        let now = Instant::now();
        let token = token_of(by);
        let mut sessions = self.sessions();
        if sessions.len() >= SESSIONS_MAX {
            sessions.retain(|_, session| !session.is_silent(now));
        }
        if let Some(whose) = who_gives_way(&sessions, &token) {
            let oldest = least_recently_used(&sessions, &whose);
            oldest.and_then(|oldest| sessions.remove(&oldest));
        }
        let id = format!("mcp-{}", Uuid::new_v4().simple());
        let session = ClientSession {
            token,
            askable,
            requests: SessionRequests::default(),
            state: Mutex::new(SessionState {
                used_at: now,
                log: None,
                asked: HashMap::new(),
            }),
            numbers: AtomicU64::new(0),
        };
        sessions.insert(id.clone(), Arc::new(session));
        id
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

/// Whose session ends before one more of this token begins; `None`: there is room. Where nobody is asked for a token, all have the
/// same none.
fn who_gives_way(
    sessions: &HashMap<String, Arc<ClientSession>>,
    token: &Option<String>,
) -> Option<Option<String>> {
    let mut counts: HashMap<&Option<String>, usize> = HashMap::from([(token, 0)]);
    for session in sessions.values() {
        *counts.entry(&session.token).or_default() += 1;
    }
    let own = counts[token];
    let is_full = sessions.len() >= SESSIONS_MAX;
    if token.is_some() && own >= OF_EACH_MAX || is_full && own >= SESSIONS_MAX / counts.len() {
        return Some(token.clone());
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.filter(|_| is_full).map(|(token, _)| token.clone())
}

/// The session of a token that is used least: one that has no open question before one that has.
fn least_recently_used(
    sessions: &HashMap<String, Arc<ClientSession>>,
    token: &Option<String>,
) -> Option<String> {
    let own = sessions.iter().filter(|(_, one)| one.token == *token);
    let oldest = own.min_by_key(|(_, one)| {
        let state = one.state();
        (!state.asked.is_empty(), state.used_at)
    });
    oldest.map(|(id, _)| id.clone())
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
        let id = sessions.begin(&ann, Askable::default());
        assert!(sessions.find(&id, &ann).is_some());
        assert!(sessions.find(&id, &bob).is_none() && !sessions.end(&id, &bob));
        assert!(sessions.find(&id, &Principal::Anyone).is_none());
        tokio::time::advance(SILENT_MAX).await;
        assert!(sessions.find(&id, &ann).is_some());
        tokio::time::advance(SILENT_MAX + Duration::from_secs(1)).await;
        assert!(sessions.find(&id, &ann).is_none());
        let id = sessions.begin(&ann, Askable::default());
        assert!(sessions.end(&id, &ann) && !sessions.end(&id, &ann));
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_has_so_many_and_its_least_used_goes_first() {
        let sessions = ClientSessions::default();
        let ann = token("a");
        let begun = |count: usize| -> Vec<String> {
            let begin = |_| sessions.begin(&ann, Askable::default());
            (0..count).map(begin).collect()
        };
        let first = begun(3);
        tokio::time::advance(Duration::from_secs(1)).await;
        let used = sessions.find(&first[0], &ann).unwrap();
        // It has an open question, and is used least.
        let asks = sessions.find(&first[1], &ann).unwrap();
        asks.state().used_at -= Duration::from_secs(1);
        let _asked = asks.ask().unwrap();
        begun(OF_EACH_MAX - 2);
        let known = |id: &String| sessions.sessions().contains_key(id);
        assert_eq!(
            first.iter().map(known).collect::<Vec<_>>(),
            [true, true, false]
        );
        assert_eq!(sessions.sessions().len(), OF_EACH_MAX);
        drop(used);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_most_gives_way_to_who_has_less_than_its_share() {
        let sessions = ClientSessions::default();
        let of = |id: &str| {
            let all = sessions.sessions();
            let own = all.values().filter(|one| one.token.as_deref() == Some(id));
            own.count()
        };
        // Eight tokens fill all of it.
        for holder in 0..8 {
            for _ in 0..OF_EACH_MAX {
                sessions.begin(&token(&format!("t{holder}")), Askable::default());
            }
        }
        assert_eq!(sessions.sessions().len(), SESSIONS_MAX);
        let small = sessions.begin(&token("small"), Askable::default());
        assert!(sessions.find(&small, &token("small")).is_some());
        assert_eq!(sessions.sessions().len(), SESSIONS_MAX);
        // Whoever begins many takes from those that have more, until it has its share, and from then on from itself.
        for _ in 0..2 * OF_EACH_MAX {
            sessions.begin(&token("late"), Askable::default());
        }
        let share = SESSIONS_MAX / 10;
        assert_eq!((of("late"), of("small")), (share, 1));
        assert!((0..8).all(|holder| of(&format!("t{holder}")) >= share));
        assert!(sessions.find(&small, &token("small")).is_some());
        // Those that are silent go before anybody's.
        tokio::time::advance(SILENT_MAX + Duration::from_secs(1)).await;
        sessions.begin(&token("z"), Askable::default());
        assert_eq!(sessions.sessions().len(), 1);
    }

    #[tokio::test]
    async fn an_answer_comes_to_who_has_asked_and_once() {
        let sessions = ClientSessions::default();
        let ann = token("a");
        let id = sessions.begin(&ann, Askable::default());
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
