-- Why: a session adds to one row for a tenant in each statement that accepts or ends calls. While another session holds its
-- snapshot, no version of that row can be removed, and each of these statements, and each sum, reads all of them: 0.5 ms after
-- 60,000 statements, and growing. So the row moves on: after some changes its key has a greater generation, and a lookup
-- begins at the greatest.
-- Locks: `open_calls` against writers and `open_counts` against everything, for as long as the rewrite of that small table
-- takes; writers first, so that no statement waits in a trigger function that is replaced meanwhile.
-- The running release survives it: the functions that it calls do what they did, and its own sums over the rows stay exact.
LOCK TABLE toolfleet.open_calls IN SHARE ROW EXCLUSIVE MODE;

-- In every snapshot a session has at most one row for a tenant: `generation` is when it came to its present key, in
-- milliseconds on Postgres's clock, `changes` how often it has changed there. That default rewrites the table, on purpose: an
-- index over versions that a held snapshot still sees is not used as long as that is held.
ALTER TABLE toolfleet.open_counts
    DROP CONSTRAINT open_counts_pkey,
    ADD COLUMN generation bigint NOT NULL DEFAULT (1000 * date_part('epoch', clock_timestamp()))::bigint,
    ADD COLUMN changes integer NOT NULL DEFAULT 0,
    ADD CONSTRAINT open_counts_pkey PRIMARY KEY (tenant, backend, generation);

-- The two differ in their sign. A row that `fold_open_counts` deletes meanwhile is made anew.
CREATE OR REPLACE FUNCTION toolfleet.count_opened() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO toolfleet.open_counts AS c (tenant, backend, generation, n)
    SELECT o.tenant, pg_catalog.pg_backend_pid(), coalesce((
        SELECT l.generation FROM toolfleet.open_counts l
        WHERE l.tenant = o.tenant AND l.backend = pg_catalog.pg_backend_pid()
        ORDER BY l.tenant DESC, l.backend DESC, l.generation DESC LIMIT 1),
        (1000 * date_part('epoch', clock_timestamp()))::bigint), count(*)
    FROM opened o GROUP BY o.tenant ORDER BY o.tenant
    ON CONFLICT (tenant, backend, generation) DO UPDATE
    SET n = c.n + EXCLUDED.n, changes = (c.changes + 1) % 128,
        generation = CASE WHEN c.changes < 127 THEN c.generation
                          ELSE greatest(c.generation + 1, (1000 * date_part('epoch', clock_timestamp()))::bigint) END;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION toolfleet.count_closed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO toolfleet.open_counts AS c (tenant, backend, generation, n)
    SELECT o.tenant, pg_catalog.pg_backend_pid(), coalesce((
        SELECT l.generation FROM toolfleet.open_counts l
        WHERE l.tenant = o.tenant AND l.backend = pg_catalog.pg_backend_pid()
        ORDER BY l.tenant DESC, l.backend DESC, l.generation DESC LIMIT 1),
        (1000 * date_part('epoch', clock_timestamp()))::bigint), -count(*)
    FROM closed o GROUP BY o.tenant ORDER BY o.tenant
    ON CONFLICT (tenant, backend, generation) DO UPDATE
    SET n = c.n + EXCLUDED.n, changes = (c.changes + 1) % 128,
        generation = CASE WHEN c.changes < 127 THEN c.generation
                          ELSE greatest(c.generation + 1, (1000 * date_part('epoch', clock_timestamp()))::bigint) END;
    RETURN NULL;
END $$;

-- How many open calls a tenant has. A small table is summed up; a large one is mostly versions that a held snapshot keeps,
-- and of each session's only the newest is read.
CREATE FUNCTION toolfleet.open_count(of_tenant text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    session record;
    below bigint := 4294967296;
    total bigint := 0;
BEGIN
    IF pg_relation_size('toolfleet.open_counts') < 4194304 THEN
        RETURN (SELECT coalesce(sum(c.n), 0) FROM toolfleet.open_counts c WHERE c.tenant = of_tenant);
    END IF;
    LOOP
        SELECT c.backend, c.n INTO session FROM toolfleet.open_counts c
        WHERE c.tenant = of_tenant AND c.backend < below
        ORDER BY c.tenant DESC, c.backend DESC, c.generation DESC LIMIT 1;
        EXIT WHEN NOT FOUND;
        total := total + session.n;
        below := session.backend;
    END LOOP;
    RETURN total;
END $$;
REVOKE EXECUTE ON FUNCTION toolfleet.open_count FROM PUBLIC;

-- What it did, with a row for what is left of sessions that are gone that moves each time.
CREATE OR REPLACE FUNCTION toolfleet.fold_open_counts(rows_max integer, crowd integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    crowded boolean := (SELECT count(*) > crowd FROM (SELECT FROM toolfleet.open_counts LIMIT crowd + 1) c);
    folded bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('toolfleet.fold_open_counts')) THEN
        RETURN 0;
    END IF;
    WITH living AS MATERIALIZED (
        SELECT pid FROM pg_stat_activity
    ), chosen AS MATERIALIZED (
        SELECT c.tenant, c.backend, c.generation FROM toolfleet.open_counts c
        WHERE c.backend <> 0 AND (crowded OR NOT EXISTS (SELECT FROM living l WHERE l.pid = c.backend))
        ORDER BY c.tenant, c.backend LIMIT rows_max
        FOR UPDATE SKIP LOCKED
    ), taken AS (
        DELETE FROM toolfleet.open_counts c USING chosen s
        WHERE c.tenant = s.tenant AND c.backend = s.backend AND c.generation = s.generation
        RETURNING c.tenant, c.n
    ), kept AS (
        DELETE FROM toolfleet.open_counts c
        WHERE c.backend = 0 AND c.tenant IN (SELECT tenant FROM chosen)
        RETURNING c.tenant, c.n
    ), moved AS (
        INSERT INTO toolfleet.open_counts (tenant, backend, n)
        SELECT tenant, 0, sum(n) FROM (SELECT * FROM taken UNION ALL SELECT * FROM kept) c
        GROUP BY tenant HAVING sum(n) <> 0 ORDER BY tenant
    )
    SELECT count(*) INTO folded FROM taken;
    RETURN folded;
END $$;

CREATE OR REPLACE FUNCTION toolfleet.recount_open() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    righted bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('toolfleet.fold_open_counts')) THEN
        RETURN 0;
    END IF;
    WITH wrong AS MATERIALIZED (
        SELECT tenant, sum(n) AS n
        FROM (SELECT tenant, count(*) AS n FROM toolfleet.open_calls GROUP BY tenant
              UNION ALL
              SELECT tenant, -sum(n) FROM toolfleet.open_counts GROUP BY tenant) c
        GROUP BY tenant
        HAVING sum(n) <> 0
    ), kept AS (
        DELETE FROM toolfleet.open_counts c
        WHERE c.backend = 0 AND c.tenant IN (SELECT tenant FROM wrong)
        RETURNING c.tenant, c.n
    ), moved AS (
        INSERT INTO toolfleet.open_counts (tenant, backend, n)
        SELECT tenant, 0, sum(n) FROM (SELECT * FROM wrong UNION ALL SELECT * FROM kept) c
        GROUP BY tenant HAVING sum(n) <> 0 ORDER BY tenant
    )
    SELECT count(*) INTO righted FROM wrong;
    RETURN righted;
END $$;
