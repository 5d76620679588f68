-- Why: the statement that fills the record of a request was planned anew each time, a third of its cost, because a plan for one day of
-- the history looks cheaper than one for any. In a function it is planned once a session. The answer of a model waits for it.
-- Locks: none.
-- The release before survives it: a new function.

-- Fills the row of a request, and counts what it cost where a run (`counted_run`) or a tenant's day has a budget. False: it is filled
-- already, or its day is gone. Its commit is not waited for.
CREATE FUNCTION toolfleet.fill_model_request(call uuid, request uuid, model text, first_token_ms bigint, run_ms bigint, input bigint,
    cached_input bigint, cache_write bigint, output bigint, reasoning bigint, estimated boolean, cost text, currency text, finish text,
    code text, misconfigured smallint, counted_run text, is_per_day boolean)
RETURNS boolean LANGUAGE plpgsql SET search_path = toolfleet, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    today date := (now() AT TIME ZONE 'UTC')::date;
    filled record;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE toolfleet.model_requests m
    SET model_answered = fill_model_request.model, first_token_ms = fill_model_request.first_token_ms,
        run_ms = fill_model_request.run_ms, input_tokens = fill_model_request.input,
        cached_input_tokens = fill_model_request.cached_input, cache_write_tokens = fill_model_request.cache_write,
        output_tokens = fill_model_request.output, reasoning_tokens = fill_model_request.reasoning,
        estimated = fill_model_request.estimated, cost = fill_model_request.cost::numeric, currency = fill_model_request.currency,
        finish = fill_model_request.finish, code = fill_model_request.code, misconfigured_status = fill_model_request.misconfigured
    WHERE m.call_id = fill_model_request.call AND m.request_id = fill_model_request.request AND m.run_ms IS NULL
    RETURNING m.tenant, m.tool, m.input_tokens + m.output_tokens AS tokens, m.cost, m.currency INTO filled;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF filled.tokens IS NOT NULL AND (fill_model_request.counted_run IS NOT NULL OR fill_model_request.is_per_day) THEN
        INSERT INTO toolfleet.model_spend AS s (tenant, tool, scope, key, currency, backend, day, tokens, cost)
        SELECT filled.tenant, filled.tool, c.scope, c.key, coalesce(filled.currency, ''), pg_backend_pid(), today, filled.tokens,
               coalesce(filled.cost, 0)
        FROM (VALUES ('run', fill_model_request.counted_run),
                     ('tenant_day', CASE WHEN fill_model_request.is_per_day THEN to_char(today, 'YYYY-MM-DD') END)) c (scope, key)
        WHERE c.key IS NOT NULL
        ON CONFLICT (tenant, tool, scope, key, currency, backend) DO UPDATE
        SET day = EXCLUDED.day, tokens = s.tokens + EXCLUDED.tokens, cost = s.cost + EXCLUDED.cost;
    END IF;
    RETURN true;
END $$;
REVOKE EXECUTE ON FUNCTION toolfleet.fill_model_request FROM PUBLIC;
