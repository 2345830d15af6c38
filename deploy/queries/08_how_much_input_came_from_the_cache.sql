-- Billing: how much of the input did the provider's cache serve, and how often did our own hooks
-- and caches answer instead of a model?
SELECT
    c.tenant AS tenant, c.app AS app,
    sum(c.input_total) AS input,
    sum(c.cache_read) AS cached,
    round(100 * cached / input, 1) AS percent_cached,
    any(l.answers) AS local_answers
FROM v_model_calls_between(
    from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')}) AS c
LEFT JOIN
(
    SELECT tenant, app, sum(local_answer_count) AS answers
    FROM v_invocations_between(from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
    GROUP BY tenant, app
) AS l
ON l.tenant = c.tenant AND l.app = c.app
WHERE c.served_by = 'model'
GROUP BY tenant, app
ORDER BY tenant, app
