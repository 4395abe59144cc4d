-- Login sessions that were ended before their time, in the order in which that became durable: other processes of the database read on from
-- where they were.
CREATE TABLE login_endings (
    seq BIGINT PRIMARY KEY,
    session BLOB NOT NULL,
    at BIGINT NOT NULL
);
CREATE INDEX login_endings_at ON login_endings (at);

-- One row: its lock orders them, so the numbers have no holes.
CREATE TABLE login_endings_head (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    seq BIGINT NOT NULL
);
INSERT INTO login_endings_head (id, seq) VALUES (1, 0);
