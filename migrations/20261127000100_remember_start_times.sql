-- Why: a call of a tool with a rate limit gets its start time in a claim; its message comes back by then, and the next claim finds
-- the time here. A claim clears it, so each attempt takes its own.
-- Locks: ACCESS EXCLUSIVE on open_calls for a moment; a nullable column rewrites nothing.
-- The release before survives it: its statements name their columns.

ALTER TABLE toolfleet.open_calls ADD COLUMN rate_at timestamptz;
