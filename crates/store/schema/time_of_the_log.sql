-- It begins with what anything says that was written before it was kept: here, or where a copy comes from.
UPDATE invalidation_head SET at = (SELECT MAX(t) FROM (SELECT at AS t FROM invalidation_head UNION ALL SELECT MAX(tokens_not_before) FROM users UNION ALL SELECT MAX(not_before) FROM denials) AS known);
