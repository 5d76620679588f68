SET state = 'running', rev = o.rev + 1, attempts = o.attempts + 1, attempt_id = i.attempt_id, worker_id = $1,
    claim_rev = o.rev + 1, attempt_started_at = now(), first_started_at = coalesce(o.first_started_at, now()),
    attempt_timeout_ms = least(i.timeout_ms, (date_part('epoch', o.deadline_at - now()) * 1000)::bigint),
    attempt_until = least(now() + i.timeout_ms * interval '1 millisecond', o.deadline_at)
