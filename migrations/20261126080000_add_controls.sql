-- Why: what may run is changed at run time, over the whole fleet, and the ledger says who did it, why and until when. A control is
-- a row of `live_controls`; every change of one is a row of `control_changes`, which does not change. Only `set_control`,
-- `unset_control` and `expire_controls` write either. The only kind so far is `pause`; another one adds its rules to
-- `control_problem` and nothing to the tables.
-- Locks: ACCESS EXCLUSIVE on fleet for a moment; a column with a constant default rewrites nothing.
-- The release before survives it and does not know it: its dispatchers take and its workers run what is paused. Pause nothing
-- before every dispatcher and worker is upgraded; before the release before is taken again, end all pauses and wait until no call
-- has held_why = 'pause': it leaves their lines alone.

-- Moves with every change: a process that has seen this number has nothing to read.
ALTER TABLE toolfleet.fleet ADD COLUMN control_rev bigint NOT NULL DEFAULT 0;

CREATE TABLE toolfleet.live_controls (
    -- The revision that set it.
    control_id bigint PRIMARY KEY,
    kind text NOT NULL,
    -- Its scope: what is null restricts nothing.
    tool text,
    queue text,
    tenant text,
    -- JSON pointer into the arguments, and the JSON text of the value there.
    pointer text,
    value text,
    -- What a kind is about besides calls: the name of an interceptor, of a bucket.
    subject text,
    setting json NOT NULL,
    -- What a model may read.
    told text,
    actor text NOT NULL,
    note text NOT NULL,
    role text NOT NULL,
    -- The tenant under whose subject it was set, whose operators may take it away; null: only those of the fleet may.
    set_in text,
    set_at timestamptz NOT NULL,
    for_ms bigint,
    expires_at timestamptz,
    CHECK ((pointer IS NULL) = (value IS NULL)),
    CHECK ((for_ms IS NULL) = (expires_at IS NULL)),
    CONSTRAINT live_controls_scope UNIQUE NULLS NOT DISTINCT (kind, tool, queue, tenant, pointer, value, subject)
);

CREATE TABLE toolfleet.control_changes (
    rev bigint PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- set, unset, expired.
    change text NOT NULL,
    control_id bigint NOT NULL,
    kind text NOT NULL,
    tool text,
    queue text,
    tenant text,
    pointer text,
    value text,
    subject text,
    setting json NOT NULL,
    told text,
    expires_at timestamptz,
    actor text NOT NULL,
    note text NOT NULL,
    role text NOT NULL
);

CREATE FUNCTION toolfleet.refuse_change_of_controls() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the log of controls does not change: change %', OLD.rev USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE ON toolfleet.control_changes FOR EACH ROW
    EXECUTE FUNCTION toolfleet.refuse_change_of_controls();
CREATE TRIGGER not_emptied BEFORE TRUNCATE ON toolfleet.control_changes FOR EACH STATEMENT
    EXECUTE FUNCTION toolfleet.refuse_truncation();

-- The next revision: whoever has it changes controls alone until the end of its transaction.
CREATE FUNCTION toolfleet.next_control_rev() RETURNS bigint LANGUAGE sql SET search_path = toolfleet, pg_temp AS $$
    UPDATE toolfleet.fleet SET control_rev = control_rev + 1 RETURNING control_rev
$$;

CREATE FUNCTION toolfleet.log_control(rev bigint, change text, c toolfleet.live_controls, actor text, note text)
RETURNS void LANGUAGE sql SET search_path = toolfleet, pg_temp AS $$
    INSERT INTO toolfleet.control_changes (rev, change, control_id, kind, tool, queue, tenant, pointer, value, subject, setting,
        told, expires_at, actor, note, role)
    VALUES (log_control.rev, log_control.change, c.control_id, c.kind, c.tool, c.queue, c.tenant, c.pointer, c.value, c.subject,
        c.setting, c.told, c.expires_at, log_control.actor, log_control.note, session_user)
$$;

-- Takes away what is over and says so in the log. Any number of dispatchers may call it.
CREATE FUNCTION toolfleet.expire_controls() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
DECLARE
    c toolfleet.live_controls;
    ended bigint := 0;
BEGIN
    IF NOT EXISTS (SELECT FROM toolfleet.live_controls l WHERE l.expires_at <= clock_timestamp()) THEN
        RETURN 0;
    END IF;
    PERFORM FROM toolfleet.fleet FOR UPDATE;
    FOR c IN DELETE FROM toolfleet.live_controls l WHERE l.expires_at <= clock_timestamp() RETURNING l.* LOOP
        PERFORM toolfleet.log_control(toolfleet.next_control_rev(), 'expired', c, 'toolfleet', 'its time is over');
        ended := ended + 1;
    END LOOP;
    RETURN ended;
END $$;

