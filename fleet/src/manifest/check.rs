//! Whether the fields of a manifest fit together.

use std::time::Duration;

use serde_json::Value;

use super::{
    advice, breaker, built_in, chat_check, client,
    executor::{ExecutorSpec, KeyPlaces, McpErrors, McpSpec, NatsSpec, OwnSpec, SqlSpec},
    fallback::FallbackOwner,
    input::{is_required, properties},
    policy::KeyPolicy,
    problem::{ManifestProblem, Problems},
    rate::OnLimit,
    request, required,
    secret::secret,
    sql, unseen,
    version::Manifest,
};
use crate::{
    arguments::{Schema, pointer_segment, unfit_defaults},
    call::Effect,
    probe,
    secrets::Secrets,
    wire::subjects::is_of_server_or_inbox,
};

const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);

/// Every contradiction in a well-formed manifest.
pub(super) fn check(manifest: &Manifest) -> Vec<ManifestProblem> {
    let mut problems = Problems::default();
    let found = match Schema::compile_input(&manifest.input_schema) {
        Ok(_) => {
            problems
                .found
                .extend(required::refused(&manifest.input_schema));
            unfit_defaults(&manifest.input_schema)
        }
        Err(found) => found,
    };
    for problem in found {
        let message = advice::schema::sentence(&manifest.input_schema, &problem);
        problems.add(format!("/input_schema{}", problem.path), message);
    }
    if let Some(schema) = &manifest.output_schema
        && let Err(found) = Schema::compile(schema)
    {
        for problem in found {
            let message = advice::schema::sentence(schema, &problem);
            problems.add(format!("/output_schema{}", problem.path), message);
        }
    }
    built_in::check(manifest, &mut problems);
    effect(manifest, &mut problems);
    times(manifest, &mut problems);
    breaker::check(
        manifest.breaker.as_ref(),
        manifest.when_open,
        manifest.timeout.shortest(),
        &mut problems,
    );
    match &manifest.rate_limit {
        Some(limit) => limit.check(
            &manifest.input_schema,
            manifest.sensitive.as_ref(),
            &mut problems,
        ),
        None if manifest.on_limit == OnLimit::Refuse => problems.add(
            "/on_limit",
            "there is no rate_limit that a call could be over; write one, or leave on_limit out",
        ),
        None => {}
    }
    if let Some(approval) = &manifest.approval {
        approval.check(&manifest.name, &mut problems);
    }
    if let Some(completion) = &manifest.completion {
        let others = [
            ("cache", manifest.cache.is_some()),
            ("fallback", manifest.fallback.is_some()),
        ];
        completion.check(
            &manifest.executor,
            manifest.deadline,
            &others,
            &mut problems,
        );
    }
    if let Some(cache) = &manifest.cache {
        let (sensitive, is_limited) = (manifest.sensitive.as_ref(), manifest.is_limited());
        cache.check(manifest.effect, sensitive, is_limited, &mut problems);
    }
    if let Some(fallback) = &manifest.fallback {
        let owner = FallbackOwner {
            name: &manifest.name,
            effect: manifest.effect,
            sensitive: manifest.sensitive.as_ref(),
            has_cache: manifest.cache.is_some(),
            output: manifest.output,
            output_schema: manifest.output_schema.as_ref(),
        };
        fallback.check(&owner, &mut problems);
    }
    manifest.mcp.check(&manifest.executor, &mut problems);
    if let Some(files) = &manifest.files {
        files.check(&manifest.executor, &mut problems);
    }
    if let Some(policy) = &manifest.policy {
        policy.check(&manifest.name, manifest.key_policy(), &mut problems);
    }
    chat_check::of_models(manifest, &mut problems);
    doubts(manifest, &mut problems);
    answers(manifest, &mut problems);
    interceptors(manifest, &mut problems);
    unseen::check(manifest, &mut problems);
    match &manifest.executor {
        ExecutorSpec::Http(spec) => request::check(spec, manifest, &mut problems),
        ExecutorSpec::Process(spec) => {
            for (name, value) in &spec.env {
                let path = format!("/executor/process/env/{}", pointer_segment(name));
                environment(path, name, value, &mut problems);
            }
        }
        ExecutorSpec::Nats(spec) => service(spec, manifest, &mut problems),
        ExecutorSpec::Sql(spec) => {
            database(spec, &mut problems);
            sql::check(spec, manifest, &mut problems);
        }
        ExecutorSpec::Mcp(spec) => mcp_tool(spec, manifest, &mut problems),
        ExecutorSpec::Chat(spec) => chat_check::check(spec, manifest, &mut problems),
        ExecutorSpec::Native(_) => {}
        ExecutorSpec::Client(_) => client::check(manifest, &mut problems),
        ExecutorSpec::Own(spec) => own(spec, &mut problems),
    }
    problems.found
}

