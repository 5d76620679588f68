//! Retry budgets: attempts of one worker take their tokens beside each other, and there are never more than were brought.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use fleet::ids::ToolName;
use shuttle::future::{block_on, spawn, yield_now};

use crate::{
    check::{finds, holds, saw},
    woven::retry_budgets::RetryBudgets,
};

const ATTEMPTS: usize = 3;
/// Of each: what it takes, and its first attempts, two of which bring a token.
const TAKES: usize = 6;
const FIRST: usize = 2;
const BUDGET: f64 = 0.5;
/// What a bucket begins with.
const AT_FIRST: usize = 10;

fn attempts() {
    block_on(async {
        let budgets = Arc::new(RetryBudgets::new());
        let taken = Arc::new(AtomicUsize::new(0));
        let tool: ToolName = "look".parse().unwrap();
        let running: Vec<_> = (0..ATTEMPTS)
            .map(|_| {
                let (budgets, taken, tool) =
                    (Arc::clone(&budgets), Arc::clone(&taken), tool.clone());
                spawn(async move {
                    for n in 0..TAKES {
                        if budgets.take(&tool) {
                            taken.fetch_add(1, Ordering::SeqCst);
                        } else {
                            saw("none was left");
                        }
                        if n < FIRST {
                            budgets.earn(&tool, BUDGET);
                        }
                        yield_now().await;
                    }
                })
            })
            .collect();
        for one in running {
            one.await.unwrap();
        }
        let (taken, brought) = (taken.load(Ordering::SeqCst), ATTEMPTS * FIRST / 2);
        assert!(
            taken <= AT_FIRST + brought,
            "more tokens than were brought: {taken}"
        );
        assert!(taken >= AT_FIRST, "a token was lost: {taken}");
        if taken > AT_FIRST {
            saw("what was brought was taken");
        }
    });
}

#[test]
fn no_more_tokens_are_taken_than_there_are() {
    holds(
        "retry budgets",
        &["none was left", "what was brought was taken"],
        attempts,
    );
}

#[test]
fn mistakes_about_budgets_are_found() {
    finds(
        "two make a bucket",
        "more tokens than were brought",
        attempts,
    );
}
