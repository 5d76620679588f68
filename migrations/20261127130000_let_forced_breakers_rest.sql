-- Why: a breaker that was forced closed opened in the log and in the alerts, for what was counted went on to decide; and what it was
-- before it was forced came back afterwards. Breakers that nobody calls any more stayed open for ever. `waiting` of a breaker and
-- of a limit was 0, whatever waited.
-- Locks: of live_controls, for the trigger.
-- The release before survives it: it reports, asks and reads as before. It knows no modes, for which alone `waiting` is null.

CREATE FUNCTION toolfleet.close_breaker(b toolfleet.breaker_states) RETURNS void
LANGUAGE plpgsql SET search_path = toolfleet, pg_temp AS $$
BEGIN
    b.state := 'closed';
    b.generation := b.generation + 1;
    b.open_until := NULL;
    b.open_ms := 0;
    b.probes_out := 0;
    b.probes_ok := 0;
    b.round_until := NULL;
    b.opened_at := NULL;
    b.why := NULL;
    PERFORM toolfleet.move_breaker(b);
END $$;

CREATE OR REPLACE FUNCTION toolfleet.judge_breaker(b toolfleet.breaker_states, worker uuid, moment timestamptz) RETURNS text
LANGUAGE plpgsql SET search_path = toolfleet, pg_temp AS $$
DECLARE
    t record;
    n record;
BEGIN
    -- While an operator forces it, what is counted decides nothing, and nothing of it is left when that ends.
    IF EXISTS (SELECT FROM toolfleet.live_controls c
               WHERE c.kind = 'breaker' AND c.tool = b.tool AND (c.expires_at IS NULL OR c.expires_at > moment)) THEN
        IF b.state = 'closed' THEN
            DELETE FROM toolfleet.breaker_windows w WHERE w.tool = b.tool AND w.target = b.target;
            RETURN 'stays';
        END IF;
        PERFORM toolfleet.close_breaker(b);
        RETURN 'closed';
    END IF;
    SELECT * INTO t FROM toolfleet.breaker_terms(b.tool);
    IF b.state = 'closed' THEN
        DELETE FROM toolfleet.breaker_windows w
        WHERE w.tool = b.tool AND w.target = b.target AND w.at <= moment - t.window_ms * interval '1 millisecond';
    END IF;
    SELECT coalesce(sum(c.calls), 0) AS calls, coalesce(sum(c.failures), 0) AS failures, coalesce(sum(c.slow), 0) AS slow,
           min(c.heard_at) AS heard_at, count(*) FILTER (WHERE c.calls > 0) AS callers, count(*) FILTER (WHERE c.troubled) AS troubled,
           coalesce(bool_or(c.worker_id = worker AND c.troubled), false) AS i_am,
           coalesce(bool_or(c.worker_id = worker
               AND toolfleet.breaker_is_over(t.calls, t.failures, t.slow, c.calls, c.failures, c.slow)), false) AS i_am_over
    INTO n
    FROM (SELECT w.worker_id, min(w.heard_at) AS heard_at, sum(w.calls) AS calls, sum(w.failures) AS failures, sum(w.slow) AS slow,
                 sum(w.failures) > 0 OR t.slow IS NOT NULL AND sum(w.slow) > 0 AS troubled
          FROM toolfleet.breaker_windows w WHERE w.tool = b.tool AND w.target = b.target GROUP BY w.worker_id) c;
    IF b.state = 'closed' THEN
        IF NOT toolfleet.breaker_is_over(t.calls, t.failures, t.slow, n.calls::bigint, n.failures::bigint, n.slow::bigint)
           AND NOT (n.troubled = 1 AND n.i_am_over) THEN
            RETURN 'stays';
        ELSIF n.callers > 1 AND n.troubled = 1 THEN
            RETURN CASE WHEN n.i_am THEN 'local' ELSE 'stays' END;
        ELSIF n.callers <= 1 AND moment - n.heard_at < interval '500 ms' THEN
            RETURN 'unsure';
        END IF;
        b.open_ms := t.open_ms;
        b.opened_at := moment;
    ELSIF b.state = 'half_open' THEN
        IF n.troubled = 0 THEN
            b.probes_ok := n.calls;
            IF n.calls < t.probes THEN
                UPDATE toolfleet.breaker_states s SET probes_ok = b.probes_ok WHERE s.breaker_id = b.breaker_id;
                RETURN 'stays';
            END IF;
            b.state := 'closed';
            b.generation := b.generation + 1;
            b.open_until := NULL;
            b.open_ms := 0;
            b.probes_out := 0;
            b.probes_ok := 0;
            b.round_until := NULL;
            b.opened_at := NULL;
            b.why := NULL;
            PERFORM toolfleet.move_breaker(b);
            RETURN 'closed';
        END IF;
        b.open_ms := least(greatest(b.open_ms, 1) * 2, t.open_max_ms);
    ELSE
        RETURN 'stays';
    END IF;
    b.why := json_build_object('was', b.state, 'calls', n.calls, 'failures', n.failures, 'slow', n.slow, 'workers', n.callers);
    b.state := 'open';
    b.generation := b.generation + 1;
    b.open_until := moment + b.open_ms * interval '1 millisecond';
    b.probes_out := 0;
    b.probes_ok := 0;
    b.round_until := NULL;
    PERFORM toolfleet.move_breaker(b);
    RETURN 'opened';
