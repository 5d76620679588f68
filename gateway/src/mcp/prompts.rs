//! `prompts/list` and `prompts/get`: what the fleet tells models of itself, and the prompts of a folder.

use std::collections::BTreeMap;

use fleet::{said, wire::message::Message};
use serde_json::{Value, json};

use super::{
    askable::Askable,
    content::{PromptForm, StaticPrompt},
    handshake::instructions,
    members::RawMembers,
    message::RpcRequest,
    resources::{listed, too_long},
    revision::Revision,
    rpc::{RpcError, RpcReply, SERVER_INFO, completed, result_type, server_info},
    serve::{NoResult, ServedRequest},
};
use crate::{headers::Speaker, value};

/// The prompt with what a model should know of the fleet.
const INSTRUCTIONS: &str = "toolfleet_instructions";
/// The most values of a prompt, and the most bytes of all of them with their names.
const VALUES_MAX: usize = 64;
const VALUES_BYTES_MAX: usize = 64 * 1024;

impl ServedRequest<'_> {
    pub(super) fn prompts(&self, request: &RpcRequest) -> RpcReply {
        let instructions = json!({
            "name": INSTRUCTIONS,
            "description": "What a model should know of the answers of this fleet's tools.",
        });
        let own = self.desk.content.prompts.iter().map(StaticPrompt::listed);
        let prompts: Vec<Value> = [instructions].into_iter().chain(own).collect();
        listed(request, self.revision, "prompts", &prompts)
    }

    /// A prompt with its arguments in their places; or what its user is asked before.
    pub(super) fn prompt(&self, request: &RpcRequest) -> Result<RpcReply, NoResult> {
        let Some(name) = request.params.text("name") else {
            let what = Message::fixed("params.name must be a string", "params.name 必须是字符串");
            return Err(RpcError::invalid_params(what).into());
        };
        if name == INSTRUCTIONS {
            let text = instructions(self.client.language);
            let message = json!({"role": "user", "content": {"type": "text", "text": text}});
            return Ok(self.got(request, None, &json!([message])));
        }
        let prompts = &self.desk.content.prompts;
        let Some(prompt) = prompts.iter().find(|one| one.described.name == name) else {
            let name: String = name.chars().take(100).collect();
            let what = said!("there is no prompt {name}", "没有提示 {name}");
            return Err(RpcError::unknown(what).into());
        };
        let mut values = arguments(request)?;
        if let Some(asked) = self.asked(request, prompt, &mut values)? {
            return Ok(asked);
        }
        let missing = prompt
            .arguments
            .iter()
            .find(|one| one.is_required && !values.contains_key(&one.name));
        if let Some(missing) = missing {
            let name = &missing.name;
            let what = said!("the argument {name} is missing", "缺少参数 {name}");
            return Err(RpcError::invalid_params(what).into());
        }
        bounded(&values)?;
        // What is left out is nothing.
        for argument in &prompt.arguments {
            values.entry(argument.name.clone()).or_default();
        }
        let description = prompt.described.description.as_deref();
        let messages = prompt.messages(&values).map_err(too_long)?;
        Ok(self.got(request, description, &messages))
    }

    /// What the user of a prompt is asked, unless it is known; then it is among the values.
    fn asked(
        &self,
        request: &RpcRequest,
        prompt: &StaticPrompt,
        values: &mut BTreeMap<String, String>,
    ) -> Result<Option<RpcReply>, NoResult> {
        let responses = match request.params.get("inputResponses") {
            None => RawMembers::default(),
            Some(responses) => RawMembers::of(responses).map_err(|_no_object| no_answer())?,
        };
        let mut open = serde_json::Map::new();
        for (name, form) in &prompt.asks {
            if let Some(response) = responses.get(name) {
                values.extend(form.answered(response)?);
            }
            let is_known = |field: &String| values.contains_key(field);
            if form.required.iter().all(is_known) {
                // What nobody has to say is nothing.
                for field in form.fields.keys() {
                    values.entry(field.clone()).or_default();
                }
            } else {
                open.insert(name.clone(), form.request());
            }
        }
        if open.is_empty() {
            return Ok(None);
        }
        if self.revision == Revision::Legacy || !Askable::of_request(request).form {
            let what = Message::fixed(
                "this prompt asks its user, and the client does not declare that it shows forms; give what it asks as arguments",
                "这个提示需要询问用户，但客户端没有声明可以显示表单；请把所需内容作为参数给出",
            );
            return Err(match self.revision {
                Revision::Modern => {
                    RpcError::missing_capability(what, &json!({"elicitation": {}})).into()
                }
                Revision::Legacy => RpcError::invalid_params(what).into(),
            });
        }
        let asked = json!({
            "resultType": "input_required",
            "inputRequests": open,
            "_meta": { SERVER_INFO: server_info() },
        });
        Ok(Some(completed(&request.id, &asked, Speaker::Gateway)))
    }

    fn got(&self, request: &RpcRequest, description: Option<&str>, messages: &Value) -> RpcReply {
        let mut result = json!({ "messages": messages });
        if let Some(description) = description {
            result["description"] = description.into();
        }
        if let Some(kind) = result_type(self.revision) {
            result["resultType"] = kind.into();
            result["_meta"] = json!({ SERVER_INFO: server_info() });
        }
        completed(&request.id, &result, Speaker::Gateway)
    }
}

