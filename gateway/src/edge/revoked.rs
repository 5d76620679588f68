//! Has the connections of tokens end that are revoked or expired: otherwise who has one keeps its connections for as long as they like.

use std::{sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};

use super::peers::Peers;
use crate::state::Gateway;

/// How often it is looked: with the time in which a revoked token is known, less than two seconds.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Looks until the future is dropped.
pub(crate) async fn let_go_of_revoked(peers: Peers, gateway: Arc<Gateway>) {
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        peers.let_go(|token_id| gateway.authority.is_over(token_id));
    }
}
