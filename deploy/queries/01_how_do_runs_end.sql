-- SRE: how did the runs end that began in this time, app by app, and what share failed?
-- `open` and `waiting` are no failures; `incomplete` is a run of which no end was ever seen.
SELECT
    app, status,
    count() AS runs,
    round(100 * runs / sum(runs) OVER (PARTITION BY app), 1) AS percent_of_app,
    max(ended_at) AS last_ended_at
FROM v_invocations_between(from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
GROUP BY app, status
ORDER BY app, runs DESC, status
