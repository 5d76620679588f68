-- Why: programs stand interceptors of their own in front of the tools of their workers. A worker says in its row which it has,
-- for operators and for `tools apply`; what they did, how often they failed and how long they took is counted by worker.
-- Locks: ACCESS EXCLUSIVE on worker_processes for a moment; a nullable column without a default rewrites nothing.
-- The release before survives it: it names its columns, and has no interceptors.

-- [{name, order, mandatory, fails, budget_ms}], by their order. Null: the release before.
ALTER TABLE toolfleet.worker_processes ADD COLUMN interceptors json;

CREATE OR REPLACE VIEW toolfleet.workers AS
SELECT worker_id, name, host, pid, version, state::text AS state, queues, concurrency, beat_at, started_at, ended_at,
       ended_by, fenced_at, fenced_by, fence_note, (SELECT count(*) FROM toolfleet.open_calls o WHERE o.worker_id = w.worker_id AND o.state = 'running')
       AS running, coalesce(cannot_run, '[]'::json) AS cannot_run, sandbox, coalesce(interceptors, '[]'::json) AS interceptors
FROM toolfleet.worker_processes w;

-- What an interceptor did on a worker since that started. The rows go with the worker's.
CREATE TABLE toolfleet.interceptor_stats (
    worker_id uuid NOT NULL REFERENCES toolfleet.worker_processes ON DELETE CASCADE,
    name text NOT NULL,
    calls bigint NOT NULL,
    continued bigint NOT NULL,
    refused bigint NOT NULL,
    waited bigint NOT NULL,
    changed bigint NOT NULL,
    errors bigint NOT NULL,
    own_us bigint NOT NULL,
    -- Without values of calls.
    last_error text,
    last_error_at timestamptz,
    PRIMARY KEY (worker_id, name)
);

-- One row per name: what live workers say of it, and what all workers that are still listed have counted.
CREATE VIEW toolfleet.interceptors AS
WITH has AS (
    SELECT w.worker_id, w.name AS worker, w.queues, i.name, i."order", i.mandatory, i.fails, i.budget_ms
    FROM toolfleet.worker_processes w,
         json_to_recordset(w.interceptors) AS i (name text, "order" integer, mandatory boolean, fails text, budget_ms bigint)
    WHERE w.state IN ('live', 'draining')
), said AS (
    SELECT name, min("order") AS "order", bool_or(mandatory) AS mandatory, min(fails) AS fails, min(budget_ms) AS budget_ms,
           count(*) AS workers, count(DISTINCT ("order", mandatory, fails, budget_ms)) > 1 AS differ
    FROM has GROUP BY name
), did AS (
    SELECT name, sum(calls)::bigint AS calls, sum(continued)::bigint AS continued, sum(refused)::bigint AS refused,
           sum(waited)::bigint AS waited, sum(changed)::bigint AS changed, sum(errors)::bigint AS errors,
           sum(own_us)::bigint AS own_us, max(last_error_at) AS last_error_at,
           (array_agg(last_error ORDER BY last_error_at DESC NULLS LAST))[1] AS last_error
    FROM toolfleet.interceptor_stats GROUP BY name
)
SELECT name, s."order", s.mandatory, s.fails, s.budget_ms, coalesce(s.workers, 0) AS workers, coalesce(s.differ, false) AS differ,
       -- Live workers without it that pull a queue of one that has it.
       ARRAY(SELECT o.name FROM toolfleet.worker_processes o
             WHERE o.state = 'live' AND NOT EXISTS (SELECT FROM has h WHERE h.name = n.name AND h.worker_id = o.worker_id)
               AND EXISTS (SELECT FROM has h WHERE h.name = n.name AND h.queues && o.queues)
             ORDER BY o.name LIMIT 100) AS lacking,
       coalesce(d.calls, 0) AS calls, coalesce(d.continued, 0) AS continued, coalesce(d.refused, 0) AS refused,
       coalesce(d.waited, 0) AS waited, coalesce(d.changed, 0) AS changed, coalesce(d.errors, 0) AS errors,
       round(d.own_us / 1000.0 / nullif(d.calls, 0), 3)::float8 AS mean_ms, d.last_error, d.last_error_at
FROM (SELECT name FROM said UNION SELECT name FROM did) n
LEFT JOIN said s USING (name)
LEFT JOIN did d USING (name);
