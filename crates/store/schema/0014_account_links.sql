-- One-time links with which a user sets a password, handed over by an operator: at most one for each user.
CREATE TABLE account_links (
    user_id TEXT PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    digest BLOB NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX account_links_expiry ON account_links (expires_at);
