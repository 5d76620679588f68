-- Why: a control of a tenant's operators stayed theirs when those of the fleet changed it, so they took it away again. The same
-- command did not give a control its time anew, nor open what a remote had closed. A tool could get the name of a shared limit, and
-- then nobody could set either. `7` and `7.0` were two scopes. Actors, notes and what callers are told could hold characters that
-- nobody sees.
-- Locks: SHARE ROW EXCLUSIVE on tool_versions, for the trigger; rows of live_controls, at most 1000.
-- The release before survives it: it says an error of Postgres where a tool gets the name of a limit.

-- A value of a scope in one spelling for each number, whoever writes it: the decimal without an exponent and without zeros at its
-- end. Larger exponents than three digits are left: no arguments have such a number. So are numbers within arrays and objects.
CREATE FUNCTION toolfleet.plain_number(value text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN v.text ~ '^-?[0-9]+(\.[0-9]+)?([eE][+-]?0*[0-9]{1,3})?$' AND length(v.text) <= 1024
                THEN trim_scale(v.text::numeric)::text ELSE value END
    FROM (SELECT btrim(value, E' \t\n\r') AS text OFFSET 0) v
$$;

-- Whether a text has a character that is not seen or turns the direction of others; `fleet::invisible` says why these. A joiner
-- belongs to a script behind a letter of it.
CREATE FUNCTION toolfleet.has_invisible(said text) RETURNS boolean LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT said ~ ('[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164'
        || '\ufe00-\ufe0d\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]'
        || '|(^|[\u0001-\u024f\u200c\u200d])[\u200c\u200d]')
$$;

-- The note of a control, for operators who may see the controls of this tenant alone: what the fleet's operators have noted is theirs.
CREATE FUNCTION toolfleet.note_for(note text, set_in text, in_tenant text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN in_tenant IS NULL OR set_in = in_tenant THEN note ELSE 'set by the fleet''s operators' END
$$;

-- The limits of the tools that are offered, those of their newest versions; a tool that is retired has none.
CREATE FUNCTION toolfleet.current_limits() RETURNS TABLE (tool text, version integer, is_shared boolean, name text)
LANGUAGE sql STABLE SET search_path = toolfleet, pg_temp AS $$
    SELECT v.tool, v.version, v.rate_limit->>'share' IS NOT NULL, coalesce(v.rate_limit->>'share', v.tool)
    FROM (SELECT DISTINCT ON (t.tool) t.tool, t.version, t.rate_limit FROM toolfleet.tool_versions t
          ORDER BY t.tool, t.version DESC) v
    WHERE v.rate_limit IS NOT NULL
      AND NOT EXISTS (SELECT FROM toolfleet.tool_retirements r WHERE r.tool = v.tool AND r.version >= v.version)
$$;

-- A limit is set by its name, so no name is both a tool's own limit and one that tools share. Whoever applies has the fleet's row, so of two
-- that come at once the second one sees the first.
CREATE FUNCTION toolfleet.refuse_second_limit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM toolfleet.current_limits() mine JOIN toolfleet.current_limits() other USING (name)
               WHERE mine.tool = NEW.tool AND mine.version = NEW.version AND other.is_shared <> mine.is_shared) THEN
        RAISE EXCEPTION 'another tool has a limit with this name: one that tools share, or its own'
            USING ERRCODE = 'unique_violation', CONSTRAINT = 'tool_versions_limit_name';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER refuses_second_name AFTER INSERT ON toolfleet.tool_versions FOR EACH ROW WHEN (NEW.rate_limit IS NOT NULL)
    EXECUTE FUNCTION toolfleet.refuse_second_limit();

-- What an operator has forced open stays so: with a version without a breaker everything would be sent again, unsaid.
CREATE FUNCTION toolfleet.refuse_lost_breaker() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM toolfleet.live_controls c
               WHERE c.kind = 'breaker' AND c.tool = NEW.tool AND c.setting #>> '{}' = 'open'
                 AND (c.expires_at IS NULL OR c.expires_at > clock_timestamp())) THEN
        RAISE EXCEPTION 'an operator has forced the breaker of this tool open'
            USING ERRCODE = 'object_in_use', CONSTRAINT = 'tool_versions_forced_breaker';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER refuses_lost_breaker AFTER INSERT ON toolfleet.tool_versions FOR EACH ROW WHEN (NEW.manifest->'breaker' IS NULL)
    EXECUTE FUNCTION toolfleet.refuse_lost_breaker();

-- As before, but the limits of retired tools are in no other's way.
CREATE OR REPLACE FUNCTION toolfleet.limit_problem(c toolfleet.live_controls) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = toolfleet, pg_temp AS $$
DECLARE
    shape text := 'setting must be {"calls": 50, "per_ms": 1000} and perhaps "burst", in whole numbers';
    calls numeric;
    per_ms numeric;
    burst numeric;
    limits bigint := (
        SELECT count(*)
        FROM (SELECT DISTINCT t.tool FROM toolfleet.tool_versions t WHERE t.rate_limit IS NOT NULL) v
        CROSS JOIN LATERAL toolfleet.rate_of(v.tool) r
        WHERE r.name = c.subject);
