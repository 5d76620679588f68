-- What most calls come to: their attempt ran, and it is over. What complete.sql would do, without what only others need.
WITH ended AS (
    DELETE FROM toolfleet.open_calls o
    -- Beside each other, not in FROM, which would store each list before it reads a row.
    USING (
        SELECT
            unnest($1::uuid[]) AS call_id, unnest($2::uuid[]) AS attempt_id, unnest($3::text[]) AS new_state,
            unnest($4::text[]) AS outcome, unnest($5::text[]) AS source, unnest($6::text[]) AS effect_known,
            unnest($7::text[]) AS result, unnest($8::text[]) AS error, unnest($9::text[]) AS attempt_outcome,
            unnest($10::text[]) AS actor, unnest($11::text[]) AS reason) AS m
    -- Said twice: the list is what the index is asked for, whatever the statistics of an emptied table say.
    WHERE o.call_id = ANY($1) AND o.call_id = m.call_id AND o.attempt_id = m.attempt_id AND o.state = 'running'
    RETURNING o.call_id, o.rev, o.tenant, o.tool, o.tool_version, o.effect, o.queue, o.priority, o.key_hash, o.key_retention_ms,
        o.args, o.kept_args, o.original_args, o.coercions, o.args_hash, o.session, o.run, o.meta, o.language, o.traceparent,
        o.dispatcher_id, o.accepted_at, o.deadline_at, o.first_started_at, o.attempts, o.attempt_id, o.worker_id, o.claim_rev,
        o.attempt_started_at, o.attempt_timeout_ms, o.probe_of, m.new_state, m.outcome, m.source,
        m.effect_known, m.result, m.error, m.attempt_outcome, m.actor, m.reason
), finished AS (
    INSERT INTO toolfleet.finished_calls (
        call_id, rev, from_state, state, outcome, source, effect_known, tenant, tool, tool_version, effect, queue, priority,
        key_hash, key_retention_ms, args, original_args, coercions, args_hash, result, error, session, run, meta, language,
        traceparent, accepted_at, deadline_at, first_started_at, finished_at, queued_ms, run_ms, attempts, attempt_id,
        worker_id, claim_rev, attempt_started_at, attempt_timeout_ms, attempt_outcome, probe_of, actor, reason)
    SELECT call_id, rev + 1, 'running', new_state::toolfleet.call_state, outcome::toolfleet.call_outcome,
        source::toolfleet.source, effect_known::toolfleet.effect_known, tenant, tool, tool_version, effect, queue, priority,
        key_hash, key_retention_ms, coalesce(kept_args, args),
        CASE WHEN kept_args IS NULL THEN original_args END, coercions, args_hash, result::json, error::json, session, run, meta,
        language, traceparent, accepted_at, deadline_at, first_started_at, now(),
        (date_part('epoch', coalesce(first_started_at, now()) - accepted_at) * 1000)::bigint,
        (date_part('epoch', now() - coalesce(first_started_at, now())) * 1000)::bigint, attempts, attempt_id,
        worker_id, claim_rev, attempt_started_at, attempt_timeout_ms,
        attempt_outcome::toolfleet.attempt_outcome, probe_of, actor, reason
    FROM ended
)
SELECT call_id, rev + 1 AS rev, now() AS moved_at, new_state AS state, tool, tool_version, tenant, session, dispatcher_id, attempts,
    coercions::text AS coercions,
    (date_part('epoch', coalesce(first_started_at, now()) - accepted_at) * 1000)::bigint AS queued_ms,
    (date_part('epoch', now() - coalesce(first_started_at, now())) * 1000)::bigint AS run_ms
FROM ended
