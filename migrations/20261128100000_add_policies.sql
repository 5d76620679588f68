-- Why: a tool may have rules over what happened before in the run or session of a call (`policy`): at most so many calls, only after
-- others succeeded, never once others have happened. What happened is noted in rows of its own, by tenant, run or session, and tool,
-- and only for tools that a policy names: so a rule reads no more rows than its own number, however long a run is and whatever the
-- history has besides. 20261128100100 notes it.
-- Locks: ACCESS EXCLUSIVE on tool_versions while it is written anew, which is as long as a copy of the manifests takes, and on fleet
-- for a moment (a column without a default).
-- The release before survives it, and leaves tools with a policy out: upgrade every dispatcher and worker before the first one.

ALTER TABLE toolfleet.tool_versions ADD COLUMN policy json GENERATED ALWAYS AS (manifest->'policy') STORED;

-- The tools of which it is noted what happens. Here, because every process may read this row already.
ALTER TABLE toolfleet.fleet ADD COLUMN watched_tools text[];

-- What happened to a call, in each run and session that it is of (`own`) or whose caller was answered with it by its key:
-- `own`: it has happened there, or may have. `seen`: the same, for one that was answered by its key. `asked`: it was asked for by its
-- key, whatever became of it. `succeeded`: it has, wherever it is noted.
CREATE TABLE toolfleet.happenings (
    tenant text NOT NULL,
    scope text NOT NULL CHECK (scope IN ('run', 'session')),
    label text NOT NULL,
    tool text NOT NULL,
    what text NOT NULL CHECK (what IN ('own', 'seen', 'asked', 'succeeded')),
    call_id uuid NOT NULL,
    PRIMARY KEY (tenant, scope, label, tool, what, call_id)
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 10000);
CREATE INDEX happenings_call ON toolfleet.happenings (call_id);

-- Whoever starts a call of this tool, of which at most so many may happen in this run or session, has this row locked until then.
CREATE TABLE toolfleet.policy_locks (
    tenant text NOT NULL,
    scope text NOT NULL CHECK (scope IN ('run', 'session')),
    label text NOT NULL,
    tool text NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, scope, label, tool)
);

-- The tools that the policies of newest versions name, and those of which at most so many calls may happen.
CREATE FUNCTION toolfleet.watch_tools() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
BEGIN
    IF NEW.policy IS NULL AND NOT EXISTS (
        SELECT FROM toolfleet.tool_versions v WHERE v.tool = NEW.tool AND v.policy IS NOT NULL) THEN
        RETURN NULL;
    END IF;
    -- One at a time: the next statement sees what those before have committed.
    PERFORM FROM toolfleet.fleet FOR UPDATE;
    UPDATE toolfleet.fleet SET watched_tools = (
        SELECT array_agg(DISTINCT n.name ORDER BY n.name)
        FROM (
            SELECT DISTINCT ON (v.tool) v.tool, v.policy FROM toolfleet.tool_versions v ORDER BY v.tool, v.version DESC) newest
        CROSS JOIN LATERAL (
            SELECT json_array_elements_text(newest.policy->'after') AS name
            UNION ALL SELECT json_array_elements_text(newest.policy->'never_after')
            UNION ALL SELECT newest.tool WHERE newest.policy->'at_most' IS NOT NULL) n);
    RETURN NULL;
END $$;
CREATE TRIGGER watches_tools AFTER INSERT ON toolfleet.tool_versions FOR EACH ROW EXECUTE FUNCTION toolfleet.watch_tools();

