-- Why: operators say at run time what an interceptor may do (`mode`), and which ones remain (`only`), for all calls, those of a
-- tool, of a tenant, or of both. Mandatory ones cannot be switched off: workers say in their rows which these are.
-- Locks: none beyond those of replacing functions.
-- The release before survives it: it reads the kind `pause` alone.

-- What is wrong with the name of an interceptor that a control is about; null: nothing.
CREATE FUNCTION toolfleet.interceptor_problem(name text) RETURNS text
LANGUAGE sql STABLE SET search_path = toolfleet, pg_temp AS $$
    SELECT CASE
        WHEN NOT EXISTS (
            SELECT FROM toolfleet.worker_processes w, json_array_elements(w.interceptors) i
            WHERE i->>'name' = interceptor_problem.name) THEN
            'no worker has an interceptor of this name; toolfleet.interceptors has those that there are' END
$$;

-- What is wrong with a mode besides.
CREATE FUNCTION toolfleet.mode_problem(c toolfleet.live_controls) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = toolfleet, pg_temp AS $$
BEGIN
    RETURN CASE
        WHEN c.setting IS NULL OR c.setting::text NOT IN ('"enforce"', '"observe"', '"off"') THEN
            'setting must be "enforce", "observe" or "off"'
        WHEN c.queue IS NOT NULL OR c.pointer IS NOT NULL OR c.value IS NOT NULL THEN
            'a mode is about an interceptor, and perhaps a tool, a tenant, or both'
        WHEN c.told IS NOT NULL THEN 'told is what callers refused by a pause read: a mode has none'
        WHEN c.subject IS NULL THEN 'subject must name an interceptor'
        WHEN c.subject = 'pause' THEN 'pause is mandatory: end a pause instead of switching it off'
        WHEN toolfleet.interceptor_problem(c.subject) IS NOT NULL THEN toolfleet.interceptor_problem(c.subject)
        WHEN c.setting::text <> '"enforce"' AND EXISTS (
            SELECT FROM toolfleet.worker_processes w, json_array_elements(w.interceptors) i
            WHERE i->>'name' = c.subject AND (i->>'mandatory')::boolean) THEN
            'the interceptor is mandatory: its program lets nobody switch it off or only observe it'
        END;
END $$;

-- What is wrong with a list of the only interceptors besides. It may leave out mandatory ones, which remain all the same.
CREATE FUNCTION toolfleet.only_problem(c toolfleet.live_controls) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = toolfleet, pg_temp AS $$
BEGIN
    RETURN CASE
        WHEN c.setting IS NULL OR json_typeof(c.setting) <> 'array' THEN 'setting must be a list of names of interceptors'
        WHEN json_array_length(c.setting) > 16 THEN 'setting may have 16 names'
        WHEN EXISTS (SELECT FROM json_array_elements(c.setting) n WHERE json_typeof(n) <> 'string') THEN
            'setting must be a list of names of interceptors'
        WHEN c.queue IS NOT NULL OR c.pointer IS NOT NULL OR c.value IS NOT NULL OR c.subject IS NOT NULL THEN
            'a list of the only interceptors is about all calls, or about a tool, a tenant, or both'
        WHEN c.told IS NOT NULL THEN 'told is what callers refused by a pause read: a list has none'
        ELSE (SELECT toolfleet.interceptor_problem(n) FROM json_array_elements_text(c.setting) n
              WHERE toolfleet.interceptor_problem(n) IS NOT NULL LIMIT 1)
        END;
END $$;

-- As before, with the modes at the end.
CREATE OR REPLACE VIEW toolfleet.interceptors AS
WITH has AS (
    SELECT w.worker_id, w.name AS worker, w.queues, i.name, i."order", i.mandatory, i.fails, i.budget_ms
    FROM toolfleet.worker_processes w,
         json_to_recordset(w.interceptors) AS i (name text, "order" integer, mandatory boolean, fails text, budget_ms bigint)
    WHERE w.state IN ('live', 'draining')
), said AS (
    SELECT name, min("order") AS "order", bool_or(mandatory) AS mandatory, min(fails) AS fails, min(budget_ms) AS budget_ms,
           count(*) AS workers, count(DISTINCT ("order", mandatory, fails, budget_ms)) > 1 AS differ
    FROM has GROUP BY name
), did AS (
    SELECT name, sum(calls)::bigint AS calls, sum(continued)::bigint AS continued, sum(refused)::bigint AS refused,
           sum(waited)::bigint AS waited, sum(changed)::bigint AS changed, sum(errors)::bigint AS errors,
           sum(own_us)::bigint AS own_us, max(last_error_at) AS last_error_at,
           (array_agg(last_error ORDER BY last_error_at DESC NULLS LAST))[1] AS last_error
    FROM toolfleet.interceptor_stats GROUP BY name
)
SELECT name, s."order", s.mandatory, s.fails, s.budget_ms, coalesce(s.workers, 0) AS workers, coalesce(s.differ, false) AS differ,
       -- Live workers without it that pull a queue of one that has it.
       ARRAY(SELECT o.name FROM toolfleet.worker_processes o
             WHERE o.state = 'live' AND NOT EXISTS (SELECT FROM has h WHERE h.name = n.name AND h.worker_id = o.worker_id)
               AND EXISTS (SELECT FROM has h WHERE h.name = n.name AND h.queues && o.queues)
             ORDER BY o.name LIMIT 100) AS lacking,
       coalesce(d.calls, 0) AS calls, coalesce(d.continued, 0) AS continued, coalesce(d.refused, 0) AS refused,
       coalesce(d.waited, 0) AS waited, coalesce(d.changed, 0) AS changed, coalesce(d.errors, 0) AS errors,
       round(d.own_us / 1000.0 / nullif(d.calls, 0), 3)::float8 AS mean_ms, d.last_error, d.last_error_at,
       -- What operators have said of it, by scope.
       coalesce((SELECT json_agg(json_build_object('control_id', c.control_id, 'mode', c.setting, 'tool', c.tool, 'tenant', c.tenant)
                                 ORDER BY c.control_id)
                 FROM toolfleet.live_controls c
                 WHERE c.kind = 'mode' AND c.subject = n.name
                   AND (c.expires_at IS NULL OR c.expires_at > clock_timestamp())), '[]'::json) AS modes
FROM (SELECT name FROM said UNION SELECT name FROM did) n
LEFT JOIN said s USING (name)
LEFT JOIN did d USING (name);

REVOKE EXECUTE ON FUNCTION toolfleet.interceptor_problem, toolfleet.mode_problem, toolfleet.only_problem FROM PUBLIC;