fn interceptors(manifest: &Manifest, problems: &mut Problems) {
    for (n, name) in manifest.interceptors.iter().enumerate() {
        if name.is_of_engine() {
            problems.add(
                format!("/interceptors/{n}"),
                format!(
                    "{name} is a part of the engine, which every worker has; name interceptors of a worker's own program"
                ),
            );
        }
    }
}

fn effect(manifest: &Manifest, problems: &mut Problems) {
    let writes_once = matches!(manifest.effect, Effect::Once | Effect::Transaction);
    if writes_once && manifest.key == Some(KeyPolicy::Optional) {
        let effect = manifest.effect;
        problems.add(
            "/key",
            format!(
                "a tool with effect {effect} needs a key from every caller, or a repeated request runs it again; \
                 write required, or from_arguments where equal arguments always mean the same call"
            ),
        );
    }
    let on_fleet = matches!(&manifest.executor, ExecutorSpec::Sql(spec) if spec.is_on_fleet());
    if manifest.effect == Effect::Transaction && !on_fleet {
        problems.add(
            "/effect",
            "a transaction commits together with its outcome, so it needs a sql executor with database: fleet; \
             write that, or once",
        );
    }
    idempotency(manifest, problems);
}

/// Where the key of an attempt goes, and how long the tool knows it.
fn idempotency(manifest: &Manifest, problems: &mut Problems) {
    let places = manifest.executor.key_places();
    let by_itself = match places {
        KeyPlaces::One | KeyPlaces::AtMostOne => false,
        KeyPlaces::Argument { by_itself, .. } => by_itself,
        KeyPlaces::Any => true,
    };
    let Some(idempotency) = &manifest.idempotency else {
        if manifest.effect == Effect::Idempotent && !by_itself {
            problems.add(
                "/idempotency",
                "effect idempotent says that the tool recognises a repeated call; say by which header or argument, \
                 such as {header: Idempotency-Key}, or declare the effect once",
            );
        }
        return;
    };
    match (places, &idempotency.header, &idempotency.argument) {
        (KeyPlaces::One, None, None) => {
            problems.add(
                "/idempotency",
                "say where the key goes: write exactly one of header and argument",
            );
        }
        (KeyPlaces::One, Some(_), Some(_)) => {
            problems.add(
                "/idempotency",
                "the key goes to one place: write exactly one of header and argument",
            );
        }
        (KeyPlaces::Argument { no_header, .. }, Some(_), _) => {
            problems.add("/idempotency/header", no_header);
        }
        (KeyPlaces::AtMostOne, Some(_), Some(_)) => {
            problems.add(
                "/idempotency",
                "the key goes to one place: write at most one of header and argument",
            );
        }
        (KeyPlaces::One | KeyPlaces::AtMostOne | KeyPlaces::Any, _, _)
        | (KeyPlaces::Argument { .. }, None, _) => {}
    }
    if let Some(argument) = &idempotency.argument {
        let schema = &manifest.input_schema;
        if !properties(schema).any(|(name, _)| name == argument) {
            problems.add(
                "/idempotency/argument",
                format!("{argument:?} is not a top-level property of input_schema; declare it there as a string"),
            );
        } else if is_required(schema, argument) {
            problems.add(
                "/idempotency/argument",
                format!(
                    "{argument:?} is filled in by us, not by the caller; take it out of `required`"
                ),
            );
        }
    }
    if idempotency.valid_for < manifest.timeout.longest() {
        problems.add(
            "/idempotency/valid_for",
            "the tool forgets the key before one attempt ends; write at least the timeout",
        );
    }
}