-- What the policy of a tool's newest version says of starting a call now; no row: it has none. Verdicts: `passes`; the first rule that
-- is broken, with the tool that broke it: `never_after`, `after`, `at_most`; or `no_run`, `no_session`, `no_label`: the call does not
-- say of which run or session it is, and a rule needs it. `places`: how many calls of those that have the same `among` may happen yet;
-- null: any number. `is_counted`: the call is among those that happened already, so another attempt of it is no further call.
--
-- With `locks`, a claim asks: its transaction is the only one that starts calls of this tool and run, or session, until it ends. Where
-- another one has that row, or it is not there, the verdict is `busy`; nothing is waited for, because one statement claims for all
-- tenants. What happened is read after that by further statements, which see what others have committed meanwhile (READ COMMITTED).
-- Without `locks`, the gate asks, which makes the row.
--
-- Each look is by the whole key of `happenings` with a limit: `at_most` reads its number of rows, the others one row for each name.
CREATE FUNCTION toolfleet.policy_says(tenant text, tool text, run text, session text, is_counted boolean, locks boolean)
RETURNS TABLE (verdict text, named text, calls bigint, per text, places bigint, among text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp
-- A bitmap would hold every row of a run before the first is counted.
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    policy json;
    own_label text;
BEGIN
    SELECT v.policy INTO policy
    FROM toolfleet.tool_versions v WHERE v.tool = policy_says.tool ORDER BY v.version DESC LIMIT 1;
    IF policy IS NULL THEN
        RETURN;
    END IF;
    calls := (policy->'at_most'->>'calls')::bigint;
    per := policy->'at_most'->>'per';
    own_label := CASE per WHEN 'run' THEN policy_says.run WHEN 'session' THEN policy_says.session END;
    verdict := CASE
        WHEN per IS NOT NULL AND own_label IS NULL THEN 'no_' || per
        WHEN coalesce(policy_says.run, policy_says.session) IS NULL THEN 'no_label' END;
    IF verdict IS NOT NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    among := CASE WHEN NOT is_counted THEN policy_says.tenant || '/' || policy_says.tool || '/' || per || '/' || own_label END;
    IF among IS NOT NULL AND locks THEN
        PERFORM FROM toolfleet.policy_locks l
        WHERE l.tenant = policy_says.tenant AND l.scope = per AND l.label = own_label AND l.tool = policy_says.tool
        FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            -- Another claim has it. Or it is not there, and the gate makes it, where the call comes by again: a row that was inserted
            -- here would let other claims wait for this one.
            verdict := 'busy';
            RETURN NEXT;
            RETURN;
        END IF;
    ELSIF among IS NOT NULL THEN
        INSERT INTO toolfleet.policy_locks (tenant, scope, label, tool)
        SELECT policy_says.tenant, per, own_label, policy_says.tool
        WHERE NOT EXISTS (
            SELECT FROM toolfleet.policy_locks l
            WHERE l.tenant = policy_says.tenant AND l.scope = per AND l.label = own_label AND l.tool = policy_says.tool)
        ON CONFLICT DO NOTHING;
    END IF;
    -- One by one, and each by the whole key: with a list of names, or as a join, the whole run would be read.
    FOR named IN SELECT json_array_elements_text(policy->'never_after') LOOP
        IF EXISTS (
                SELECT FROM toolfleet.happenings h WHERE h.tenant = policy_says.tenant
                  AND h.scope = 'run' AND h.label = policy_says.run AND h.tool = named AND h.what = 'own')
            OR EXISTS (
                SELECT FROM toolfleet.happenings h WHERE h.tenant = policy_says.tenant
                  AND h.scope = 'run' AND h.label = policy_says.run AND h.tool = named AND h.what = 'seen')
            OR EXISTS (
                SELECT FROM toolfleet.happenings h WHERE h.tenant = policy_says.tenant
                  AND h.scope = 'session' AND h.label = policy_says.session AND h.tool = named AND h.what = 'own')
            OR EXISTS (
                SELECT FROM toolfleet.happenings h WHERE h.tenant = policy_says.tenant
                  AND h.scope = 'session' AND h.label = policy_says.session AND h.tool = named AND h.what = 'seen') THEN
            verdict := 'never_after';
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;
    FOR named IN SELECT json_array_elements_text(policy->'after') LOOP
        PERFORM FROM toolfleet.happenings h
        WHERE h.tenant = policy_says.tenant AND h.scope = CASE WHEN policy_says.run IS NULL THEN 'session' ELSE 'run' END
          AND h.label = coalesce(policy_says.run, policy_says.session) AND h.tool = named AND h.what = 'succeeded'
        LIMIT 1;
        IF NOT FOUND THEN
            verdict := 'after';
            per := CASE WHEN policy_says.run IS NULL THEN 'session' ELSE 'run' END;
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;
    named := NULL;
    IF among IS NOT NULL THEN
        SELECT calls - count(*) INTO places
        FROM (
            SELECT FROM toolfleet.happenings h
            WHERE h.tenant = policy_says.tenant AND h.scope = per AND h.label = own_label AND h.tool = policy_says.tool AND h.what = 'own'
            LIMIT calls) h;
    END IF;
    verdict := CASE WHEN places <= 0 THEN 'at_most' ELSE 'passes' END;
    RETURN NEXT;
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.watch_tools, toolfleet.policy_says FROM PUBLIC;

DO $$
DECLARE
    body text := pg_get_functiondef('toolfleet.drop_history'::regproc);
    first text := '        DELETE FROM toolfleet.idempotency_keys WHERE call_id >= low AND call_id < high;';
    -- Before the tables of the day are dropped: from then on nothing ends until this transaction has.
    changed text := replace(body, first, E'        DELETE FROM toolfleet.happenings WHERE call_id >= low AND call_id < high;\n'
        '        DELETE FROM toolfleet.policy_locks WHERE made_at < horizon;\n' || first);
BEGIN
    IF changed = body THEN
        RAISE EXCEPTION 'drop_history does not delete the keys of a day';
    END IF;
    EXECUTE changed;
END $$;

-- As before, and nobody may switch policies off.
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
            'subject must name an interceptor, or rate_limit, breaker, retry_budget, repeat_cap, learned_timeout, cache, fallback or large_result'
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
