-- Why: what happens to calls of the tools that a policy names is noted for the runs and sessions that they are of (20261128100000).
-- Locks: ACCESS EXCLUSIVE on open_calls for a moment (a column without a default, three triggers).
-- The release before survives it. Its calls are not marked, so what they do is not noted, except by triggers where a claim of this
-- release has marked them: upgrade every dispatcher and worker before the first policy.

-- Whether it is noted what happens to the call: a policy named its tool when it was accepted or claimed, and it has a run or a session,
-- or was the answer to a request that has.
ALTER TABLE toolfleet.open_calls ADD COLUMN watched boolean;

-- Whether a call that is over has happened, or may have.
CREATE FUNCTION toolfleet.may_have_happened(f toolfleet.finished_calls) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = toolfleet, pg_temp AS $$
    SELECT (f.state = 'succeeded' OR f.effect_known IN ('applied', 'unknown')
        -- Who was answered by what stood in for the tool has an answer of it, perhaps an old one.
        OR f.outcome = 'fallback'
        -- A read that its caller's program was given, of which the fleet has heard nothing: that program may have read it all the same.
        OR f.state IN ('expired', 'cancelled') AND f.attempt_id IS NOT NULL AND f.worker_id IS NULL) IS TRUE
$$;

-- An open call may have happened while it runs, is in doubt, or is with its caller's program or with a tool that answers later; and
-- while an attempt before may have had its effect. One that waits for a yes, or for what its tool has asked, has not begun. The
-- triggers below say so, too.
--
-- A row of another call conflicts with none of these, so nothing here waits for another transaction.
CREATE FUNCTION toolfleet.note_happening() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    c toolfleet.open_calls;
    may_have boolean;
    has_succeeded boolean := false;
BEGIN
    IF TG_OP = 'DELETE' THEN
        c := OLD;
        -- Who ends a call has inserted it there by now; where it is not found, what is noted stays.
        SELECT toolfleet.may_have_happened(f), f.state = 'succeeded' INTO may_have, has_succeeded
        FROM toolfleet.finished_calls f WHERE f.call_id = c.call_id;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    ELSE
        c := NEW;
        may_have := (c.state IN ('running', 'in_doubt') OR c.awaiting IN ('client', 'completion') OR c.effect_unknown) IS TRUE;
    END IF;
    IF may_have THEN
        INSERT INTO toolfleet.happenings (tenant, scope, label, tool, what, call_id)
        SELECT c.tenant, l.scope, l.label, c.tool, w.what, c.call_id
        FROM (
            SELECT 'run' AS scope, c.run AS label, 'own' AS what WHERE c.run IS NOT NULL
            UNION ALL
            SELECT 'session', c.session, 'own' WHERE c.session IS NOT NULL
            UNION ALL
            SELECT h.scope, h.label, 'seen' FROM toolfleet.happenings h WHERE h.call_id = c.call_id AND h.what = 'asked') l
        CROSS JOIN LATERAL (SELECT l.what UNION ALL SELECT 'succeeded' WHERE has_succeeded) w
        ON CONFLICT DO NOTHING;
    END IF;
    -- Who asked for it matters until it is over.
    DELETE FROM toolfleet.happenings h
    WHERE h.call_id = c.call_id AND (NOT may_have AND h.what IN ('own', 'seen') OR TG_OP = 'DELETE' AND h.what = 'asked');
    RETURN NULL;
END $$;

CREATE TRIGGER notes_accepted AFTER INSERT ON toolfleet.open_calls FOR EACH ROW
    WHEN (NEW.watched AND NEW.awaiting = 'client')
    EXECUTE FUNCTION toolfleet.note_happening();
CREATE TRIGGER notes_moved AFTER UPDATE ON toolfleet.open_calls FOR EACH ROW
    WHEN (NEW.watched IS TRUE AND (OLD.watched IS NOT TRUE
          OR ((OLD.state IN ('running', 'in_doubt') OR OLD.awaiting IN ('client', 'completion') OR OLD.effect_unknown) IS TRUE)
             <> ((NEW.state IN ('running', 'in_doubt') OR NEW.awaiting IN ('client', 'completion') OR NEW.effect_unknown) IS TRUE)))
    EXECUTE FUNCTION toolfleet.note_happening();
CREATE TRIGGER notes_ended AFTER DELETE ON toolfleet.open_calls FOR EACH ROW
    WHEN (OLD.watched) EXECUTE FUNCTION toolfleet.note_happening();

