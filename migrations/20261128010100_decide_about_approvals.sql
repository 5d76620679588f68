-- Why: who may decide says yes or no to a call that waits for approval, to exactly the arguments that were shown. Each decision is a
-- row beside the call, and goes with the day of the call. After lost writes such a call may have run: a `once` call is in doubt, and an
-- `idempotent` one waits on with an effect that may have happened.
-- Locks: ACCESS EXCLUSIVE on the views and SHARE ROW EXCLUSIVE on open_calls for a moment.
-- The release before survives it: it does not know the table, and leaves calls alone that wait for approval.

CREATE TABLE toolfleet.call_decisions (
    call_id uuid NOT NULL,
    decision text NOT NULL CHECK (decision = ANY ('{approve,deny}')),
    at timestamptz NOT NULL DEFAULT now(),
    actor text NOT NULL CHECK (length(actor) BETWEEN 1 AND 200),
    -- The role of the session, which nothing in the statement can change.
    role text NOT NULL,
    note text NOT NULL CHECK (length(note) BETWEEN 1 AND 2000),
    -- Of the arguments that were shown.
    args_hash bytea NOT NULL
);
-- What is shown of the arguments, and named by a decision: their hash, and where values of them are sensitive a salted one, from which
-- they cannot be guessed.
CREATE FUNCTION toolfleet.shown_hash(args_hash bytea, approval json) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT encode(CASE WHEN approval->>'salt' IS NULL THEN args_hash
                       ELSE sha256(decode(approval->>'salt', 'hex') || args_hash) END, 'hex')
$$;

