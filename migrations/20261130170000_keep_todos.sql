-- Why: a model that works through many calls needs to know what is done and what is left. A session has a todo list, which the tool
-- todo_write and a model's own lines change. Changes name items, and each is made under the lock of its list, so those of two calls at
-- one time add up. An attempt that is repeated changes nothing again.
-- Locks: none but of new tables.
-- The release before survives it, and leaves tools with `todo` out: upgrade every dispatcher and worker before the first one.

-- The list of a session: which number the next item gets, and which calls wrote last, at most 64, the newest first. `day` is when it was
-- last written; it changes once a day, so other updates stay on its page.
CREATE TABLE toolfleet.todo_lists (
    tenant text NOT NULL,
    session text NOT NULL,
    next_number integer NOT NULL DEFAULT 1,
    calls uuid[] NOT NULL DEFAULT '{}',
    day date NOT NULL DEFAULT (now() AT TIME ZONE 'UTC')::date,
    PRIMARY KEY (tenant, session)
) WITH (fillfactor = 50);
CREATE INDEX todo_lists_day ON toolfleet.todo_lists (day);

CREATE TABLE toolfleet.todo_items (
    tenant text NOT NULL,
    session text NOT NULL,
    number integer NOT NULL,
    title text NOT NULL CHECK (char_length(title) BETWEEN 1 AND 500),
    status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'in_progress', 'completed', 'cancelled')),
    -- Counts the changes of its status.
    rev integer NOT NULL DEFAULT 0,
    added_at timestamptz NOT NULL DEFAULT now(),
    added_by uuid NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now(),
    changed_by uuid NOT NULL,
    PRIMARY KEY (tenant, session, number),
    FOREIGN KEY (tenant, session) REFERENCES toolfleet.todo_lists ON DELETE CASCADE
) WITH (fillfactor = 80);

-- For people.
CREATE VIEW toolfleet.todos AS
SELECT i.tenant, i.session, 't' || i.number AS id, i.title, i.status, i.rev, i.added_at, i.added_by, i.changed_at, i.changed_by, i.number
FROM toolfleet.todo_items i;

-- Changes the list of a session for a call: first statuses, then new items, which take the places of the oldest that are completed or
-- cancelled where the list is full. Returns how many of the titles, the first ones, are in the list, and which of the numbers, by their
-- places from 1, it does not have. A call that has written it before changes nothing.
CREATE FUNCTION toolfleet.write_todos(tenant text, session text, call uuid, numbers integer[], statuses text[], titles text[])
RETURNS TABLE (added integer, unknown integer[]) LANGUAGE plpgsql
SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    list toolfleet.todo_lists;
    room integer;
BEGIN
    -- One writer of a list at a time, so that each sees those before; all else are later statements.
    INSERT INTO toolfleet.todo_lists AS l (tenant, session) VALUES (write_todos.tenant, write_todos.session)
    ON CONFLICT (tenant, session) DO UPDATE SET day = EXCLUDED.day
    RETURNING l.* INTO list;
    SELECT coalesce(array_agg(u.place::integer ORDER BY u.place), '{}') INTO unknown
    FROM unnest(write_todos.numbers) WITH ORDINALITY AS u (number, place)
    WHERE NOT EXISTS (SELECT FROM toolfleet.todo_items i WHERE i.tenant = list.tenant AND i.session = list.session AND i.number = u.number);
    SELECT count(*) INTO added FROM toolfleet.todo_items i
    WHERE i.tenant = list.tenant AND i.session = list.session AND i.added_by = write_todos.call;
    IF added > 0 OR write_todos.call = ANY (list.calls) THEN
        RETURN NEXT;
        RETURN;
    END IF;

    UPDATE toolfleet.todo_items i SET status = u.status, rev = i.rev + 1, changed_at = now(), changed_by = write_todos.call
    FROM (
        -- The last word about an item counts.
        SELECT DISTINCT ON (n.number) n.number, n.status
        FROM unnest(write_todos.numbers, write_todos.statuses) WITH ORDINALITY AS n (number, status, place)
        ORDER BY n.number, n.place DESC
    ) u
    WHERE i.tenant = list.tenant AND i.session = list.session AND i.number = u.number AND i.status <> u.status;

    SELECT 100 - count(*) INTO room FROM toolfleet.todo_items i WHERE i.tenant = list.tenant AND i.session = list.session;
    WITH finished AS MATERIALIZED (
        SELECT i.number FROM toolfleet.todo_items i
        WHERE i.tenant = list.tenant AND i.session = list.session AND i.status IN ('completed', 'cancelled')
        ORDER BY i.number LIMIT greatest(cardinality(write_todos.titles) - room, 0)
    ), gone AS (
        DELETE FROM toolfleet.todo_items i USING finished f
        WHERE i.tenant = list.tenant AND i.session = list.session AND i.number = f.number RETURNING 1
    )
    SELECT room + count(*) INTO room FROM gone;
    added := least(cardinality(write_todos.titles), room);
    INSERT INTO toolfleet.todo_items (tenant, session, number, title, added_by, changed_by)
    SELECT list.tenant, list.session, list.next_number + t.place - 1, t.title, write_todos.call, write_todos.call
    FROM unnest(write_todos.titles) WITH ORDINALITY AS t (title, place) WHERE t.place <= added;
    UPDATE toolfleet.todo_lists l
    SET next_number = list.next_number + added, calls = (array_prepend(write_todos.call, list.calls))[1:64]
    WHERE l.tenant = list.tenant AND l.session = list.session;
    RETURN NEXT;
END $$;

-- Deletes lists that were last written before this day, at most so many; returns how many. Those that a call is writing are left out.
CREATE FUNCTION toolfleet.drop_todos(before date, lists_max integer) RETURNS bigint LANGUAGE plpgsql
SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
DECLARE
    dropped bigint;
BEGIN
    WITH old AS MATERIALIZED (
        SELECT l.tenant, l.session FROM toolfleet.todo_lists l WHERE l.day < before
        ORDER BY l.day LIMIT lists_max FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM toolfleet.todo_lists l USING old o WHERE l.tenant = o.tenant AND l.session = o.session RETURNING 1
    )
    SELECT count(*) INTO dropped FROM gone;
    RETURN dropped;
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.write_todos, toolfleet.drop_todos FROM PUBLIC;
