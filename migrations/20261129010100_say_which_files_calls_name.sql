-- Why: who looks at a call sees which files it names, in its order.
-- Locks: ACCESS EXCLUSIVE on the view `calls` for a moment, none on a table.
-- The release before survives it: the view has a column more, at its end.

CREATE OR REPLACE VIEW toolfleet.calls AS
SELECT c.call_id, c.tenant, c.tool, c.tool_version, c.effect::text AS effect, c.state::text AS state,
       c.outcome, c.source, c.held, encode(c.key_hash, 'hex') AS idempotency_key_hash,
       CASE WHEN v.sensitive IS NULL THEN c.args ELSE toolfleet.shown(c.args, v.sensitive) END AS args,
       -- What was sent in another shape has its values elsewhere.
       CASE WHEN v.sensitive IS NULL THEN coalesce(c.original_args, c.args)
            WHEN c.coercions IS NULL THEN toolfleet.shown(c.args, v.sensitive)
            ELSE toolfleet.shown('null', json_build_object('pointers', ARRAY[''], 'mode', v.sensitive->>'mode')) END AS original_args,
       coalesce(c.coercions, '[]'::json) AS coercions,
       CASE WHEN v.sensitive IS NULL THEN c.result ELSE toolfleet.shown(c.result, v.sensitive) END AS result,
       c.error, c.degraded, c.attempts, c.not_before, c.deadline_at, c.session, c.run,
       (ARRAY['high', 'normal', 'low'])[c.priority + 1] AS priority,
       c.accepted_at, c.started_at, c.finished_at, coalesce(w.name, c.worker_id::text) AS worker,
       split_part(c.traceparent, '-', 2) AS trace_id, c.queue, c.language, c.meta, c.queued_ms, c.run_ms,
       c.cancel_requested, c.queue_until, c.probe_of, v.sensitive IS NOT NULL AS sensitive, c.line, c.obstacle,
       toolfleet.held_why(c.held, c.line) AS held_why, c.effect_known,
       (SELECT m.what FROM toolfleet.call_marks m WHERE m.call_id = c.call_id ORDER BY m.at DESC LIMIT 1) AS marked,
       CASE WHEN c.source = 'settled' THEN c.details->>'settled_by' END AS settled_by,
       c.shortened, c.open, c.awaiting,
       (SELECT array_agg(u.file_id ORDER BY u.position) FROM toolfleet.call_files u WHERE u.call_id = c.call_id) AS files
FROM (
    SELECT call_id, tenant, tool, tool_version, effect, state, NULL::text AS outcome, NULL::text AS source, held, key_hash,
           args, original_args, coercions, NULL::json AS result, last_error AS error, NULL::json AS degraded, attempts,
           not_before, deadline_at, session, run, priority, accepted_at, first_started_at AS started_at,
           NULL::timestamptz AS finished_at, worker_id, traceparent, queue, language, meta,
           NULL::bigint AS queued_ms, NULL::bigint AS run_ms, cancel_requested, queue_until, probe_of, line,
           CASE WHEN state = 'queued' THEN obstacle END AS obstacle, NULL::text AS effect_known, NULL::json AS details,
           NULL::boolean AS shortened, true AS open, awaiting
    FROM toolfleet.open_calls
    UNION ALL
    SELECT call_id, tenant, tool, tool_version, effect, state, outcome::text, source::text, false, key_hash,
           args, original_args, coercions, result, error, degraded, attempts,
           NULL, deadline_at, session, run, priority, accepted_at, first_started_at,
           finished_at, worker_id, traceparent, queue, language, meta, queued_ms, run_ms, false, NULL, probe_of, NULL, NULL,
           effect_known::text, details, preview IS NOT NULL, false, NULL
    FROM toolfleet.finished_calls
) c
LEFT JOIN toolfleet.worker_processes w USING (worker_id)
LEFT JOIN toolfleet.tool_versions v ON v.tool = c.tool AND v.version = c.tool_version;
