-- What an event spares, and when nobody needs to remember it any more, for those who follow the log.
ALTER TABLE invalidation_log ADD COLUMN not_before BIGINT;
ALTER TABLE invalidation_log ADD COLUMN until BIGINT;
