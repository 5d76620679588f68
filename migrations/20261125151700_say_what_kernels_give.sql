-- Why: a program with a sandbox runs only where the kernel can keep it in; a worker says in its row what its kernel gives
-- (`landlock`, the ABI up to the newest that we use, `seccomp`) and which programs it takes (`demand`). Null: the release before.
-- Locks: ACCESS EXCLUSIVE on worker_processes for a moment; a nullable column without a default rewrites nothing.
-- The release before survives it: it names its columns.

ALTER TABLE toolfleet.worker_processes ADD COLUMN sandbox json;

CREATE OR REPLACE VIEW toolfleet.workers AS
SELECT worker_id, name, host, pid, version, state::text AS state, queues, concurrency, beat_at, started_at, ended_at,
       ended_by, fenced_at, fenced_by, fence_note, (SELECT count(*) FROM toolfleet.open_calls o WHERE o.worker_id = w.worker_id AND o.state = 'running')
       AS running, coalesce(cannot_run, '[]'::json) AS cannot_run, sandbox
FROM toolfleet.worker_processes w;
