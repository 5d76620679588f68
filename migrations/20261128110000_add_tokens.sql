-- Why: who comes over HTTP shows a token. The ledger has what it allows, until when, and the SHA-256 of its secret, which nothing can be
-- guessed from: it is 256 random bits. The secret itself is shown once to who makes the token, and is never here. A token never changes and
-- is never deleted: it is revoked, once, and its row says by whom and why. Two functions alone write.
-- Locks: none that a statement waits for.
-- The release before survives it: it does not know the table.

CREATE TABLE toolfleet.access_tokens (
    -- The second part of the token's text.
    token_id text PRIMARY KEY CHECK (token_id ~ '^[0-9a-f]{12}$'),
    -- Whose it is: the actor of what is decided with it, and the principal of its calls.
    name text NOT NULL CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$'),
    -- SHA-256 of the 43 characters behind the id.
    hash bytea NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    -- `*`: every tenant.
    tenant text NOT NULL CHECK (tenant ~ '^(\*|[A-Za-z0-9_-]{1,64})$'),
    scopes text[] NOT NULL CHECK (cardinality(scopes) BETWEEN 1 AND 5 AND scopes <@ '{call,read,approve,settle,admin}'),
    -- Names of tools, in which `*` stands for any letters.
    tools text[] NOT NULL CHECK (cardinality(tools) BETWEEN 1 AND 64 AND array_position(tools, NULL) IS NULL
        AND array_to_string(tools, ',') ~ '^[a-z0-9_*]{1,64}(,[a-z0-9_*]{1,64})*$'
        -- None has a comma itself.
        AND cardinality(string_to_array(array_to_string(tools, ','), ',')) = cardinality(tools)),
    note text NOT NULL CHECK (length(note) BETWEEN 1 AND 2000),
    created_by text NOT NULL CHECK (length(created_by) BETWEEN 1 AND 200),
    -- The role of the session, which nothing in the statement can change.
    role text NOT NULL,
    created_at timestamptz NOT NULL,
    -- 10 years at most.
    for_ms bigint CHECK (for_ms BETWEEN 1000 AND 315360000000),
    expires_at timestamptz,
    revoked_at timestamptz,
    revoked_by text CHECK (length(revoked_by) BETWEEN 1 AND 200),
    revoked_role text,
    revoke_note text CHECK (length(revoke_note) BETWEEN 1 AND 2000),
    CHECK ((for_ms IS NULL) = (expires_at IS NULL)),
    CHECK (num_nulls(revoked_at, revoked_by, revoked_role, revoke_note) IN (0, 4))
);

CREATE FUNCTION toolfleet.refuse_change_of_tokens() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before toolfleet.access_tokens := OLD;
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL THEN
        before.revoked_at := NEW.revoked_at;
        before.revoked_by := NEW.revoked_by;
        before.revoked_role := NEW.revoked_role;
        before.revoke_note := NEW.revoke_note;
        IF before IS NOT DISTINCT FROM NEW THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'token % does not change but by its revocation', OLD.token_id USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER revoked_only BEFORE UPDATE OR DELETE ON toolfleet.access_tokens FOR EACH ROW
    EXECUTE FUNCTION toolfleet.refuse_change_of_tokens();
CREATE TRIGGER not_emptied BEFORE TRUNCATE ON toolfleet.access_tokens FOR EACH STATEMENT
    EXECUTE FUNCTION toolfleet.refuse_truncation();

-- For people: without hashes.
CREATE VIEW toolfleet.tokens AS
SELECT t.token_id, t.name, t.tenant, t.scopes, t.tools,
       CASE WHEN t.revoked_at IS NOT NULL THEN 'revoked' WHEN t.expires_at <= clock_timestamp() THEN 'expired' ELSE 'live' END AS state,
       t.note, t.created_by, t.role, t.created_at, t.expires_at, t.revoked_at, t.revoked_by, t.revoked_role, t.revoke_note
FROM toolfleet.access_tokens t;

-- For gateways alone: what a token is compared with.
CREATE VIEW toolfleet.token_hashes AS
SELECT t.token_id, t.name, t.hash, t.tenant, t.scopes, t.tools, t.expires_at
FROM toolfleet.access_tokens t
WHERE t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp());

-- What is wrong with who does something and why; null: nothing.
CREATE FUNCTION toolfleet.token_author_problem(actor text, note text) RETURNS text LANGUAGE sql STABLE
SET search_path = toolfleet, pg_temp AS $$
    SELECT CASE
        WHEN coalesce(length(btrim(actor)), 0) NOT BETWEEN 1 AND 200 OR length(actor) > 200 THEN
            'actor must say who does it, in 1 to 200 characters'
        WHEN actor ~ '[[:cntrl:]]' OR toolfleet.has_invisible(actor) THEN 'actor must not have characters that cannot be seen'
        WHEN coalesce(length(btrim(note)), 0) NOT BETWEEN 1 AND 2000 OR length(note) > 2000 THEN
            'note must say why, in 1 to 2000 characters'
        WHEN toolfleet.has_invisible(note) THEN 'note must not have invisible characters' END
$$;

