-- Why: a look at an MCP server (the fleet's own tools mcp_discover and mcp_discover_<queue>) that fails has told the operator who asked, and
-- looking anew is asking anew. So nobody makes such a call again, and it is no dead letter that somebody has to give up.
-- The names are the fleet's own: `tools apply` refuses them, and fleet/src/mcp/mod.rs has the same rule.
-- Locks: ACCESS EXCLUSIVE on the view `dead_letters` for a moment, none on a table.
-- The release before survives it: the view has the columns that it had.

CREATE OR REPLACE VIEW toolfleet.dead_letters AS
SELECT f.call_id, f.tenant, f.tool, f.tool_version, f.effect::text AS effect, f.queue, f.state::text AS state,
       f.outcome::text AS outcome, f.effect_known::text AS effect_known, f.error->>'code' AS code, f.error,
       coalesce(f.error->'details'->'last', f.error) AS last_error, f.attempts,
       CASE WHEN v.sensitive IS NULL THEN f.args ELSE toolfleet.shown(f.args, v.sensitive) END AS args,
       CASE WHEN v.sensitive IS NULL THEN f.result ELSE toolfleet.shown(f.result, v.sensitive) END AS result,
       f.session, f.run, f.accepted_at, f.first_started_at AS started_at, f.finished_at,
       coalesce(w.name, f.worker_id::text) AS worker
FROM toolfleet.finished_calls f
LEFT JOIN toolfleet.worker_processes w USING (worker_id)
LEFT JOIN toolfleet.tool_versions v ON v.tool = f.tool AND v.version = f.tool_version
WHERE f.error IS NOT NULL AND f.state = 'failed' AND f.outcome = 'system_error' AND f.effect_known IN ('none', 'not_applied')
  AND f.probe_of IS NULL AND f.tool <> 'mcp_discover' AND f.tool NOT LIKE 'mcp\_discover\_%'
  AND NOT EXISTS (SELECT FROM toolfleet.call_marks m WHERE m.call_id = f.call_id)
  AND (f.effect = 'read' OR NOT EXISTS (
      SELECT FROM toolfleet.ended_attempts a WHERE a.call_id = f.call_id AND a.late AND a.outcome = 'applied'));