-- Whose decision it is, however the name is written: without what the door adds about the sender, and without what is not seen.
CREATE FUNCTION toolfleet.person_of(actor text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT lower(regexp_replace(
        normalize(regexp_replace(actor, '(\s*\([^()]*\)\s*)+$', ''), NFKC),
        '[\s\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0]+', '', 'g'))
$$;

-- One person says yes once, and may say no after that.
CREATE UNIQUE INDEX call_decisions_once ON toolfleet.call_decisions (call_id, toolfleet.person_of(actor), decision);

CREATE FUNCTION toolfleet.refuse_change_of_decisions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- `drop_history` has dropped the call before its decisions.
    IF TG_OP = 'DELETE' AND NOT EXISTS (SELECT FROM toolfleet.finished_calls f WHERE f.call_id = OLD.call_id)
       AND NOT EXISTS (SELECT FROM toolfleet.open_calls o WHERE o.call_id = OLD.call_id) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'decisions about call % do not change', OLD.call_id USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE ON toolfleet.call_decisions FOR EACH ROW
    EXECUTE FUNCTION toolfleet.refuse_change_of_decisions();
CREATE TRIGGER not_emptied BEFORE TRUNCATE ON toolfleet.call_decisions FOR EACH STATEMENT
    EXECUTE FUNCTION toolfleet.refuse_truncation();

DO $$
DECLARE
    body text := pg_get_functiondef('toolfleet.drop_history'::regproc);
    changed text := replace(body, '        RETURN part.day;',
        E'        DELETE FROM toolfleet.call_decisions d WHERE d.call_id >= low AND d.call_id < high\n'
        '            AND NOT EXISTS (SELECT FROM toolfleet.open_calls o WHERE o.call_id = d.call_id);\n        RETURN part.day;');
BEGIN
    IF changed = body THEN
        RAISE EXCEPTION 'drop_history does not return the day';
    END IF;
    EXECUTE changed;
END $$;

-- Decides about a call that waits for approval: `approve` or `deny`. The verdict:
--   decided         it is recorded; `state` says where the call stands now: queued, handed to its caller's program, waiting for one
--                   more, failed, or in doubt
--   not_found       there is no such call
--   not_waiting     it waits for no approval, or no more; `decided_by` decided last, if somebody did
--   over            the time for it is over
--   other_arguments the hash is not that of its arguments
--   same_person     this person has decided already
--   submitter       two have to decide, and none of them may be who submitted it
CREATE FUNCTION toolfleet.decide(
    call uuid, decision text, args_hash text, actor text, note text, in_tenant text DEFAULT NULL
) RETURNS TABLE (verdict text, state text, approvals integer, needed integer, decided_by text, decided_at timestamptz, dispatcher_id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    o toolfleet.open_calls;
    d toolfleet.call_decisions;
    given integer;
    wanted integer;
    of_run timestamptz;
    ends timestamptz;
    hands_out_until timestamptz;
    new_state toolfleet.call_state := 'queued';
    details json := json_build_object('note', decide.note, 'role', session_user);
BEGIN
    IF decide.decision IS NULL OR decide.decision NOT IN ('approve', 'deny') THEN
        RAISE EXCEPTION 'decision must be approve or deny' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- One name for one person: what is not seen would make two of it.
    IF coalesce(decide.actor, '') !~ '\S' OR length(decide.actor) > 200 OR toolfleet.has_invisible(decide.actor)
       OR decide.actor ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'actor must say who decides, in 1 to 200 characters that can be seen' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF coalesce(decide.note, '') !~ '\S' OR length(decide.note) > 2000 THEN
        RAISE EXCEPTION 'note must say why, in 1 to 2000 characters' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO o FROM toolfleet.open_calls c
    WHERE c.call_id = decide.call AND (decide.in_tenant IS NULL OR c.tenant = decide.in_tenant) FOR UPDATE;
    IF NOT FOUND OR o.awaiting IS DISTINCT FROM 'approval' THEN
        SELECT * INTO d FROM toolfleet.call_decisions c WHERE c.call_id = decide.call ORDER BY c.at DESC LIMIT 1;
        RETURN QUERY
        SELECT 'not_waiting', c.state, NULL::integer, NULL::integer, d.actor, d.at, NULL::uuid
        FROM (SELECT x.state::text, x.tenant FROM toolfleet.open_calls x WHERE x.call_id = decide.call
              UNION ALL
              SELECT x.state::text, x.tenant FROM toolfleet.finished_calls x WHERE x.call_id = decide.call) c
        WHERE decide.in_tenant IS NULL OR c.tenant = decide.in_tenant;
        IF NOT FOUND THEN
            RETURN QUERY SELECT 'not_found', NULL::text, NULL::integer, NULL::integer, NULL::text, NULL::timestamptz, NULL::uuid;
        END IF;
        RETURN;
    END IF;
    wanted := (o.approval->>'count')::integer;
    SELECT count(*) INTO given FROM toolfleet.call_decisions c WHERE c.call_id = o.call_id AND c.decision = 'approve';
    IF toolfleet.shown_hash(o.args_hash, o.approval) IS DISTINCT FROM decide.args_hash THEN
        RETURN QUERY SELECT 'other_arguments', o.state::text, given, wanted, NULL::text, NULL::timestamptz, NULL::uuid;
        RETURN;
    END IF;
    IF o.due_at <= clock_timestamp() THEN
        RETURN QUERY SELECT 'over', o.state::text, given, wanted, NULL::text, o.due_at, NULL::uuid;
        RETURN;
    END IF;
    SELECT * INTO d FROM toolfleet.call_decisions c
    WHERE c.call_id = o.call_id AND toolfleet.person_of(c.actor) = toolfleet.person_of(decide.actor) AND c.decision = decide.decision;
    IF FOUND THEN
        RETURN QUERY SELECT 'same_person', o.state::text, given, wanted, d.actor, d.at, NULL::uuid;
        RETURN;
    END IF;
    IF wanted > 1 AND decide.decision = 'approve' AND toolfleet.person_of(o.meta->>'principal') IN (toolfleet.person_of(decide.actor), toolfleet.person_of(split_part(decide.actor, '@', 1))) THEN
        RETURN QUERY SELECT 'submitter', o.state::text, given, wanted, NULL::text, NULL::timestamptz, NULL::uuid;
        RETURN;
    END IF;
    INSERT INTO toolfleet.call_decisions (call_id, decision, actor, role, note, args_hash)
    VALUES (o.call_id, decide.decision, decide.actor, session_user, decide.note, decode(decide.args_hash, 'hex'));
    IF decide.decision = 'deny' THEN
        IF o.effect_unknown AND o.effect IN ('idempotent', 'once') THEN
            -- Nothing that is decided now undoes what was lost with the writes.
            UPDATE toolfleet.open_calls c
            SET state = 'in_doubt', awaiting = NULL, rev = c.rev + 1, doubt_since = now(), doubt_reason = 'denied',
                attempt_until = toolfleet.unknown_until(c.call_id), due_at = greatest(now(), toolfleet.unknown_until(c.call_id)),
                last_error = json_build_object('code', 'in_doubt', 'message', CASE o.language
                    WHEN 'zh' THEN '有权决定的人拒绝了这次调用。操作可能已经生效，也可能没有生效。不要重复这次调用，换用新的幂等键也不行；请交由人工查明结果。'
                    ELSE 'Who had to decide about this call said no. The action may or may not have been carried out. Do not repeat the call, not with a new idempotency key either; ask a person to find out.'
                    END,
                    'retryable', false, 'retry_after_ms', NULL, 'suggestion', 'do_not_repeat')
            WHERE c.call_id = o.call_id;
            INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason, details)
            VALUES (o.call_id, o.rev + 1, o.state, 'in_doubt', decide.actor, 'denied', details);
            RETURN QUERY SELECT 'decided', 'in_doubt', given, wanted, decide.actor, now(), o.dispatcher_id;
            RETURN;
        END IF;
        PERFORM toolfleet.finish(o, 'failed', 'business_error', 'error',
            CASE WHEN o.effect = 'read' THEN 'none' ELSE 'not_applied' END::toolfleet.effect_known, NULL,
            json_build_object('code', 'denied', 'message', CASE o.language
                WHEN 'zh' THEN '有权决定的人拒绝了这次调用。没有做任何更改。不要再次请求，换一种方式也不行；请告知用户。'
                ELSE 'Who had to decide about this call said no. Nothing was changed. Do not ask for it again, nor in another way; tell the user.'
                END,
                'retryable', false, 'retry_after_ms', NULL, 'suggestion', 'do_not_repeat'),
            decide.actor, 'denied', details);
        RETURN QUERY SELECT 'decided', 'failed', given, wanted, decide.actor, now(), o.dispatcher_id;
        RETURN;
    END IF;
    given := given + 1;
    IF given < wanted THEN
        UPDATE toolfleet.open_calls c SET rev = c.rev + 1 WHERE c.call_id = o.call_id;
        INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason, details)
        VALUES (o.call_id, o.rev + 1, o.state, o.state, decide.actor, 'approved', details);
        RETURN QUERY SELECT 'decided', o.state::text, given, wanted, decide.actor, now(), NULL::uuid;
        RETURN;
    END IF;
    -- The clocks that begin now.
    of_run := (o.approval->>'run_deadline')::timestamptz;
    ends := least(now() + (o.approval->>'deadline_ms')::bigint * interval '1 millisecond', of_run);
    hands_out_until := least(now() + (o.approval->>'client_ms')::bigint * interval '1 millisecond', ends);
    IF o.approval->>'client_ms' IS NOT NULL THEN
        new_state := 'awaiting_client';
        UPDATE toolfleet.open_calls c
        SET awaiting = 'client', rev = c.rev + 1, attempts = 1, attempt_id = gen_random_uuid(), first_started_at = coalesce(c.first_started_at, now()),
            attempt_started_at = now(), attempt_timeout_ms = (c.approval->>'client_ms')::bigint, attempt_until = hands_out_until,
            due_at = hands_out_until, deadline_at = ends
        WHERE c.call_id = o.call_id;
    ELSE
        UPDATE toolfleet.open_calls c
        SET state = 'queued', awaiting = NULL, held = true, rev = c.rev + 1, publish_n = c.publish_n + 1, not_before = now(),
            due_at = NULL, deadline_at = ends,
            queue_until = now() + (c.approval->>'queue_wait_ms')::bigint * interval '1 millisecond'
        WHERE c.call_id = o.call_id;
    END IF;
    INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason, details)
    VALUES (o.call_id, o.rev + 1, o.state, new_state, decide.actor, 'approved', details);
    RETURN QUERY SELECT 'decided', new_state::text, given, wanted, decide.actor, now(), NULL::uuid;
