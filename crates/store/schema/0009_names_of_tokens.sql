-- Tokens are revoked by their names, too.
CREATE INDEX access_tokens_jti ON access_tokens (jti);
