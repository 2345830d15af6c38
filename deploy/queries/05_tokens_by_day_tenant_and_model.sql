-- Billing: tokens by day of the zone `tz`, tenant and model, to lay beside the provider's invoice.
-- A sum is over what was reported: where `complete` is false, `calls_without_usage` calls are not
-- in it and `calls_lower_bound` are in it with what they had reported when they broke.
SELECT
    day, tenant, model,
    sum(calls) AS model_calls,
    sum(input_uncached) AS uncached,
    sum(cache_read) AS cached,
    sum(cache_write) AS written_to_cache,
    sum(output_total) AS output,
    sum(reasoning) AS of_it_reasoning,
    sum(total) AS tokens,
    min(complete) AS is_complete,
    sum(calls_usage_missing + calls_invalid) AS calls_without_usage,
    sum(calls_lower_bound) AS calls_with_lower_bound
FROM v_usage_daily_between(
    from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')}, tz = {tz:String})
GROUP BY day, tenant, model
ORDER BY day, tenant, model
