-- Why: a route whose key, model or URL is wrong fails every request, and its calls go on to the next route, so nobody sees it but in a
-- metric. The record of a request says so, for `toolfleet doctor`.
-- Locks: ACCESS EXCLUSIVE on model_requests for a moment; a column without a default rewrites nothing.
-- The release before survives it: it leaves the column empty.

-- The status of the answer that says that the route is wrong; null: none did.
ALTER TABLE toolfleet.model_requests ADD COLUMN misconfigured_status smallint;

CREATE OR REPLACE VIEW toolfleet.model_calls AS
SELECT m.call_id, m.attempt_id, m.attempt, m.tenant, m.tool, m.tool_version, m.session, m.run, m.route, m.model_asked, m.model_answered,
       m.kind, m.started_at, m.first_token_ms, m.run_ms, m.input_tokens, m.cached_input_tokens, m.cache_write_tokens, m.output_tokens,
       m.reasoning_tokens, m.estimated, m.cost, m.currency, m.finish, CASE WHEN m.run_ms IS NULL THEN 'unknown' ELSE m.code END AS code,
       m.request_id, m.misconfigured_status
FROM toolfleet.model_requests m;