END $$;

-- Whoever writes it: nothing of the call goes on without its yes, to these arguments.
CREATE FUNCTION toolfleet.require_approval() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
BEGIN
    IF (SELECT count(*) FROM toolfleet.call_decisions d
        WHERE d.call_id = NEW.call_id AND d.decision = 'approve' AND d.args_hash = decode(toolfleet.shown_hash(NEW.args_hash, OLD.approval), 'hex')) < (OLD.approval->>'count')::integer THEN
        RAISE EXCEPTION 'call % waits for approval', NEW.call_id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER approvals_are_given AFTER UPDATE ON toolfleet.open_calls FOR EACH ROW
    WHEN (OLD.awaiting = 'approval' AND NEW.state <> 'in_doubt' AND NEW.awaiting IS DISTINCT FROM 'approval')
    EXECUTE FUNCTION toolfleet.require_approval();

REVOKE EXECUTE ON FUNCTION toolfleet.decide, toolfleet.person_of, toolfleet.require_approval, toolfleet.refuse_change_of_decisions FROM PUBLIC;

CREATE OR REPLACE FUNCTION toolfleet.quarantine(
    seen integer, next integer, system_identifier text, timeline integer, standing text, errors json
) RETURNS TABLE (done boolean, doubted bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    details json := json_build_object('quarantine', quarantine.next, 'standing', quarantine.standing);
    doubted bigint;
BEGIN
    PERFORM FROM toolfleet.fleet f WHERE f.quarantines = quarantine.seen FOR UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, 0::bigint;
        RETURN;
    END IF;
    LOCK TABLE toolfleet.open_calls IN SHARE ROW EXCLUSIVE MODE;
    INSERT INTO toolfleet.ended_attempts (
        call_id, attempt_id, number, claim_rev, worker_id, started_at, timeout_ms, outcome, effect_known, error, over)
    SELECT call_id, attempt_id, attempts, claim_rev, worker_id, attempt_started_at, attempt_timeout_ms, 'unknown', 'unknown',
        quarantine.errors->language, false
    FROM toolfleet.open_calls
    WHERE (state = 'running' OR awaiting = 'client') AND effect IN ('idempotent', 'once');
    -- What stays where it is has a remark: its revision tells whoever judged it before that it has changed.
    INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason, attempt_id, details)
    SELECT call_id, rev + 1, state, (CASE WHEN effect = 'idempotent' AND NOT cancel_requested AND awaiting = 'approval' THEN 'awaiting_client'
            WHEN effect = 'idempotent' AND NOT cancel_requested AND awaiting IS NULL THEN 'queued' ELSE 'in_doubt' END)::toolfleet.call_state, 'ground', 'quarantine',
        attempt_id, details
    FROM toolfleet.open_calls
    WHERE state IN ('queued', 'running', 'awaiting_client') AND effect IN ('idempotent', 'once');
    UPDATE toolfleet.open_calls
    SET rev = rev + 1, quarantined = true, effect_unknown = true, first_started_at = coalesce(first_started_at, accepted_at)
    WHERE (state IN ('queued', 'running') OR awaiting = 'approval') AND effect = 'idempotent' AND NOT cancel_requested;
    -- The attempt that the ledger remembers may not have been the last one, so what it says decides nothing any more.
    UPDATE toolfleet.open_calls
    SET state = 'queued', attempt_id = NULL, worker_id = NULL, claim_rev = NULL, attempt_started_at = NULL,
        attempt_until = NULL, attempt_timeout_ms = NULL, not_before = now(), due_at = now(), publish_n = publish_n + 1,
        unspent_attempts = unspent_attempts + 1
    WHERE state = 'running' AND effect = 'idempotent' AND NOT cancel_requested;
    UPDATE toolfleet.open_calls
    SET state = 'in_doubt', awaiting = NULL, held = false, rev = rev + 1, quarantined = true, doubt_since = now(), doubt_reason = 'lost_writes',
        -- A claim that was lost with the writes ends by the call's deadline.
        -- What waits for a yes may have got one, and its deadline with it.
        attempt_until = CASE WHEN awaiting = 'approval' THEN now() + (approval->>'deadline_ms')::bigint * interval '1 millisecond'
                             ELSE deadline_at END,
        due_at = CASE WHEN awaiting = 'approval' THEN now() + (approval->>'deadline_ms')::bigint * interval '1 millisecond'
                      ELSE greatest(now(), deadline_at) END,
        last_error = quarantine.errors->language
    -- What the caller's program has is handed out once: its answer may be among what was lost.
    WHERE state IN ('queued', 'running', 'awaiting_client')
      AND (effect = 'once' OR effect = 'idempotent' AND (cancel_requested OR awaiting = 'client'));
    GET DIAGNOSTICS doubted = ROW_COUNT;
    UPDATE toolfleet.fleet
    SET system_identifier = quarantine.system_identifier, timeline = quarantine.timeline,
        wal_lsn = pg_current_wal_flush_lsn(), quarantines = quarantine.next;
    RETURN QUERY SELECT true, doubted;
