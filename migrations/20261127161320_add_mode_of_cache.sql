-- Why: an operator may see what a cache would do before it does it, or switch one off while its answers are wrong: a mode may name
-- `cache` as it names the brakes. What it did stands with what interceptors did, with the calls that it answered.
-- Locks: ACCESS EXCLUSIVE on interceptor_stats and the view for a moment; a column with a constant default rewrites nothing.
-- The release before survives it: it reads such a mode as that of an interceptor which it does not have, and writes no such count.

CREATE OR REPLACE FUNCTION toolfleet.is_brake(name text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT name IN ('rate_limit', 'breaker', 'retry_budget', 'repeat_cap', 'learned_timeout', 'cache')
$$;

CREATE OR REPLACE FUNCTION toolfleet.mode_problem(c toolfleet.live_controls) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = toolfleet, pg_temp AS $$
BEGIN
    RETURN CASE
        WHEN c.setting IS NULL OR c.setting::text NOT IN ('"enforce"', '"observe"', '"off"') THEN
            'setting must be "enforce", "observe" or "off"'
        WHEN c.queue IS NOT NULL OR c.pointer IS NOT NULL OR c.value IS NOT NULL THEN
            'a mode is about an interceptor, and perhaps a tool, a tenant, or both'
        WHEN c.told IS NOT NULL THEN 'told is what callers refused by a pause read: a mode has none'
        WHEN c.subject IS NULL THEN 'subject must name an interceptor, or rate_limit, breaker, retry_budget, repeat_cap, learned_timeout or cache'
        WHEN c.subject = 'pause' THEN 'pause is mandatory: end a pause instead of switching it off'
        WHEN toolfleet.is_brake(c.subject) THEN NULL
        WHEN toolfleet.interceptor_problem(c.subject) IS NOT NULL THEN toolfleet.interceptor_problem(c.subject)
        WHEN c.setting::text <> '"enforce"' AND EXISTS (
            SELECT FROM toolfleet.worker_processes w, json_array_elements(w.interceptors) i
            WHERE i->>'name' = c.subject AND (i->>'mandatory')::boolean) THEN
            'the interceptor is mandatory: its program lets nobody switch it off or only observe it'
        END;
END $$;

ALTER TABLE toolfleet.interceptor_stats ADD COLUMN answered bigint NOT NULL DEFAULT 0;

-- As before, with the calls that were answered at the end.
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
           sum(own_us)::bigint AS own_us, sum(answered)::bigint AS answered, max(last_error_at) AS last_error_at,
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
                   AND (c.expires_at IS NULL OR c.expires_at > clock_timestamp())), '[]'::json) AS modes,
       coalesce(d.answered, 0) AS answered
FROM (SELECT name FROM said UNION SELECT name FROM did) n
LEFT JOIN said s USING (name)
LEFT JOIN did d USING (name);