impl PromptForm {
    fn request(&self) -> Value {
        json!({
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": self.message,
                "requestedSchema": {"type": "object", "properties": self.fields, "required": self.required},
            },
        })
    }

    /// What its user has said, as values of a prompt.
    fn answered(&self, response: &[u8]) -> Result<BTreeMap<String, String>, RpcError> {
        let read = value::read(response).ok_or_else(no_answer)?;
        if read["action"] != "accept" {
            let what = Message::fixed(
                "the user has not answered what this prompt asks",
                "用户没有回答这个提示所问的内容",
            );
            let is_answer = ["decline", "cancel"]
                .iter()
                .any(|word| read["action"] == *word);
            return Err(if is_answer {
                RpcError::invalid_params(what)
            } else {
                no_answer()
            });
        }
        let content = read["content"].as_object().ok_or_else(no_answer)?;
        let own = content
            .iter()
            .filter(|(name, _)| self.fields.contains_key(*name));
        let written = own.map(|(name, value)| {
            let text = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            (name.clone(), text)
        });
        Ok(written.collect())
    }
}

/// The arguments of a prompt: texts by name.
fn arguments(request: &RpcRequest) -> Result<BTreeMap<String, String>, RpcError> {
    let Some(given) = request.params.get("arguments") else {
        return Ok(BTreeMap::new());
    };
    let read = RawMembers::of(given).ok().and_then(|members| {
        let texts = members.iter().map(|(name, value)| {
            let text: Option<String> = serde_json::from_slice(value).ok();
            Some((name.to_owned(), text?))
        });
        texts.collect::<Option<BTreeMap<String, String>>>()
    });
    read.ok_or_else(|| {
        RpcError::invalid_params(Message::fixed(
            "params.arguments must be an object of strings",
            "params.arguments 必须是由字符串组成的对象",
        ))
    })
}

/// Whether the values of a prompt are not too many, and not too long.
fn bounded(values: &BTreeMap<String, String>) -> Result<(), RpcError> {
    let sizes = values.iter().map(|(name, value)| name.len() + value.len());
    if values.len() <= VALUES_MAX && sizes.sum::<usize>() <= VALUES_BYTES_MAX {
        return Ok(());
    }
    let kib = VALUES_BYTES_MAX / 1024;
    Err(RpcError::invalid_params(said!(
        "a prompt takes {VALUES_MAX} arguments and answers at most, of {kib} KiB together",
        "一个提示最多接受 {VALUES_MAX} 个参数和回答，总共不超过 {kib} KiB"
    )))
}

fn no_answer() -> RpcError {
    RpcError::invalid_params(Message::fixed(
        "params.inputResponses has what is no answer to what was asked",
        "params.inputResponses 中的内容不是对所提问题的回答",
    ))
}
