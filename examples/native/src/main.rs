use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use worker::{Effect, Tool, ToolContext, ToolError, Worker};

#[derive(Deserialize, JsonSchema)]
struct Range {
    /// Primes below this number are counted, such as 1000.
    below: u32,
}

#[derive(Serialize, JsonSchema)]
struct Primes {
    count: u32,
}

struct CountPrimes;

impl Tool for CountPrimes {
    type Args = Range;
    type Output = Primes;
    const NAME: &'static str = "count_primes";
    const VERSION: i32 = 1;
    const EFFECT: Effect = Effect::Read;
    const DESCRIPTION: &'static str = "Counts the prime numbers below a number.";

    async fn call(&self, Range { below }: Range, told: ToolContext) -> Result<Primes, ToolError> {
        let mut count = 0;
        for n in 2..below {
            told.proceed().await?;
            told.progress(f64::from(n) / f64::from(below), "counting");
            count += u32::from((2..=n.isqrt()).all(|divisor| n % divisor != 0));
        }
        Ok(Primes { count })
    }
}

fn main() -> std::process::ExitCode {
    Worker::builder().tool(CountPrimes).run()
}
