SELECT row_to_json(f)::text FROM (
    SELECT c.call_id, c.tenant, c.state, c.tool, c.tool_version, c.queue, c.held, c.held_why, c.line, c.cancel_requested, c.attempts,
           CASE WHEN c.cancel_requested THEN (SELECT row_to_json(t) FROM (
                SELECT at, actor, details->>'reason' AS note FROM toolfleet.call_events
                WHERE call_id = $1 AND reason = 'cancel_requested' ORDER BY revision LIMIT 1) t) END AS asked_to_stop,
           CASE WHEN c.held THEN (
                SELECT count(*) FROM (
                    SELECT FROM toolfleet.calls o
                    WHERE o.held AND o.line = c.line AND o.tenant = c.tenant
                      -- As the release orders them: calls that were committed together have one time.
                      AND (o.accepted_at + array_position(ARRAY['high', 'normal', 'low'], o.priority) * interval '30 s', o.call_id)
                          < (c.accepted_at + array_position(ARRAY['high', 'normal', 'low'], c.priority) * interval '30 s', c.call_id)
                    LIMIT 10000) ahead) END AS ahead,
           CASE WHEN c.held THEN (
                SELECT count(DISTINCT tenant) FROM (
                    SELECT o.tenant FROM toolfleet.calls o
                    WHERE o.held AND o.line = c.line AND o.tenant <> c.tenant
                    LIMIT 10000) others) END AS others,
           -- As store/under_way.rs counts them: its own tenant's first, then those of the tenants with the most.
           CASE WHEN c.held_why = 'slots' THEN (SELECT coalesce(json_agg(u), '[]') FROM (
                SELECT o.tenant, count(*) AS calls FROM toolfleet.calls o
                WHERE o.line = c.line AND NOT o.held
                  AND (o.state = 'running' OR o.state = 'queued' AND o.not_before <= now())
                GROUP BY o.tenant ORDER BY o.tenant <> c.tenant, count(*) DESC, o.tenant LIMIT 4) u)
                ELSE '[]' END AS under_way,
           CASE WHEN c.held AND c.line LIKE 'pause/%' THEN (SELECT row_to_json(p) FROM (
                SELECT k.control_id, k.actor, k.note, k.set_at, k.expires_at FROM toolfleet.controls k
                WHERE c.line = 'pause/' || k.control_id) p) END AS pause,
           -- All others that would hold it when that one is over. Only the processes compare values in their canonical form; texts,
           -- numbers and words look the same in it.
           CASE WHEN c.held AND c.line LIKE 'pause/%' OR c.awaiting = 'approval' THEN (SELECT coalesce(json_agg(p ORDER BY p.control_id), '[]') FROM (
                SELECT k.control_id, k.actor, k.note, k.set_at, k.expires_at FROM toolfleet.controls k
                WHERE k.kind = 'pause' AND c.line IS DISTINCT FROM 'pause/' || k.control_id
                  AND c.tool = coalesce(k.tool, c.tool) AND c.queue = coalesce(k.queue, c.queue)
                  AND c.tenant = coalesce(k.tenant, c.tenant)
                  AND CASE WHEN k.pointer IS NULL THEN true ELSE coalesce((c.args #> ARRAY(
                          SELECT replace(replace(step, '~1', '/'), '~0', '~')
                          FROM unnest(string_to_array(substr(k.pointer, 2), '/')) AS step))::text = k.value::text, false) END
                ORDER BY k.control_id LIMIT 10) p) ELSE '[]' END AS other_pauses,
           CASE WHEN c.held AND c.line LIKE 'breaker/%' THEN (SELECT row_to_json(b) FROM (
                SELECT k.target, k.state, k.forced, k.opened_at, k.open_until, k.why FROM toolfleet.breakers k
                WHERE c.line = 'breaker/' || k.breaker_id) b) END AS breaker,
           CASE WHEN c.held AND c.line LIKE 'after/%' THEN (SELECT row_to_json(l) FROM (
                SELECT o.call_id, CASE WHEN o.held THEN 'held' ELSE o.state END AS state,
                       toolfleet.is_fetching(o.call_id) AS fetches
                FROM toolfleet.calls o
                WHERE o.call_id = substr(c.line, 7)::uuid AND o.finished_at IS NULL) l) END AS leader,
           -- As fleet/src/modes.rs says: a tool says more than a tenant.
           CASE WHEN c.held AND c.line LIKE 'after/%' THEN (
                SELECT row_to_json(m) FROM (
                    SELECT k.setting #>> '{}' AS mode, k.control_id, k.actor, k.note FROM toolfleet.controls k
                    WHERE k.kind = 'mode' AND k.subject = 'cache'
                      AND c.tool = coalesce(k.tool, c.tool) AND c.tenant = coalesce(k.tenant, c.tenant)
                    ORDER BY k.tool IS NULL, k.tenant IS NULL LIMIT 1) m WHERE m.mode <> 'enforce') END AS uncached,
           -- Another wall behind the one that holds it now.
           CASE WHEN c.held AND c.line NOT LIKE 'breaker/%' AND c.line NOT LIKE 'after/%' THEN (
                SELECT coalesce(f.forced, CASE WHEN EXISTS (
                    SELECT FROM toolfleet.breakers b WHERE b.tool = c.tool AND b.state <> 'closed') THEN 'open' ELSE 'closed' END)
                FROM toolfleet.tools t
                LEFT JOIN LATERAL (
                    SELECT 'forced ' || (k.setting #>> '{}') AS forced FROM toolfleet.controls k
                    WHERE k.kind = 'breaker' AND k.tool = c.tool) f ON true
                WHERE t.tool = c.tool AND t.current AND t.manifest->'breaker' IS NOT NULL
                  AND coalesce((SELECT k.setting #>> '{}' FROM toolfleet.controls k
                          WHERE k.kind = 'mode' AND k.subject = 'breaker'
                            AND c.tool = coalesce(k.tool, c.tool) AND c.tenant = coalesce(k.tenant, c.tenant)
                          ORDER BY k.tool IS NULL, k.tenant IS NULL LIMIT 1), 'enforce') = 'enforce') END AS behind_breaker,
           c.error->>'code' AS error_code, c.obstacle, now() AS now, c.accepted_at, c.not_before, c.deadline_at,
           EXISTS (SELECT FROM toolfleet.tools t
                   WHERE t.tool = c.tool AND t.version = c.tool_version) AS tool_known,
           (SELECT row_to_json(l) FROM (
                SELECT t.concurrency AS at_a_time,
                       (SELECT count(*) FROM toolfleet.slots s WHERE s.tool = c.tool) AS running
                FROM toolfleet.tools t
                WHERE t.tool = c.tool AND t.current AND t.concurrency IS NOT NULL) l) AS tool_limit,
           (SELECT row_to_json(l) FROM (
                SELECT r.name, r.shared_by, r.calls, r.per_ms, r.burst, r.control_id,
                       CASE WHEN own.is_own THEN r.next_start_at END AS next_start_at,
                       CASE WHEN own.is_own THEN r.closed_until END AS closed_until,
                       CASE WHEN r.shared_by = 'argument' THEN (
                            SELECT t.manifest #>> '{rate_limit,by}' FROM toolfleet.tools t WHERE t.tool = c.tool AND t.current) END AS pointer
                FROM toolfleet.limits r
                CROSS JOIN LATERAL (SELECT CASE r.shared_by
                        WHEN 'tenant' THEN r.tenant = c.tenant
                        -- The line of a tool's call with a key ends with it.
                        WHEN 'argument' THEN r.tenant = c.tenant
                            AND coalesce(r.key, '') = CASE WHEN c.line LIKE 'tool/%' THEN split_part(c.line, '/', 3) END
                        ELSE true END AS is_own) own
                WHERE c.tool = ANY (r.tools)
                  -- As fleet/src/modes.rs says: a tool says more than a tenant.
                  AND coalesce((SELECT k.setting #>> '{}' FROM toolfleet.controls k
                          WHERE k.kind = 'mode' AND k.subject = 'rate_limit'
                            AND c.tool = coalesce(k.tool, c.tool) AND c.tenant = coalesce(k.tenant, c.tenant)
                          ORDER BY k.tool IS NULL, k.tenant IS NULL LIMIT 1), 'enforce') = 'enforce'
                ORDER BY own.is_own DESC NULLS LAST LIMIT 1) l) AS rate,
           (SELECT count(*) FROM toolfleet.calls o
            WHERE o.line IS NOT NULL AND o.queue = c.queue AND o.state = 'running') AS queue_running,
           (SELECT coalesce(json_agg(w), '[]') FROM (
                -- Of its slots a worker has an equal share for each queue; what is over is for the first ones.
                SELECT name, running, concurrency / cardinality(queues)
                           + (array_position(queues, c.queue) <= concurrency % cardinality(queues))::int AS slots,
                       extract(epoch FROM now() - beat_at)::float8 AS silent_s
                FROM toolfleet.workers WHERE state = 'live' AND c.queue = ANY (queues)
                ORDER BY beat_at DESC, worker_id LIMIT 1000) w) AS workers,
           (SELECT row_to_json(a) FROM (
                SELECT a.number, a.worker, a.started_at,
                       least(a.started_at + make_interval(secs => a.timeout_ms / 1000.0),
                             CASE WHEN c.awaiting IS NOT NULL THEN c.deadline_at END) AS until,
                       w.state AS worker_state,
                       extract(epoch FROM now() - w.beat_at)::float8 AS worker_silent_s
                FROM toolfleet.attempts a LEFT JOIN toolfleet.workers w USING (worker_id)
                WHERE a.call_id = $1 AND a.finished_at IS NULL LIMIT 1) a) AS attempt,
           CASE WHEN c.awaiting = 'approval' THEN (SELECT row_to_json(a) FROM (
                SELECT w.since, w.until, w.approval_by AS by, w.approvals AS given, w.approvals_needed AS needed,
                       w.approval_reason AS reason,
                       coalesce((SELECT t.manifest->'executor'->'client' IS NOT NULL FROM toolfleet.tools t
                                 WHERE t.tool = c.tool AND t.version = c.tool_version), false) AS run_by_client,
                       (SELECT json_agg(d.actor ORDER BY d.at) FROM toolfleet.approvals d
                        WHERE d.call_id = $1 AND d.decision = 'approve') AS approved_by
                FROM toolfleet.waiting w WHERE w.call_id = $1) a) END AS approval,
           CASE WHEN c.awaiting IN ('completion', 'input') THEN (SELECT row_to_json(a) FROM (
                SELECT w.awaiting AS whom, w.since, w.until FROM toolfleet.waiting w WHERE w.call_id = $1) a) END AS wait,
           (SELECT row_to_json(d) FROM (
                -- An attempt without a worker is one by the caller's own program.
                SELECT since, why, worker_fenced, attempt_id IS NOT NULL AND worker IS NULL AS by_client,
                       -- A worker's attempt that went in doubt while the call waited for somebody was one whose tool answers later.
                       why = 'completion_silent' OR attempt_id IS NOT NULL AND worker IS NOT NULL AND coalesce((
                           SELECT e.from_state = 'awaiting_client' FROM toolfleet.call_events e
                           WHERE e.call_id = $1 AND e.to_state = 'in_doubt' AND e.from_state <> 'in_doubt'
                           ORDER BY e.revision DESC LIMIT 1), false) AS by_tool, quarantined, attempt_until, probes, probe_state,
                       next_probe_at,
                       CASE WHEN error->'details'->'cause' IS NOT NULL THEN json_build_object(
                           'message', error->'details'->'cause'->>'message',
                           'stderr', error->'details'->'cause'->'details'->>'stderr') END AS cause
                FROM toolfleet.in_doubt WHERE call_id = $1) d) AS doubt,
           (SELECT row_to_json(e) FROM (
                SELECT at, from_state, actor, reason,
                       (SELECT w.name FROM toolfleet.workers w WHERE e.actor = 'worker ' || w.worker_id) AS worker, coalesce(details->>'note', details->>'reason') AS note,
                       coalesce((details->>'by_time_only')::boolean, false) AS by_time_only,
                       details->>'from' AS answer_of
                FROM toolfleet.call_events e
                WHERE call_id = $1 AND from_state IS DISTINCT FROM to_state
                ORDER BY revision DESC LIMIT 1) e) AS last,
           CASE WHEN c.finished_at IS NOT NULL THEN (SELECT row_to_json(e) FROM (
                SELECT c.error->>'message' AS message, coalesce(c.error->'details'->>'retry' = 'suppressed', false) AS suppressed, c.degraded,
                       -- The tool and the platform each end attempts; of the latter only these are held against a call.
                       (SELECT count(*) FROM toolfleet.call_events
                        WHERE call_id = $1 AND reason IN ('worker_lost', 'attempt_overdue', 'poison')
                          AND from_state = 'running') AS lost,
                       coalesce((SELECT (t.manifest->>'losses')::bigint FROM toolfleet.tools t
                                 WHERE t.tool = c.tool AND t.version = c.tool_version), $2) AS losses_allowed,
                       -- Such a worker beat after the call came, and was started before it ended.
                       (SELECT count(*) FROM toolfleet.workers w
                        WHERE c.queue = ANY (w.queues) AND w.started_at <= c.finished_at
                          AND w.beat_at >= c.accepted_at - make_interval(secs => $3)
                          AND coalesce(w.ended_at >= c.accepted_at, true)) AS workers_meanwhile,
                       (SELECT e.details FROM toolfleet.call_events e
                        WHERE e.call_id = $1 AND e.reason = 'cannot_run' AND e.revision > coalesce(
                            (SELECT max(revision) FROM toolfleet.call_events
                             WHERE call_id = $1 AND reason = 'claimed'), 0)
                        ORDER BY e.revision DESC LIMIT 1) AS lacked,
                       (SELECT row_to_json(h) FROM (
                            SELECT e.line,
                                   (SELECT row_to_json(p) FROM (
                                        SELECT l.control_id, l.actor, l.note FROM toolfleet.control_log l
                                        WHERE l.change IN ('set', 'changed') AND e.line = 'pause/' || l.control_id
                                        ORDER BY l.rev DESC LIMIT 1) p) AS pause,
                                   -- What held at its end, by the log: the control may be gone.
                                   (SELECT row_to_json(b) FROM (
                                        SELECT l.control_id, l.actor, l.note, l.change IN ('set', 'changed') AND l.setting::text = '"open"' AS holds
                                        FROM toolfleet.control_log l
                                        WHERE e.line LIKE 'breaker/%' AND l.kind = 'breaker' AND l.tool = c.tool
                                          AND l.at <= c.finished_at
                                        ORDER BY l.rev DESC LIMIT 1) b WHERE b.holds) AS forced
                            FROM (SELECT details->>'line' AS line FROM toolfleet.call_events
                                  WHERE call_id = $1 AND to_state = 'expired') e
                            WHERE e.line IS NOT NULL) h) AS held,
                       EXISTS (SELECT FROM toolfleet.call_events
                               WHERE call_id = $1 AND reason = 'quarantine') AS quarantined,
                       (SELECT row_to_json(d) FROM (
                            SELECT at, reason, CASE WHEN reason = 'cancelled' THEN actor END AS cancelled_by FROM toolfleet.call_events
                            WHERE call_id = $1 AND to_state = 'in_doubt' AND from_state <> 'in_doubt'
                            ORDER BY revision DESC LIMIT 1) d) AS doubt,
                       (SELECT row_to_json(t) FROM (
                            SELECT at, actor, details->>'reason' AS note FROM toolfleet.call_events
                            WHERE call_id = $1 AND (reason = 'cancel_requested'
                               OR reason = 'cancelled' AND to_state = 'cancelled')
                            ORDER BY revision LIMIT 1) t) AS taken_back,
                       (SELECT row_to_json(a) FROM (
                            SELECT number, worker, error->>'code' AS code, timeout_ms,
                                   started_at + make_interval(secs => timeout_ms / 1000.0) AS until
                            FROM toolfleet.attempts
                            WHERE call_id = $1 AND NOT late ORDER BY number DESC LIMIT 1) a) AS attempt,
                       -- What was abandoned says so by its last move.
                       (SELECT row_to_json(m) FROM (
                            SELECT k.*, (SELECT n.state FROM toolfleet.calls n WHERE n.call_id = k.new_call_id) AS new_state
                            FROM toolfleet.marks k WHERE k.call_id = $1 AND k.what <> 'abandoned'
                            ORDER BY k.at DESC LIMIT 1) m) AS dealt,
                       (SELECT row_to_json(r) FROM (
                            SELECT name, at, state FROM toolfleet.retries_under_way WHERE call_id = $1) r) AS under_way) e)
           END AS ended
    FROM toolfleet.calls c
    WHERE c.call_id = $1) f
