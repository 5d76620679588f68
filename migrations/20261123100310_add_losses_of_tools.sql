-- Why: how often the worker of an attempt may be lost before its call is set aside is the tool's to say. Null: the default.
-- Locks: ACCESS EXCLUSIVE on tool_versions, which is small, while it is rewritten.
-- The release before survives it: it neither reads the column nor accepts a manifest that has the field.

ALTER TABLE toolfleet.tool_versions ADD COLUMN losses integer
    GENERATED ALWAYS AS ((manifest->>'losses')::integer) STORED CHECK (losses BETWEEN 0 AND 100);
