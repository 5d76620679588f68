SET state = 'running', rev = o.rev + 1, attempts = o.attempts + 1, attempt_id = i.attempt_id, worker_id = $1,
    claim_rev = o.rev + 1, attempt_started_at = now(), first_started_at = coalesce(o.first_started_at, now()),
    attempt_timeout_ms = least(i.timeout_ms, (date_part('epoch', o.deadline_at - now()) * 1000)::bigint),
    attempt_until = least(now() + i.timeout_ms * interval '1 millisecond', o.deadline_at),
    -- Whether a policy wants to know what happens to it. The list is read only for calls with a run or a session.
    watched = CASE WHEN o.watched THEN true
        WHEN (o.run IS NOT NULL OR o.session IS NOT NULL) AND o.probe_of IS NULL
        THEN o.tool = ANY ((SELECT f.watched_tools FROM toolfleet.fleet f)::text[]) END
