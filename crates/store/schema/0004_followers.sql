-- Who follows the log of revocations, and how far each has got.
CREATE TABLE followers (
    id BLOB PRIMARY KEY,
    called TEXT NOT NULL,
    lease BIGINT NOT NULL,
    epoch BLOB,
    seq BIGINT NOT NULL,
    beat BIGINT NOT NULL,
    heard_at BIGINT NOT NULL
);