fn times(manifest: &Manifest, problems: &mut Problems) {
    let (effect, deadline) = (manifest.effect, manifest.deadline);
    manifest.timeout.check(effect, deadline, problems);
    if manifest.deadline > Manifest::DEADLINE_MAX {
        problems.add(
            "/deadline",
            "a call may take at most a day; write at most 24h",
        );
    }
    if let Some(wait) = manifest.max_queue_wait
        && (wait.is_zero() || wait > manifest.deadline)
    {
        problems.add(
            "/max_queue_wait",
            "the wait for the first attempt is part of the call's time; write more than 0 and at most the deadline",
        );
    }
    if manifest.key_retention < Manifest::KEY_RETENTION_MIN || manifest.key_retention > YEAR {
        problems.add(
            "/key_retention",
            "a key lives a day to 366 days; write at least 24h and at most 8784h",
        );
    }
    let retry = &manifest.retry;
    if retry.base > retry.cap {
        problems.add(
            "/retry/base",
            "the first pause is longer than the longest; write base <= cap",
        );
    }
    if retry.cap > Manifest::DEADLINE_MAX {
        problems.add(
            "/retry/cap",
            "a pause may take at most a day; write at most 24h",
        );
    }
}

fn doubts(manifest: &Manifest, problems: &mut Problems) {
    let Some(spec) = &manifest.probe else { return };
    match manifest.effect {
        Effect::Read => problems.add(
            "/probe",
            "a read is never in doubt; leave the probe out, or declare what the tool changes",
        ),
        Effect::Transaction => problems.add(
            "/probe",
            "a transaction is never in doubt, for its effect commits with its outcome; leave the probe out",
        ),
        Effect::Idempotent | Effect::Once => {}
    }
    if spec.tool == manifest.name {
        problems.add(
            "/probe/tool",
            "a probe is another tool, one with effect read",
        );
    }
    if spec.settle > Manifest::DEADLINE_MAX {
        problems.add("/probe/settle", "write at most 24h");
    }
    for (path, sentence) in probe::unreadable(spec) {
        problems.add(format!("/probe{path}"), sentence);
    }
}

fn answers(manifest: &Manifest, problems: &mut Problems) {
    if !(1..=Manifest::OUTPUT_LIMIT_MAX).contains(&manifest.output_limit) {
        problems.add(
            "/output_limit",
            "an answer is too large or empty by that; write 1B to 8MiB",
        );
    }
    let lists = [
        ("business_statuses", &manifest.business_statuses),
        ("not_applied_statuses", &manifest.not_applied_statuses),
    ];
    for (field, statuses) in lists {
        for (index, status) in statuses
            .iter()
            .enumerate()
            .filter(|(_, status)| (200..300).contains(*status))
        {
            problems.add(
                format!("/{field}/{index}"),
                format!("{status} is a success; leave it out"),
            );
        }
    }
    let (business, not_applied) = (&manifest.business_statuses, &manifest.not_applied_statuses);
    for (index, status) in not_applied
        .iter()
        .enumerate()
        .filter(|(_, status)| business.contains(status))
    {
        problems.add(
            format!("/not_applied_statuses/{index}"),
            format!("{status} stands in business_statuses too (the default is 400, 404, 409, 422); keep it in one list"),
        );
    }
    if !matches!(manifest.executor, ExecutorSpec::Http(_)) {
        let message = format!(
            "a {} tool has no HTTP statuses; leave the field out",
            manifest.executor.kind()
        );
        if !not_applied.is_empty() {
            problems.add("/not_applied_statuses", message.as_str());
        }
        if *business != Manifest::default_business_statuses() {
            problems.add("/business_statuses", message.as_str());
        }
    }
    manifest.output.check(&manifest.executor, problems);
    if let Some(spec) = &manifest.large_result {
        spec.check(manifest.effect, manifest.sensitive.is_some(), problems);
    }
    exit_codes(manifest, problems);
    if manifest.sandbox.is_some() && !matches!(manifest.executor, ExecutorSpec::Process(_)) {
        let kind = manifest.executor.kind();
        problems.add(
            "/sandbox",
            format!(
                "only a program runs in a sandbox, and this is a {kind} tool; leave the field out"
            ),
        );
    }
}