-- Makes a token. Verdicts: `created`; `already`: the very same one is there, nothing was changed. `token` is its row in the view `tokens`.
CREATE FUNCTION toolfleet.create_token(
    token_id text, name text, hash bytea, tenant text, scopes text[], tools text[], actor text, note text, for_ms bigint DEFAULT NULL
) RETURNS TABLE (verdict text, token json) LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    t toolfleet.access_tokens;
    there toolfleet.access_tokens;
    wrong text := toolfleet.token_author_problem(create_token.actor, create_token.note);
BEGIN
    wrong := coalesce(wrong, CASE
        WHEN coalesce(create_token.token_id, '') !~ '^[0-9a-f]{12}$' THEN 'token_id must be 12 hexadecimal digits'
        WHEN coalesce(octet_length(create_token.hash), 0) <> 32 THEN 'hash must be the SHA-256 of the secret'
        WHEN coalesce(create_token.name, '') !~ '^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$' THEN
            'name must be 1 to 64 characters of A-Z, a-z, 0-9, ., _, @, + and -, beginning with a letter or a digit'
        WHEN coalesce(create_token.tenant, '') !~ '^(\*|[A-Za-z0-9_-]{1,64})$' THEN
            'tenant must be 1 to 64 characters of A-Z, a-z, 0-9, _ and -, or * for every tenant'
        WHEN coalesce(cardinality(create_token.scopes), 0) NOT BETWEEN 1 AND 5 OR array_position(create_token.scopes, NULL) IS NOT NULL
             OR NOT create_token.scopes <@ '{call,read,approve,settle,admin}' THEN
            'scopes must be some of call, read, approve, settle and admin'
        WHEN coalesce(cardinality(create_token.tools), 0) NOT BETWEEN 1 AND 64 OR array_position(create_token.tools, NULL) IS NOT NULL
             OR array_to_string(create_token.tools, ',') !~ '^[a-z0-9_*]{1,64}(,[a-z0-9_*]{1,64})*$'
             OR cardinality(string_to_array(array_to_string(create_token.tools, ','), ',')) <> cardinality(create_token.tools) THEN
            'tools must be 1 to 64 names of tools, of a-z, 0-9 and _, in which * stands for any letters'
        WHEN create_token.for_ms NOT BETWEEN 1000 AND 315360000000 THEN
            'for_ms must be 1000 to 315360000000, which is 10 years' END);
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', wrong USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- One at a time, so that each sees those before.
    PERFORM FROM toolfleet.fleet FOR UPDATE;
    SELECT * INTO there FROM toolfleet.access_tokens a WHERE a.token_id = create_token.token_id;
    IF FOUND THEN
        IF (there.hash, there.name, there.tenant, there.scopes, there.tools, there.created_by, there.note, there.for_ms)
           IS DISTINCT FROM (create_token.hash, create_token.name, create_token.tenant, create_token.scopes, create_token.tools,
                             create_token.actor, create_token.note, create_token.for_ms) THEN
            RAISE EXCEPTION 'token_id is that of another token; make a new one' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        RETURN QUERY SELECT 'already', row_to_json(v) FROM toolfleet.tokens v WHERE v.token_id = there.token_id;
        RETURN;
    END IF;
    IF (SELECT count(*) >= 1000 FROM toolfleet.token_hashes) THEN
        RAISE EXCEPTION 'there are 1000 tokens that hold, and that is the most; revoke some' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    t.token_id := create_token.token_id;
    t.name := create_token.name;
    t.hash := create_token.hash;
    t.tenant := create_token.tenant;
    t.scopes := create_token.scopes;
    t.tools := create_token.tools;
    t.note := create_token.note;
    t.created_by := create_token.actor;
    t.role := session_user;
    t.created_at := clock_timestamp();
    t.for_ms := create_token.for_ms;
    t.expires_at := t.created_at + t.for_ms * interval '1 millisecond';
    INSERT INTO toolfleet.access_tokens SELECT t.*;
    RETURN QUERY SELECT 'created', row_to_json(v) FROM toolfleet.tokens v WHERE v.token_id = t.token_id;
END $$;

-- Revokes a token. Verdicts: `revoked`; `already`: somebody had, and the first revocation stays as it was; `not_found`. `token` is its row in
-- the view `tokens`.
CREATE FUNCTION toolfleet.revoke_token(token_id text, actor text, note text) RETURNS TABLE (verdict text, token json)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    came text := 'revoked';
    wrong text := toolfleet.token_author_problem(revoke_token.actor, revoke_token.note);
BEGIN
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', wrong USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE toolfleet.access_tokens a
    SET revoked_at = clock_timestamp(), revoked_by = revoke_token.actor, revoked_role = session_user, revoke_note = revoke_token.note
    WHERE a.token_id = revoke_token.token_id AND a.revoked_at IS NULL;
    IF NOT FOUND THEN
        came := CASE WHEN EXISTS (SELECT FROM toolfleet.access_tokens a WHERE a.token_id = revoke_token.token_id)
                     THEN 'already' ELSE 'not_found' END;
    END IF;
    -- One row in any case.
    RETURN QUERY SELECT came, (SELECT row_to_json(v) FROM toolfleet.tokens v WHERE v.token_id = revoke_token.token_id);
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.refuse_change_of_tokens, toolfleet.token_author_problem, toolfleet.create_token,
    toolfleet.revoke_token FROM PUBLIC;