END $$;

-- A breaker that is forced is closed beneath it, and closed anew when that ends: what is still to be reported of attempts that began
-- meanwhile is of an older generation then, and counts no more.
CREATE FUNCTION toolfleet.close_forced_breakers() RETURNS trigger
LANGUAGE plpgsql SET search_path = toolfleet, pg_temp AS $$
DECLARE
    b toolfleet.breaker_states;
BEGIN
    -- This transaction has the fleet's row, for which a report waits with its breakers locked: so it must not wait for those. One
    -- that is skipped as the force begins is closed by the next report; one that is skipped as it ends counts what is still to come.
    FOR b IN SELECT * FROM toolfleet.breaker_states s WHERE s.tool = coalesce(NEW.tool, OLD.tool) ORDER BY s.target FOR UPDATE SKIP LOCKED LOOP
        PERFORM toolfleet.close_breaker(b);
    END LOOP;
    PERFORM toolfleet.next_breaker_rev();
    RETURN NULL;
END $$;
CREATE TRIGGER close_forced_breakers AFTER INSERT ON toolfleet.live_controls
FOR EACH ROW WHEN (NEW.kind = 'breaker') EXECUTE FUNCTION toolfleet.close_forced_breakers();
CREATE TRIGGER close_breakers_let_go AFTER DELETE ON toolfleet.live_controls
FOR EACH ROW WHEN (OLD.kind = 'breaker') EXECUTE FUNCTION toolfleet.close_forced_breakers();

-- Deletes those of these breakers for which no call waits; returns their number. Which ones nobody needs any more a dispatcher knows.
CREATE FUNCTION toolfleet.drop_breakers(ids bigint[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
DECLARE
    dropped bigint;
BEGIN
    WITH unused AS (
        DELETE FROM toolfleet.breaker_states s
        WHERE s.breaker_id = ANY (drop_breakers.ids)
          AND NOT EXISTS (SELECT FROM toolfleet.open_calls o WHERE o.held AND o.line = 'breaker/' || s.breaker_id)
        RETURNING s.tool, s.target
    ), windows AS (
        DELETE FROM toolfleet.breaker_windows w USING unused u WHERE w.tool = u.tool AND w.target = u.target
    )
    SELECT count(*) INTO dropped FROM unused;
    IF dropped > 0 THEN
        PERFORM toolfleet.next_breaker_rev();
    END IF;
    RETURN dropped;
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.close_breaker, toolfleet.close_forced_breakers, toolfleet.drop_breakers FROM PUBLIC;

-- As before, but `waiting` counts what waits for a breaker or a limit, too, and is null where nothing waits: for a mode.
CREATE OR REPLACE VIEW toolfleet.controls AS
SELECT c.control_id, c.kind, c.tool, c.queue, c.tenant, c.pointer, c.value::json AS value, c.subject, c.setting, c.told, c.actor,
       c.note, c.role, c.set_at, c.expires_at,
       CASE WHEN c.kind IN ('pause', 'breaker', 'limit') THEN (
           SELECT count(*) FROM (
               SELECT FROM toolfleet.open_calls o
               WHERE o.held AND o.line = ANY (CASE c.kind
                   WHEN 'pause' THEN ARRAY['pause/' || c.control_id]
                   WHEN 'breaker' THEN ARRAY(SELECT 'breaker/' || b.breaker_id FROM toolfleet.breaker_states b WHERE b.tool = c.tool)
                   ELSE ARRAY(SELECT 'tool/' || v.tool
                              FROM (SELECT DISTINCT t.tool FROM toolfleet.tool_versions t WHERE t.rate_limit IS NOT NULL) v
                              CROSS JOIN LATERAL toolfleet.rate_of(v.tool) r WHERE r.name = c.subject) END)
               LIMIT 100000) w) END AS waiting
FROM toolfleet.live_controls c
WHERE c.expires_at IS NULL OR c.expires_at > clock_timestamp();
