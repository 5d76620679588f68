-- Why: calls stop being sent to a target that fails, over the whole fleet, and a few probe it before the others go on. Workers
-- report what they counted; `breaker_report` adds it up, decides and makes the decision durable, `breaker_permit` hands out the
-- permits of a half-open breaker. Only these and `breaker_give_back` write the state; `fleet/src/breaker/decide.rs` has the same table of
-- transitions, and a test compares the two over random sequences.
-- A breaker never starts or ends a call: an open one only keeps calls from being claimed.
-- Locks: ACCESS EXCLUSIVE on fleet for a moment; a column with a constant default rewrites nothing.
-- The release before survives it and does not know it: its dispatchers leave calls in the lines of breakers alone, and its workers
-- do not read manifests with a breaker. Apply such manifests after every dispatcher and worker is upgraded; before the release
-- before is taken again, wait until no call has held_why = 'breaker'.

-- Moves with every change of a breaker: a process that has seen this number has nothing to read.
ALTER TABLE toolfleet.fleet ADD COLUMN breaker_rev bigint NOT NULL DEFAULT 0;

-- One row for each tool and target that was called behind a breaker.
CREATE TABLE toolfleet.breaker_states (
    breaker_id bigint PRIMARY KEY,
    tool text NOT NULL,
    -- What attempts depend on outside the fleet: an origin, a program, a subject, a database, a handler.
    target text NOT NULL,
    state text NOT NULL DEFAULT 'closed' CHECK (state IN ('closed', 'open', 'half_open')),
    -- Moves with each change of the state: what attempts of an older one came to counts no more.
    generation bigint NOT NULL DEFAULT 0,
    -- Until when nothing is tried, and how long that was.
    open_until timestamptz,
    open_ms bigint NOT NULL DEFAULT 0,
    -- Permits of this round that were given out, and those whose attempts succeeded.
    probes_out integer NOT NULL DEFAULT 0,
    probes_ok integer NOT NULL DEFAULT 0,
    -- When the permits of this round lapse.
    round_until timestamptz,
    opened_at timestamptz,
    -- What was counted when it opened.
    why json,
    UNIQUE (tool, target)
);

-- What was counted of the present generation, by worker and by second of the worker's own clock: a report that is repeated
-- counts once. Lost when Postgres crashes: then counting begins anew.
CREATE UNLOGGED TABLE toolfleet.breaker_windows (
    tool text NOT NULL,
    target text NOT NULL,
    worker_id uuid NOT NULL,
    second bigint NOT NULL,
    at timestamptz NOT NULL,
    -- When it was reported first.
    heard_at timestamptz NOT NULL,
    calls integer NOT NULL,
    failures integer NOT NULL,
    slow integer NOT NULL,
    PRIMARY KEY (tool, target, worker_id, second)
);

-- A duration of a manifest in milliseconds.
CREATE FUNCTION toolfleet.breaker_ms(written text) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT substring(written FROM '^[0-9]+')::bigint
        * CASE substring(written FROM '[a-z]+$') WHEN 'ms' THEN 1 WHEN 's' THEN 1000 WHEN 'm' THEN 60000 WHEN 'h' THEN 3600000 END
$$;

-- The terms of a tool's breaker, as its newest version has them; no row: it has none.
CREATE FUNCTION toolfleet.breaker_terms(tool text)
RETURNS TABLE (window_ms bigint, calls integer, failures integer, slow integer, open_ms bigint, open_max_ms bigint, probes integer)
LANGUAGE sql STABLE SET search_path = toolfleet, pg_temp AS $$
    SELECT toolfleet.breaker_ms(b->>'window'), (b->>'calls')::integer, rtrim(b->>'failures', '%')::integer,
           rtrim(b->'slow'->>'share', '%')::integer, toolfleet.breaker_ms(b->>'open'), toolfleet.breaker_ms(b->>'open_max'),
           (b->>'probes')::integer
    FROM (SELECT v.manifest->'breaker' AS b FROM toolfleet.tool_versions v
          WHERE v.tool = breaker_terms.tool ORDER BY v.version DESC LIMIT 1) newest
    WHERE b IS NOT NULL
$$;

