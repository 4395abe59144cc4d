-- People and tokens that are valid for as long as this runs. Digests grow with their number, so that indexes are written from left to right.
SET synchronous_commit = off;
-- What refers to what is not checked: it is known.
SET session_replication_role = replica;

INSERT INTO users (id, name, name_key, claims, created_at, updated_at, tokens_not_before)
SELECT 'filled-' || n, 'filled' || n, 'filled' || n, '{}', 1750000000000, 1750000000000, 0 FROM generate_series(1, @people@) AS n;

INSERT INTO families (id, client_id, user_id, scopes, audiences, details, outlives_session, created_at, expires_at)
SELECT 'filled-' || n, 'load-1', 'filled-' || n, 'openid', 'app', '{}', 1, 1750000000000, 4102444800000 FROM generate_series(1, @people@) AS n;

INSERT INTO refresh_tokens (digest, family_id, issued_at, expires_at)
SELECT decode(lpad(to_hex(n::bigint * (4611686018427387904 / @refresh_tokens@)), 16, '0') || md5(n::text) || '0011223344556677', 'hex'), 'filled-' || (1 + n % @people@), 1750000000000, 4102444800000 FROM generate_series(1, @refresh_tokens@) AS n;

INSERT INTO access_tokens (digest, jti, family_id, client_id, user_id, scopes, audiences, details, issued_at, expires_at)
SELECT decode(lpad(to_hex(n::bigint * (4611686018427387904 / @access_tokens@)), 16, '0') || md5(n::text) || '0011223344556677', 'hex'), 'filled-' || n, 'filled-' || (1 + n % @people@), 'load-1', 'filled-' || (1 + n % @people@), 'openid', 'app', '[]',
    1750000000000, 4102444800000 FROM generate_series(1, @access_tokens@) AS n;

VACUUM ANALYZE;
CHECKPOINT;
