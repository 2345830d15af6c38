-- SRE: which model is slow, and is it slow to begin or slow to finish? Exact quantiles over the
-- calls that were measured; `calls` beside `measured` says how many were not.
SELECT
    model,
    count() AS calls,
    count(completion_ms) AS measured,
    toFloat64(quantileExact(0.5)(ttfc_ms)) AS first_chunk_p50_ms,
    toFloat64(quantileExact(0.99)(ttfc_ms)) AS first_chunk_p99_ms,
    toFloat64(quantileExact(0.5)(completion_ms)) AS completion_p50_ms,
    toFloat64(quantileExact(0.99)(completion_ms)) AS completion_p99_ms,
    countIf(status = 'error') AS errors
FROM v_model_calls_between(from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
WHERE served_by = 'model'
GROUP BY model
ORDER BY completion_p99_ms DESC NULLS LAST, model
