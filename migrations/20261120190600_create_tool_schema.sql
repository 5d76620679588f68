-- Why: a `transaction` tool's effect commits together with its outcome. What its connection may do of that is one function,
-- in a schema of its own, for the role of the tools and nobody else (docs/executors/transaction.md).
-- Locks: none that matter. Old code: survives; nothing it uses is changed.

-- The only thing that the role of the tools may use. It sees no table, and nothing of schema `toolfleet`.
CREATE SCHEMA toolfleet_tool;
REVOKE ALL ON SCHEMA toolfleet_tool FROM PUBLIC;

-- Ends a running `transaction` call as succeeded, as the last statement of the transaction that had its effect. Whoever else
-- ends or moves the call locks the same row: either this is not found and the effect is rolled back, or they find it done.
-- `attempt` is random and nobody is told of it but the worker that claimed the call; it is the right to do this.
--   TF001  the call is not this attempt's any more. Nothing may be committed
--   TF002  the result cannot be kept
-- It trusts nothing of the session it is called in: names are qualified, and what settings could change is pinned.
-- `now()` is when the transaction began, so it asks the clock.
CREATE FUNCTION toolfleet_tool.succeed(call uuid, attempt uuid, result json)
RETURNS TABLE (rev integer, moved_at timestamptz, state text, tool text, tool_version integer, tenant text, session text,
               dispatcher_id uuid, attempts integer, coercions text, queued_ms bigint, run_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO' SET row_security = on
SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    o toolfleet.open_calls;
    f toolfleet.finished_calls;
BEGIN
    SELECT * INTO o FROM toolfleet.open_calls c
    WHERE c.call_id = succeed.call AND c.attempt_id = succeed.attempt AND c.state = 'running' AND c.effect = 'transaction'
    FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the call is not this attempt''s any more' USING ERRCODE = 'TF001';
    END IF;
    -- As large as the largest answer that a manifest can allow.
    IF pg_catalog.octet_length(succeed.result::text) > 8388608 THEN
        RAISE EXCEPTION 'result must have at most 8 MiB' USING ERRCODE = 'TF002';
    END IF;
    -- An escaped NUL could be stored and not be read again. What is left without pairs of backslashes begins an escape.
    IF pg_catalog.strpos(pg_catalog.replace(succeed.result::text, E'\\\\', ''), E'\\u0000') > 0 THEN
        RAISE EXCEPTION 'result must not hold the character NUL' USING ERRCODE = 'TF002';
    END IF;
    f := toolfleet.finish(o, 'succeeded', 'success', 'live', 'applied', succeed.result, NULL, 'worker ' || o.worker_id,
        'applied', NULL, 'applied', pg_catalog.clock_timestamp());
    -- From here on only COMMIT is to come: it is as durable as any, and if it does not come, nobody waits long for the row.
    PERFORM pg_catalog.set_config('synchronous_commit', 'on', true)
    WHERE pg_catalog.current_setting('synchronous_commit') IN ('off', 'local');
    PERFORM pg_catalog.set_config('idle_in_transaction_session_timeout', '5s', true);
    RETURN QUERY SELECT f.rev, f.finished_at, f.state::text, f.tool, f.tool_version, f.tenant, f.session, o.dispatcher_id,
        f.attempts, f.coercions::text, f.queued_ms, f.run_ms;
END $$;
REVOKE EXECUTE ON FUNCTION toolfleet_tool.succeed FROM PUBLIC;

-- Nobody needs these but their owner. `is_fenced` stays: whoever may read the view `in_doubt` asks it.
REVOKE EXECUTE ON FUNCTION toolfleet.refuse_illegal_move, toolfleet.refuse_change_of_history, toolfleet.uuid_floor,
    toolfleet.uuid_instant, toolfleet.ensure_partitions, toolfleet.drop_history, toolfleet.fenced_since, toolfleet.count_opened,
    toolfleet.count_closed, toolfleet.fold_open_counts, toolfleet.recount_open FROM PUBLIC;
