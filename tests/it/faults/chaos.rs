//! Everything is killed at random, for a short while; `scripts/chaos` does it for longer.

use std::time::Duration;

use trellis_tests::chaos::{Plan, run};

use super::size;

/// proves: N1 as a whole: any process and any server may be killed or stopped at any time, and all
/// runs end, within their budgets, with the provider's bill in the books (b5).
#[tokio::test(flavor = "multi_thread")]
async fn n1_everything_killed_at_random_and_all_runs_end() {
    let seed = size("TRELLIS_CHAOS_SEED", 11) as u64;
    let plan = Plan { seed, lasts: Duration::from_secs(20), coordinators: 2, workers: 2 };
    let report = run(plan).await;
    assert!(report.is_well(), "{report}");
}