BEGIN
    IF num_nonnulls(c.tool, c.queue, c.tenant, c.pointer, c.value, c.told) > 0 THEN
        RETURN 'a limit has a name, as its subject, and no scope: no tool, queue, tenant, pointer, value or told';
    ELSIF c.subject IS NULL OR limits = 0 THEN
        RETURN 'subject must name a limit: that of a tool with a rate_limit of its own, or one that tools share';
    ELSIF (SELECT count(DISTINCT l.is_shared) > 1 FROM toolfleet.current_limits() l WHERE l.name = c.subject) THEN
        RETURN 'subject names the limit of a tool and a shared one; give the shared one another name, or retire the tool';
    ELSIF c.setting IS NULL OR json_typeof(c.setting) <> 'object' THEN
        RETURN shape;
    ELSIF EXISTS (
        SELECT FROM json_each(c.setting) s
        WHERE s.key NOT IN ('calls', 'per_ms', 'burst') OR s.value::text !~ '^[0-9]{1,9}$') THEN
        RETURN shape;
    END IF;
    calls := c.setting->>'calls';
    per_ms := c.setting->>'per_ms';
    burst := coalesce(c.setting->>'burst', '1');
    RETURN CASE
        WHEN calls IS NULL OR calls NOT BETWEEN 1 AND 1000000 THEN 'calls must be 1 to 1000000'
        WHEN per_ms IS NULL OR per_ms NOT BETWEEN 1 AND 86400000 THEN 'per_ms must be 1 to 86400000, which is a day'
        WHEN burst NOT BETWEEN 1 AND 10000 THEN 'burst must be 1 to 10000'
        WHEN calls > per_ms * 100 THEN 'calls are more than 100 in a millisecond, which is no limit'
        END;
END $$;

-- As before, and: what a person or a model reads has no characters that nobody sees.
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
        WHEN toolfleet.has_invisible(c.actor) THEN 'actor must not have invisible characters'
        WHEN toolfleet.has_invisible(c.note) THEN 'note must not have invisible characters'
        WHEN toolfleet.has_invisible(c.told) THEN 'told must not have invisible characters'
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

-- Sets a control. Verdicts: `set`; `already`: the very same one is there, nothing was changed; `conflict`: another one of the same
-- kind and scope is there, nothing was changed. With `replaces` that one is `changed` instead, keeps its id, and what waits
-- for it waits on; so is the very same one where it then does more: its time begins anew, or what a remote has closed is opened.
-- One that the fleet's operators have set or changed is theirs, and `already` is said to its own author alone.
-- `control` is the one that is there now. A limit for a time stands before one without an end, which holds again after it;
-- one without an end ends those for a time.
CREATE OR REPLACE FUNCTION toolfleet.set_control(
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
    c.value := toolfleet.plain_number(set_control.value::text);
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
       AND there.for_ms IS NOT DISTINCT FROM c.for_ms AND there.actor = c.actor AND there.note = c.note
       AND there.set_in IS NOT DISTINCT FROM c.set_in
       AND NOT (set_control.replaces AND (
           c.for_ms IS NOT NULL
           OR c.kind = 'limit' AND EXISTS (
               SELECT FROM toolfleet.rate_buckets b WHERE b.name = c.subject AND b.closed_until > clock_timestamp())
           OR c.kind = 'limit' AND EXISTS (
               SELECT FROM toolfleet.live_controls l
               WHERE l.kind = 'limit' AND l.subject = c.subject AND l.control_id <> there.control_id))) THEN
        came := 'already';
        c := there;
    ELSIF there.control_id IS NOT NULL
          AND (NOT set_control.replaces OR c.set_in IS NOT NULL AND there.set_in IS DISTINCT FROM c.set_in) THEN
        came := 'conflict';
        c := there;
    ELSIF there.control_id IS NOT NULL THEN
        c.control_id := there.control_id;
        c.set_at := clock_timestamp();
        c.expires_at := c.set_at + c.for_ms * interval '1 millisecond';
        UPDATE toolfleet.live_controls l
        SET setting = c.setting, told = c.told, actor = c.actor, note = c.note, role = c.role, set_in = c.set_in,
            set_at = c.set_at, for_ms = c.for_ms, expires_at = c.expires_at
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
    c.note := toolfleet.note_for(c.note, c.set_in, set_control.in_tenant);
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
    ELSIF toolfleet.has_invisible(unset_control.actor) THEN
        RAISE EXCEPTION 'actor must not have invisible characters' USING ERRCODE = 'invalid_parameter_value';
    ELSIF toolfleet.has_invisible(unset_control.note) THEN
        RAISE EXCEPTION 'note must not have invisible characters' USING ERRCODE = 'invalid_parameter_value';
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
           AND l.value IS NOT DISTINCT FROM toolfleet.plain_number(unset_control.value::text)
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

-- What is there gets its one spelling, unless two of them say the same: either is taken away by its id.
UPDATE toolfleet.live_controls l SET value = toolfleet.plain_number(l.value)
WHERE l.value <> toolfleet.plain_number(l.value) AND NOT EXISTS (
    SELECT FROM toolfleet.live_controls o
    WHERE o.control_id <> l.control_id AND o.kind = l.kind AND o.tool IS NOT DISTINCT FROM l.tool
      AND o.queue IS NOT DISTINCT FROM l.queue AND o.tenant IS NOT DISTINCT FROM l.tenant AND o.pointer = l.pointer
      AND o.subject IS NOT DISTINCT FROM l.subject AND toolfleet.plain_number(o.value) = toolfleet.plain_number(l.value));

REVOKE EXECUTE ON FUNCTION toolfleet.plain_number, toolfleet.has_invisible, toolfleet.note_for, toolfleet.current_limits,
    toolfleet.refuse_second_limit, toolfleet.refuse_lost_breaker FROM PUBLIC;