CREATE VIEW toolfleet.controls AS
SELECT c.control_id, c.kind, c.tool, c.queue, c.tenant, c.pointer, c.value::json AS value, c.subject, c.setting, c.told, c.actor,
       c.note, c.role, c.set_at, c.expires_at,
       -- Calls that wait for it; at most 100000 are counted.
       (SELECT count(*) FROM (
            SELECT FROM toolfleet.open_calls o WHERE o.held AND o.line = 'pause/' || c.control_id LIMIT 100000) w) AS waiting
FROM toolfleet.live_controls c
WHERE c.expires_at IS NULL OR c.expires_at > clock_timestamp();

CREATE VIEW toolfleet.control_log AS
SELECT rev, at, change, control_id, kind, tool, queue, tenant, pointer, value::json AS value, subject, setting, told, expires_at,
       actor, note, role
FROM toolfleet.control_changes;

-- A control as the view has it, without the calls that wait.
CREATE FUNCTION toolfleet.shown_control(c toolfleet.live_controls) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT row_to_json(shown) FROM (
        SELECT c.control_id, c.kind, c.tool, c.queue, c.tenant, c.pointer, c.value::json AS value, c.subject, c.setting, c.told,
               c.actor, c.note, c.role, c.set_at, c.expires_at) shown
$$;

-- Whether the value at one JSON pointer is the one at the other, lies in it or contains it; `*` stands for any name.
CREATE FUNCTION toolfleet.touches(sensitive text, pointer text) RETURNS boolean LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT NOT EXISTS (
        SELECT FROM unnest(string_to_array(sensitive, '/')) WITH ORDINALITY s (segment, place)
        JOIN unnest(string_to_array(pointer, '/')) WITH ORDINALITY p (segment, place) USING (place)
        WHERE place > 1 AND s.segment <> '*' AND s.segment <> p.segment)
$$;

