-- Why: an operator may want to see what a rate limit, a breaker, a retry budget or the repeat cap would do before it does it, or to
-- switch one off while it is wrong. A mode may name these four as it names an interceptor of a worker's program.
-- Locks: none beside the catalog's.
-- The release before survives it: it reads such a mode as that of an interceptor which it does not have.

-- The engine's own parts that a mode may name. The others of its names are mandatory, or not there.
CREATE FUNCTION toolfleet.is_brake(name text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT name IN ('rate_limit', 'breaker', 'retry_budget', 'repeat_cap')
$$;
REVOKE EXECUTE ON FUNCTION toolfleet.is_brake FROM PUBLIC;

CREATE OR REPLACE FUNCTION toolfleet.mode_problem(c toolfleet.live_controls) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = toolfleet, pg_temp AS $$
BEGIN
    RETURN CASE
        WHEN c.setting IS NULL OR c.setting::text NOT IN ('"enforce"', '"observe"', '"off"') THEN
            'setting must be "enforce", "observe" or "off"'
        WHEN c.queue IS NOT NULL OR c.pointer IS NOT NULL OR c.value IS NOT NULL THEN
            'a mode is about an interceptor, and perhaps a tool, a tenant, or both'
        WHEN c.told IS NOT NULL THEN 'told is what callers refused by a pause read: a mode has none'
        WHEN c.subject IS NULL THEN 'subject must name an interceptor, or rate_limit, breaker, retry_budget or repeat_cap'
        WHEN c.subject = 'pause' THEN 'pause is mandatory: end a pause instead of switching it off'
        WHEN toolfleet.is_brake(c.subject) THEN NULL
        WHEN toolfleet.interceptor_problem(c.subject) IS NOT NULL THEN toolfleet.interceptor_problem(c.subject)
        WHEN c.setting::text <> '"enforce"' AND EXISTS (
            SELECT FROM toolfleet.worker_processes w, json_array_elements(w.interceptors) i
            WHERE i->>'name' = c.subject AND (i->>'mandatory')::boolean) THEN
            'the interceptor is mandatory: its program lets nobody switch it off or only observe it'
        END;
END $$;

-- As before, and: a limit and a breaker keep a target for all tenants, so no tenant's operator takes them away from its own calls.
CREATE OR REPLACE FUNCTION toolfleet.control_problem(c toolfleet.live_controls, in_tenant text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = toolfleet, pg_temp AS $$
DECLARE
    problem text;
BEGIN
    problem := CASE
        WHEN c.kind IS NULL OR c.kind !~ '^[a-z]+$'
             OR to_regprocedure(format('toolfleet.%I(toolfleet.live_controls)', c.kind || '_problem')) IS NULL THEN
            'kind must be a kind of control, such as pause'
        WHEN coalesce(length(btrim(c.actor)), 0) NOT BETWEEN 1 AND 200 THEN
            'actor must say who sets it, in 1 to 200 characters'
        WHEN coalesce(length(btrim(c.note)), 0) NOT BETWEEN 1 AND 2000 THEN 'note must say why, in 1 to 2000 characters'
        WHEN c.told IS NOT NULL AND length(btrim(c.told)) NOT BETWEEN 1 AND 200 THEN 'told may have 1 to 200 characters'
        WHEN c.told ~ '[\u0001-\u001f\u007f-\u009f]' THEN 'told must not have control characters'
        WHEN c.for_ms NOT BETWEEN 1 AND 2592000000 THEN 'for_ms must be 1 to 2592000000, which is 30 days'
        WHEN c.tenant !~ '^[A-Za-z0-9_-]{1,64}$' THEN 'tenant must be 1 to 64 characters of A-Z, a-z, 0-9, _ and -'
        WHEN in_tenant IS NOT NULL AND c.tenant IS NULL THEN
            'tenant must be named: on the subject of a tenant a control holds for that tenant only'
        WHEN c.tenant <> in_tenant THEN 'tenant is another one: on the subject of a tenant a control holds for that tenant only'
        WHEN in_tenant IS NOT NULL AND c.kind = 'mode' AND toolfleet.is_brake(c.subject) THEN
            'the brakes of the engine hold for the whole fleet: only its own operators set their modes'
        WHEN c.tool IS NOT NULL AND NOT EXISTS (SELECT FROM toolfleet.tool_versions v WHERE v.tool = c.tool) THEN
            'there is no such tool'
        WHEN c.queue IS NOT NULL AND c.queue <> 'default' AND NOT EXISTS (
            SELECT FROM toolfleet.tool_versions v WHERE v.manifest->>'queue' = c.queue) THEN 'no tool has this queue'
        WHEN c.tool IS NOT NULL AND c.queue IS NOT NULL AND NOT EXISTS (
            SELECT FROM toolfleet.tool_versions v
            WHERE v.tool = c.tool AND coalesce(v.manifest->>'queue', 'default') = c.queue) THEN
            'no version of the tool has this queue, so no call would be in its scope' END;
    IF problem IS NULL THEN
        EXECUTE format('SELECT toolfleet.%I($1)', c.kind || '_problem') INTO problem USING c;
    END IF;
    RETURN problem;
END $$;
