-- Why: a caller that sends `Cache-Control: no-store` gets an answer of its own, which nobody else gets. The gate of a worker decides
-- that, by the row. Null, as in all rows of the release before, is a call that may share.
-- Locks: ACCESS EXCLUSIVE on open_calls for a moment; a nullable column rewrites nothing.
-- The release before survives it: its statements name their columns.

ALTER TABLE toolfleet.open_calls ADD COLUMN no_store boolean;
