//! Items that are told at once: what the client has to do.

use fleet::ids::CallId;

use super::{
    arguments::ShownArguments,
    events::StreamEvent,
    header::TurnCall,
    open::say_commands,
    shape::ClientKind,
    showing::{approval_request, client_call, custom_input},
    voice::Voice,
};

/// Asks the client whether a call may run.
pub(super) fn say_approval_request(id: &str, call: &TurnCall, voice: &mut Voice) {
    let item = approval_request(id, call);
    voice.add(&item);
    voice.done(item);
}

/// Tells the client to run a call.
pub(super) fn say_client_call(id: &str, call_id: CallId, call: &TurnCall, voice: &mut Voice) {
    let kind = ClientKind::of(call);
    let call_id = call_id.to_string();
    voice.add(&client_call(kind, id, &call_id, call, false));
    let (output_index, item_id) = (voice.output_index(), id);
    match kind {
        ClientKind::Function => {
            let arguments = &call.arguments;
            voice.say(&StreamEvent::FunctionArgumentsDelta {
                output_index,
                item_id,
                delta: arguments,
            });
            voice.say(&StreamEvent::FunctionArgumentsDone {
                output_index,
                item_id,
                arguments,
            });
        }
        ClientKind::Custom => {
            let arguments = ShownArguments::read(&call.arguments);
            let input = custom_input(&arguments, call);
            voice.say(&StreamEvent::CustomInputDelta {
                output_index,
                item_id,
                delta: input,
            });
            voice.say(&StreamEvent::CustomInputDone {
                output_index,
                item_id,
                input,
            });
        }
        ClientKind::Shell => say_commands(call, voice),
    }
    voice.done(client_call(kind, id, &call_id, call, true));
}
