call_id, rev, now() AS moved_at, state::text, tool, tool_version, tenant, session, dispatcher_id, attempts, coercions::text,
    /* queued ms */, /* run ms */
