//! Hands in what a client did for calls of a turn: to each call by itself, so some may be taken where others are refused.
//!
//! How a call stands says with which token it waits and for what, so a client needs no token and is told what would be taken. What its call
//! does not wait for any more is refused, but for the very output that was handed in for it before, which is told where the call stands
//! now (`claims`).

use fleet::{
    call::{Awaiting, Language},
    ids::Label,
    manifest::ApprovedBy,
    said,
    telemetry::report,
    wire::{code::Code, envelope::Envelope, message::Message},
};
use fleet_client::{Answer, Question};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    claims::Claimed,
    kept::{self, KeptTurn},
    name::TurnName,
    output_form::pointer,
    outputs::HandedInFor,
};
use crate::{
    answer::Glimpse,
    auth::principal::Principal,
    follower::unheard,
    mcp::withheld::is_of_another,
    refusal::{Refused, Repeatable},
    state::Gateway,
};

/// The note of a decision that has none of its own.
const NOTE: &str = "decided in its turn";

/// For which turn, and who does it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandingIn<'a> {
    pub(crate) gateway: &'a Gateway,
    pub(crate) tenant: &'a Label,
    pub(crate) principal: &'a Principal,
    pub(crate) name: &'a TurnName,
    pub(crate) turn: &'a KeptTurn,
}

/// What became of all outputs.
#[derive(Debug)]
pub(crate) struct HandedIn {
    /// What became of each, in their order.
    pub(crate) answers: Vec<OutputAnswer>,
    /// Whether one was taken that had not been taken before.
    pub(crate) is_new: bool,
    /// The sequence of the last record that this has put into the stream, if it has.
    pub(crate) last: Option<u64>,
}

/// What became of an output.
#[derive(Debug)]
pub(crate) enum OutputAnswer {
    /// It was taken, now or before: the call as it stands.
    Taken(Answer),
    /// The door refuses it.
    Door(Answer),
    /// The gateway refuses it.
    Gateway(Refused),
}

impl OutputAnswer {
    /// Whether it was taken.
    pub(crate) const fn is_taken(&self) -> bool {
        matches!(self, Self::Taken(_))
    }

    /// As an item of the answer: the envelope, which names the call also where it is a refusal, and then says which output.
    pub(crate) fn item(
        &self,
        (place, output): (usize, &HandedInFor),
        language: Language,
    ) -> Option<Box<RawValue>> {
        let envelope = match self {
            Self::Taken(answer) => return answer.read().ok(),
            Self::Door(answer) => match named(answer, place) {
                Some(envelope) => envelope,
                None => return answer.read().ok(),
            },
            Self::Gateway(refused) => refused.envelope(language),
        };
        let envelope = Envelope {
            call_id: Some(output.call),
            ..envelope
        };
        let text = String::from_utf8(envelope.to_bytes()).ok()?;
        RawValue::from_string(text).ok()
    }
}

/// The refusal of the door with the place of its output; `None`: it is of a later release, and stays as it is.
pub(crate) fn named(answer: &Answer, place: usize) -> Option<Envelope> {
    let mut envelope = answer.read::<Envelope>().ok()?;
    if let Some(error) = &mut envelope.error {
        let inside = error.path.take().unwrap_or_default();
        error.path = Some(format!("{}{inside}", pointer(place, "")));
    }
    Some(envelope)
}

