-- Why: calls that follow another one waited for its end after its answers were purged, although what it brings is not given to them any
-- more. The sweep and `calls explain` have to know which open calls fetch an answer for the calls in their lines.
-- Locks: none that a statement waits for.
-- The release before survives it: it does not know the function.

-- Each of these calls once; with its tool and tenant if it fetches an answer for the calls in its line: it is open, and the row of its
-- question names it. After a purge no row names it, or the row names the call that fetches anew. So of calls that follow each other in
-- turn, after a purge between two looks of one of them, at least one is no leader.
-- Each by its key, whatever the statistics of tables say that fill and empty.
CREATE FUNCTION toolfleet.fetching(calls uuid[]) RETURNS TABLE (call_id uuid, tool text, tenant text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = toolfleet, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT c.id, o.tool, o.tenant
    FROM unnest(fetching.calls) AS c (id)
    LEFT JOIN LATERAL (
        SELECT q.tool, q.tenant
        FROM toolfleet.open_calls q
        WHERE q.call_id = c.id AND q.state IN ('queued', 'running')
          AND (SELECT a.leader FROM toolfleet.kept_answers a
               WHERE a.key = toolfleet.answer_key(q.tenant, q.tool, q.tool_version, q.language, q.args_hash)) = q.call_id
        LIMIT 1) o ON true;
END $$;
REVOKE EXECUTE ON FUNCTION toolfleet.fetching FROM PUBLIC;

-- Whether this call does. Not revoked from PUBLIC, as `is_fenced` is not: `calls explain` asks it, for which the right to read the views is
-- enough.
CREATE FUNCTION toolfleet.is_fetching(call uuid) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
    SELECT EXISTS (SELECT FROM toolfleet.fetching(ARRAY[is_fetching.call]) f WHERE f.tool IS NOT NULL)
$$;
