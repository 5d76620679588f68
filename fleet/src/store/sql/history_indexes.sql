-- A partitioned table's index is invalid as long as a partition lacks it.
SELECT format('DROP INDEX CONCURRENTLY IF EXISTS toolfleet.%I', own.name) AS clear,
       format('CREATE INDEX CONCURRENTLY %I ON toolfleet.%I %s', own.name, part.relname,
              substr(own.definition, strpos(own.definition, ' USING ') + 1)) AS build,
       format('ALTER INDEX toolfleet.%I ATTACH PARTITION toolfleet.%I', whole.relname, own.name) AS attach
FROM pg_index i
JOIN pg_class whole ON whole.oid = i.indexrelid
JOIN pg_class parent ON parent.oid = i.indrelid AND parent.relkind = 'p'
JOIN pg_inherits h ON h.inhparent = parent.oid
JOIN pg_class part ON part.oid = h.inhrelid
CROSS JOIN LATERAL (
    SELECT part.relname || substr(whole.relname, length(parent.relname) + 1) AS name,
           pg_get_indexdef(i.indexrelid) AS definition) own
WHERE parent.relnamespace = 'toolfleet'::regnamespace AND NOT i.indisvalid
  AND NOT EXISTS (SELECT FROM pg_inherits a JOIN pg_index p ON p.indexrelid = a.inhrelid
                  WHERE a.inhparent = i.indexrelid AND p.indrelid = part.oid)
ORDER BY part.relname DESC, whole.relname
