-- Billing: which calls were made and have no usable count, and what is known of the cause? Each
-- is money that the provider may ask for and no sum here shows.
SELECT
    tenant, app, agent, model, reason, cause,
    arrayStringConcat(arraySort(groupUniqArrayArray(anomalies)), ' ') AS signs,
    countIf(usage_state = 'partial') AS lower_bounds,
    count() AS calls
FROM v_unmetered_between(from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
GROUP BY tenant, app, agent, model, reason, cause
ORDER BY calls DESC, tenant, app, agent, model, reason, cause