CREATE FUNCTION toolfleet.next_breaker_rev() RETURNS bigint LANGUAGE sql SET search_path = toolfleet, pg_temp AS $$
    UPDATE toolfleet.fleet SET breaker_rev = breaker_rev + 1 RETURNING breaker_rev
$$;

-- The row of a breaker, locked until the end of the transaction.
CREATE FUNCTION toolfleet.lock_breaker(tool text, target text) RETURNS toolfleet.breaker_states
LANGUAGE plpgsql SET search_path = toolfleet, pg_temp AS $$
DECLARE
    b toolfleet.breaker_states;
BEGIN
    LOOP
        SELECT * INTO b FROM toolfleet.breaker_states s
        WHERE s.tool = lock_breaker.tool AND s.target = lock_breaker.target FOR UPDATE;
        EXIT WHEN FOUND;
        -- Another one may have made it meanwhile, or taken the number.
        INSERT INTO toolfleet.breaker_states (breaker_id, tool, target)
        SELECT coalesce(max(s.breaker_id), 0) + 1, lock_breaker.tool, lock_breaker.target FROM toolfleet.breaker_states s
        ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN b;
END $$;

-- Writes a breaker that has moved. What was counted before counts no more.
CREATE FUNCTION toolfleet.move_breaker(b toolfleet.breaker_states) RETURNS void LANGUAGE sql SET search_path = toolfleet, pg_temp AS $$
    UPDATE toolfleet.breaker_states s
    SET state = b.state, generation = b.generation, open_until = b.open_until, open_ms = b.open_ms, probes_out = b.probes_out,
        probes_ok = b.probes_ok, round_until = b.round_until, opened_at = b.opened_at, why = b.why
    WHERE s.breaker_id = b.breaker_id;
    DELETE FROM toolfleet.breaker_windows w WHERE w.tool = b.tool AND w.target = b.target;
$$;

-- Whether so many attempts are enough to open.
CREATE FUNCTION toolfleet.breaker_is_over(needed integer, share integer, slow_share integer, calls bigint, failures bigint, slow bigint)
RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT calls >= needed AND (failures * 100 >= share * calls OR coalesce(slow * 100 >= slow_share * calls, false))
$$;

-- Decides about one breaker that is locked, by what is counted of it. Verdicts: `stays`, `opened`, `closed`; `unsure`: it would
-- open, but other workers may not have reported yet; `local`: only this
-- worker fails of several, so the breaker stays closed and the worker leaves such calls to others for a time.
CREATE FUNCTION toolfleet.judge_breaker(b toolfleet.breaker_states, worker uuid, moment timestamptz) RETURNS text
LANGUAGE plpgsql SET search_path = toolfleet, pg_temp AS $$
DECLARE
    t record;
    n record;
BEGIN
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

-- Adds what a worker counted, given at a moment: for each second of its own clock all that it counted in it, and how long ago that
-- was. Counts of another generation than the present one are dropped. Answers with the breakers of which the worker has to know
-- something new: `opened`, `closed`; `local`, with how long; `unsure`: it reports the same again in a moment; `stale`: it counts for a generation that is over.
CREATE FUNCTION toolfleet.breaker_report_at(moment timestamptz, worker uuid, tools text[], targets text[], generations bigint[],
    seconds bigint[], ages_ms bigint[], calls integer[], failures integer[], slow integer[])
RETURNS TABLE (tool text, target text, verdict text, for_ms bigint) LANGUAGE plpgsql SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    k record;
    t record;
    b toolfleet.breaker_states;
    came text;
    -- A new row is news, too: processes know every breaker for which a call may wait.
    has_moved boolean := false;