END $$;

CREATE OR REPLACE VIEW toolfleet.waiting AS
SELECT o.call_id, o.tenant, o.tool, o.tool_version, o.effect::text AS effect, o.awaiting,
       coalesce(o.attempt_started_at, o.accepted_at) AS since, o.due_at AS until, o.session, o.run,
       CASE WHEN v.sensitive IS NULL THEN o.args ELSE toolfleet.shown(o.args, v.sensitive) END AS args,
       CASE WHEN o.awaiting = 'approval' THEN toolfleet.shown_hash(o.args_hash, o.approval) END AS args_hash,
       CASE WHEN o.awaiting = 'approval' THEN o.approval->>'by' END AS approval_by,
       CASE WHEN o.awaiting = 'approval' THEN (o.approval->>'count')::integer END AS approvals_needed,
       CASE WHEN o.awaiting = 'approval' THEN (
           SELECT count(*) FROM toolfleet.call_decisions d WHERE d.call_id = o.call_id AND d.decision = 'approve')::integer END AS approvals,
       CASE WHEN o.awaiting = 'approval' THEN o.approval->>'reason' END AS approval_reason
FROM toolfleet.open_calls o
LEFT JOIN toolfleet.tool_versions v ON v.tool = o.tool AND v.version = o.tool_version
WHERE o.state = 'awaiting_client';

