//! The other end of the parent pipe.

use std::io::Read;

use tokio::sync::oneshot;

/// Waits until standard input closes, as it does when the `dev` process at its other end is gone, for whatever reason.
///
/// For a process that was started with `--parent-pipe`; call it once.
pub(super) async fn gone() {
    let (sender, gone) = oneshot::channel::<()>();
    // A thread of its own: the runtime would wait for its own blocking read when it shuts down.
    std::thread::spawn(move || {
        let mut nothing = [0; 64];
        let mut input = std::io::stdin().lock();
        while input.read(&mut nothing).is_ok_and(|bytes| bytes > 0) {}
        drop(sender);
    });
    // Nothing is sent: the end of the channel is the message.
    let _closed = gone.await;
}
