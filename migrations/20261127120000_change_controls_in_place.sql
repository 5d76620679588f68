-- Why: a pause could not be made longer without letting go what waits for it, for it had to be resumed first; a second person's
-- pause with the same scope was taken for the first one's, and its note was lost; a limit that was set for a time took the one
-- without an end with it when it was over; the operators of ten tenants could use up the controls of the fleet; and nobody could
-- open a limit that a remote had closed.
-- Locks: ACCESS EXCLUSIVE on live_controls, which has at most 1000 rows.
-- The release before survives it: it calls set_control without `replaces`.

ALTER TABLE toolfleet.live_controls DROP CONSTRAINT live_controls_scope;
CREATE UNIQUE INDEX live_controls_scope ON toolfleet.live_controls
    (kind, tool, queue, tenant, pointer, value, subject, (kind = 'limit' AND for_ms IS NOT NULL)) NULLS NOT DISTINCT;

DROP FUNCTION toolfleet.set_control(text, json, text, text, text, text, text, text, json, text, text, bigint, text);

-- Sets a control. Verdicts: `set`; `already`: the very same one is there, nothing was changed; `conflict`: another one of the same
-- kind and scope is there, nothing was changed. With `replaces` that one is `changed` instead, keeps its id, and what waits
-- for it waits on. `control` is the one that is there now. A limit for a time stands before one without an end, which holds again after it;
-- one without an end ends those for a time.
CREATE FUNCTION toolfleet.set_control(
    kind text, setting json, actor text, note text, tool text DEFAULT NULL, queue text DEFAULT NULL, tenant text DEFAULT NULL,
    pointer text DEFAULT NULL, value json DEFAULT NULL, subject text DEFAULT NULL, told text DEFAULT NULL,
    for_ms bigint DEFAULT NULL, in_tenant text DEFAULT NULL, replaces boolean DEFAULT false
) RETURNS TABLE (verdict text, control json) LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    c toolfleet.live_controls;
    there toolfleet.live_controls;
    before toolfleet.live_controls;
    wrong text;
    came text := 'set';
BEGIN
    c.kind := set_control.kind;
    c.tool := set_control.tool;
    c.queue := set_control.queue;
    c.tenant := set_control.tenant;
    c.pointer := set_control.pointer;
    c.value := set_control.value::text;
    c.subject := set_control.subject;
    c.setting := set_control.setting;
    c.told := set_control.told;
    c.actor := set_control.actor;
    c.note := set_control.note;
    c.for_ms := set_control.for_ms;
    c.role := session_user;
    c.set_in := set_control.in_tenant;
    wrong := toolfleet.control_problem(c, set_control.in_tenant);
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', wrong USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM FROM toolfleet.fleet FOR UPDATE;
    PERFORM toolfleet.expire_controls();
    SELECT * INTO there FROM toolfleet.live_controls l
    WHERE l.kind = c.kind AND l.tool IS NOT DISTINCT FROM c.tool AND l.queue IS NOT DISTINCT FROM c.queue
      AND l.tenant IS NOT DISTINCT FROM c.tenant AND l.pointer IS NOT DISTINCT FROM c.pointer
      AND l.value IS NOT DISTINCT FROM c.value AND l.subject IS NOT DISTINCT FROM c.subject
      AND (c.kind <> 'limit' OR (l.for_ms IS NULL) = (c.for_ms IS NULL));
    IF FOUND AND there.setting::text = c.setting::text AND there.told IS NOT DISTINCT FROM c.told
       AND there.for_ms IS NOT DISTINCT FROM c.for_ms AND there.actor = c.actor AND there.note = c.note THEN
        came := 'already';
        c := there;
    ELSIF there.control_id IS NOT NULL
          AND (NOT set_control.replaces OR c.set_in IS NOT NULL AND there.set_in IS DISTINCT FROM c.set_in) THEN
        came := 'conflict';
        c := there;
    ELSIF there.control_id IS NOT NULL THEN
        c.control_id := there.control_id;
        c.set_in := there.set_in;
        c.set_at := clock_timestamp();
        c.expires_at := c.set_at + c.for_ms * interval '1 millisecond';
        UPDATE toolfleet.live_controls l
        SET setting = c.setting, told = c.told, actor = c.actor, note = c.note, role = c.role, set_at = c.set_at, for_ms = c.for_ms,
            expires_at = c.expires_at
        WHERE l.control_id = c.control_id;
        PERFORM toolfleet.log_control(toolfleet.next_control_rev(), 'changed', c, c.actor, c.note);
        came := 'changed';
    ELSIF c.set_in IS NOT NULL AND (SELECT count(*) >= 100 FROM toolfleet.live_controls l WHERE l.set_in = c.set_in) THEN
        RAISE EXCEPTION 'this tenant has 100 controls, and that is the most on its subject; unset some'
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF c.set_in IS NOT NULL AND (SELECT count(*) >= 900 FROM toolfleet.live_controls) THEN
        RAISE EXCEPTION 'there are 900 controls, and the last hundred are for the operators of the fleet; unset some'
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF (SELECT count(*) >= 1000 FROM toolfleet.live_controls) THEN
        RAISE EXCEPTION 'there are 1000 controls, and that is the most; unset some' USING ERRCODE = 'invalid_parameter_value';
    ELSE
        c.control_id := toolfleet.next_control_rev();
        c.set_at := clock_timestamp();
        c.expires_at := c.set_at + c.for_ms * interval '1 millisecond';
        INSERT INTO toolfleet.live_controls SELECT c.*;
        PERFORM toolfleet.log_control(c.control_id, 'set', c, c.actor, c.note);
    END IF;
    IF c.kind = 'limit' AND c.for_ms IS NULL AND came IN ('set', 'changed') THEN
        FOR before IN DELETE FROM toolfleet.live_controls l
                      WHERE l.kind = 'limit' AND l.subject = c.subject AND l.control_id <> c.control_id RETURNING l.* LOOP
            PERFORM toolfleet.log_control(toolfleet.next_control_rev(), 'unset', before, c.actor, c.note);
        END LOOP;
    END IF;
    RETURN QUERY SELECT came, toolfleet.shown_control(c);
