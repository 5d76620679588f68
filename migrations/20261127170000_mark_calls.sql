-- Why: a call that failed stays as it failed, and somebody deals with it later: it is made again, or given up. The history does
-- not change, so that is a mark beside it. What failed by the system and has no mark is a dead letter.
-- A mark goes with the day of the call that it marks; until then nothing changes or removes it.
-- Locks: ACCESS EXCLUSIVE on the view `calls` for a moment, none on a table.
-- The release before survives it: the view has three columns more, at its end, and `drop_history` does what it did.

CREATE TABLE toolfleet.call_marks (
    call_id uuid NOT NULL,
    what text NOT NULL CHECK (what = ANY ('{retried,discarded,abandoned}')),
    at timestamptz NOT NULL DEFAULT now(),
    actor text NOT NULL CHECK (length(actor) BETWEEN 1 AND 200),
    -- The role of the session, which nothing in the statement can change.
    role text NOT NULL,
    -- The call that was made instead.
    new_call_id uuid,
    note text CHECK (length(note) <= 2000),
    -- The name of the bulk operation that made the mark.
    bulk_name text CHECK (length(bulk_name) <= 128),
    CONSTRAINT call_marks_once UNIQUE NULLS NOT DISTINCT (call_id, what, new_call_id),
    CONSTRAINT call_marks_new CHECK ((what = 'retried') = (new_call_id IS NOT NULL))
);

-- Who makes a call again: written before the new call is sent, so that nobody else sends another one, or gives the call up. Without
-- a mark beside it, the new call was not sent, or its sender was killed: nobody knows which.
CREATE TABLE toolfleet.retry_reservations (
    call_id uuid PRIMARY KEY,
    -- Of the bulk retry of this name, or, without a name, of whoever makes this one call again.
    name text CHECK (length(name) BETWEEN 1 AND 128),
    -- Which one: a name may be forgotten, and used for another one. The keys of its new calls have it as well.
    retry uuid NOT NULL,
    -- The process that reserved it; once another one of the same retry has had it too, no process alone takes it back.
    run uuid NOT NULL,
    shared boolean NOT NULL DEFAULT false,
    at timestamptz NOT NULL DEFAULT now()
);

CREATE FUNCTION toolfleet.refuse_change_of_marks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- `drop_history` has dropped the call before its marks.
    IF TG_OP = 'DELETE' AND NOT EXISTS (SELECT FROM toolfleet.finished_calls f WHERE f.call_id = OLD.call_id) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'marks of call % do not change', OLD.call_id USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE ON toolfleet.call_marks FOR EACH ROW
    EXECUTE FUNCTION toolfleet.refuse_change_of_marks();
CREATE TRIGGER not_emptied BEFORE TRUNCATE ON toolfleet.call_marks FOR EACH STATEMENT
    EXECUTE FUNCTION toolfleet.refuse_truncation();

DO $$
DECLARE
    body text := pg_get_functiondef('toolfleet.drop_history'::regproc);
    changed text := replace(body, '        RETURN part.day;',
        E'        DELETE FROM toolfleet.call_marks WHERE call_id >= low AND call_id < high;\n'
        '        DELETE FROM toolfleet.retry_reservations WHERE call_id >= low AND call_id < high;\n        RETURN part.day;');
BEGIN
    IF changed = body THEN
        RAISE EXCEPTION 'drop_history does not return the day';
    END IF;
    EXECUTE changed;
END $$;

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
       CASE WHEN c.source = 'settled' THEN c.details->>'settled_by' END AS settled_by
FROM (
    SELECT call_id, tenant, tool, tool_version, effect, state, NULL::text AS outcome, NULL::text AS source, held, key_hash,
           args, original_args, coercions, NULL::json AS result, last_error AS error, NULL::json AS degraded, attempts,
           not_before, deadline_at, session, run, priority, accepted_at, first_started_at AS started_at,
           NULL::timestamptz AS finished_at, worker_id, traceparent, queue, language, meta,
           NULL::bigint AS queued_ms, NULL::bigint AS run_ms, cancel_requested, queue_until, probe_of, line,
           CASE WHEN state = 'queued' THEN obstacle END AS obstacle, NULL::text AS effect_known, NULL::json AS details
    FROM toolfleet.open_calls
    UNION ALL
    SELECT call_id, tenant, tool, tool_version, effect, state, outcome::text, source::text, false, key_hash,
           args, original_args, coercions, result, error, degraded, attempts,
           NULL, deadline_at, session, run, priority, accepted_at, first_started_at,
           finished_at, worker_id, traceparent, queue, language, meta, queued_ms, run_ms, false, NULL, probe_of, NULL, NULL,
           effect_known::text, details
    FROM toolfleet.finished_calls
) c
LEFT JOIN toolfleet.worker_processes w USING (worker_id)
LEFT JOIN toolfleet.tool_versions v ON v.tool = c.tool AND v.version = c.tool_version;

