-- Why: a tool may say how many of its attempts start in a time (`rate_limit`), over the whole fleet. Start times are handed out
-- by the generic cell rate algorithm (GCRA): a bucket has one time, `tat`, and each start moves it on by one step. A claim asks for
-- them (`take_starts`), so the row's lock makes them exact, however many workers there are.
-- The newest version of a tool decides about its limit, and a control of the kind `limit` overrides its numbers.
-- Locks: ACCESS EXCLUSIVE on tool_versions while it is written anew, which is as long as a copy of the manifests takes.
-- The release before survives it, and leaves tools with a rate limit out: upgrade every dispatcher and worker before the first one.

ALTER TABLE toolfleet.tool_versions ADD COLUMN rate_limit json GENERATED ALWAYS AS (manifest->'rate_limit') STORED;

CREATE TABLE toolfleet.rate_buckets (
    -- How it is shared, the limit's name, and the tenant where each has its own: share/bank, tool/charge, tenant/charge/acme.
    bucket text PRIMARY KEY,
    shared_by text NOT NULL,
    name text NOT NULL,
    tenant text,
    -- From when on the bucket is as if nothing had ever started.
    tat timestamptz NOT NULL,
    -- A remote has said that nothing may start before.
    closed_until timestamptz,
    -- How many start times were handed out.
    given bigint NOT NULL DEFAULT 0,
    used_at timestamptz NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- As a manifest writes it.
CREATE FUNCTION toolfleet.duration_ms(duration text) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT part[1]::bigint * CASE part[2] WHEN 'ms' THEN 1 WHEN 's' THEN 1000 WHEN 'm' THEN 60000 WHEN 'h' THEN 3600000 END
    FROM regexp_match(duration, '^([0-9]+)(ms|s|m|h)$') AS part
$$;

-- The limit of a tool, with the numbers that hold now; no row: it has none. A shared limit that nobody has set has no numbers, and
-- then nothing starts. `step_us` is rounded up: the rate is never exceeded.
CREATE FUNCTION toolfleet.rate_of(tool text)
RETURNS TABLE (shared_by text, name text, calls bigint, per_ms bigint, burst integer, step_us bigint, control_id bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
    SELECT r.shared_by, r.name, n.calls, n.per_ms, n.burst, ceil(n.per_ms * 1000.0 / n.calls)::bigint, c.control_id
    FROM (
        SELECT CASE WHEN v.rate_limit->>'share' IS NOT NULL THEN 'share' ELSE coalesce(v.rate_limit->>'by', 'tool') END AS shared_by,
               coalesce(v.rate_limit->>'share', v.tool) AS name, v.rate_limit AS own
        FROM (SELECT l.tool, l.rate_limit FROM toolfleet.tool_versions l WHERE l.tool = rate_of.tool ORDER BY l.version DESC LIMIT 1) v
        WHERE v.rate_limit IS NOT NULL
    ) r
    LEFT JOIN toolfleet.live_controls c
      ON c.kind = 'limit' AND c.subject = r.name AND (c.expires_at IS NULL OR c.expires_at > clock_timestamp())
    CROSS JOIN LATERAL (
        SELECT (c.setting->>'calls')::bigint AS calls, (c.setting->>'per_ms')::bigint AS per_ms,
               coalesce((c.setting->>'burst')::integer, 1) AS burst WHERE c.control_id IS NOT NULL
        UNION ALL
        SELECT (r.own->>'calls')::bigint, toolfleet.duration_ms(r.own->>'per'), coalesce((r.own->>'burst')::integer, 1)
        WHERE c.control_id IS NULL
    ) n
$$;

-- The bucket of a call.
CREATE FUNCTION toolfleet.bucket_of(shared_by text, name text, tenant text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT shared_by || '/' || name || CASE WHEN shared_by = 'tenant' THEN '/' || tenant ELSE '' END
$$;

-- The time from which the next start moves a bucket on, at this moment and with these numbers. At the end of the time for which a
-- remote has closed it, one may start, and a burst is there again when it has been saved up.
CREATE FUNCTION toolfleet.rate_base(tat timestamptz, closed_until timestamptz, at timestamptz, step_us bigint, burst integer)
RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT greatest(
        at,
        tat,
        closed_until + (burst - 1) * step_us * interval '1 microsecond')
$$;

-- How many can start until so long after this moment.
CREATE FUNCTION toolfleet.rate_room(base timestamptz, at timestamptz, within_ms integer, step_us bigint, burst integer)
RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT greatest(0, burst + floor(extract(epoch FROM at + within_ms * interval '1 millisecond' - base) * 1000000 / step_us))::bigint
$$;

-- Hands out at most `wanted` start times of a bucket, those that are at most `within_ms` away: the first is `first_at`, each
-- further one a step later. `next_at` is the first that was not handed out. Without `waits`, and where another transaction has
-- locked the bucket for longer than a few commits take, the verdict is `busy`, and nothing is known of it.
CREATE FUNCTION toolfleet.take_starts(
    shared_by text, name text, tenant text, step_us bigint, burst integer, wanted bigint, within_ms integer, waits boolean
) RETURNS TABLE (verdict text, given bigint, first_at timestamptz, next_at timestamptz, at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id text := toolfleet.bucket_of(take_starts.shared_by, take_starts.name, take_starts.tenant);
    b toolfleet.rate_buckets;
    step interval := take_starts.step_us * interval '1 microsecond';
    base timestamptz;
BEGIN
    FOR try IN 1..5 LOOP
        IF waits THEN
            SELECT * INTO b FROM toolfleet.rate_buckets r WHERE r.bucket = id FOR UPDATE;
        ELSE
            SELECT * INTO b FROM toolfleet.rate_buckets r WHERE r.bucket = id FOR UPDATE SKIP LOCKED;
        END IF;
        EXIT WHEN FOUND;
        INSERT INTO toolfleet.rate_buckets (bucket, shared_by, name, tenant, tat, used_at)
        VALUES (id, take_starts.shared_by, take_starts.name,
            CASE WHEN take_starts.shared_by = 'tenant' THEN take_starts.tenant END, clock_timestamp(), clock_timestamp())
        ON CONFLICT (bucket) DO NOTHING
        RETURNING * INTO b;
        EXIT WHEN FOUND;
        -- About as long as a commit takes.
        PERFORM pg_sleep(0.002);
    END LOOP;
    IF b.bucket IS NULL THEN
        RETURN QUERY SELECT 'busy', 0::bigint, NULL::timestamptz, NULL::timestamptz, clock_timestamp();
        RETURN;
    END IF;
    -- Read once the bucket is ours, so that no two sessions hand out the same time.
    at := clock_timestamp();
    base := toolfleet.rate_base(b.tat, b.closed_until, at, take_starts.step_us, take_starts.burst);
    given := least(take_starts.wanted, toolfleet.rate_room(base, at, within_ms, take_starts.step_us, take_starts.burst));
    IF given > 0 THEN
        UPDATE toolfleet.rate_buckets r SET tat = base + take_starts.given * step, given = r.given + take_starts.given, used_at = take_starts.at
        WHERE r.bucket = id;
    END IF;
    first_at := base - (take_starts.burst - 1) * step;
    RETURN QUERY SELECT 'given', given, first_at, first_at + given * step, at;
END $$;

-- New numbers hold for the buckets that are there. What was handed out with other numbers counts, but keeps no bucket used up for
-- longer than the new ones can: a limit of 1000 an hour whose hour is used up does not stop one of 100 a second for the rest of it.
CREATE FUNCTION toolfleet.renew_buckets(tool text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
    -- In the order in which claims lock them.
    WITH mine AS MATERIALIZED (
        SELECT b.bucket, r.burst * r.step_us * interval '1 microsecond' AS most
        FROM toolfleet.rate_of(renew_buckets.tool) r
        JOIN toolfleet.rate_buckets b ON b.shared_by = r.shared_by AND b.name = r.name
        WHERE r.step_us IS NOT NULL
        ORDER BY b.shared_by, b.name, b.tenant
        FOR UPDATE OF b
    )
    UPDATE toolfleet.rate_buckets b SET tat = clock_timestamp() + interval '500 milliseconds' + m.most
    FROM mine m WHERE b.bucket = m.bucket AND b.tat > clock_timestamp() + interval '500 milliseconds' + m.most
$$;

CREATE FUNCTION toolfleet.renew_buckets_of_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM toolfleet.renew_buckets(NEW.tool);
    RETURN NULL;
END $$;
CREATE TRIGGER renews_buckets AFTER INSERT ON toolfleet.tool_versions FOR EACH ROW WHEN (NEW.rate_limit IS NOT NULL)
    EXECUTE FUNCTION toolfleet.renew_buckets_of_version();

CREATE FUNCTION toolfleet.renew_buckets_of_limit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM toolfleet.renew_buckets(v.tool)
    FROM (SELECT DISTINCT t.tool FROM toolfleet.tool_versions t WHERE t.rate_limit IS NOT NULL) v
    CROSS JOIN LATERAL toolfleet.rate_of(v.tool) r
    WHERE r.name = coalesce(NEW.subject, OLD.subject);
    RETURN NULL;
END $$;
CREATE TRIGGER renews_buckets AFTER INSERT ON toolfleet.live_controls FOR EACH ROW WHEN (NEW.kind = 'limit')
    EXECUTE FUNCTION toolfleet.renew_buckets_of_limit();
CREATE TRIGGER renews_buckets_again AFTER DELETE ON toolfleet.live_controls FOR EACH ROW WHEN (OLD.kind = 'limit')
    EXECUTE FUNCTION toolfleet.renew_buckets_of_limit();

-- A remote has said that nothing may start for so long, an hour at most: closes the bucket of such a call until then, or leaves it
-- closed for longer. Returns until when; null: the tool has no limit.
CREATE FUNCTION toolfleet.close_bucket(tool text, tenant text, for_ms bigint) RETURNS timestamptz
LANGUAGE sql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
    INSERT INTO toolfleet.rate_buckets AS b (bucket, shared_by, name, tenant, tat, closed_until, used_at)
    SELECT toolfleet.bucket_of(r.shared_by, r.name, close_bucket.tenant), r.shared_by, r.name,
        CASE WHEN r.shared_by = 'tenant' THEN close_bucket.tenant END, clock_timestamp(),
        clock_timestamp() + least(greatest(close_bucket.for_ms, 0), 3600000) * interval '1 millisecond', clock_timestamp()
    FROM toolfleet.rate_of(close_bucket.tool) r
    ON CONFLICT (bucket) DO UPDATE SET closed_until = greatest(b.closed_until, EXCLUDED.closed_until)
    RETURNING b.closed_until
$$;

CREATE VIEW toolfleet.limits AS
SELECT r.name, r.shared_by, r.tools, b.tenant, r.calls, r.per_ms, r.burst, r.control_id,
       -- When the next attempt may start; null: at once, or never, where there are no numbers.
       CASE WHEN n.next_at > n.at THEN n.next_at END AS next_start_at,
       CASE WHEN b.closed_until > n.at THEN b.closed_until END AS closed_until,
       coalesce(b.given, 0) AS starts, b.used_at
FROM (
    SELECT r.name, r.shared_by, array_agg(v.tool ORDER BY v.tool) AS tools, min(r.calls) AS calls, min(r.per_ms) AS per_ms,
           min(r.burst) AS burst, min(r.step_us) AS step_us, min(r.control_id) AS control_id
    FROM (SELECT DISTINCT t.tool FROM toolfleet.tool_versions t WHERE t.rate_limit IS NOT NULL) v
    CROSS JOIN LATERAL toolfleet.rate_of(v.tool) r
    GROUP BY r.name, r.shared_by
) r
LEFT JOIN toolfleet.rate_buckets b ON b.shared_by = r.shared_by AND b.name = r.name
CROSS JOIN LATERAL (
    SELECT m.at, toolfleet.rate_base(b.tat, b.closed_until, m.at, r.step_us, r.burst)
        - (r.burst - 1) * r.step_us * interval '1 microsecond' AS next_at
    FROM (SELECT clock_timestamp() AS at OFFSET 0) m
) n;

-- What is wrong with a control of the kind `limit` besides.
CREATE FUNCTION toolfleet.limit_problem(c toolfleet.live_controls) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = toolfleet, pg_temp AS $$
DECLARE
    shape text := 'setting must be {"calls": 50, "per_ms": 1000} and perhaps "burst", in whole numbers';
    calls numeric;
    per_ms numeric;
    burst numeric;
    limits bigint := (
        SELECT count(DISTINCT r.shared_by)
        FROM (SELECT DISTINCT t.tool FROM toolfleet.tool_versions t WHERE t.rate_limit IS NOT NULL) v
        CROSS JOIN LATERAL toolfleet.rate_of(v.tool) r
        WHERE r.name = c.subject);
BEGIN
    IF num_nonnulls(c.tool, c.queue, c.tenant, c.pointer, c.value, c.told) > 0 THEN
        RETURN 'a limit has a name, as its subject, and no scope: no tool, queue, tenant, pointer, value or told';
    ELSIF c.subject IS NULL OR limits = 0 THEN
        RETURN 'subject must name a limit: that of a tool with a rate_limit of its own, or one that tools share';
    ELSIF limits > 1 THEN
        RETURN 'subject names the limit of a tool and a shared one; give the shared one another name';
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

-- What is wrong with a control of any kind; null: nothing. A kind is there if it has a function `<kind>_problem`, with its own rules.
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

-- `rate_of` and `rate_base` are what the view reads: whoever may read it may execute them.
REVOKE EXECUTE ON FUNCTION toolfleet.duration_ms, toolfleet.bucket_of, toolfleet.rate_room,
    toolfleet.take_starts, toolfleet.renew_buckets, toolfleet.renew_buckets_of_version, toolfleet.renew_buckets_of_limit,
    toolfleet.close_bucket, toolfleet.limit_problem FROM PUBLIC;
