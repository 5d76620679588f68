//! Items that are told at once: what the client has to do, and what a shell is given.

use fleet::ids::CallId;

use super::{
    arguments::ShownArguments,
    events::StreamEvent,
    header::TurnCall,
    shape::{ClientKind, ItemStatus},
    showing::{approval_request, client_call, custom_input, shell_call},
    voice::Voice,
};

/// Asks the client whether a call may run.
pub(super) fn say_approval_request(id: &str, call: &TurnCall, voice: &mut Voice) {
    let item = approval_request(id, call);
    voice.add(&item);
    voice.done(item);
}

/// Tells which commands a shell of the fleet's own is given. What it puts out is another item.
pub(super) fn say_shell_call(id: &str, call: &TurnCall, voice: &mut Voice) {
    voice.add(&shell_call(id, call, ItemStatus::InProgress));
    say_commands(call, voice);
    voice.done(shell_call(id, call, ItemStatus::Completed));
}

/// Says which commands a shell is given.
fn say_commands(call: &TurnCall, voice: &mut Voice) {
    let output_index = voice.output_index();
    let commands = ShownArguments::read(&call.arguments).commands();
    for (command_index, command) in commands.iter().enumerate() {
        voice.say(&StreamEvent::ShellCommandAdded {
            output_index,
            command_index,
            command,
        });
        voice.say(&StreamEvent::ShellCommandDone {
            output_index,
            command_index,
            command,
        });
    }
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