/// Hands them in.
///
/// # Errors
///
/// Nobody answers. What was handed in by then stays so, and the same again is safe.
pub(crate) async fn hand_in(
    of: HandingIn<'_>,
    outputs: &[HandedInFor],
) -> Result<HandedIn, Refused> {
    let mut planned = Vec::with_capacity(outputs.len());
    for (place, output) in outputs.iter().enumerate() {
        planned.push(of.look(place, output).await?);
    }
    let asking = |(output, planned): (&'_ HandedInFor, &Planned)| {
        matches!(planned, Planned::Ask(..)).then_some(output.call)
    };
    let asked: Vec<_> = outputs.iter().zip(&planned).filter_map(asking).collect();
    let keeper = of.gateway.sessions.keeper();
    let mut last = None;
    if !asked.is_empty() {
        let claimed = outputs.iter().filter(|one| asked.contains(&one.call));
        let claim = kept::claim(keeper, of.tenant, of.name, claimed, None).await;
        last = Some(claim.map_err(|error| unheard(&error))?);
    }
    let mut answers = Vec::with_capacity(outputs.len());
    let mut is_new = false;
    for (place, planned) in planned.into_iter().enumerate() {
        answers.push(match planned {
            Planned::Known(answer) => answer,
            Planned::Ask(question, holder) => {
                let answer = of.gateway.dispatchers.ask(question, Repeatable::Always);
                let answer = match answer.await {
                    Ok(answer) => answered(answer, holder, place),
                    // Something was changed, so "nothing was done" would not be true.
                    Err(_unanswered) if is_new => {
                        return Err(Refused::no_answer(Repeatable::Always));
                    }
                    Err(unanswered) => return Err(unanswered),
                };
                is_new |= answer.is_taken();
                answer
            }
        });
    }
    let is_refused = |(output, answer): (&'_ HandedInFor, &OutputAnswer)| {
        (asked.contains(&output.call) && !answer.is_taken()).then_some(output.call)
    };
    let refused: Vec<_> = outputs
        .iter()
        .zip(&answers)
        .filter_map(is_refused)
        .collect();
    if !refused.is_empty() {
        let refused = outputs.iter().filter(|one| refused.contains(&one.call));
        match kept::claim(keeper, of.tenant, of.name, refused, last).await {
            Ok(sequence) => last = Some(sequence),
            Err(error) => tracing::debug!(
                error = report(&error),
                "that an output of a turn was refused is not remembered"
            ),
        }
    }
    Ok(HandedIn {
        answers,
        is_new,
        last,
    })
}

/// What is to be done for an output.
enum Planned {
    Known(OutputAnswer),
    /// A dispatcher is asked, with a token from there.
    Ask(Question, TokenFrom),
}

/// Whose word the token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenFrom {
    /// The call's, as it waits now.
    Call,
    /// The client's.
    Client,
}

fn answered(answer: Answer, token: TokenFrom, place: usize) -> OutputAnswer {
    let glimpse = Glimpse::of(answer.bytes());
    if !glimpse.is_refused() {
        return OutputAnswer::Taken(answer);
    }
    // The call is there: its token is not.
    if token == TokenFrom::Client && glimpse.is_not_found() {
        return OutputAnswer::Gateway(bad_token(place));
    }
    OutputAnswer::Door(answer)
}

impl HandingIn<'_> {
    /// How the call stands, and what that means for its output.
    async fn look(self, place: usize, output: &HandedInFor) -> Result<Planned, Refused> {
        let dispatchers = &self.gateway.dispatchers;
        let body = format!("{{\"call_id\":\"{}\"}}", output.call);
        let question = Question::new(dispatchers.subjects().get(self.tenant), body);
        let standing = dispatchers.ask(question, Repeatable::Always).await?;
        let glimpse = Glimpse::of(standing.bytes());
        if glimpse.is_refused() {
            return Ok(Planned::Known(OutputAnswer::Door(standing)));
        }
        let refused = |refused: Refused| {
            Ok(Planned::Known(OutputAnswer::Gateway(
                refused.of_tool(&glimpse.tool),
            )))
        };
        if let Some(waits) = Waits::of(&standing) {
            if let Some(why) = waits.refuses(output, place) {
                return refused(why);
            }
            // Whoever has its token was handed the call.
            if !output.has("token") && waits.is_of_another(self.principal) {
                return refused(of_another(place));
            }
            let token = waits.token.filter(|_| !output.has("token"));
            let from = match token {
                Some(_) => TokenFrom::Call,
                None => TokenFrom::Client,
            };
            return Ok(Planned::Ask(self.question(output, token.as_deref()), from));
        }
        match self.turn.claims.of(output) {
            Claimed::Same => Ok(Planned::Known(OutputAnswer::Taken(standing))),
            // Whoever has its token may know more than its turn.
            _known if output.has("token") => {
                Ok(Planned::Ask(self.question(output, None), TokenFrom::Client))
            }
            Claimed::Other => refused(another(place)),
            Claimed::Nothing => refused(waits_for_nothing(&glimpse.state, place)),
        }
    }

    fn question(self, output: &HandedInFor, token: Option<&str>) -> Question {
        let subjects = self.gateway.dispatchers.subjects();
        let mut further: Vec<(&str, &str)> = Vec::new();
        further.extend(token.map(|token| ("token", token)));
        let subject = if output.is_decision() {
            further.extend(self.principal.name().map(|name| ("actor", name)));
            further.push(("note", NOTE));
            subjects.approve(self.tenant)
        } else {
            subjects.output(self.tenant)
        };
        Question::new(subject, output.to_body(&further))
    }
}