CREATE VIEW toolfleet.approvals AS
SELECT call_id, decision, at, actor, role, note, encode(args_hash, 'hex') AS args_hash FROM toolfleet.call_decisions;

-- A call that waited from the beginning is there, or its first move led out of there.
CREATE OR REPLACE VIEW toolfleet.call_events AS
SELECT c.call_id, 0 AS revision, c.accepted_at AS at, NULL::text AS from_state,
       CASE WHEN coalesce(first.from_state, CASE WHEN c.is_first THEN c.state END) = 'awaiting_client' THEN 'awaiting_client'
            ELSE 'queued' END AS to_state,
       'dispatcher'::text AS actor, 'accepted'::text AS reason, NULL::uuid AS attempt_id, NULL::json AS details
FROM (SELECT call_id, accepted_at, state, rev = 0 AS is_first FROM toolfleet.open_calls
      UNION ALL SELECT call_id, accepted_at, from_state, rev = 1 FROM toolfleet.finished_calls) c
LEFT JOIN toolfleet.call_notes first ON first.call_id = c.call_id AND first.rev = 1
UNION ALL
SELECT call_id, claim_rev, started_at, 'queued', 'running', 'worker ' || worker_id, 'claimed', attempt_id, NULL
FROM (SELECT call_id, claim_rev, started_at, worker_id, attempt_id FROM toolfleet.ended_attempts
      WHERE NOT late AND worker_id IS NOT NULL
      UNION ALL
      SELECT call_id, claim_rev, attempt_started_at, worker_id, attempt_id FROM toolfleet.finished_calls
      WHERE from_state = 'running'
      UNION ALL
      SELECT call_id, claim_rev, attempt_started_at, worker_id, attempt_id FROM toolfleet.open_calls
      WHERE state = 'running') claimed
UNION ALL
SELECT call_id, rev, at, from_state::text, to_state::text, actor, reason, attempt_id, details
FROM toolfleet.call_notes
UNION ALL
SELECT call_id, rev, finished_at, from_state::text, state::text, actor, reason, attempt_id, details
FROM toolfleet.finished_calls;
