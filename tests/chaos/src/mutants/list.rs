//! The mutants, in the order of a call's life.
//!
//! Not among them, for no run can see them:
//!
//! - *The lease is not looked at before the start.* A worker that has lost its lease and goes on is stopped by the attempt's
//!   own deadline; what it does before that is the only attempt of a `once` call, recognised by its key, or rolled back.
//! - *A late report settles any doubt, whatever its attempt.* What a tool says of a key holds for every attempt with the key,
//!   so a report of another attempt is no lie. That a report ends another *running* attempt is `finish_without_attempt_guard`.
//! - *`succeed` of a transaction asks for no attempt.* The first attempt to succeed ends the call with the only effect there is.
//! - *"Not applied" is settled before the attempt's time is over.* What could still act then has not ended, so the fence holds.

use super::{
    Edit, Mutant, Planting,
    Sight::{Masked, Plain, Rare},
    plant::Source,
};

/// A mutant of nothing.
const NONE: Mutant = Mutant {
    name: "",
    mistake: "",
    rule: "",
    needs: "nothing",
    sight: Plain,
    edits: &[],
    planting: None,
    sources: &[],
};

/// The sweep never publishes again what waits.
const NO_SWEEP: Edit = Edit {
    statement: "walk",
    find: "CASE WHEN state = 'queued' AND NOT held AND due_at IS NULL",
    replace: "CASE WHEN state = 'queued' AND held AND due_at IS NULL",
};

