-- Why: what happens to calls of the tools that a policy names is noted for the runs and sessions that they are of (20261128100000).
-- Locks: ACCESS EXCLUSIVE on open_calls for a moment (a column without a default, three triggers).
-- The release before survives it. Its calls are not marked, so what they do is not noted, except by triggers where a claim of this
-- release has marked them: upgrade every dispatcher and worker before the first policy.

-- Whether it is noted what happens to the call: it has a run or a session, and a policy named its tool when it was accepted or claimed.
ALTER TABLE toolfleet.open_calls ADD COLUMN watched boolean;

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
        -- The statement that ends a call inserts it there; where it is not found, what is noted stays. Who was answered by what stood
        -- in for the tool has an answer of it, perhaps an old one.
        SELECT f.state = 'succeeded' OR f.effect_known IN ('applied', 'unknown') OR f.outcome = 'fallback', f.state = 'succeeded'
        INTO may_have, has_succeeded
        FROM toolfleet.finished_calls f WHERE f.call_id = c.call_id;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    ELSE
        c := NEW;
        may_have := c.state <> 'queued' OR c.effect_unknown;
    END IF;
    IF NOT may_have THEN
        DELETE FROM toolfleet.happenings h
        WHERE h.call_id = c.call_id AND (h.what IN ('own', 'seen') OR TG_OP = 'DELETE');
        RETURN NULL;
    END IF;
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
    RETURN NULL;
END $$;

CREATE TRIGGER notes_accepted AFTER INSERT ON toolfleet.open_calls FOR EACH ROW
    WHEN (NEW.watched AND NEW.state <> 'queued') EXECUTE FUNCTION toolfleet.note_happening();
CREATE TRIGGER notes_moved AFTER UPDATE ON toolfleet.open_calls FOR EACH ROW
    WHEN (NEW.watched IS TRUE AND (OLD.watched IS NOT TRUE
          OR (OLD.state <> 'queued' OR OLD.effect_unknown) <> (NEW.state <> 'queued' OR NEW.effect_unknown)))
    EXECUTE FUNCTION toolfleet.note_happening();
CREATE TRIGGER notes_ended AFTER DELETE ON toolfleet.open_calls FOR EACH ROW
    WHEN (OLD.watched) EXECUTE FUNCTION toolfleet.note_happening();

-- A caller of this run and session gets the answer of a call of another one, by its key: what the call has done, and does from here on,
-- counts there too. Waits for a statement that moves the call, for as long as that takes.
CREATE FUNCTION toolfleet.note_asked(call uuid, run text, session text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    c record;
BEGIN
    SELECT o.tenant, o.tool, o.run, o.session, o.state <> 'queued' OR o.effect_unknown AS may_have, false AS has_succeeded INTO c
    FROM toolfleet.open_calls o WHERE o.call_id = note_asked.call FOR SHARE;
    IF NOT FOUND THEN
        SELECT f.tenant, f.tool, f.run, f.session,
               f.state = 'succeeded' OR f.effect_known IN ('applied', 'unknown') OR f.outcome = 'fallback' AS may_have,
               f.state = 'succeeded' AS has_succeeded INTO c
        FROM toolfleet.finished_calls f WHERE f.call_id = note_asked.call;
        -- What has ended and has not happened never will.
        IF NOT FOUND OR NOT c.may_have THEN
            RETURN;
        END IF;
    END IF;
    INSERT INTO toolfleet.happenings (tenant, scope, label, tool, what, call_id)
    SELECT c.tenant, l.scope, l.label, c.tool, w.what, note_asked.call
    FROM (VALUES ('run', note_asked.run, c.run), ('session', note_asked.session, c.session)) AS l (scope, label, own)
    CROSS JOIN LATERAL (
        SELECT 'asked' AS what UNION ALL SELECT 'seen' WHERE c.may_have UNION ALL SELECT 'succeeded' WHERE c.has_succeeded) w
    WHERE l.label IS NOT NULL AND l.label IS DISTINCT FROM l.own
    ON CONFLICT DO NOTHING;
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.note_happening, toolfleet.note_asked FROM PUBLIC;
