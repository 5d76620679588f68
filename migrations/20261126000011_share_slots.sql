-- Why: a tenant may have only so many calls of a queue under way (DISPATCHER_TENANT_RUNNING). Such calls have the line
-- 'slots/<queue>', so the index has none of those of a fleet without that bound.
-- Locks: SHARE on open_calls while the index is built, which reads the open calls: about a second for a million.
-- The release before survives it: it leaves lines alone that it does not know, and the function answers what it answered.

CREATE INDEX open_calls_under_way ON toolfleet.open_calls (line, tenant) WHERE NOT held AND line LIKE 'slots/%';

CREATE OR REPLACE FUNCTION toolfleet.held_why(held boolean, line text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN NOT held THEN NULL
                WHEN line NOT LIKE '%/%' THEN 'room'
                WHEN line LIKE 'slots/%' THEN 'slots'
                WHEN line LIKE 'tool/%' THEN 'limit' END
$$;
