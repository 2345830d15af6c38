-- Auditor: what did one run do, in order: its model calls, tool calls, waits and verdicts, each
-- with its lane?
SELECT
    coalesce(started_at, ended_at) AS at,
    branch, agent, kind, label, status,
    toFloat64(duration_ms) AS duration_ms,
    input_total AS input,
    output_total AS output
FROM v_timeline_between(from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
WHERE invocation_id = {invocation:String}
ORDER BY at, branch, agent, kind, label