END $$;

-- Takes a control away, by its id or, without one, by its kind and scope; with `in_tenant` only one that was set so. Verdicts:
-- `unset`, `not_found`; with an id, `kind` says of which kind it must be. `control` is the one that was there. A limit that is named by its scope goes with those for a time.
CREATE OR REPLACE FUNCTION toolfleet.unset_control(
    actor text, note text, id bigint DEFAULT NULL, kind text DEFAULT NULL, tool text DEFAULT NULL, queue text DEFAULT NULL,
    tenant text DEFAULT NULL, pointer text DEFAULT NULL, value json DEFAULT NULL, subject text DEFAULT NULL,
    in_tenant text DEFAULT NULL
) RETURNS TABLE (verdict text, control json) LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    c toolfleet.live_controls;
    other toolfleet.live_controls;
BEGIN
    IF coalesce(length(btrim(unset_control.actor)), 0) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION 'actor must say who takes it away, in 1 to 200 characters' USING ERRCODE = 'invalid_parameter_value';
    ELSIF coalesce(length(btrim(unset_control.note)), 0) NOT BETWEEN 1 AND 2000 THEN
        RAISE EXCEPTION 'note must say why, in 1 to 2000 characters' USING ERRCODE = 'invalid_parameter_value';
    ELSIF unset_control.id IS NULL AND unset_control.kind IS NULL THEN
        RAISE EXCEPTION 'name the control by its id, or by its kind and scope' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM FROM toolfleet.fleet FOR UPDATE;
    PERFORM toolfleet.expire_controls();
    SELECT * INTO c FROM toolfleet.live_controls l
    WHERE (unset_control.in_tenant IS NULL OR l.set_in = unset_control.in_tenant)
      AND CASE WHEN unset_control.id IS NOT NULL THEN
              l.control_id = unset_control.id AND (unset_control.kind IS NULL OR l.kind = unset_control.kind)
          ELSE l.kind = unset_control.kind AND l.tool IS NOT DISTINCT FROM unset_control.tool
           AND l.queue IS NOT DISTINCT FROM unset_control.queue AND l.tenant IS NOT DISTINCT FROM unset_control.tenant
           AND l.pointer IS NOT DISTINCT FROM unset_control.pointer
           AND l.value IS NOT DISTINCT FROM unset_control.value::text
           AND l.subject IS NOT DISTINCT FROM unset_control.subject END
    ORDER BY l.expires_at NULLS FIRST LIMIT 1;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'not_found', NULL::json;
        RETURN;
    END IF;
    DELETE FROM toolfleet.live_controls l WHERE l.control_id = c.control_id;
    PERFORM toolfleet.log_control(toolfleet.next_control_rev(), 'unset', c, unset_control.actor, unset_control.note);
    IF unset_control.id IS NULL AND c.kind = 'limit' THEN
        FOR other IN DELETE FROM toolfleet.live_controls l WHERE l.kind = 'limit' AND l.subject = c.subject RETURNING l.* LOOP
            PERFORM toolfleet.log_control(toolfleet.next_control_rev(), 'unset', other, unset_control.actor, unset_control.note);
        END LOOP;
    END IF;
    RETURN QUERY SELECT 'unset', toolfleet.shown_control(c);
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.set_control FROM PUBLIC;

