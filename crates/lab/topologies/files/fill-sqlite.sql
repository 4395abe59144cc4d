-- People and tokens that are valid for as long as this runs. Digests grow with their number, so that indexes are written from left to right.
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -1000000;
PRAGMA foreign_keys = OFF;

INSERT INTO users (id, name, name_key, claims, created_at, updated_at, tokens_not_before)
SELECT 'filled-' || n, 'filled' || n, 'filled' || n, '{}', 1750000000000, 1750000000000, 0 FROM (WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < @people@) SELECT n FROM c);

INSERT INTO families (id, client_id, user_id, scopes, audiences, details, outlives_session, created_at, expires_at)
SELECT 'filled-' || n, 'load-1', 'filled-' || n, 'openid', 'app', '{}', 1, 1750000000000, 4102444800000 FROM (WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < @people@) SELECT n FROM c);

INSERT INTO refresh_tokens (digest, family_id, issued_at, expires_at)
SELECT CAST(printf('%016x', n * (4611686018427387904 / @refresh_tokens@)) || hex(randomblob(8)) AS BLOB), 'filled-' || (1 + n % @people@), 1750000000000, 4102444800000 FROM (WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < @refresh_tokens@) SELECT n FROM c);

INSERT INTO access_tokens (digest, jti, family_id, client_id, user_id, scopes, audiences, details, issued_at, expires_at)
SELECT CAST(printf('%016x', n * (4611686018427387904 / @access_tokens@)) || hex(randomblob(8)) AS BLOB), 'filled-' || n, 'filled-' || (1 + n % @people@), 'load-1', 'filled-' || (1 + n % @people@), 'openid', 'app', '[]',
    1750000000000, 4102444800000 FROM (WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < @access_tokens@) SELECT n FROM c);

PRAGMA wal_checkpoint(TRUNCATE);
ANALYZE;