BEGIN
    -- In one order, so that two reports never wait for each other.
    FOR k IN SELECT r.tool, r.target, max(r.generation) AS generation
             FROM unnest(breaker_report_at.tools, breaker_report_at.targets, breaker_report_at.generations)
                  AS r (tool, target, generation)
             GROUP BY r.tool, r.target ORDER BY r.tool, r.target LOOP
        SELECT * INTO t FROM toolfleet.breaker_terms(k.tool);
        CONTINUE WHEN NOT FOUND;
        has_moved := has_moved OR NOT EXISTS (
            SELECT FROM toolfleet.breaker_states s WHERE s.tool = k.tool AND s.target = k.target);
        b := toolfleet.lock_breaker(k.tool, k.target);
        INSERT INTO toolfleet.breaker_windows AS w
        SELECT k.tool, k.target, breaker_report_at.worker, r.second, moment - r.age_ms * interval '1 millisecond', moment,
               r.calls, r.failures, r.slow
        FROM unnest(breaker_report_at.tools, breaker_report_at.targets, breaker_report_at.generations, breaker_report_at.seconds,
                    breaker_report_at.ages_ms, breaker_report_at.calls, breaker_report_at.failures, breaker_report_at.slow)
             AS r (tool, target, generation, second, age_ms, calls, failures, slow)
        WHERE r.tool = k.tool AND r.target = k.target AND r.generation = b.generation AND b.state <> 'open'
        ON CONFLICT ON CONSTRAINT breaker_windows_pkey DO UPDATE
            SET calls = greatest(w.calls, excluded.calls), failures = greatest(w.failures, excluded.failures),
                slow = greatest(w.slow, excluded.slow);
        came := toolfleet.judge_breaker(b, breaker_report_at.worker, moment);
        has_moved := has_moved OR came IN ('opened', 'closed');
        IF came = 'stays' AND k.generation <> b.generation THEN
            came := 'stale';
        END IF;
        IF came <> 'stays' THEN
            RETURN QUERY SELECT k.tool, k.target, came, CASE came WHEN 'local' THEN t.open_ms END;
        END IF;
    END LOOP;
    IF has_moved THEN
        PERFORM toolfleet.next_breaker_rev();
    END IF;
END $$;

-- The same, now.
CREATE FUNCTION toolfleet.breaker_report(worker uuid, tools text[], targets text[], generations bigint[], seconds bigint[],
    ages_ms bigint[], calls integer[], failures integer[], slow integer[])
