-- The provider's durable facts. Times are milliseconds since the epoch; secrets are here as digests only.

-- What was told to every cache. One row: its lock orders revocations, so sequence order is commit order.
CREATE TABLE invalidation_head (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    epoch BLOB NOT NULL,
    seq BIGINT NOT NULL
);
CREATE TABLE invalidation_log (
    seq BIGINT PRIMARY KEY,
    tags BLOB NOT NULL,
    reason TEXT NOT NULL,
    at BIGINT NOT NULL
);
CREATE INDEX invalidation_log_at ON invalidation_log (at);

-- The keys that tokens are signed with, sealed. One row, replaced as a whole from the version that was read.
CREATE TABLE key_ring (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    version BIGINT NOT NULL,
    content BLOB NOT NULL
);

CREATE TABLE users (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    name_key TEXT NOT NULL UNIQUE,
    email TEXT,
    email_key TEXT UNIQUE,
    email_verified_at BIGINT,
    claims TEXT NOT NULL,
    password TEXT,
    password_changed_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    disabled_at BIGINT,
    tokens_not_before BIGINT NOT NULL
);
CREATE TABLE user_groups (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    created_at BIGINT NOT NULL
);
CREATE TABLE group_members (
    group_id TEXT NOT NULL REFERENCES user_groups (id) ON DELETE CASCADE,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    PRIMARY KEY (user_id, group_id)
);
CREATE INDEX group_members_group ON group_members (group_id);

-- Failed attempts to log in, per account and per network.
CREATE TABLE attempts (
    subject TEXT PRIMARY KEY,
    failures BIGINT NOT NULL,
    first_at BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    locked_until BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX attempts_expiry ON attempts (expires_at);

CREATE TABLE clients (
    id TEXT PRIMARY KEY,
    settings TEXT NOT NULL,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    disabled_at BIGINT
);

CREATE TABLE sessions (
    digest BLOB PRIMARY KEY,
    sid TEXT NOT NULL UNIQUE,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    authenticated_at BIGINT NOT NULL,
    methods TEXT NOT NULL,
    acr TEXT,
    agent TEXT NOT NULL,
    address TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    seen_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    ended_at BIGINT
);
CREATE INDEX sessions_user ON sessions (user_id);
CREATE INDEX sessions_expiry ON sessions (expires_at);

CREATE TABLE consents (
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    client_id TEXT NOT NULL,
    scopes TEXT NOT NULL,
    given_at BIGINT NOT NULL,
    PRIMARY KEY (user_id, client_id)
);

-- A family is what one authorization led to: its code, refresh tokens and access tokens. It dies as one.
CREATE TABLE families (
    id TEXT PRIMARY KEY,
    client_id TEXT NOT NULL,
    user_id TEXT REFERENCES users (id) ON DELETE CASCADE,
    sid TEXT,
    scopes TEXT NOT NULL,
    audiences TEXT NOT NULL,
    details TEXT NOT NULL,
    outlives_session BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    revoked_at BIGINT
);
CREATE INDEX families_user ON families (user_id);
CREATE INDEX families_sid ON families (sid);
CREATE INDEX families_client ON families (client_id);
CREATE INDEX families_expiry ON families (expires_at);

CREATE TABLE codes (
    digest BLOB PRIMARY KEY,
    family_id TEXT NOT NULL REFERENCES families (id) ON DELETE CASCADE,
    redirect_uri TEXT NOT NULL,
    challenge TEXT,
    nonce TEXT,
    issued_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    kept_until BIGINT NOT NULL,
    redeemed_at BIGINT
);
CREATE INDEX codes_family ON codes (family_id);
CREATE INDEX codes_expiry ON codes (kept_until);

CREATE TABLE refresh_tokens (
    digest BLOB PRIMARY KEY,
    family_id TEXT NOT NULL REFERENCES families (id) ON DELETE CASCADE,
    issued_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    redeemed_at BIGINT
);
CREATE INDEX refresh_tokens_family ON refresh_tokens (family_id);
CREATE INDEX refresh_tokens_expiry ON refresh_tokens (expires_at);

CREATE TABLE access_tokens (
    digest BLOB PRIMARY KEY,
    jti TEXT NOT NULL,
    family_id TEXT REFERENCES families (id) ON DELETE CASCADE,
    client_id TEXT NOT NULL,
    user_id TEXT REFERENCES users (id) ON DELETE CASCADE,
    scopes TEXT NOT NULL,
    audiences TEXT NOT NULL,
    details TEXT NOT NULL,
    issued_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    revoked_at BIGINT
);
CREATE INDEX access_tokens_family ON access_tokens (family_id);
CREATE INDEX access_tokens_user ON access_tokens (user_id);
CREATE INDEX access_tokens_client ON access_tokens (client_id) WHERE family_id IS NULL;
CREATE INDEX access_tokens_expiry ON access_tokens (expires_at);

CREATE TABLE device_codes (
    digest BLOB PRIMARY KEY,
    user_code BLOB NOT NULL UNIQUE,
    client_id TEXT NOT NULL,
    scopes TEXT NOT NULL,
    audiences TEXT NOT NULL,
    wait_millis BIGINT NOT NULL,
    polled_at BIGINT,
    approved BIGINT,
    user_id TEXT REFERENCES users (id) ON DELETE CASCADE,
    sid TEXT,
    details TEXT,
    family_id TEXT,
    issued_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    kept_until BIGINT NOT NULL,
    redeemed_at BIGINT
);
CREATE INDEX device_codes_expiry ON device_codes (kept_until);

CREATE TABLE pushed_requests (
    digest BLOB PRIMARY KEY,
    client_id TEXT NOT NULL,
    parameters TEXT NOT NULL,
    expires_at BIGINT NOT NULL,
    used_at BIGINT
);
CREATE INDEX pushed_requests_expiry ON pushed_requests (expires_at);

-- What may be used once and is not kept otherwise, such as the identifiers of client assertions.
CREATE TABLE seen (
    digest BLOB PRIMARY KEY,
    expires_at BIGINT NOT NULL
);
CREATE INDEX seen_expiry ON seen (expires_at);

-- What is to be told to clients (back-channel logout), until they have heard it or it is too late.
CREATE TABLE deliveries (
    id TEXT PRIMARY KEY,
    client_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    sid TEXT NOT NULL,
    tries BIGINT NOT NULL,
    due_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX deliveries_due ON deliveries (due_at);
CREATE INDEX deliveries_expiry ON deliveries (expires_at);

-- What was revoked and could still be unexpired where tokens are verified without asking.
CREATE TABLE denials (
    tag BLOB PRIMARY KEY,
    seq BIGINT NOT NULL,
    not_before BIGINT,
    expires_at BIGINT NOT NULL
);
CREATE INDEX denials_expiry ON denials (expires_at);

-- Who did what to whom. Each entry carries the digest of the one before, so that none can be changed or taken out unseen.
CREATE TABLE audit_head (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    seq BIGINT NOT NULL,
    digest BLOB NOT NULL
);
CREATE TABLE audit_log (
    seq BIGINT PRIMARY KEY,
    at BIGINT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    detail TEXT NOT NULL,
    digest BLOB NOT NULL
);
CREATE INDEX audit_log_target ON audit_log (target);