-- What is wrong with a control of any kind; null: nothing.
CREATE FUNCTION toolfleet.control_problem(c toolfleet.live_controls, in_tenant text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = toolfleet, pg_temp AS $$
BEGIN
    RETURN CASE
        WHEN c.kind IS NULL OR c.kind <> 'pause' THEN 'kind must be pause'
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
        WHEN c.tool IS NOT NULL AND NOT EXISTS (SELECT FROM toolfleet.tool_versions v WHERE v.tool = c.tool) THEN
            'there is no such tool'
        WHEN c.queue IS NOT NULL AND c.queue <> 'default' AND NOT EXISTS (
            SELECT FROM toolfleet.tool_versions v WHERE v.manifest->>'queue' = c.queue) THEN 'no tool has this queue'
        WHEN c.tool IS NOT NULL AND c.queue IS NOT NULL AND NOT EXISTS (
            SELECT FROM toolfleet.tool_versions v
            WHERE v.tool = c.tool AND coalesce(v.manifest->>'queue', 'default') = c.queue) THEN
            'no version of the tool has this queue, so no call would be in its scope'
        ELSE toolfleet.pause_problem(c) END;
END $$;

-- What is wrong with a pause besides.
CREATE FUNCTION toolfleet.pause_problem(c toolfleet.live_controls) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = toolfleet, pg_temp AS $$
BEGIN
    RETURN CASE
        WHEN c.setting IS NULL OR c.setting::text NOT IN ('"wait"', '"refuse"') THEN 'setting must be "wait" or "refuse"'
        WHEN c.subject IS NOT NULL THEN 'a pause has no subject'
        WHEN c.told IS NOT NULL AND c.setting::text <> '"refuse"' THEN
            'told is what refused callers read: it needs the setting "refuse"'
        WHEN c.tool IS NULL AND c.queue IS NULL AND c.tenant IS NULL THEN
            'a pause needs a scope: a tool, a queue, a tenant, or several of them'
        WHEN (c.pointer IS NULL) <> (c.value IS NULL) THEN 'pointer and value belong together'
        WHEN c.pointer IS NULL THEN NULL
        WHEN c.tool IS NULL THEN 'a pointer needs a tool: the arguments of others have other places'
        WHEN octet_length(c.pointer) > 1024 OR c.pointer !~ '^(/([^/~]|~[01])*)+$' THEN
            'pointer must be a JSON pointer such as /account/id, of at most 1024 bytes'
        WHEN octet_length(c.value) > 1024 THEN 'value may have 1024 bytes, as JSON'
        WHEN strpos(c.value, '\u0000') > 0 THEN 'value must not hold the character NUL'
        WHEN EXISTS (
            SELECT FROM toolfleet.tool_versions v, json_array_elements_text(v.sensitive->'pointers') s (pointer)
            WHERE v.tool = c.tool AND toolfleet.touches(s.pointer, c.pointer)) THEN
            'pointer is sensitive in this tool: the value would stand in the log of controls'
        END;
END $$;

-- Sets a control. Verdicts: `set`; `already`: the very same one is there, nothing was changed; `conflict`: one of the same kind and
-- scope is there with another setting, nothing was changed. `control` is the one that is there now.
CREATE FUNCTION toolfleet.set_control(
    kind text, setting json, actor text, note text, tool text DEFAULT NULL, queue text DEFAULT NULL, tenant text DEFAULT NULL,
    pointer text DEFAULT NULL, value json DEFAULT NULL, subject text DEFAULT NULL, told text DEFAULT NULL,
    for_ms bigint DEFAULT NULL, in_tenant text DEFAULT NULL
) RETURNS TABLE (verdict text, control json) LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    c toolfleet.live_controls;
    there toolfleet.live_controls;
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
      AND l.value IS NOT DISTINCT FROM c.value AND l.subject IS NOT DISTINCT FROM c.subject;
    IF FOUND THEN
        came := CASE WHEN there.setting::text = c.setting::text AND there.told IS NOT DISTINCT FROM c.told
                      AND there.for_ms IS NOT DISTINCT FROM c.for_ms THEN 'already' ELSE 'conflict' END;
        c := there;
    ELSIF c.set_in IS NOT NULL AND (SELECT count(*) >= 100 FROM toolfleet.live_controls l WHERE l.set_in = c.set_in) THEN
        RAISE EXCEPTION 'this tenant has 100 controls, and that is the most on its subject; unset some'
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
    RETURN QUERY SELECT came, toolfleet.shown_control(c);
END $$;

-- Takes a control away, by its id or, without one, by its kind and scope; with `in_tenant` only one that was set so. Verdicts: `unset`, `not_found`. `control` is the one that
-- was there.
CREATE FUNCTION toolfleet.unset_control(
    actor text, note text, id bigint DEFAULT NULL, kind text DEFAULT NULL, tool text DEFAULT NULL, queue text DEFAULT NULL,
    tenant text DEFAULT NULL, pointer text DEFAULT NULL, value json DEFAULT NULL, subject text DEFAULT NULL,
    in_tenant text DEFAULT NULL
) RETURNS TABLE (verdict text, control json) LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    c toolfleet.live_controls;
BEGIN
    IF coalesce(length(btrim(unset_control.actor)), 0) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION 'actor must say who takes it away, in 1 to 200 characters' USING ERRCODE = 'invalid_parameter_value';
    ELSIF coalesce(length(btrim(unset_control.note)), 0) NOT BETWEEN 1 AND 2000 THEN
        RAISE EXCEPTION 'note must say why, in 1 to 2000 characters' USING ERRCODE = 'invalid_parameter_value';
    ELSIF (unset_control.id IS NULL) = (unset_control.kind IS NULL) THEN
        RAISE EXCEPTION 'name the control by its id, or by its kind and scope' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM FROM toolfleet.fleet FOR UPDATE;
    PERFORM toolfleet.expire_controls();
    SELECT * INTO c FROM toolfleet.live_controls l
    WHERE (unset_control.in_tenant IS NULL OR l.set_in = unset_control.in_tenant)
      AND CASE WHEN unset_control.id IS NOT NULL THEN l.control_id = unset_control.id
          ELSE l.kind = unset_control.kind AND l.tool IS NOT DISTINCT FROM unset_control.tool
           AND l.queue IS NOT DISTINCT FROM unset_control.queue AND l.tenant IS NOT DISTINCT FROM unset_control.tenant
           AND l.pointer IS NOT DISTINCT FROM unset_control.pointer
           AND l.value IS NOT DISTINCT FROM unset_control.value::text
           AND l.subject IS NOT DISTINCT FROM unset_control.subject END;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'not_found', NULL::json;
        RETURN;
    END IF;
    DELETE FROM toolfleet.live_controls l WHERE l.control_id = c.control_id;
    PERFORM toolfleet.log_control(toolfleet.next_control_rev(), 'unset', c, unset_control.actor, unset_control.note);
    RETURN QUERY SELECT 'unset', toolfleet.shown_control(c);
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.refuse_change_of_controls, toolfleet.next_control_rev, toolfleet.log_control,
    toolfleet.expire_controls, toolfleet.shown_control, toolfleet.touches, toolfleet.control_problem, toolfleet.pause_problem, toolfleet.set_control,
    toolfleet.unset_control FROM PUBLIC;

CREATE OR REPLACE FUNCTION toolfleet.held_why(held boolean, line text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN NOT held THEN NULL
                WHEN line NOT LIKE '%/%' THEN 'room'
                WHEN line LIKE 'slots/%' THEN 'slots'
                WHEN line LIKE 'tool/%' THEN 'limit'
                WHEN line LIKE 'pause/%' THEN 'pause' END
$$;