-- The limit of a tool, with the numbers that hold now; no row: it has none. A shared limit that nobody has set has no numbers, and
-- then nothing starts. `step_us` is rounded up: the rate is never exceeded.
CREATE OR REPLACE FUNCTION toolfleet.rate_of(tool text)
RETURNS TABLE (shared_by text, name text, calls bigint, per_ms bigint, burst integer, step_us bigint, control_id bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
    SELECT r.shared_by, r.name, n.calls, n.per_ms, n.burst, ceil(n.per_ms * 1000.0 / n.calls)::bigint, c.control_id
    FROM (
        SELECT CASE WHEN v.rate_limit->>'share' IS NOT NULL THEN 'share' ELSE coalesce(v.rate_limit->>'by', 'tool') END AS shared_by,
               coalesce(v.rate_limit->>'share', v.tool) AS name, v.rate_limit AS own
        FROM (SELECT l.tool, l.rate_limit FROM toolfleet.tool_versions l WHERE l.tool = rate_of.tool ORDER BY l.version DESC LIMIT 1) v
        WHERE v.rate_limit IS NOT NULL
    ) r
    LEFT JOIN LATERAL (
        SELECT l.control_id, l.setting FROM toolfleet.live_controls l
        WHERE l.kind = 'limit' AND l.subject = r.name AND (l.expires_at IS NULL OR l.expires_at > clock_timestamp())
        -- One for a time stands before the one that holds again after it.
        ORDER BY l.expires_at NULLS LAST LIMIT 1
    ) c ON true
    CROSS JOIN LATERAL (
        SELECT (c.setting->>'calls')::bigint AS calls, (c.setting->>'per_ms')::bigint AS per_ms,
               coalesce((c.setting->>'burst')::integer, 1) AS burst WHERE c.control_id IS NOT NULL
        UNION ALL
        SELECT (r.own->>'calls')::bigint, toolfleet.duration_ms(r.own->>'per'), coalesce((r.own->>'burst')::integer, 1)
        WHERE c.control_id IS NULL
    ) n
$$;

-- New numbers open what a remote has closed: an operator who sets a limit knows better.
CREATE FUNCTION toolfleet.open_buckets_of_limit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE toolfleet.rate_buckets b SET closed_until = NULL WHERE b.name = NEW.subject AND b.closed_until IS NOT NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER opens_buckets AFTER INSERT OR UPDATE ON toolfleet.live_controls FOR EACH ROW WHEN (NEW.kind = 'limit')
    EXECUTE FUNCTION toolfleet.open_buckets_of_limit();
CREATE TRIGGER renews_buckets_on_change AFTER UPDATE ON toolfleet.live_controls FOR EACH ROW WHEN (NEW.kind = 'limit')
    EXECUTE FUNCTION toolfleet.renew_buckets_of_limit();
REVOKE EXECUTE ON FUNCTION toolfleet.open_buckets_of_limit FROM PUBLIC;