/// Every mutant.
pub static ALL: &[Mutant] = &[
    // A call comes in.
    Mutant {
        name: "accepted_call_lost",
        mistake: "one accepted call in sixty-four is gone, as if it had been answered before its commit",
        rule: "accepted_is_known",
        planting: Some(Planting::Statements(
            "CREATE FUNCTION toolfleet.lose_call() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 DELETE FROM toolfleet.open_calls c
                 WHERE c.call_id = NEW.call_id AND get_byte(uuid_send(c.call_id), 15) < 4;
                 RETURN NULL;
             END $$;
             CREATE TRIGGER lose_call AFTER INSERT ON toolfleet.open_calls FOR EACH ROW
                 EXECUTE FUNCTION toolfleet.lose_call();",
        )),
        ..NONE
    },
    Mutant {
        name: "key_conflict_ignored",
        mistake: "a key that is taken makes a new call all the same",
        rule: "one_call_per_key",
        needs: "keys that are sent again",
        edits: &[Edit {
            statement: "accept",
            find: "WHERE key_hash IS NULL OR call_id IN (SELECT call_id FROM keyed)",
            replace: "WHERE true",
        }],
        ..NONE
    },
    Mutant {
        name: "lost_pointers_never_found",
        mistake: "the sweep publishes nothing again: a pointer that got lost stays lost",
        rule: "nothing_is_stuck",
        needs: "pointers that are dropped, or dispatchers killed at `committed`; and a verdict before their deadlines have passed",
        edits: &[NO_SWEEP],
        ..NONE
    },
    Mutant {
        name: "ack_before_claim",
        mistake: "the message is acknowledged before the claim, and nothing is published again",
        rule: "nothing_is_stuck",
        needs: "workers killed at `claim_sent`, or claims cut before they arrive; and a verdict before their deadlines have passed",
        edits: &[NO_SWEEP],
        sources: &[
            Source {
                file: "worker/src/attempt.rs",
                find: "    let running = claim(worker, gated)\n",
                replace: "    if fleet::mutant::on(\"ack_before_claim\") {\n        dispose(acker, Disposal::Ack).await;\n    }\n    let running = claim(worker, gated)\n",
            },
        ],
        ..NONE
    },
    // Somebody is waited for.
    Mutant {
        name: "approval_not_asked_for",
        mistake: "a call that needs a yes is queued when it is accepted, as any other",
        rule: "nothing_runs_without_its_yes",
        needs: "calls that need a yes",
        edits: &[
            Edit {
                statement: "accept",
                find: "CASE WHEN awaiting IS NULL THEN 'queued' ELSE 'awaiting_client' END::toolfleet.call_state, awaiting,",
                replace: "CASE WHEN awaiting = 'client' THEN 'awaiting_client' ELSE 'queued' END::toolfleet.call_state, nullif(awaiting, 'approval'),",
            },
            Edit {
                statement: "accept",
                find: "CASE WHEN approval IS NULL THEN least(now() + deadline_ms * interval '1 millisecond', run_deadline) ELSE until END",
                replace: "least(now() + deadline_ms * interval '1 millisecond', run_deadline)",
            },
            Edit {
                statement: "accept",
                find: "THEN until END, until, approval::json",
                replace: "THEN until END, CASE WHEN approval IS NULL THEN until END, approval::json",
            },
        ],
        ..NONE
    },
    Mutant {
        name: "decided_about_other_arguments",
        mistake: "a decision holds for whatever arguments the call has",
        rule: "what_was_decided_is_recorded",
        needs: "people who decide about other arguments than those that were shown",
        planting: Some(Planting::Function {
            name: "toolfleet.decide",
            find: "IF toolfleet.shown_hash(o.args_hash, o.approval) IS DISTINCT FROM decide.args_hash THEN",
            replace: "IF false THEN",
        }),
        ..NONE
    },
    Mutant {
        name: "handed_write_expires",
        mistake: "a write that was handed out, and of which nothing is heard, is over as if nothing had happened",
        rule: "what_was_handed_out_may_have_happened",
        needs: "callers' programs that die with a write in hand",
        edits: &[Edit {
            statement: "waits",
            find: "attempt_id, rev, effect_unknown, effect::text AS effect, language, tool",
            replace: "attempt_id, rev, effect_unknown, 'read' AS effect, language, tool",
        }],
        ..NONE
    },
    Mutant {
        name: "late_answer_thrown_away",
        mistake: "what is heard of a doubt does not settle it",
        rule: "an_answer_that_was_handed_in_counts",
        needs: "callers' programs that answer when their time is over",
        edits: &[Edit {
            statement: "complete",
            find: "OR i.new_state <> 'cancelled' AND (NOT o.quarantined OR i.new_state = 'succeeded'))",
            replace: ")",
        }],
        ..NONE
    },
    // A worker claims it.
    Mutant {
        name: "claim_without_state_guard",
        mistake: "a call that runs can be claimed once more",
        rule: "once_is_not_started_again",
        needs: "pointers that arrive twice",
        edits: &[Edit {
            statement: "claim",
            find: "o.state = 'queued' AND NOT o.held AND NOT o.cancel_requested",
            replace: "o.state IN ('queued', 'running') AND NOT o.held AND NOT o.cancel_requested",
        }],
        ..NONE
    },
    Mutant {
        name: "claim_past_a_fence",
        mistake: "a worker that was declared dead or fenced still claims",
        rule: "nothing_is_stuck",
        needs: "claims that are still on their way when their worker is killed; but each pass of the sweep looks for \
                running calls without a live worker, so such a claim is one more lost attempt",
        sight: Masked,
        edits: &[Edit {
            statement: "claim",
            find: "WHERE worker_id = $1 AND state IN ('live', 'draining')\n    FOR KEY SHARE",
            replace: "WHERE worker_id = $1\n    FOR KEY SHARE",
        }],
        ..NONE
    },
    Mutant {
        name: "claim_past_the_deadline",
        mistake: "a call whose deadline has passed can be claimed",
        rule: "nothing_is_claimed_too_late",
        needs: "calls with short deadlines, and pointers that are late",
        sight: Rare,
        edits: &[Edit {
            statement: "claim",
            find: "AND o.not_before <= now() AND least(deadline_at, CASE WHEN attempts = 0 THEN queue_until END) > now()",
            replace: "AND o.not_before <= now()",
        }],
        ..NONE
    },
    Mutant {
        name: "silent_claim_believed",
        mistake: "a claim that was not answered counts as made, without looking whose the call is",
        rule: "what_started_was_claimed",
        needs: "claims cut before they arrive",
        edits: &[
            // The columns that an unclaimed row lacks are made up; the worker would refuse to read it otherwise.
            Edit {
                statement: "claim_read_back",
                find: "FROM call o\n",
                replace: "FROM (SELECT (jsonb_populate_record(NULL::toolfleet.open_calls, jsonb_build_object(
                    'claim_rev', 0, 'attempt_timeout_ms', 10000, 'first_started_at', now(),
                    'attempt_until', now() + interval '10 seconds') || jsonb_strip_nulls(to_jsonb(c)))).* FROM call c) o\n",
            },
            Edit {
                statement: "claim_read_back",
                find: "WHERE o.attempt_id = $2 AND o.state = 'running'",
                replace: "WHERE $2::uuid IS NOT NULL",
            },
        ],
        ..NONE
    },
    Mutant {
        name: "silent_claim_is_none",
        mistake: "a claim that was not answered counts as one that took nothing: it is not looked for",
        rule: "nothing_is_stuck",
        needs: "claims whose answers are cut; half a minute after such an attempt's end the sweep takes it for lost, and a \
                `once` call that nobody has started is in doubt",
        sight: Rare,
        sources: &[
            Source {
                file: "fleet/src/store/ledger.rs",
                find: "            Reply::Unknown => Box::pin(self.ask_again(Claim::NAME,",
                replace: "            Reply::Unknown if crate::mutant::on(\"silent_claim_is_none\") => Ok(None),\n            Reply::Unknown => Box::pin(self.ask_again(Claim::NAME,",
            },
            Source {
                file: "fleet/src/store/ledger.rs",
                find: "            Reply::Unknown => Box::pin(self.ask_again(ClaimLimited::NAME,",
                replace: "            Reply::Unknown if crate::mutant::on(\"silent_claim_is_none\") => Ok(None),\n            Reply::Unknown => Box::pin(self.ask_again(ClaimLimited::NAME,",
            },
        ],
        ..NONE
    },
    Mutant {
        name: "pause_not_seen_at_gate",
        mistake: "a worker runs what was published before a pause came",
        rule: "nothing_starts_while_paused",
        needs: "calls whose pointers are found again, or whose next attempt is due, seconds after a pause was set",
        sight: Rare,
        sources: &[
            Source {
                file: "worker/src/pause.rs",
                find: "    if controls.are_none() {\n",
                replace: "    if controls.are_none() || fleet::mutant::on(\"pause_not_seen_at_gate\") {\n",
            },
        ],
        ..NONE
    },
    Mutant {
        name: "paused_calls_forgotten",
        mistake: "calls that were put aside are never handed back",
        rule: "nothing_is_stuck",
        needs: "a pause that waits",
        sources: &[
            Source {
                file: "dispatcher/src/sweep/pauses.rs",
                find: "    pub(super) async fn hand_back(&self, pauses: &[ControlId], last: &mut Option<ControlId>) {\n",
                replace: "    pub(super) async fn hand_back(&self, pauses: &[ControlId], last: &mut Option<ControlId>) {\n        if fleet::mutant::on(\"paused_calls_forgotten\") { return; }\n",
            },
        ],
        ..NONE
    },
    // A policy is asked.
    Mutant {
        name: "policy_counts_nothing",
        mistake: "a policy that bounds the calls of a run does not count those that have happened",
        rule: "no_more_happens_than_a_policy_allows",
        needs: "calls of a tool whose policy bounds them",
        planting: Some(Planting::Function {
            name: "toolfleet.policy_says",
            find: "SELECT calls - count(*) INTO places",
            replace: "SELECT calls INTO places",
        }),
        ..NONE
    },
    Mutant {
        name: "policy_waits_for_nothing",
        mistake: "what must have succeeded before is not looked for",
        rule: "nothing_comes_before_what_it_must_follow",
        needs: "calls of a tool whose policy names one that must come first",
        planting: Some(Planting::Function {
            name: "toolfleet.policy_says",
            find: "json_array_elements_text(policy->'after')",
            replace: "json_array_elements_text(policy->'nothing')",
        }),
        ..NONE
    },
    Mutant {
        name: "policy_ends_nothing",
        mistake: "what must not have happened before is not looked for",
        rule: "nothing_comes_after_what_forbids_it",
        needs: "calls of a tool whose policy names one that must not come first",
        planting: Some(Planting::Function {
            name: "toolfleet.policy_says",
            find: "json_array_elements_text(policy->'never_after')",
            replace: "json_array_elements_text(policy->'nothing')",
        }),
        ..NONE
    },
    Mutant {
        name: "bucket_not_advanced",
        mistake: "the bucket of a rate is not moved on by the start times that it gives out",
        rule: "starts_keep_their_rate",
        needs: "calls of a tool with a rate that wait for their starts",
        planting: Some(Planting::Function {
            name: "toolfleet.take_starts",
            find: "SET tat = base + take_starts.given * step,",
            replace: "SET tat = base,",
        }),
        ..NONE
    },
    Mutant {
        name: "permit_never_lapses",
        mistake: "the permit of a probe that nobody answers is out for ever",
        rule: "an_open_breaker_tries_again",
        needs: "a worker that is killed at `permitted`, half a minute before clients stop, and nobody who forces that breaker closed \
                afterwards; then calls that wait for it are left in its line, too",
        sight: Rare,
        planting: Some(Planting::Function {
            name: "toolfleet.breaker_permit_at",
            find: "IF over <= moment THEN",
            replace: "IF b.state = 'open' AND over <= moment THEN",
        }),
        ..NONE
    },
    Mutant {
        name: "breaker_line_not_released",
        mistake: "calls that wait for a breaker are not released when it is closed",
        rule: "nothing_waits_for_nobody",
        needs: "a breaker that opens or is forced open, with calls that wait for it",
        sources: &[
            Source {
                file: "dispatcher/src/sweep/breakers.rs",
                find: "                BreakerTurn::Go => self",
                replace: "                BreakerTurn::Go if fleet::mutant::on(\"breaker_line_not_released\") => {}\n                BreakerTurn::Go => self",
            },
        ],
        ..NONE
    },
    Mutant {
        name: "forced_breaker_not_seen_at_gate",
        mistake: "a worker sends what it has although the breaker is forced open",
        rule: "nothing_starts_while_forced_open",
        needs: "calls of a tool whose breaker is forced open",
        sources: &[
            Source {
                file: "worker/src/breaker/desk.rs",
                find: "        let forced = registry.controls().forced_breaker(&self.circuit.tool);\n        let id",
                replace: "        let forced = registry.controls().forced_breaker(&self.circuit.tool).filter(|_| !fleet::mutant::on(\"forced_breaker_not_seen_at_gate\"));\n        let id",
            },
        ],
        ..NONE
    },
    Mutant {
        name: "unknown_ended_by_breaker",
        mistake: "an open breaker ends a call whose attempt may have had its effect",
        rule: "an_open_breaker_ends_nothing_unknown",
        needs: "idempotent calls between two attempts when their breaker opens",
        sight: Rare,
        sources: &[
            Source {
                file: "worker/src/breaker/pass.rs",
                find: "    match effect {\n        Effect::Read | Effect::Transaction => false,\n",
                replace: "    match effect {\n        _ if fleet::mutant::on(\"unknown_ended_by_breaker\") => false,\n        Effect::Read | Effect::Transaction => false,\n",
            },
        ],
        ..NONE
    },
    Mutant {
        name: "probe_sees_cache",
        mistake: "the probe of a call in doubt is answered by an equal call that came before, and counts as one that has looked",
        rule: "state_agrees_with_effect",
        needs: "clients that ask whether something was booked before it is, and bookings that end in doubt although they were made",
        planting: Some(Planting::Function {
            name: "toolfleet.answer_calls",
            find: " AND o.probe_of IS NULL",
            replace: "",
        }),
        sources: &[Source {
            file: "worker/src/cache.rs",
            find: "    if pointer.is_probe {\n        return Ok(());\n",
            replace: "    if pointer.is_probe && !fleet::mutant::on(\"probe_sees_cache\") {\n        return Ok(());\n",
        },
        // An answer from the cache has no attempt, so it says nothing about now.
        Source {
            file: "dispatcher/src/sweep/probe.rs",
            find: "Some(from) if seen_at.is_some_and(|seen_at| seen_at >= from) => {\n",
            replace: "Some(from) if seen_at.map_or(fleet::mutant::on(\"probe_sees_cache\"), |seen_at| seen_at >= from) => {\n",
        }],
        ..NONE
    },
    Mutant {
        name: "key_without_tenant",
        mistake: "equal calls of two tenants are one",
        rule: "answers_are_of_their_tenant",
        needs: "two tenants that ask the same",
        planting: Some(Planting::Function {
            name: "toolfleet.answer_key",
            find: "tenant || E'\\n' || tool",
            replace: "tool",
        }),
        ..NONE
    },
    Mutant {
        name: "unmarked_fallback",
        mistake: "an answer that stands in for a tool's is not marked",
        rule: "degraded_is_marked",
        needs: "a tool with a fallback that cannot answer",
        sources: &[Source {
            file: "fleet/src/ending/record.rs",
            find: "            decision.degraded = Some(stand_in.degraded(cause));\n",
            replace: "            decision.degraded = (!crate::mutant::on(\"unmarked_fallback\")).then(|| stand_in.degraded(cause));\n",
        }],
        ..NONE
    },
    Mutant {
        name: "followers_forgotten",
        mistake: "calls that follow another one are not let go when it is over",
        rule: "nothing_waits_for_nobody",
        needs: "calls that come while an equal one runs",
        edits: &[Edit {
            statement: "followers",
            find: "SELECT f.call_id AS leader, f.tool, f.tenant ",
            replace: "SELECT f.call_id AS leader, 'any' AS tool, 'any' AS tenant ",
        }],
        ..NONE
    },
    // The tool runs.
    Mutant {
        name: "key_per_attempt",
        mistake: "each attempt tells the tool another key",
        rule: "tools_are_told_one_key",
        needs: "idempotent tools that break after their effect",
        sources: &[
            Source {
                file: "worker/src/execute.rs",
                find: "        idempotency_key: idempotency_key(attempt, tool),\n",
                replace: "        idempotency_key: if fleet::mutant::on(\"key_per_attempt\") {\n            attempt.id.to_string()\n        } else {\n            idempotency_key(attempt, tool)\n        },\n",
            },
        ],
        ..NONE
    },
    Mutant {
        name: "outcome_after_commit",
        mistake: "a transaction commits its effect, and its outcome is recorded afterwards",
        rule: "done_once_at_most",
        needs: "COMMITs whose answers are cut, or workers killed at `executed`",
        sources: &[
            Source {
                file: "worker/src/executors/sql/mod.rs",
                find: "    if attempt.effect != Effect::Transaction {\n        let committed =",
                replace: "    if attempt.effect != Effect::Transaction || fleet::mutant::on(\"outcome_after_commit\") {\n        let committed =",
            },
        ],
        ..NONE
    },
    // Its outcome is recorded.
    Mutant {
        name: "finish_without_attempt_guard",
        mistake: "a report about one attempt ends whichever attempt the call is in",
        rule: "attempts_are_numbered_without_gaps",
        needs: "workers paused for longer than a lease over slow calls, or completions whose answers are cut: a report comes \
                while the next attempt runs",
        sight: Rare,
        edits: &[
            Edit {
            statement: "complete",
            find: "(i.by_attempt = o.attempt_id AND o.state IN ('running', 'in_doubt', 'awaiting_client'))",
            replace: "(i.by_attempt IS NOT NULL AND o.state IN ('running', 'in_doubt', 'awaiting_client'))",
        },
            Edit {
                statement: "end_running",
                find: "AND o.attempt_id = m.attempt_id AND o.state = 'running'",
                replace: "AND o.state IN ('running', 'in_doubt')",
            },
            // What is kept of each attempt has one place; without it this would be refused there.
            Edit {
                statement: "complete",
                find: "AND by_attempt IS NOT NULL\n), notes AS",
                replace: "AND by_attempt IS NOT NULL ON CONFLICT DO NOTHING\n), notes AS",
            },
        ],
        ..NONE
    },
    Mutant {
        name: "zero_rows_are_late",
        mistake: "a completion that moved nothing is taken for too late, and the row is not read again",
        rule: "nothing_is_stuck",
        needs: "cancels that meet the end of an attempt which is to be followed by another, and a verdict within half a minute: then \
                the sweep takes the attempt for lost",
        sight: Rare,
        sources: &[
            Source {
                file: "worker/src/complete.rs",
                find: "        let row = Box::pin(find_patiently(worker, claimed.call_id, patience)).await?;\n",
                replace: "        if fleet::mutant::on(\"zero_rows_are_late\") {\n            return Ok(Recorded::Late);\n        }\n        let row = Box::pin(find_patiently(worker, claimed.call_id, patience)).await?;\n",
            },
        ],
        ..NONE
    },
    Mutant {
        name: "result_not_kept",
        mistake: "the ledger does not keep the result that the worker tells",
        rule: "everybody_is_told_one_end",
        edits: &[Edit {
            statement: "complete",
            find: "coercions, args_hash, result::json, preview::json, error::json,",
            replace: "coercions, args_hash, NULL::json, preview::json, error::json,",
        }],
        ..NONE
    },
    Mutant {
        name: "once_again_after_unknown",
        mistake: "a `once` call whose attempt may have had its effect is run again",
        rule: "once_is_not_started_again",
        needs: "once tools that break or hang",
        sources: &[
            Source {
                file: "fleet/src/retry.rs",
                find: "        Outcome::Unknown(failure) => match known.effect {\n",
                replace: "        Outcome::Unknown(failure) => match known.effect {\n            Effect::Once if crate::mutant::on(\"once_again_after_unknown\") => {\n                again(failure, OutcomeWord::Unknown)\n            }\n",
            },
        ],
        ..NONE
    },
    Mutant {
        name: "unknown_attempt_forgotten",
        mistake: "that an attempt may have had its effect is forgotten when the next one is queued",
        rule: "state_agrees_with_effect",
        needs: "idempotent calls that are cancelled or expire between two attempts",
        sight: Rare,
        edits: &[Edit {
            statement: "complete",
            find: "WHEN 'unknown' THEN true",
            replace: "WHEN 'unknown' THEN o.effect_unknown",
        }],
        ..NONE
    },
    // Its worker dies.
    Mutant {
        name: "once_again_after_loss",
        mistake: "a `once` call whose worker died is run again",
        rule: "once_is_not_started_again",
        needs: "workers killed at `executed`, or while tools run",
        sources: &[
            Source {
                file: "fleet/src/retry.rs",
                find: "false);\n    }\n    match loss.effect {\n",
                replace: "false);\n    }\n    match loss.effect {\n        Effect::Once if crate::mutant::on(\"once_again_after_loss\") => {\n            RetryDecision::Again(Duration::ZERO)\n        }\n",
            },
        ],
        ..NONE
    },
    Mutant {
        name: "lost_attempts_never_found",
        mistake: "calls of dead workers run for ever",
        rule: "nothing_is_stuck",
        needs: "workers that are killed",
        edits: &[Edit {
            statement: "lost_behind",
            find: "WHERE o.state = 'running' AND o.call_id > $2",
            replace: "WHERE o.state = 'queued' AND o.call_id > $2",
        }],
        ..NONE
    },
    // People decide.
    Mutant {
        name: "cancel_ends_what_runs",
        mistake: "a call that runs is cancelled at once, as if it had done nothing",
        rule: "state_agrees_with_effect",
        needs: "calls that are cancelled while they run",
        planting: Some(Planting::Function {
            name: "toolfleet.cancel",
            find: "ELSIF o.state = 'running' THEN",
            replace: "ELSIF false THEN",
        }),
        ..NONE
    },
    Mutant {
        name: "cancel_forgets_unknown",
        mistake: "a call that is cancelled between two attempts is cancelled, whatever the one before may have done",
        rule: "state_agrees_with_effect",
        needs: "idempotent calls that are cancelled between two attempts",
        sight: Rare,
        planting: Some(Planting::Function {
            name: "toolfleet.cancel",
            find: "ELSIF (o.effect_unknown OR is_handed) AND o.effect IN ('idempotent', 'once') THEN",
            replace: "ELSIF false THEN",
        }),
        ..NONE
    },
    Mutant {
        name: "cancelled_call_queued_again",
        mistake: "a cancelled call is queued again; no worker claims it, and nothing ends it",
        rule: "nothing_is_stuck",
        needs: "cancels that the worker has not heard of when its attempt ends: NATS cut, workers paused; and a verdict before \
                the deadlines of their calls have passed",
        sight: Rare,
        edits: &[Edit {
            statement: "complete",
            find: "(i.kind <> 'again' OR (o.state = 'running' AND NOT o.cancel_requested) OR",
            replace: "(i.kind <> 'again' OR o.state = 'running' OR",
        }],
        ..NONE
    },
    Mutant {
        name: "settle_without_fence",
        mistake: "a doubt is settled as not applied although its worker may still act",
        rule: "state_agrees_with_effect",
        needs: "workers paused for longer than a lease in the middle of a slow native `once` tool, and clients that settle \
                what they see before the worker goes on",
        sight: Rare,
        planting: Some(Planting::Function {
            name: "toolfleet.settle",
            find: "IF settle.outcome = 'not_applied' AND NOT fenced AND NOT settle.by_time_only THEN",
            replace: "IF false THEN",
        }),
        ..NONE
    },
    // Callers are told.
    Mutant {
        name: "answers_crossed",
        mistake: "a waiting caller is told the outcome of another call",
        rule: "answers_belong_to_their_questions",
        sources: &[
            Source {
                file: "dispatcher/src/waiters.rs",
                find: "            Some(Some(envelope)) => {\n",
                replace: "            Some(Some(envelope)) if fleet::mutant::on(\"answers_crossed\") => {\n                drop(waiters);\n                let call = self.undecided().pop().unwrap_or(call);\n                if let Some(awaited) = self.lock().calls.get(&call) { drop(awaited.decided.send_replace(Known::Decided(envelope))); }\n            }\n            Some(Some(envelope)) => {\n",
            },
        ],
        ..NONE
    },
    Mutant {
        name: "fresh_envelope",
        mistake: "an envelope says how long ago the call has ended, and not how long it took: no two are the same",
        rule: "everybody_is_told_one_end",
        needs: "calls that are asked for more than once",
        edits: &[Edit {
            statement: "find",
            find: "finished_at, error::text, queued_ms, run_ms,",
            replace: "finished_at, error::text, queued_ms, \
                      (extract(epoch FROM clock_timestamp() - finished_at) * 1000)::bigint,",
        }],
        ..NONE
    },
];