RETURNS TABLE (tool text, target text, verdict text, for_ms bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
    SELECT * FROM toolfleet.breaker_report_at(clock_timestamp(), worker, tools, targets, generations, seconds, ages_ms, calls, failures,
        slow)
$$;

-- Asks whether a call may try the target, at a moment; `timeout_ms`: how long its attempt may take. Verdicts: `closed`, and every
-- call may; `granted`: this one may, as a probe of the round `generation`; `refused`, with the time until somebody may ask again;
-- `unguarded`: the tool has no breaker any more. A round whose permits nobody answered in time is over, and a new one begins.
CREATE FUNCTION toolfleet.breaker_permit_at(moment timestamptz, tool text, target text, timeout_ms bigint)
RETURNS TABLE (verdict text, breaker_id bigint, generation bigint, left_ms bigint)
LANGUAGE plpgsql SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    t record;
    b toolfleet.breaker_states;
    is_new boolean := NOT EXISTS (
        SELECT FROM toolfleet.breaker_states s WHERE s.tool = breaker_permit_at.tool AND s.target = breaker_permit_at.target);
    over timestamptz;
BEGIN
    SELECT * INTO t FROM toolfleet.breaker_terms(breaker_permit_at.tool);
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'unguarded', 0::bigint, 0::bigint, NULL::bigint;
        RETURN;
    END IF;
    b := toolfleet.lock_breaker(breaker_permit_at.tool, breaker_permit_at.target);
    IF b.state = 'closed' THEN
        IF is_new THEN
            PERFORM toolfleet.next_breaker_rev();
        END IF;
        RETURN QUERY SELECT 'closed', b.breaker_id, b.generation, NULL::bigint;
        RETURN;
    END IF;
    over := CASE b.state WHEN 'open' THEN b.open_until ELSE b.round_until END;
    IF over <= moment THEN
        b.state := 'half_open';
        b.generation := b.generation + 1;
        b.probes_out := 0;
        b.probes_ok := 0;
        PERFORM toolfleet.move_breaker(b);
    ELSIF b.state = 'open' OR b.probes_out >= t.probes THEN
        RETURN QUERY SELECT 'refused', b.breaker_id, b.generation, ceil(extract(epoch FROM over - moment) * 1000)::bigint;
        RETURN;
    END IF;
    UPDATE toolfleet.breaker_states s
    SET probes_out = b.probes_out + 1,
        round_until = moment + (least(breaker_permit_at.timeout_ms, 86400000) + 10000) * interval '1 millisecond'
    WHERE s.breaker_id = b.breaker_id;
    PERFORM toolfleet.next_breaker_rev();
    RETURN QUERY SELECT 'granted', b.breaker_id, b.generation, NULL::bigint;
END $$;

-- The same, now.
CREATE FUNCTION toolfleet.breaker_permit(tool text, target text, timeout_ms bigint)
RETURNS TABLE (verdict text, breaker_id bigint, generation bigint, left_ms bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
    SELECT * FROM toolfleet.breaker_permit_at(clock_timestamp(), tool, target, timeout_ms)
$$;

-- Gives a permit back that became no attempt, or one whose end says nothing about the target. False: its round is over.
CREATE FUNCTION toolfleet.breaker_give_back(tool text, target text, generation bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
BEGIN
    UPDATE toolfleet.breaker_states s SET probes_out = s.probes_out - 1
    WHERE s.tool = breaker_give_back.tool AND s.target = breaker_give_back.target AND s.state = 'half_open'
      AND s.generation = breaker_give_back.generation AND s.probes_out > s.probes_ok;
    IF FOUND THEN
        PERFORM toolfleet.next_breaker_rev();
    END IF;
    RETURN FOUND;
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.breaker_ms, toolfleet.breaker_terms, toolfleet.next_breaker_rev, toolfleet.lock_breaker,
    toolfleet.move_breaker, toolfleet.breaker_is_over, toolfleet.judge_breaker, toolfleet.breaker_report_at, toolfleet.breaker_report,
    toolfleet.breaker_permit_at, toolfleet.breaker_permit, toolfleet.breaker_give_back FROM PUBLIC;

-- What breakers do now. A control of the kind `breaker` comes before the state.
CREATE VIEW toolfleet.breakers AS
SELECT b.breaker_id, b.tool, b.target, b.state,
       (SELECT c.setting #>> '{}' FROM toolfleet.live_controls c
        WHERE c.kind = 'breaker' AND c.tool = b.tool AND (c.expires_at IS NULL OR c.expires_at > clock_timestamp())) AS forced,
       b.generation, b.opened_at, b.open_until, b.open_ms, b.probes_out, b.probes_ok, b.round_until, b.why,
       -- Calls that wait for it; at most 100000 are counted.
       (SELECT count(*) FROM (
            SELECT FROM toolfleet.open_calls o WHERE o.held AND o.line = 'breaker/' || b.breaker_id LIMIT 100000) w) AS waiting
FROM toolfleet.breaker_states b;

CREATE OR REPLACE FUNCTION toolfleet.held_why(held boolean, line text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN NOT held THEN NULL
                WHEN line NOT LIKE '%/%' THEN 'room'
                WHEN line LIKE 'slots/%' THEN 'slots'
                WHEN line LIKE 'tool/%' THEN 'limit'
                WHEN line LIKE 'pause/%' THEN 'pause'
                WHEN line LIKE 'breaker/%' THEN 'breaker' END
$$;

-- What is wrong with a forced breaker besides.
CREATE FUNCTION toolfleet.breaker_problem(c toolfleet.live_controls) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = toolfleet, pg_temp AS $$
BEGIN
    RETURN CASE
        WHEN c.setting IS NULL OR c.setting::text NOT IN ('"open"', '"closed"') THEN 'setting must be "open" or "closed"'
        WHEN c.tool IS NULL THEN 'a breaker needs a tool'
        WHEN c.queue IS NOT NULL OR c.tenant IS NOT NULL OR c.pointer IS NOT NULL OR c.value IS NOT NULL THEN
            'a breaker is of a whole tool: it has no queue, no tenant and no pointer'
        WHEN c.subject IS NOT NULL THEN 'a breaker has no subject'
        WHEN c.told IS NOT NULL THEN 'told is what callers read that a pause refuses; a breaker tells them by itself'
        WHEN NOT EXISTS (SELECT FROM toolfleet.breaker_terms(c.tool)) THEN
            'the newest version of the tool has no breaker; write breaker: {} into its manifest, or pause the tool'
        END;
END $$;
REVOKE EXECUTE ON FUNCTION toolfleet.breaker_problem FROM PUBLIC;
