-- What happened, for those elsewhere who are told of it: one row for each event of the log that they can be told of.
CREATE TABLE occurrences (
    seq BIGINT PRIMARY KEY,
    kind TEXT NOT NULL,
    user_id TEXT,
    sid TEXT,
    jti TEXT,
    client_id TEXT,
    granted_by TEXT,
    at BIGINT NOT NULL
);
CREATE INDEX occurrences_at ON occurrences (at);

-- Who is told, and how far they have heard.
CREATE TABLE event_receivers (
    name TEXT PRIMARY KEY,
    seq BIGINT NOT NULL,
    tries BIGINT NOT NULL,
    due_at BIGINT NOT NULL
);

-- What one who fetches events has heard beyond that.
CREATE TABLE event_acknowledgements (
    receiver TEXT NOT NULL,
    seq BIGINT NOT NULL,
    PRIMARY KEY (receiver, seq)
);

-- What tags and messages about issuers elsewhere are made with, by all who share this database.
CREATE TABLE event_secret (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    secret BLOB NOT NULL
);
