-- Why: a tool that is a model may have a budget: at most so many calls, tokens or so much money in a run, or so much money of a tenant
-- on a day. To sum that up over the history at each call would read more with each call. So what is spent is counted in the statements
-- that put a request on record and fill its row, and only for tools with a budget.
-- Locks: none but of a new table.
-- The release before survives it, and leaves tools with a budget out: upgrade every dispatcher and worker before the first one.

-- What is spent of a budget, a row per session of Postgres, so that no request waits for another one; those of sessions that are gone
-- are added up under 0. `key` is the run, or the day as YYYY-MM-DD. `day` is when it was last added to.
CREATE TABLE toolfleet.model_spend (
    tenant text NOT NULL,
    tool text NOT NULL,
    scope text NOT NULL CHECK (scope IN ('run', 'tenant_day')),
    key text NOT NULL,
    -- Empty: the tokens of routes without a price, and the calls.
    currency text NOT NULL,
    backend integer NOT NULL,
    day date NOT NULL,
    calls bigint NOT NULL DEFAULT 0,
    tokens bigint NOT NULL DEFAULT 0,
    cost numeric NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, tool, scope, key, currency, backend)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- It changes once a day in a row, so other updates stay on its page.
CREATE INDEX model_spend_day ON toolfleet.model_spend (scope, day);

-- Adds up the rows of sessions that are gone, and with more than `crowd` rows those of living ones too; returns how many. Rows that a
-- session is adding to are left out.
CREATE FUNCTION toolfleet.fold_model_spend(rows_max integer, crowd integer) RETURNS bigint LANGUAGE plpgsql
SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
DECLARE
    crowded boolean := (SELECT count(*) > crowd FROM (SELECT FROM toolfleet.model_spend s WHERE s.backend <> 0 LIMIT crowd + 1) c);
    folded bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('toolfleet.fold_model_spend')) THEN
        RETURN 0;
    END IF;
    WITH living AS MATERIALIZED (
        SELECT pid FROM pg_stat_activity
    ), chosen AS MATERIALIZED (
        SELECT s.tenant, s.tool, s.scope, s.key, s.currency, s.backend FROM toolfleet.model_spend s
        WHERE s.backend <> 0 AND (crowded OR NOT EXISTS (SELECT FROM living l WHERE l.pid = s.backend))
        ORDER BY s.tenant, s.tool, s.scope, s.key, s.currency, s.backend LIMIT rows_max
        FOR UPDATE SKIP LOCKED
    ), taken AS (
        DELETE FROM toolfleet.model_spend s USING chosen c
        WHERE (s.tenant, s.tool, s.scope, s.key, s.currency, s.backend) = (c.tenant, c.tool, c.scope, c.key, c.currency, c.backend)
        RETURNING s.tenant, s.tool, s.scope, s.key, s.currency, s.day, s.calls, s.tokens, s.cost
    ), moved AS (
        INSERT INTO toolfleet.model_spend AS s (tenant, tool, scope, key, currency, backend, day, calls, tokens, cost)
        SELECT tenant, tool, scope, key, currency, 0, max(day), sum(calls), sum(tokens), sum(cost) FROM taken
        GROUP BY tenant, tool, scope, key, currency ORDER BY tenant, tool, scope, key, currency
        ON CONFLICT (tenant, tool, scope, key, currency, backend) DO UPDATE
        SET day = greatest(s.day, EXCLUDED.day), calls = s.calls + EXCLUDED.calls, tokens = s.tokens + EXCLUDED.tokens,
            cost = s.cost + EXCLUDED.cost
    )
    SELECT count(*) INTO folded FROM taken;
    RETURN folded;
END $$;

-- Deletes what was spent on days before these, at most so many rows of each kind; returns how many. `runs_before` null: of no run.
CREATE FUNCTION toolfleet.drop_model_spend(days_before date, runs_before date, rows_max integer) RETURNS bigint LANGUAGE plpgsql
SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
DECLARE
    dropped bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('toolfleet.fold_model_spend')) THEN
        RETURN 0;
    END IF;
    WITH days AS MATERIALIZED (
        SELECT s.ctid AS place FROM toolfleet.model_spend s WHERE s.scope = 'tenant_day' AND s.day < days_before
        ORDER BY s.day LIMIT rows_max FOR UPDATE SKIP LOCKED
    ), runs AS MATERIALIZED (
        -- A run that goes on keeps all of its rows.
        SELECT s.ctid AS place FROM toolfleet.model_spend s WHERE s.scope = 'run' AND s.day < runs_before AND NOT EXISTS (
            SELECT FROM toolfleet.model_spend n
            WHERE n.tenant = s.tenant AND n.tool = s.tool AND n.scope = 'run' AND n.key = s.key AND n.day >= runs_before)
        ORDER BY s.day LIMIT rows_max FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM toolfleet.model_spend s WHERE s.ctid = ANY (ARRAY(SELECT place FROM days UNION ALL SELECT place FROM runs)) RETURNING 1
    )
    SELECT count(*) INTO dropped FROM gone;
    RETURN dropped;
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.fold_model_spend, toolfleet.drop_model_spend FROM PUBLIC;
