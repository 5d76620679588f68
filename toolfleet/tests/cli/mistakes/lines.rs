//! Command lines and variables that are wrong whatever the servers are.

use super::Mistake;

const NO_DATABASE: &str = "postgres://nobody:hunter2@127.0.0.1:1/nowhere";
const ID: &str = "01936c2e-0000-7000-8000-000000000001";

pub(super) fn all() -> Vec<Mistake> {
    let worker = |name| Mistake::of(name, "worker").with("DATABASE_URL", NO_DATABASE);
    vec![
        Mistake::of("a command that does not exist", "tool list"),
        Mistake::of("a flag that does not exist", "calls list --last 5"),
        Mistake::of("no database", "calls list"),
        Mistake::of("an id that is none", "calls show 42").with("DATABASE_URL", NO_DATABASE),
        Mistake::of("a state that does not exist", "calls list --state lost")
            .with("DATABASE_URL", NO_DATABASE),
        Mistake::of(
            "an error code that does not exist",
            "calls list --code time_out",
        )
        .with("DATABASE_URL", NO_DATABASE),
        Mistake::of("a session with a slash", "calls list --session a/b")
            .with("DATABASE_URL", NO_DATABASE),
        Mistake::of("a day for a moment", "calls list --since 2026-11-23")
            .with("DATABASE_URL", NO_DATABASE),
        Mistake::of("days for a duration", "calls list --until 2d")
            .with("DATABASE_URL", NO_DATABASE),
        Mistake::of(
            "many calls with nothing but a state",
            "calls retry --name monday --state failed --yes",
        )
        .with("DATABASE_URL", NO_DATABASE),
        Mistake::of("neither a call nor which calls", "calls discard --note x")
            .with("DATABASE_URL", NO_DATABASE),
        Mistake::of(
            "many calls of moments that contradict",
            "calls cancel --tool look_up --since 2h --until 3h --yes",
        )
        .with("DATABASE_URL", NO_DATABASE),
        Mistake::of(
            "no calls a second",
            "calls discard --tool look_up --note x --per-second 0",
        )
        .with("DATABASE_URL", NO_DATABASE),
        Mistake::of(
            "a retry of many without a name",
            "calls retry --tool look_up",
        )
        .with("DATABASE_URL", NO_DATABASE),
        Mistake::of(
            "a retry of many with one key",
            "calls retry --tool look_up --name monday --key k",
        )
        .with("DATABASE_URL", NO_DATABASE),
        Mistake::of("a value at no place", "calls list --arg id=7")
            .with("DATABASE_URL", NO_DATABASE),
        Mistake::of("a pointer with a bad escape", "calls cancel --arg /a~b=7")
            .with("DATABASE_URL", NO_DATABASE),
        Mistake::of(
            "yes and a dry run",
            "calls cancel --tool look_up --yes --dry-run",
        )
        .with("DATABASE_URL", NO_DATABASE),
        Mistake::of(
            "a call and which calls",
            &format!("calls cancel {ID} --tool look_up"),
        )
        .with("DATABASE_URL", NO_DATABASE),
        Mistake::of("many calls and no ledger", "calls cancel --tool look_up"),
        Mistake::of(
            "a pause of a place that is no pointer",
            "control pause --tool look_up --where id=7 --note x",
        )
        .with("DATABASE_URL", NO_DATABASE),
        Mistake::of("a pause without a reason", "control pause --tool look_up")
            .with("DATABASE_URL", NO_DATABASE),
        Mistake::of("a resume of nothing", "control resume --note done")
            .with("DATABASE_URL", NO_DATABASE),
        Mistake::of(
            "a token of nobody",
            "tokens create --tenant acme --scope call --note x",
        )
        .with("DATABASE_URL", NO_DATABASE),
        Mistake::of(
            "a token whose name begins with a dash",
            "tokens create --name=-ann --tenant acme --scope call --note x",
        )
        .with("DATABASE_URL", NO_DATABASE),
        Mistake::of(
            "a token of a tenant with a dot",
            "tokens create --name ann --tenant acme.eu --scope call --note x",
        )
        .with("DATABASE_URL", NO_DATABASE),
        Mistake::of(
            "a token for nothing",
            "tokens create --name ann --tenant acme --note x",
        )
        .with("DATABASE_URL", NO_DATABASE),
        Mistake::of(
            "a token for what there is not",
            "tokens create --name ann --tenant acme --scope call,write --note x",
        )
        .with("DATABASE_URL", NO_DATABASE),
        Mistake::of(
            "a token for a tool with a dash",
            "tokens create --name ann --tenant acme --scope call --tools pay-* --note x",
        )
        .with("DATABASE_URL", NO_DATABASE),
        Mistake::of(
            "a token for a number of something",
            "tokens create --name ann --tenant acme --scope call --expires 90 --note x",
        )
        .with("DATABASE_URL", NO_DATABASE),
        Mistake::of(
            "a token without a reason",
            "tokens create --name ann --tenant acme --scope call",
        )
        .with("DATABASE_URL", NO_DATABASE),
        Mistake::of(
            "the name of a token where its id belongs",
            "tokens revoke ann --note x",
        )
        .with("DATABASE_URL", NO_DATABASE),
        Mistake::of(
            "a piece of a token",
            "tokens revoke tf_0123456789ab_hunter2 --note x",
        )
        .with("DATABASE_URL", NO_DATABASE),
        Mistake::of("an argument twice", "call look_up a=1 a=2"),
        Mistake::of("a tool's name with capitals", "call LookUp"),
        Mistake::of(
            "a duration without its unit, as a flag",
            "worker --drain-timeout 30",
        )
        .with("DATABASE_URL", NO_DATABASE),
        worker("a duration without its unit, as a variable").with("WORKER_DRAIN_TIMEOUT", "30"),
        worker("a number that is none").with("WORKER_CONCURRENCY", "many"),
        worker("a number that is too low").with("WORKER_CONCURRENCY", "0"),
        worker("a folder that is not there").with("WORKER_SECRETS", "/nowhere"),
        worker("an address without a port").with("TOOLFLEET_HTTP", "0.0.0.0"),
        worker("a prefix with a space").with("TOOLFLEET_PREFIX", "a b"),
        worker("a log filter that is none").with("TOOLFLEET_LOG", "=,="),
        worker("a collector without a scheme")
            .with("OTEL_EXPORTER_OTLP_ENDPOINT", "127.0.0.1:4318"),
        Mistake::of("a database of another kind", "migrate")
            .with("DATABASE_URL", "mysql://u:hunter2@h/d"),
        Mistake::of("a database URL whose port is a word", "migrate")
            .with("DATABASE_URL", "postgres://u:hunter2@h:port/d"),
        Mistake::of("a NATS URL with a space", "call look_up")
            .with("NATS_URL", "nats://u:hunter2@a b"),
        Mistake::of("a bad variable of a client", &format!("calls cancel {ID}"))
            .with("TOOLFLEET_PREFIX", "a.b"),
    ]
}