-- `finish` deleted the open call before it inserted what became of it, by another statement: what it ended was not found above.
DO $$
DECLARE
    body text := pg_get_functiondef('toolfleet.finish'::regproc);
    gone text := E'    DELETE FROM toolfleet.open_calls c WHERE c.call_id = o.call_id;\n';
    changed text := replace(replace(body, gone, ''), E'    RETURN f;\n',
        E'    -- Last: what is noted of it (`note_happening`) is read from the row above.\n' || gone || E'    RETURN f;\n');
BEGIN
    IF strpos(body, gone) = 0 OR strpos(changed, gone) < strpos(changed, 'INSERT INTO toolfleet.finished_calls') THEN
        RAISE EXCEPTION 'finish does not end a call as it did';
    END IF;
    EXECUTE changed;
END $$;

-- A caller of this run and session gets the answer of a call of another one, by its key: what the call has done, and does from here on,
-- counts there too. Waits for a statement that moves the call, for as long as that takes; where the call is of the same run and
-- session, as most repetitions are, nothing is locked or written.
--
-- False: so many runs and sessions wait for the call already that no more may. Whatever moves it writes a row for each of them, in
-- a statement that calls of all tenants share.
CREATE FUNCTION toolfleet.note_asked(call uuid, run text, session text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    o toolfleet.open_calls;
    f toolfleet.finished_calls;
BEGIN
    PERFORM FROM toolfleet.open_calls c
    WHERE c.call_id = note_asked.call
      AND (note_asked.run IS NULL OR note_asked.run = c.run) AND (note_asked.session IS NULL OR note_asked.session = c.session);
    IF FOUND THEN
        RETURN true;
    END IF;
    SELECT * INTO o FROM toolfleet.open_calls c WHERE c.call_id = note_asked.call FOR NO KEY UPDATE;
    IF FOUND THEN
        IF (SELECT count(*) FROM toolfleet.happenings h
            WHERE h.call_id = o.call_id AND h.what = 'asked'
              AND (h.scope, h.label) IS DISTINCT FROM ('run', note_asked.run)
              AND (h.scope, h.label) IS DISTINCT FROM ('session', note_asked.session)) > 30 THEN
            RETURN false;
        END IF;
        INSERT INTO toolfleet.happenings (tenant, scope, label, tool, what, call_id)
        SELECT o.tenant, l.scope, l.label, o.tool, w.what, o.call_id
        FROM (VALUES ('run', note_asked.run, o.run), ('session', note_asked.session, o.session)) AS l (scope, label, own)
        CROSS JOIN LATERAL (
            SELECT 'asked' AS what
            UNION ALL
            SELECT 'seen' WHERE o.state IN ('running', 'in_doubt') OR o.awaiting IN ('client', 'completion') OR o.effect_unknown) w
        WHERE l.label IS NOT NULL AND l.label IS DISTINCT FROM l.own
        ON CONFLICT DO NOTHING;
        -- One that has neither a run nor a session, or was accepted before the policy, is noted from here on.
        UPDATE toolfleet.open_calls c SET watched = true WHERE c.call_id = o.call_id AND c.watched IS NOT TRUE;
        RETURN true;
    END IF;
    SELECT * INTO f FROM toolfleet.finished_calls c WHERE c.call_id = note_asked.call;
    -- What has ended and has not happened never will.
    IF NOT FOUND OR NOT toolfleet.may_have_happened(f) THEN
        RETURN true;
    END IF;
    INSERT INTO toolfleet.happenings (tenant, scope, label, tool, what, call_id)
    SELECT f.tenant, l.scope, l.label, f.tool, w.what, f.call_id
    FROM (VALUES ('run', note_asked.run, f.run), ('session', note_asked.session, f.session)) AS l (scope, label, own)
    CROSS JOIN LATERAL (SELECT 'seen' AS what UNION ALL SELECT 'succeeded' WHERE f.state = 'succeeded') w
    WHERE l.label IS NOT NULL AND l.label IS DISTINCT FROM l.own
    ON CONFLICT DO NOTHING;
    RETURN true;
END $$;

-- A call that is handed to its caller's program with a yes begins with it, as one does that is handed out when it is accepted.
DO $$
DECLARE
    body text := pg_get_functiondef('toolfleet.decide'::regproc);
    changed text := replace(body, $f$SET awaiting = 'client', rev$f$,
        $f$SET awaiting = 'client', watched = c.watched OR (c.run IS NOT NULL OR c.session IS NOT NULL)
                AND c.tool = ANY ((SELECT f.watched_tools FROM toolfleet.fleet f)::text[]), rev$f$);
BEGIN
    IF changed = body THEN
        RAISE EXCEPTION 'decide does not hand calls out as it did';
    END IF;
    EXECUTE changed;
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.may_have_happened, toolfleet.note_happening, toolfleet.note_asked FROM PUBLIC;
