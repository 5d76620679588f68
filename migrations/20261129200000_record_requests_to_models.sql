-- Why: a request to a model costs money whatever becomes of its call: an attempt that fails, a route before the one that answered, a
-- worker that dies. So each has a row of its own, which is committed before it leaves and filled once it is over. A row that was never
-- filled says that the request may have been paid for. It has no content, so it stays as it is where the bodies of calls do not.
-- Locks: none but of new tables; while it waits, no partitions are made or dropped.
-- The release before survives it: new tables and a new view, and functions that do what they did.

-- No day may come or go until those of this table are the same.
SELECT pg_advisory_xact_lock(hashtext('toolfleet.ensure_partitions'));

-- One request on one route. Everything from `model_answered` on is null until it is over; then `run_ms` is not.
CREATE TABLE toolfleet.model_requests (
    call_id uuid NOT NULL,
    request_id uuid NOT NULL,
    attempt_id uuid NOT NULL,
    attempt integer NOT NULL,
    tenant text NOT NULL,
    -- The tool that was asked, which may stand in for the call's own.
    tool text NOT NULL,
    tool_version integer NOT NULL,
    session text,
    run text,
    route text NOT NULL,
    model_asked text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('answer', 'summary')),
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    model_answered text CHECK (length(model_answered) <= 200),
    first_token_ms bigint,
    run_ms bigint,
    input_tokens bigint,
    cached_input_tokens bigint,
    cache_write_tokens bigint,
    output_tokens bigint,
    reasoning_tokens bigint,
    estimated boolean,
    cost numeric,
    currency text,
    finish text,
    code text,
    CHECK ((cost IS NULL) = (currency IS NULL)),
    PRIMARY KEY (call_id, request_id)
) PARTITION BY RANGE (call_id);

-- It is filled once, and goes with the day of its call.
CREATE TRIGGER filled_once BEFORE UPDATE ON toolfleet.model_requests
    FOR EACH ROW WHEN (OLD.run_ms IS NOT NULL) EXECUTE FUNCTION toolfleet.refuse_change_of_history();
CREATE TRIGGER not_deleted BEFORE DELETE ON toolfleet.model_requests
    FOR EACH ROW EXECUTE FUNCTION toolfleet.refuse_change_of_history();
CREATE TRIGGER not_emptied BEFORE TRUNCATE ON toolfleet.model_requests
    FOR EACH STATEMENT EXECUTE FUNCTION toolfleet.refuse_truncation();

-- The days that the history has. Each row grows once, so its page has room for that.
DO $$
DECLARE
    part record;
BEGIN
    FOR part IN
        SELECT replace(c.relname, 'finished_calls', 'model_requests') AS name, pg_get_expr(c.relpartbound, c.oid) AS bound
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'toolfleet.finished_calls'::regclass
    LOOP
        EXECUTE format('CREATE TABLE toolfleet.%I PARTITION OF toolfleet.model_requests %s WITH (fillfactor = 60)', part.name, part.bound);
        EXECUTE format('CREATE TRIGGER not_emptied BEFORE TRUNCATE ON toolfleet.%I FOR EACH STATEMENT '
            'EXECUTE FUNCTION toolfleet.refuse_truncation()', part.name);
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION toolfleet.ensure_partitions(days integer) RETURNS integer LANGUAGE plpgsql
SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
DECLARE
    today timestamptz := date_trunc('day', now(), 'UTC');
    parents text[] := ARRAY['finished_calls', 'ended_attempts', 'call_notes', 'model_requests'];
    parent text;
    name text;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('toolfleet.ensure_partitions'));
    FOR day IN -1 .. days LOOP
        name := to_char((today + make_interval(days => day)) AT TIME ZONE 'UTC', '_YYYYMMDD');
        CONTINUE WHEN to_regclass('toolfleet.finished_calls' || name) IS NOT NULL;
        BEGIN
            FOREACH parent IN ARRAY parents LOOP
                EXECUTE format('CREATE TABLE toolfleet.%I PARTITION OF toolfleet.%I FOR VALUES FROM (%L) TO (%L)%s',
                    parent || name, parent, toolfleet.uuid_floor(today + make_interval(days => day)),
                    toolfleet.uuid_floor(today + make_interval(days => day + 1)),
                    CASE parent WHEN 'model_requests' THEN ' WITH (fillfactor = 60)' ELSE '' END);
                EXECUTE format('CREATE TRIGGER not_emptied BEFORE TRUNCATE ON toolfleet.%I FOR EACH STATEMENT '
                    'EXECUTE FUNCTION toolfleet.refuse_truncation()', parent || name);
            END LOOP;
            made := made + cardinality(parents);
        EXCEPTION WHEN check_violation THEN
            RAISE WARNING 'the default partitions hold rows of %', ltrim(name, '_');
        END;
    END LOOP;
    RETURN made;
END $$;

DO $$
DECLARE
    body text := pg_get_functiondef('toolfleet.drop_history'::regproc);
    last text := '        RETURN part.day;';
    changed text := replace(body, last,
        E'        EXECUTE format(''DROP TABLE IF EXISTS toolfleet.%I'', ''model_requests'' || to_char(part.day, ''_YYYYMMDD''));\n' || last);
BEGIN
    IF changed = body THEN
        RAISE EXCEPTION 'drop_history does not return the day';
    END IF;
    EXECUTE changed;
END $$;

CREATE VIEW toolfleet.model_calls AS
SELECT m.call_id, m.attempt_id, m.attempt, m.tenant, m.tool, m.tool_version, m.session, m.run, m.route, m.model_asked, m.model_answered,
       m.kind, m.started_at, m.first_token_ms, m.run_ms, m.input_tokens, m.cached_input_tokens, m.cache_write_tokens, m.output_tokens,
       m.reasoning_tokens, m.estimated, m.cost, m.currency, m.finish, CASE WHEN m.run_ms IS NULL THEN 'unknown' ELSE m.code END AS code,
       m.request_id
FROM toolfleet.model_requests m;
