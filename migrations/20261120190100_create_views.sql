-- Why: what users read. The views are documented in docs/history.md and are a promise; the tables under them are not.
-- Locks: none. Old code: there is none.

CREATE VIEW toolfleet.calls AS
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
       c.cancel_requested, c.queue_until, c.probe_of, v.sensitive IS NOT NULL AS sensitive, c.line
FROM (
    SELECT call_id, tenant, tool, tool_version, effect, state, NULL::text AS outcome, NULL::text AS source, held, key_hash,
           args, original_args, coercions, NULL::json AS result, last_error AS error, NULL::json AS degraded, attempts,
           not_before, deadline_at, session, run, priority, accepted_at, first_started_at AS started_at,
           NULL::timestamptz AS finished_at, worker_id, traceparent, queue, language, meta,
           NULL::bigint AS queued_ms, NULL::bigint AS run_ms, cancel_requested, queue_until, probe_of, line
    FROM toolfleet.open_calls
    UNION ALL
    SELECT call_id, tenant, tool, tool_version, effect, state, outcome::text, source::text, false, key_hash,
           args, original_args, coercions, result, error, degraded, attempts,
           NULL, deadline_at, session, run, priority, accepted_at, first_started_at,
           finished_at, worker_id, traceparent, queue, language, meta, queued_ms, run_ms, false, NULL, probe_of, NULL
    FROM toolfleet.finished_calls
) c
LEFT JOIN toolfleet.worker_processes w USING (worker_id)
LEFT JOIN toolfleet.tool_versions v ON v.tool = c.tool AND v.version = c.tool_version;

CREATE VIEW toolfleet.attempts AS
SELECT a.call_id, a.attempt_id, a.number, coalesce(w.name, a.worker_id::text) AS worker, a.started_at, a.finished_at,
       a.timeout_ms, a.outcome, a.error, a.effect, a.late, a.worker_id, w.fenced_at AS worker_fenced_at,
       w.fenced_by AS worker_fenced_by
FROM (
    SELECT call_id, attempt_id, number, worker_id, started_at, finished_at, timeout_ms, outcome::text AS outcome, error,
           effect_known::text AS effect, late
    FROM toolfleet.ended_attempts
    UNION ALL
    -- A call that failed because its attempts did carries the last one's own error inside.
    SELECT call_id, attempt_id, attempts, worker_id, attempt_started_at, finished_at, attempt_timeout_ms,
           attempt_outcome::text,
           CASE WHEN error->>'code' IN ('retries_exhausted', 'deadline_exceeded', 'cancelled')
                THEN coalesce(error->'details'->'last', error) ELSE error END,
           effect_known::text, false
    FROM toolfleet.finished_calls
    WHERE attempt_id IS NOT NULL AND attempt_outcome IS NOT NULL AND from_state = 'running'
    UNION ALL
    SELECT call_id, attempt_id, attempts, worker_id, attempt_started_at, NULL, attempt_timeout_ms,
           NULL, NULL::json, NULL, false
    FROM toolfleet.open_calls
    WHERE state = 'running'
) a
LEFT JOIN toolfleet.worker_processes w USING (worker_id);

CREATE VIEW toolfleet.call_events AS
SELECT call_id, 0 AS revision, accepted_at AS at, NULL::text AS from_state, 'queued' AS to_state,
       'dispatcher'::text AS actor, 'accepted'::text AS reason, NULL::uuid AS attempt_id, NULL::json AS details
FROM (SELECT call_id, accepted_at FROM toolfleet.open_calls
      UNION ALL SELECT call_id, accepted_at FROM toolfleet.finished_calls) accepted
UNION ALL
SELECT call_id, claim_rev, started_at, 'queued', 'running', 'worker ' || worker_id, 'claimed', attempt_id, NULL
FROM (SELECT call_id, claim_rev, started_at, worker_id, attempt_id FROM toolfleet.ended_attempts WHERE NOT late
      UNION ALL
      SELECT call_id, claim_rev, attempt_started_at, worker_id, attempt_id FROM toolfleet.finished_calls
      WHERE from_state = 'running'
      UNION ALL
      SELECT call_id, claim_rev, attempt_started_at, worker_id, attempt_id FROM toolfleet.open_calls
      WHERE state = 'running') claimed