fn exit_codes(manifest: &Manifest, problems: &mut Problems) {
    let codes = &manifest.exit_codes;
    if !codes.is_default() && !matches!(manifest.executor, ExecutorSpec::Process(_)) {
        let kind = manifest.executor.kind();
        problems.add(
            "/exit_codes",
            format!(
                "only a program has exit codes, and this is a {kind} tool; leave the field out"
            ),
        );
    }
    for (index, code) in codes
        .not_applied
        .iter()
        .enumerate()
        .filter(|(_, code)| codes.business.contains(code))
    {
        problems.add(
            format!("/exit_codes/not_applied/{index}"),
            format!("{code} stands in business too (the default is 10); keep it in one list"),
        );
    }
}

fn service(spec: &NatsSpec, manifest: &Manifest, problems: &mut Problems) {
    let place = "/executor/nats/subject";
    if is_of_server_or_inbox(&spec.subject) {
        problems.add(
            place,
            "the server and inboxes own this subject; write the service's own",
        );
    }
    let token = |token: &str| !token.is_empty() && token != "*" && token != ">";
    if !spec.subject.split('.').all(token) {
        problems.add(
            place,
            "a service is asked by its own subject; write tokens with dots between them, without * and >, such as weather.get",
        );
    }
    let header = manifest.idempotency.as_ref();
    if let Some(header) = header.and_then(|idempotency| idempotency.header.as_ref())
        && !header.eq_ignore_ascii_case("idempotency-key")
        && let Err(message) = request::check_header_name(header)
    {
        problems.add("/idempotency/header", message);
    }
}

fn database(spec: &SqlSpec, problems: &mut Problems) {
    let place = "/executor/sql/database";
    if spec.is_on_fleet() {
        return;
    }
    if !spec.database.starts_with(Secrets::SCHEME) {
        problems.add(
            place,
            "write fleet, or secret://NAME of a connection URL; a URL itself may hold a password and is not stored",
        );
    }
    secret(place.to_owned(), &spec.database, problems);
}

fn mcp_tool(spec: &McpSpec, manifest: &Manifest, problems: &mut Problems) {
    if spec.errors == McpErrors::Unknown && manifest.effect == Effect::Read {
        problems.add(
            "/executor/mcp/errors",
            "a read changes nothing, so nothing about its errors is unknown; leave errors out, or declare what the tool changes",
        );
    }
}

pub(super) fn environment(path: String, name: &str, value: &str, problems: &mut Problems) {
    let first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let valid = name.bytes().next().is_some_and(first)
        && name
            .bytes()
            .all(|byte| first(byte) || byte.is_ascii_digit());
    if !valid {
        problems.add(
            &*path,
            "the name of an environment variable has letters, digits and _, and no digit first",
        );
    }
    let ours =
        ["TRACEPARENT", "TRACESTATE", "BAGGAGE"].contains(&name) || name.starts_with("TOOLFLEET_");
    if ours {
        problems.add(
            &*path,
            "this variable is set for every attempt; use another name",
        );
    }
    secret(path, value, problems);
}

/// Only its executor knows the fields of a program's own kind; here only its secrets are checked.
fn own(spec: &OwnSpec, problems: &mut Problems) {
    let fields = spec.spec.iter();
    let mut open: Vec<(String, &Value)> = fields
        .map(|(name, value)| {
            let name = pointer_segment(name);
            (format!("/executor/own/spec/{name}"), value)
        })
        .collect();
    while let Some((path, value)) = open.pop() {
        match value {
            Value::String(text) => secret(path, text, problems),
            Value::Array(items) => {
                let items = items.iter().enumerate();
                open.extend(items.map(|(index, item)| (format!("{path}/{index}"), item)));
            }
            Value::Object(members) => {
                for (name, value) in members {
                    open.push((format!("{path}/{}", pointer_segment(name)), value));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}