/// What a call waits for.
#[derive(Debug, Deserialize)]
struct Waits {
    /// For whom; a later release may have more words.
    #[serde(rename = "for")]
    whom: String,
    token: Option<String>,
    by: Option<ApprovedBy>,
    /// Who made the call, by name.
    principal: Option<String>,
}

impl Waits {
    /// Whether who made the call is asked, and that is somebody else.
    fn is_of_another(&self, principal: &Principal) -> bool {
        is_of_another(principal, &self.whom, self.principal.as_deref())
    }

    /// As its envelope says it; `None`: it waits for nobody.
    fn of(standing: &Answer) -> Option<Self> {
        #[derive(Deserialize)]
        struct StandingCall {
            awaiting: Option<Waits>,
        }

        standing.read::<StandingCall>().ok()?.awaiting
    }

    /// Why it does not wait for this; `None`: it may.
    fn refuses(&self, output: &HandedInFor, place: usize) -> Option<Refused> {
        let what = match (self.whom.parse(), output.is_decision()) {
            (Ok(Awaiting::Approval), _) if self.by == Some(ApprovedBy::Operator) => Message::fixed(
                "the call waits for the decision of an operator, which is made by its id and not in its turn",
                "这次调用在等待运维人员的决定，该决定通过调用的 id 作出，而不是在它的 turn 里",
            ),
            (Ok(Awaiting::Approval), false) => Message::fixed(
                "the call waits for a decision: hand in decision, approve or deny, with args_hash",
                "这次调用在等待决定：请提交 decision（approve 或 deny）以及 args_hash",
            ),
            (Ok(Awaiting::Completion), _) if !output.has("token") => Message::fixed(
                "the call waits for its tool, which answers later",
                "这次调用在等待它的工具稍后给出结果",
            ),
            (Ok(Awaiting::Input), true) => Message::fixed(
                "the call waits for no decision but for what its tool has asked for: hand in input",
                "这次调用等待的不是决定，而是它的工具所询问的内容：请提交 input",
            ),
            (Ok(Awaiting::Client | Awaiting::Completion), true) => Message::fixed(
                "the call waits for no decision but for what came of it: hand in result or error",
                "这次调用等待的不是决定，而是它的结果：请提交 result 或 error",
            ),
            (Ok(_) | Err(_), _) => {
                let own = self.token.as_ref().zip(output.token());
                let is_other = own.is_some_and(|(own, said)| *own != said);
                return is_other.then(|| bad_token(place));
            }
        };
        Some(Refused::new(Code::Conflict, what).at(pointer(place, "")))
    }
}

fn bad_token(place: usize) -> Refused {
    let what = Message::fixed(
        "the token is not the one of this call: leave it out, the gateway asks for it itself",
        "token 不是这个调用的：请去掉它，网关会自行获取",
    );
    Refused::new(Code::InvalidArguments, what).at(pointer(place, "token"))
}

fn of_another(place: usize) -> Refused {
    let what = Message::fixed(
        "the call waits for the word of who made it, which is another token: hand in the call's own token, or have its maker answer",
        "这次调用在等待发起者的回答，而发起者是另一个 token：请提交该调用自己的 token，或由发起者回答",
    );
    Refused::new(Code::Forbidden, what).at(pointer(place, ""))
}

fn another(place: usize) -> Refused {
    let what = Message::fixed(
        "another output was handed in for this call before",
        "此前已为这个调用提交过另一个输出",
    );
    Refused::new(Code::Conflict, what).at(pointer(place, ""))
}

fn waits_for_nothing(state: &str, place: usize) -> Refused {
    let state: String = state.chars().take(32).collect();
    let what = said!(
        "the call does not wait for an output: it is {state}",
        "这个调用并不在等待输出：状态是 {state}"
    );
    Refused::new(Code::Conflict, what).at(pointer(place, ""))
}
