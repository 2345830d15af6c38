-- SRE: which tool fails or is slow? Waiting for people is no duration, and is told apart.
SELECT
    tool,
    count() AS calls,
    countIf(status IN ('error', 'timeout')) AS failed,
    countIf(status = 'unanswered') AS unanswered,
    countIf(status = 'refused') AS refused,
    toFloat64(quantileExact(0.5)(duration_ms)) AS p50_ms,
    toFloat64(quantileExact(0.99)(duration_ms)) AS p99_ms,
    toFloat64(max(wait_ms)) AS longest_wait_ms
FROM v_tool_calls_between(from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
GROUP BY tool
ORDER BY failed + unanswered DESC, p99_ms DESC NULLS LAST, tool
