-- Why: an operator may see what would be changed of requests to models before it is, or have them sent as they came: a mode may name
-- `delegation`, `tool_selection`, `todo`, `context` and `log` as it names the brakes.
-- Locks: none beside the catalog's.
-- The release before survives it: it reads such a mode as that of an interceptor which it does not have.

CREATE OR REPLACE FUNCTION toolfleet.is_brake(name text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT name IN ('rate_limit', 'breaker', 'retry_budget', 'repeat_cap', 'learned_timeout', 'cache', 'fallback', 'large_result',
                    'delegation', 'tool_selection', 'todo', 'context', 'log')
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
        WHEN c.subject IS NULL THEN
            'subject must name an interceptor, or rate_limit, breaker, retry_budget, repeat_cap, learned_timeout, cache, fallback, large_result, delegation, tool_selection, todo, context or log'
        WHEN c.subject = 'pause' THEN 'pause is mandatory: end a pause instead of switching it off'
        WHEN c.subject = 'policy' THEN 'policy is mandatory: apply a version of the tool with other rules instead of switching it off'
        WHEN toolfleet.is_brake(c.subject) THEN NULL
        WHEN toolfleet.interceptor_problem(c.subject) IS NOT NULL THEN toolfleet.interceptor_problem(c.subject)
        WHEN c.setting::text <> '"enforce"' AND EXISTS (
            SELECT FROM toolfleet.worker_processes w, json_array_elements(w.interceptors) i
            WHERE i->>'name' = c.subject AND (i->>'mandatory')::boolean) THEN
            'the interceptor is mandatory: its program lets nobody switch it off or only observe it'
        END;
END $$;
