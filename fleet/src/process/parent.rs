//! The other end of the parent pipe.

use std::io::Read;

use tokio::sync::oneshot;

/// Waits until standard input closes, as it does when the `dev` that holds its other end is gone, however it went.
///
/// For a process that was started with `--parent-pipe`; call it once.
pub(super) async fn gone() {
    let (sender, gone) = oneshot::channel::<()>();
    // A thread of its own: the runtime would wait for a blocking read of its own when it shuts down.
    std::thread::spawn(move || {
        let mut nothing = [0; 64];
        let mut input = std::io::stdin().lock();
        while input.read(&mut nothing).is_ok_and(|bytes| bytes > 0) {}
        drop(sender);
    });
    // Nothing is ever sent: the end of the channel is the message.
    let _closed = gone.await;
}
