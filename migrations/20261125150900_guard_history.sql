-- Why: history refused UPDATE and DELETE and could still be emptied by TRUNCATE; and with a role of its own a dispatcher could
-- neither make nor drop a day of history without owning it. Now each table of history refuses TRUNCATE, partition by
-- partition, and what needs the rights of an owner is a function that has them, with a fixed search path.
-- Locks: SHARE ROW EXCLUSIVE on the tables of history and their partitions, for a moment. A statement that is interrupted has
-- changed nothing.
-- The release before survives it: the functions do what they did.
CREATE FUNCTION toolfleet.refuse_truncation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'history does not change: % is not emptied', TG_TABLE_NAME USING ERRCODE = 'check_violation';
END $$;

DO $$
DECLARE
    part regclass;
BEGIN
    FOR part IN
        SELECT relid FROM unnest(ARRAY['finished_calls', 'ended_attempts', 'call_notes']) parent,
            pg_partition_tree(('toolfleet.' || parent)::regclass)
    LOOP
        EXECUTE format('CREATE TRIGGER not_emptied BEFORE TRUNCATE ON %s FOR EACH STATEMENT '
            'EXECUTE FUNCTION toolfleet.refuse_truncation()', part);
    END LOOP;
END $$;

-- A statement's trigger is not inherited, so each new partition gets its own.
CREATE OR REPLACE FUNCTION toolfleet.ensure_partitions(days integer) RETURNS integer LANGUAGE plpgsql
SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
DECLARE
    today timestamptz := date_trunc('day', now(), 'UTC');
    parents text[] := ARRAY['finished_calls', 'ended_attempts', 'call_notes'];
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
                EXECUTE format('CREATE TABLE toolfleet.%I PARTITION OF toolfleet.%I FOR VALUES FROM (%L) TO (%L)',
                    parent || name, parent, toolfleet.uuid_floor(today + make_interval(days => day)),
                    toolfleet.uuid_floor(today + make_interval(days => day + 1)));
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

ALTER FUNCTION toolfleet.drop_history SECURITY DEFINER SET search_path = toolfleet, pg_temp;
ALTER FUNCTION toolfleet.fold_open_counts SECURITY DEFINER SET search_path = toolfleet, pg_temp;
ALTER FUNCTION toolfleet.recount_open SECURITY DEFINER SET search_path = toolfleet, pg_temp;
ALTER FUNCTION toolfleet.fence SECURITY DEFINER;
ALTER FUNCTION toolfleet.leave SECURITY DEFINER;
ALTER FUNCTION toolfleet.quarantine SECURITY DEFINER;

-- They have the rights of their owner now, so only roles that are granted them may call them: `deploy/postgres/roles.sql`.
REVOKE EXECUTE ON FUNCTION toolfleet.ensure_partitions, toolfleet.drop_history, toolfleet.fold_open_counts, toolfleet.recount_open,
    toolfleet.fence, toolfleet.leave, toolfleet.quarantine, toolfleet.settle, toolfleet.cancel FROM PUBLIC;

-- Its trigger calls it, and no role does.
REVOKE EXECUTE ON FUNCTION toolfleet.refuse_truncation FROM PUBLIC;