UNION ALL
SELECT call_id, rev, at, from_state::text, to_state::text, actor, reason, attempt_id, details
FROM toolfleet.call_notes
UNION ALL
SELECT call_id, rev, finished_at, from_state::text, state::text, actor, reason, attempt_id, details
FROM toolfleet.finished_calls;

-- Whether everything that was started for a call in doubt is proven gone. For every attempt that may have had the effect,
-- its worker has seen it end, if only late, or has itself left in order or been fenced. After lost writes nobody can know.
-- Whoever may read the view may ask, without a right to the tables.
CREATE FUNCTION toolfleet.is_fenced(call uuid) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
    SELECT NOT o.quarantined AND NOT EXISTS (
        SELECT FROM toolfleet.ended_attempts a
        LEFT JOIN toolfleet.worker_processes w USING (worker_id)
        WHERE a.call_id = o.call_id AND a.outcome = 'unknown' AND NOT a.over AND NOT a.late
          AND coalesce(w.state NOT IN ('left', 'fenced'), true)
          AND NOT EXISTS (SELECT FROM toolfleet.ended_attempts l
                          WHERE l.call_id = a.call_id AND l.attempt_id = a.attempt_id AND l.late AND l.over))
    FROM toolfleet.open_calls o
    WHERE o.call_id = call
$$;

-- From when on nothing of a fenced call's attempts could act any more: what was seen before that moment is too early.
CREATE FUNCTION toolfleet.fenced_since(call uuid) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT greatest(o.attempt_until, max(CASE WHEN a.over THEN a.finished_at
                                              ELSE coalesce(l.finished_at, w.fenced_at, w.ended_at) END))
    FROM toolfleet.open_calls o
    LEFT JOIN toolfleet.ended_attempts a ON a.call_id = o.call_id AND a.outcome = 'unknown' AND NOT a.late
    LEFT JOIN toolfleet.ended_attempts l
        ON l.call_id = a.call_id AND l.attempt_id = a.attempt_id AND l.late AND l.over
    LEFT JOIN toolfleet.worker_processes w ON w.worker_id = a.worker_id
    WHERE o.call_id = call
    GROUP BY o.call_id, o.attempt_until
$$;

CREATE VIEW toolfleet.in_doubt AS
SELECT o.call_id, o.tenant, o.tool, o.tool_version, o.doubt_since AS since, o.doubt_reason AS why,
       coalesce(w.name, o.worker_id::text) AS worker, toolfleet.is_fenced(o.call_id) AS worker_fenced,
       o.attempt_id, o.attempt_until,
       CASE WHEN v.sensitive IS NULL THEN o.args ELSE toolfleet.shown(o.args, v.sensitive) END AS args, o.last_error AS error, o.quarantined,
       o.probe_state, o.probes, o.probe_id, o.due_at AS next_probe_at
FROM toolfleet.open_calls o
LEFT JOIN toolfleet.worker_processes w USING (worker_id)
LEFT JOIN toolfleet.tool_versions v ON v.tool = o.tool AND v.version = o.tool_version
WHERE o.state = 'in_doubt';

CREATE VIEW toolfleet.tools AS
SELECT tool, version, version = max(version) OVER (PARTITION BY tool) AS current, manifest->>'effect' AS effect,
       manifest->>'queue' AS queue, manifest, encode(schema_hash, 'hex') AS schema_hash, applied_at, applied_by,
       concurrency
FROM toolfleet.tool_versions;

-- The places of tools with a limit that are taken now, and by what: an attempt that runs, or one in doubt that may still act.
CREATE VIEW toolfleet.slots AS
SELECT s.tool, s.slot, s.call_id, s.attempt_id, o.state::text AS state, coalesce(w.name, o.worker_id::text) AS worker,
       o.attempt_started_at AS since, o.attempt_until
FROM toolfleet.tool_slots s
JOIN toolfleet.open_calls o ON o.call_id = s.call_id AND o.attempt_id = s.attempt_id
LEFT JOIN toolfleet.worker_processes w USING (worker_id)
WHERE o.state = 'running' OR o.state = 'in_doubt' AND o.attempt_until > now();

CREATE VIEW toolfleet.workers AS
SELECT worker_id, name, host, pid, version, state::text AS state, queues, concurrency, beat_at, started_at, ended_at,
       ended_by, fenced_at, fenced_by, fence_note, (SELECT count(*) FROM toolfleet.open_calls o WHERE o.worker_id = w.worker_id AND o.state = 'running')
       AS running
FROM toolfleet.worker_processes w;
