-- Whose database this is. One row; its nonce is in the names of the drill's topics and in the mark of its folder.
CREATE SCHEMA finaz_drill;
CREATE TABLE finaz_drill.mark (
    nonce      text PRIMARY KEY,
    topics     text NOT NULL,
    folder     text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
-- All that happens, in the order of its locks: by the triggers of drill_history.sql, and by the drill itself.
CREATE TABLE finaz_drill.history (
    no     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    what   text NOT NULL,
    lease  text,
    owner  text,
    epoch  bigint,
    fence  bigint,
    seq    bigint,
    until  timestamptz,
    detail text
);
