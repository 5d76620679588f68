-- Why: a tool may have rules over what happened before in its run or session (`policy`): at most so many calls, only after others
-- succeeded, never once others have happened. The ledger knows what happened, so it decides.
-- Locks: ACCESS EXCLUSIVE on tool_versions while it is written anew, which is as long as a copy of the manifests takes.
-- The release before survives it, and leaves tools with a policy out: upgrade every dispatcher and worker before the first one.

ALTER TABLE toolfleet.tool_versions ADD COLUMN policy json GENERATED ALWAYS AS (manifest->'policy') STORED;

-- The calls of a tenant's run, and those of its session, that have happened or may have: those that run, are in doubt, have
-- succeeded, ended or wait with an effect that is there or unknown. Each may come twice. A probe is a call of the fleet's own.
CREATE FUNCTION toolfleet.happened(tenant text, run text, session text)
RETURNS TABLE (call_id uuid, tool text, has_succeeded boolean) LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT o.call_id, o.tool, false FROM toolfleet.open_calls o
    WHERE o.run = happened.run AND o.tenant = happened.tenant AND o.probe_of IS NULL
      AND (o.state IN ('running', 'in_doubt') OR o.effect_unknown)
    UNION ALL
    SELECT o.call_id, o.tool, false FROM toolfleet.open_calls o
    WHERE o.session = happened.session AND o.tenant = happened.tenant AND o.probe_of IS NULL
      AND (o.state IN ('running', 'in_doubt') OR o.effect_unknown)
    UNION ALL
    SELECT f.call_id, f.tool, f.state = 'succeeded' FROM toolfleet.finished_calls f
    WHERE f.run = happened.run AND f.tenant = happened.tenant AND f.probe_of IS NULL
      AND (f.state = 'succeeded' OR f.effect_known IN ('applied', 'unknown'))
    UNION ALL
    SELECT f.call_id, f.tool, f.state = 'succeeded' FROM toolfleet.finished_calls f
    WHERE f.session = happened.session AND f.tenant = happened.tenant AND f.probe_of IS NULL
      AND (f.state = 'succeeded' OR f.effect_known IN ('applied', 'unknown'))
$$;

-- What the policy of its tool's newest version says of an open call; no row: it has none, or the call is a probe. Verdicts:
-- `passes`; the first rule that is broken, with the tool that broke it: `never_after`, `after`, `at_most`; or `no_run`,
-- `no_session`, `no_label`: the call does not say of which run or session it is, and a rule needs it. `places`: how many calls
-- of those that have the same `among` may happen yet, this one included; null: any number.
--
-- With `locks`, a claim asks: whoever else wants to start a call of the same tool and run, or session, waits until this
-- transaction ends. Without `waits`, and where another one has that lock for longer than a few commits take, the verdict is
-- `busy`. What happened is read after that by further statements, which see what others have committed meanwhile (READ COMMITTED).
CREATE FUNCTION toolfleet.policy_says(call_id uuid, locks boolean, waits boolean)
RETURNS TABLE (verdict text, tool text, calls bigint, per text, places bigint, among text)
LANGUAGE plpgsql STRICT SECURITY DEFINER SET search_path = toolfleet, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    c record;
    label text;
    is_ours boolean := true;
BEGIN
    SELECT o.tenant, o.tool, o.run, o.session, o.effect_unknown, v.policy->'at_most' AS at_most,
           ARRAY(SELECT json_array_elements_text(v.policy->'after')) AS after,
           ARRAY(SELECT json_array_elements_text(v.policy->'never_after')) AS never_after
    INTO c
    FROM toolfleet.open_calls o
    CROSS JOIN LATERAL (
        SELECT t.policy FROM toolfleet.tool_versions t WHERE t.tool = o.tool ORDER BY t.version DESC LIMIT 1) v
    WHERE o.call_id = policy_says.call_id AND o.probe_of IS NULL AND v.policy IS NOT NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    calls := (c.at_most->>'calls')::bigint;
    per := c.at_most->>'per';
    label := CASE per WHEN 'run' THEN c.run WHEN 'session' THEN c.session END;
    verdict := CASE
        WHEN per IS NOT NULL AND label IS NULL THEN 'no_' || per
        WHEN coalesce(c.run, c.session) IS NULL THEN 'no_label' END;
    IF verdict IS NOT NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    -- One whose effect is unknown is counted already: another attempt of it is no further call.
    among := CASE WHEN NOT c.effect_unknown THEN c.tenant || '/' || c.tool || '/' || per || '/' || label END;
    IF locks AND among IS NOT NULL THEN
        IF waits THEN
            PERFORM pg_advisory_xact_lock(hashtextextended('policy/' || among, 0));
        ELSE
            FOR try IN 1..5 LOOP
                is_ours := pg_try_advisory_xact_lock(hashtextextended('policy/' || among, 0));
                EXIT WHEN is_ours;
                -- About as long as a commit takes.
                PERFORM pg_sleep(0.002);
            END LOOP;
        END IF;
        IF NOT is_ours THEN
            verdict := 'busy';
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    SELECT h.tool INTO tool
    FROM toolfleet.happened(c.tenant, c.run, c.session) h
    WHERE h.tool = ANY (c.never_after) AND h.call_id <> policy_says.call_id
    LIMIT 1;
    IF FOUND THEN
        verdict := 'never_after';
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT n.name INTO tool
    FROM unnest(c.after) WITH ORDINALITY AS n (name, place)
    WHERE n.name <> ALL (ARRAY(
        SELECT DISTINCT h.tool
        FROM toolfleet.happened(c.tenant, c.run, CASE WHEN c.run IS NULL THEN c.session END) h
        WHERE h.tool = ANY (c.after) AND h.has_succeeded))
    ORDER BY n.place
    LIMIT 1;
    IF FOUND THEN
        verdict := 'after';
        per := CASE WHEN c.run IS NULL THEN 'session' ELSE 'run' END;
        RETURN NEXT;
        RETURN;
    END IF;
    IF among IS NOT NULL THEN
        SELECT calls - count(*) INTO places
        FROM (
            SELECT FROM toolfleet.happened(
                c.tenant, CASE per WHEN 'run' THEN label END, CASE per WHEN 'session' THEN label END) h
            WHERE h.tool = c.tool AND h.call_id <> policy_says.call_id
            LIMIT calls) h;
    END IF;
    verdict := CASE WHEN places <= 0 THEN 'at_most' ELSE 'passes' END;
    RETURN NEXT;
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.happened, toolfleet.policy_says FROM PUBLIC;

-- As before, and: a policy is mandatory.
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
        WHEN c.subject = 'policy' THEN 'policy is mandatory: apply a version of the tool with other rules instead of switching it off'
        WHEN toolfleet.is_brake(c.subject) THEN NULL
        WHEN toolfleet.interceptor_problem(c.subject) IS NOT NULL THEN toolfleet.interceptor_problem(c.subject)
        WHEN c.setting::text <> '"enforce"' AND EXISTS (
            SELECT FROM toolfleet.worker_processes w, json_array_elements(w.interceptors) i
            WHERE i->>'name' = c.subject AND (i->>'mandatory')::boolean) THEN
            'the interceptor is mandatory: its program lets nobody switch it off or only observe it'
        END;
END $$;
