-- Where search_documents finds passages: a table and what makes words of texts, in a schema that the role of the tools may use.
-- load.py runs this file each time; it may be repeated.
SET client_min_messages = warning;

-- Chinese is written without spaces, and Postgres has no parser that finds its words: to `english` a sentence is one word.
-- Most Chinese words have two characters, so each two that stand side by side count as a word: 看潮汐表 is 看潮, 潮汐, 汐表.
-- One character alone is found as well. That needs no extension, no dictionary and no locale of the database.
CREATE OR REPLACE FUNCTION tools.han(value text, length int) RETURNS text[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT coalesce(array_agg(substr(run[1], place, length)), '{}')
  FROM regexp_matches(value, '[\u3400-\u9fff]+', 'g') AS run, generate_series(1, char_length(run[1]) - length + 1) AS place
$$;

-- The rest of a text, without Chinese characters and their punctuation.
CREATE OR REPLACE FUNCTION tools.latin(value text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT regexp_replace(value, '[\u3000-\u9fff\uff00-\uffef]+', ' ', 'g')
$$;

-- What a text is found by: English words without their endings, and the Chinese ones.
CREATE OR REPLACE FUNCTION tools.words_of(value text) RETURNS tsvector
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT to_tsvector('english', tools.latin(value)) || array_to_tsvector(tools.han(value, 2) || tools.han(value, 1))
$$;

-- What a question asks for: any of its words, for a question has more of them than the passage that answers it. NULL if it has none.
-- Nothing here reads the question as a query: plainto_tsquery quotes each word, and a Chinese character means nothing to a tsquery.
CREATE OR REPLACE FUNCTION tools.asked_by(question text) RETURNS tsquery
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT nullif(array_to_string(
           nullif(replace(plainto_tsquery('english', tools.latin(question))::text, ' & ', ' | '), '')
           || tools.han(question, 2)
           || tools.han(regexp_replace(question, '[\u3400-\u9fff]{2,}', ' ', 'g'), 1),
         ' | '), '')::tsquery
$$;

CREATE TABLE IF NOT EXISTS tools.passages (
  document text NOT NULL,
  place    int  NOT NULL,
  title    text NOT NULL,
  passage  text NOT NULL CHECK (char_length(passage) <= 2000),
  words    tsvector NOT NULL GENERATED ALWAYS AS (tools.words_of(title || ' ' || passage)) STORED,
  PRIMARY KEY (document, place)
);
CREATE INDEX IF NOT EXISTS passages_words ON tools.passages USING gin (words);
