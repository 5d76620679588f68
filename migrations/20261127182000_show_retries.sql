-- Why: docs and error texts send operators to what a killed retry left. The table of reservations keeps those that are done as well,
-- so the few that somebody has to look at could not be seen in it. And from a call one finds the call that it was made for.
-- Locks: SHARE on `call_marks` while the index is built. The release before survives it: it does not know the view.
CREATE INDEX call_marks_new_call ON toolfleet.call_marks (new_call_id) WHERE new_call_id IS NOT NULL;

-- Calls that somebody makes again and that have no mark: just now, or since a command was killed. The keys of new calls stay hidden.
CREATE VIEW toolfleet.retries_under_way AS
SELECT r.call_id, f.tenant, f.tool, r.name, r.at,
       -- As `reserve_retries` has it.
       CASE WHEN r.at <= now() - interval '23 hours' THEN 'unsure' ELSE 'under_way' END AS state
FROM toolfleet.retry_reservations r
JOIN toolfleet.finished_calls f ON f.call_id = r.call_id
WHERE NOT EXISTS (SELECT FROM toolfleet.call_marks m WHERE m.call_id = r.call_id);
