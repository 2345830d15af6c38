-- SRE: which part of the log do the stored rows speak for, partition by partition, and what is
-- known to be missing? Read it beside the metric of the same question, which knows what is unread.
SELECT
    last_topic AS topic,
    last_partition AS partition,
    max(last_offset) AS newest_offset,
    count() AS runs,
    countIf(status = 'open') AS still_open,
    countIf(has(flags, 'start_unseen')) AS beginning_unseen,
    sum(own_usage_missing_calls) AS calls_usage_missing
FROM v_invocations_between(from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
GROUP BY topic, partition
ORDER BY topic, partition
