-- Checkpoints: commits of a stream that are kept by name when the stream has moved on. A row names a manifest and all that
-- the commit needs, so `cas gc` keeps it; it is written while the pointer of the stream stands at that commit.

CREATE TABLE finaz.checkpoints (
    id            text PRIMARY KEY,      -- the stream without its prefix, `@`, the commit
    name          text NOT NULL,         -- the stream's and its lease's
    run_id        text NOT NULL,
    epoch         bigint NOT NULL,
    fence         bigint NOT NULL,
    seq           bigint NOT NULL,
    manifest      bytea NOT NULL CHECK (octet_length(manifest) = 32),       -- the blob
    manifest_hash bytea NOT NULL CHECK (octet_length(manifest_hash) = 32),  -- of all of it but this
    blobs         bytea[] NOT NULL,      -- all that it needs, the manifest included
    next_offsets  text NOT NULL,         -- a JSON object, by partition
    periodic      boolean NOT NULL,
    made_by       text NOT NULL,
    reason        text,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX checkpoints_name ON finaz.checkpoints (name, seq);

-- Streams that were taken back to a checkpoint: by whom and why.
CREATE TABLE finaz.restores (
    restore_no  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text NOT NULL,
    run_id      text NOT NULL,
    checkpoint  text NOT NULL,
    manifest_hash bytea NOT NULL CHECK (octet_length(manifest_hash) = 32),
    from_seq    bigint NOT NULL,         -- where it stood
    seq         bigint NOT NULL,         -- the commit that took it back
    epoch       bigint NOT NULL,
    fence       bigint NOT NULL,
    who         text NOT NULL,
    reason      text NOT NULL,
    restored_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX restores_run ON finaz.restores (run_id);
