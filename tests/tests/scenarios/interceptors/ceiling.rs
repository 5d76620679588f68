//! The example of docs/interceptors.md, word for word from the next line on.

use worker::interceptor::{
    About, CallView, Carried, Interceptor, Label, QueueName, ToolName, Verdict,
};

/// Refuses transfers of more than a sum.
struct Ceiling {
    cents: u64,
}

#[derive(serde::Deserialize)]
struct Transfer {
    cents: u64,
}

impl Interceptor for Ceiling {
    fn about(&self) -> About {
        About::new("ceiling").order(200).mandatory()
    }

    async fn before(&self, call: &CallView<'_>, _carried: &mut Carried) -> Verdict {
        if call.tool.as_str() != "transfer" {
            return Verdict::Continue;
        }
        match call.arguments_as::<Transfer>() {
            Ok(transfer) if transfer.cents <= self.cents => Verdict::Continue,
            Ok(_) | Err(_) => Verdict::refuse("transfers of this size need an approval"),
        }
    }
}

#[tokio::test]
async fn transfers_have_a_ceiling() {
    let tool: ToolName = "transfer".parse().unwrap();
    let queue: QueueName = "bank".parse().unwrap();
    let tenant: Label = "acme".parse().unwrap();
    for (arguments, passes) in [
        (r#"{"cents": 100}"#, true),
        (r#"{"cents": 101}"#, false),
        ("{}", false),
    ] {
        let call = CallView::sample(&tool, &queue, &tenant, arguments);
        let ceiling = Ceiling { cents: 100 };
        let verdict = ceiling.before(&call, &mut Carried::default()).await;
        assert_eq!(verdict == Verdict::Continue, passes, "{arguments}");
    }
}