-- What failed by the system without an effect, and was not dealt with. A probe is the fleet's own question.
-- A write whose attempt says late that it did it has happened, whatever it was settled as.
-- It compares columns of the table and not words of the view, so that Postgres knows how many there may be.
CREATE VIEW toolfleet.dead_letters AS
SELECT f.call_id, f.tenant, f.tool, f.tool_version, f.effect::text AS effect, f.queue, f.state::text AS state,
       f.outcome::text AS outcome, f.effect_known::text AS effect_known, f.error->>'code' AS code, f.error,
       coalesce(f.error->'details'->'last', f.error) AS last_error, f.attempts,
       CASE WHEN v.sensitive IS NULL THEN f.args ELSE toolfleet.shown(f.args, v.sensitive) END AS args,
       CASE WHEN v.sensitive IS NULL THEN f.result ELSE toolfleet.shown(f.result, v.sensitive) END AS result,
       f.session, f.run, f.accepted_at, f.first_started_at AS started_at, f.finished_at,
       coalesce(w.name, f.worker_id::text) AS worker
FROM toolfleet.finished_calls f
LEFT JOIN toolfleet.worker_processes w USING (worker_id)
LEFT JOIN toolfleet.tool_versions v ON v.tool = f.tool AND v.version = f.tool_version
WHERE f.error IS NOT NULL AND f.state = 'failed' AND f.outcome = 'system_error' AND f.effect_known IN ('none', 'not_applied')
  AND f.probe_of IS NULL AND NOT EXISTS (SELECT FROM toolfleet.call_marks m WHERE m.call_id = f.call_id)
  AND (f.effect = 'read' OR NOT EXISTS (
      SELECT FROM toolfleet.ended_attempts a WHERE a.call_id = f.call_id AND a.late AND a.outcome = 'applied'));

CREATE VIEW toolfleet.marks AS
SELECT call_id, what, at, actor, role, new_call_id, note, bulk_name FROM toolfleet.call_marks;

-- Marks calls, at most 1,000 of them at a time: `retried`, each with the call that was made instead, or `discarded`. One answer
-- for each:
--   marked     it has this mark now, or had it before
--   not_dead   only for `discarded`: it is no dead letter; `state` says what it is
--   under_way  only for `discarded`: somebody makes it again just now, or was killed at it within 23 hours
--   not_over   it is open, `state` says how: it may be in doubt
--   not_found  there is no such call
CREATE FUNCTION toolfleet.mark_calls(
    calls uuid[], what text, actor text, note text DEFAULT NULL, new_calls uuid[] DEFAULT NULL, bulk_name text DEFAULT NULL
) RETURNS TABLE (call_id uuid, verdict text, state text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF mark_calls.what IS NULL OR mark_calls.what NOT IN ('retried', 'discarded') THEN
        RAISE EXCEPTION 'what must be retried or discarded' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF coalesce(btrim(mark_calls.actor), '') = '' OR length(mark_calls.actor) > 200 THEN
        RAISE EXCEPTION 'actor must say who marks it, in 1 to 200 characters' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF mark_calls.what = 'discarded' AND coalesce(btrim(mark_calls.note), '') = '' OR length(mark_calls.note) > 2000 THEN
        RAISE EXCEPTION 'note must say why it is discarded, in 1 to 2000 characters' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF coalesce(cardinality(mark_calls.calls), 0) > 1000 THEN
        RAISE EXCEPTION 'at most 1000 calls are marked at a time' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF mark_calls.what = 'retried'
       AND cardinality(mark_calls.new_calls) IS DISTINCT FROM cardinality(mark_calls.calls)
       OR mark_calls.what = 'discarded' AND mark_calls.new_calls IS NOT NULL
       OR array_position(mark_calls.new_calls, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'new_calls must have a call for each that was retried' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF mark_calls.what = 'discarded' THEN
        -- Either those who reserve it to make it again see this mark, or this sees their reservation.
        PERFORM pg_advisory_xact_lock(hashtext('toolfleet.retry_reservations'));
    END IF;
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT a.call_id, a.new_call_id, coalesce(f.state, o.state) AS state, f.call_id IS NOT NULL AS over,
               EXISTS (SELECT FROM toolfleet.dead_letters d WHERE d.call_id = a.call_id) AS dead,
               EXISTS (SELECT FROM toolfleet.retry_reservations r WHERE r.call_id = a.call_id
                           AND r.at > now() - interval '23 hours') AS reserved,
               EXISTS (SELECT FROM toolfleet.call_marks m WHERE m.call_id = a.call_id AND m.what = mark_calls.what
                           AND m.new_call_id IS NOT DISTINCT FROM a.new_call_id) AS marked
        FROM unnest(mark_calls.calls, mark_calls.new_calls) a (call_id, new_call_id)
        LEFT JOIN toolfleet.open_calls o ON o.call_id = a.call_id
        LEFT JOIN toolfleet.finished_calls f ON f.call_id = a.call_id
    ), stored AS (
        INSERT INTO toolfleet.call_marks (call_id, what, actor, role, new_call_id, note, bulk_name)
        SELECT DISTINCT a.call_id, mark_calls.what, mark_calls.actor, session_user, a.new_call_id, mark_calls.note,
               mark_calls.bulk_name
        FROM asked a
        WHERE a.over AND (a.dead AND NOT a.reserved OR mark_calls.what = 'retried')
        ORDER BY a.call_id
        ON CONFLICT DO NOTHING
    )
    SELECT a.call_id,
           CASE WHEN a.state IS NULL THEN 'not_found'
                WHEN NOT a.over THEN 'not_over'
                WHEN a.marked OR mark_calls.what = 'retried' THEN 'marked'
                WHEN a.dead AND a.reserved THEN 'under_way'
                WHEN a.dead THEN 'marked'
                ELSE 'not_dead' END,
           a.state::text
    FROM asked a;
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.mark_calls, toolfleet.refuse_change_of_marks FROM PUBLIC;
