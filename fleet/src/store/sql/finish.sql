-- Inserts ended calls into the history. `toolfleet.finish` and `toolfleet_tool.succeed` insert one each, `toolfleet.answer_calls` many; a test compares.
    -- Each column by name: a newer schema may have a column with the name of an ending's value.
    RETURNING o.call_id, o.rev + 1 AS rev, o.tenant, o.tool, o.tool_version, o.effect, o.queue, o.priority, o.key_hash, o.key_retention_ms,
        o.args, o.kept_args, o.original_args, o.coercions, o.args_hash, o.session, o.run, o.meta, o.language, o.traceparent,
        o.dispatcher_id, o.accepted_at, o.deadline_at, o.first_started_at, o.attempts, o.attempt_id, o.worker_id, o.claim_rev,
        o.attempt_started_at, o.attempt_timeout_ms, o.probe_of, o.state AS from_state, m.new_state AS state, m.outcome, m.source,
        m.effect_known, m.result, /* preview */ AS preview, m.error, m.degraded, m.attempt_outcome, m.actor, m.reason,
        /* details */ AS details
), finished AS (
    INSERT INTO toolfleet.finished_calls (
        call_id, rev, from_state, state, outcome, source, effect_known, tenant, tool, tool_version, effect, queue, priority,
        key_hash, key_retention_ms, args, original_args, coercions, args_hash, result, preview, error, degraded, session, run, meta, language,
        traceparent, accepted_at, deadline_at, first_started_at, finished_at, queued_ms, run_ms, attempts, attempt_id,
        worker_id, claim_rev, attempt_started_at, attempt_timeout_ms, attempt_outcome, probe_of, actor, reason, details)
    SELECT call_id, rev, from_state, state::toolfleet.call_state, outcome::toolfleet.call_outcome,
        source::toolfleet.source, effect_known::toolfleet.effect_known, tenant, tool, tool_version, effect, queue, priority,
        key_hash, key_retention_ms, coalesce(kept_args, args),
        CASE WHEN kept_args IS NULL THEN original_args END, coercions, args_hash, result::json, preview::json, error::json, degraded::json, session, run, meta,
        language, traceparent, accepted_at, deadline_at, first_started_at, now(),
        /* queued ms */, /* run ms */, attempts, attempt_id,
        worker_id, claim_rev, attempt_started_at, attempt_timeout_ms,
        attempt_outcome::toolfleet.attempt_outcome, probe_of, actor, reason, details
    FROM ended
