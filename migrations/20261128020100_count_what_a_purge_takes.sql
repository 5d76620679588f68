-- Why: a purge counted every row that it deleted, also those of answers whose time was over, which nobody would have been given; of a
-- tool without a cache it said that it had taken nothing away, and of one that is not there it did not say which.
-- Locks: none beside the catalog's.
-- The release before survives it: it does not purge. Programs between the two releases read one number, and are refused until they are
-- upgraded; what they purge is purged.

DROP FUNCTION toolfleet.purge_answers;

-- Deletes at most 1000 rows of the answers of a tool, or of a tenant's of them. `taken`: how many rows; fewer than 1000, and there
-- are no more. Of these: `answers` would have answered an equal call, `fetching` are fetched by an open call, whose answer is not kept
-- now, and `old` are over and could have stood in where the tool fails. `goes_on`: a further step of a purge, which is in the log already.
CREATE FUNCTION toolfleet.purge_answers(tool text, actor text, note text, tenant text DEFAULT NULL, in_tenant text DEFAULT NULL,
    goes_on boolean DEFAULT false, OUT taken bigint, OUT answers bigint, OUT fetching bigint, OUT old bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    wrong text := CASE
        WHEN coalesce(length(btrim(purge_answers.actor)), 0) NOT BETWEEN 1 AND 200 THEN
            'actor must say who purges, in 1 to 200 characters'
        WHEN coalesce(length(btrim(purge_answers.note)), 0) NOT BETWEEN 1 AND 2000 THEN 'note must say why, in 1 to 2000 characters'
        WHEN toolfleet.has_invisible(purge_answers.actor) THEN 'actor must not have invisible characters'
        WHEN toolfleet.has_invisible(purge_answers.note) THEN 'note must not have invisible characters'
        WHEN purge_answers.tenant !~ '^[A-Za-z0-9_-]{1,64}$' THEN
            'tenant must be 1 to 64 characters of A-Z, a-z, 0-9, _ and -'
        WHEN purge_answers.in_tenant IS NOT NULL AND purge_answers.tenant IS NULL THEN
            'tenant must be named: on the subject of a tenant only its own answers are purged'
        WHEN purge_answers.tenant <> purge_answers.in_tenant THEN
            'tenant is another one: on the subject of a tenant only its own answers are purged'
        WHEN purge_answers.tool ~ '^[a-z0-9_]{1,64}$' IS NOT TRUE THEN 'tool must name a tool'
        WHEN NOT EXISTS (SELECT FROM toolfleet.tool_versions v WHERE v.tool = purge_answers.tool) THEN
            'there is no tool ' || purge_answers.tool
        WHEN NOT EXISTS (SELECT FROM toolfleet.tool_versions v WHERE v.tool = purge_answers.tool AND v.manifest #>> '{cache,ttl}' IS NOT NULL) THEN
            'the tool ' || purge_answers.tool || ' has no cache: no answer of it is kept' END;
BEGIN
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', wrong USING ERRCODE = 'invalid_parameter_value';
    END IF;
    WITH mine AS MATERIALIZED (
        SELECT k FROM toolfleet.kept_answers k
        WHERE k.tool = purge_answers.tool AND (purge_answers.tenant IS NULL OR k.tenant = purge_answers.tenant)
        ORDER BY k.key LIMIT 1000 FOR UPDATE
    ), said AS MATERIALIZED (
        -- As a call is told that asks now; no call has this id.
        SELECT (m.k).*, s.verdict, s.ended_at
        FROM mine m
        LEFT JOIN toolfleet.tool_versions v ON v.tool = (m.k).tool AND v.version = (m.k).version
        CROSS JOIN LATERAL toolfleet.answer_verdict(
            m.k, '00000000-0000-0000-0000-000000000000', coalesce(toolfleet.duration_ms(v.manifest #>> '{cache,ttl}'), 0)) s
    ), gone AS (
        DELETE FROM toolfleet.kept_answers a WHERE a.key = ANY(ARRAY(SELECT s.key FROM said s))
    )
    SELECT count(*), count(*) FILTER (WHERE s.verdict IN ('hit', 'found')), count(*) FILTER (WHERE s.verdict IN ('follow', 'alone')),
           -- Of the last leader, which no look has found yet, or of one before.
           count(*) FILTER (WHERE s.verdict NOT IN ('hit', 'found') AND s.keep_ms > 0 AND (
               s.verdict = 'old' AND s.ended_at + s.keep_ms * interval '1 millisecond' > clock_timestamp()
               OR EXISTS (SELECT FROM toolfleet.finished_calls f
                          WHERE f.call_id = s.call_id AND f.finished_at + s.keep_ms * interval '1 millisecond' > clock_timestamp())))
    INTO taken, answers, fetching, old FROM said s;
    IF NOT purge_answers.goes_on THEN
        WITH next AS (SELECT toolfleet.next_control_rev() AS rev)
        INSERT INTO toolfleet.control_changes (rev, change, control_id, kind, tool, tenant, setting, actor, note, role)
        SELECT rev, 'purged', rev, 'purge', purge_answers.tool, purge_answers.tenant, '"answers"', purge_answers.actor, purge_answers.note,
               session_user
        FROM next;
    END IF;
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.purge_answers FROM PUBLIC;
