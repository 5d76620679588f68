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
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    said text := succeed.result::text;
    flaw text;
    done text;
BEGIN
    -- As large as the largest answer that a manifest can allow.
    IF pg_catalog.octet_length(said) > 8388608 THEN
        flaw := 'result must have at most 8 MiB';
    -- An escaped NUL could be stored and not be read again. What is left without pairs of backslashes begins an escape.
    ELSIF pg_catalog.strpos(said, E'\\u0000') > 0
        AND pg_catalog.strpos(pg_catalog.replace(said, E'\\\\', ''), E'\\u0000') > 0 THEN
        flaw := 'result must not hold the character NUL';
    END IF;
    -- As `toolfleet.finish` does, in one statement and without whole rows: this runs thousands of times a second.
    RETURN QUERY WITH ended AS (
        DELETE FROM toolfleet.open_calls c
        WHERE c.call_id = succeed.call AND c.attempt_id = succeed.attempt AND c.state = 'running' AND c.effect = 'transaction'
        -- By the clock once the row is ours. Each column by name: a newer schema may have one that is called `at`.
        RETURNING c.call_id, c.rev, c.state, c.tenant, c.tool, c.tool_version, c.effect, c.queue, c.priority, c.key_hash,
            c.key_retention_ms, c.args, c.kept_args, c.original_args, c.coercions, c.args_hash, c.session, c.run, c.meta,
            c.language, c.traceparent, c.dispatcher_id, c.accepted_at, c.deadline_at, c.first_started_at, c.attempts,
            c.attempt_id, c.worker_id, c.claim_rev, c.attempt_started_at, c.attempt_timeout_ms, c.probe_of,
            pg_catalog.clock_timestamp() AS at
    ), finished AS (
        INSERT INTO toolfleet.finished_calls (
            call_id, rev, from_state, state, outcome, source, effect_known, tenant, tool, tool_version, effect, queue, priority,
            key_hash, key_retention_ms, args, original_args, coercions, args_hash, result, session, run, meta, language,
            traceparent, accepted_at, deadline_at, first_started_at, finished_at, queued_ms, run_ms, attempts, attempt_id,
            worker_id, claim_rev, attempt_started_at, attempt_timeout_ms, attempt_outcome, probe_of, actor, reason)
        SELECT o.call_id, o.rev + 1, o.state, 'succeeded', 'success', 'live', 'applied', o.tenant, o.tool, o.tool_version,
            o.effect, o.queue, o.priority, o.key_hash, o.key_retention_ms, coalesce(o.kept_args, o.args),
            CASE WHEN o.kept_args IS NULL THEN o.original_args END, o.coercions, o.args_hash,
            CASE WHEN flaw IS NOT NULL THEN NULL WHEN v.sensitive IS NULL THEN succeed.result
                ELSE toolfleet.kept(succeed.result, v.sensitive) END,
            o.session, o.run, o.meta, o.language, o.traceparent, o.accepted_at, o.deadline_at, o.first_started_at, o.at,
            (extract(epoch FROM coalesce(o.first_started_at, o.at) - o.accepted_at) * 1000)::bigint,
            (extract(epoch FROM o.at - coalesce(o.first_started_at, o.at)) * 1000)::bigint, o.attempts, o.attempt_id, o.worker_id,
            o.claim_rev, o.attempt_started_at, o.attempt_timeout_ms, 'applied', o.probe_of, 'worker ' || o.worker_id, 'applied'
        FROM ended o LEFT JOIN toolfleet.tool_versions v ON v.tool = o.tool AND v.version = o.tool_version
    )
    SELECT o.rev + 1, o.at, 'succeeded', o.tool, o.tool_version, o.tenant, o.session, o.dispatcher_id, o.attempts,
        o.coercions::text, (extract(epoch FROM coalesce(o.first_started_at, o.at) - o.accepted_at) * 1000)::bigint,
        (extract(epoch FROM o.at - coalesce(o.first_started_at, o.at)) * 1000)::bigint
    FROM ended o;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the call is not this attempt''s any more' USING ERRCODE = 'TF001';
    END IF;
    IF flaw IS NOT NULL THEN
        RAISE EXCEPTION '%', flaw USING ERRCODE = 'TF002';
    END IF;
    -- From here on only COMMIT is to come: it is as durable as any, and if it does not come, nobody waits long for the row.
    IF pg_catalog.current_setting('synchronous_commit') IN ('off', 'local') THEN
        done := pg_catalog.set_config('synchronous_commit', 'on', true);
    END IF;
    done := pg_catalog.set_config('idle_in_transaction_session_timeout', '5s', true);
END $$;
REVOKE EXECUTE ON FUNCTION toolfleet_tool.succeed FROM PUBLIC;

-- Nobody needs these but their owner. `is_fenced` stays: whoever may read the view `in_doubt` asks it.
REVOKE EXECUTE ON FUNCTION toolfleet.refuse_illegal_move, toolfleet.refuse_change_of_history, toolfleet.uuid_floor,
    toolfleet.uuid_instant, toolfleet.applied_late, toolfleet.key_lapsed, toolfleet.unknown_until, toolfleet.ensure_partitions, toolfleet.drop_history, toolfleet.fenced_since,
    toolfleet.count_opened, toolfleet.count_closed, toolfleet.fold_open_counts, toolfleet.recount_open FROM PUBLIC;
