-- Why: an attempt by the caller's own program has no worker.
-- Locks: ACCESS EXCLUSIVE on ended_attempts and its partitions for a moment; nothing is read or rewritten.
-- The release before survives it: a row without a worker is only there of a tool whose manifest it cannot read.

ALTER TABLE toolfleet.ended_attempts ALTER COLUMN worker_id DROP NOT NULL;
