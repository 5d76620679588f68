-- Why: what was lost with a worker that was leaving in order is no sign of a call that kills its workers, so it does not count
-- against the tool's `losses`. `state` alone does not tell once the worker is dead.
-- Locks: ACCESS EXCLUSIVE on worker_processes for a moment; a nullable column without a default rewrites nothing.
-- The release before survives it: its workers leave the column empty, and what they lose counts as it did.

ALTER TABLE toolfleet.worker_processes ADD COLUMN leaving_since timestamptz;
