-- Why: tools of MCP servers are tools of the fleet. How a server is reached, and what is believed of it, is applied by an operator as a
-- tool is: immutable versions, the newest of which counts.
-- Locks: ACCESS EXCLUSIVE on toolfleet.fleet for a moment.
-- The release before survives it: a new table, a new view, a column with a constant default.

CREATE TABLE toolfleet.mcp_server_versions (
    server text NOT NULL,
    version integer NOT NULL CHECK (version > 0),
    manifest json NOT NULL,
    manifest_hash bytea NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    applied_by text NOT NULL,
    PRIMARY KEY (server, version)
);

-- Moves with every version: what a process has read at the same number is still so.
ALTER TABLE toolfleet.fleet ADD COLUMN mcp_rev bigint NOT NULL DEFAULT 0;

CREATE VIEW toolfleet.mcp_servers AS
SELECT v.server, v.version, v.version = max(v.version) OVER (PARTITION BY v.server) AS current,
       (SELECT json_object_keys(v.manifest->'transport') LIMIT 1) AS transport, v.manifest->>'trust' AS trust,
       v.manifest->>'on_change' AS on_change, v.manifest->>'queue' AS queue, v.manifest, v.applied_at, v.applied_by
FROM toolfleet.mcp_server_versions v;
