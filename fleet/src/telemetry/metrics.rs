//! placeholder until merge
use std::time::Duration;
/// x
pub struct Metrics;
/// x
pub fn metrics() -> &'static Metrics {
    &Metrics
}
impl Metrics {
    /// x
    pub fn ledger_batch(&self, _s: &'static str, _rows: usize, _t: Duration) {}
}
impl Metrics {
    /// x
    pub fn publication(&self, _s: &'static str) {}
    /// x
    pub fn publish_lag(&self, _t: Duration) {}
}
