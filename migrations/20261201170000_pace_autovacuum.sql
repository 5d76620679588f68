-- Autovacuum of the hot tables backs off while a snapshot is held.
--
-- It frees no row that the snapshot may still see, and Postgres begins a pass anew at each of its looks: every minute, or every
-- second where dispatchers may not vacuum themselves, each over all dead rows. So a dispatcher sets how many dead rows a pass
-- waits for: twice those that are there while the same snapshot is held, the usual number when it is gone. Where no dispatcher is
-- left to set it, a table gets a pass once it has twice its dead rows.
--
-- Inserted rows start no pass any more: each of them is dead soon, and counts then.
--
-- Locks each of the two tables for a moment, in a mode that only a vacuum waits for. The release before is not affected.

ALTER TABLE toolfleet.open_calls SET (autovacuum_vacuum_insert_threshold = -1);
ALTER TABLE toolfleet.open_counts SET (autovacuum_vacuum_insert_threshold = -1);

-- A vacuum that is at work is let go on: for a lock, a server would end the one of its own after a second.
CREATE FUNCTION toolfleet.set_autovacuum_threshold(p_table text, p_dead_rows bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp SET lock_timeout = '100ms' AS $$
BEGIN
    IF p_table NOT IN ('open_calls', 'open_counts') OR p_dead_rows NOT BETWEEN 1000 AND 2147483647 THEN
        RAISE EXCEPTION 'no threshold of % dead rows for %', p_dead_rows, p_table USING ERRCODE = 'invalid_parameter_value';
    END IF;
    EXECUTE format('ALTER TABLE toolfleet.%I SET (autovacuum_vacuum_threshold = %s)', p_table, p_dead_rows);
END $$;
REVOKE EXECUTE ON FUNCTION toolfleet.set_autovacuum_threshold FROM PUBLIC;

COMMENT ON FUNCTION toolfleet.set_autovacuum_threshold IS
    'Sets how many dead rows autovacuum waits for in a hot table; dispatchers call it while a snapshot keeps vacuum from its work.';
