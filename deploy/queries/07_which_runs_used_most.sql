-- Billing: which ten runs used most tokens, with everything that they started? A run that another
-- one started stands in that one's sum, not in the list.
SELECT
    tenant, app, invocation_id, root_agent, status,
    with_descendants_model_call_count AS model_calls,
    with_descendants_input_total AS input,
    with_descendants_output_total AS output,
    with_descendants_total AS tokens,
    with_descendants_usage_complete AS is_complete
FROM v_invocations_between(from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
WHERE parent_invocation_id = ''
ORDER BY tokens DESC NULLS LAST, tenant, app, invocation_id
LIMIT 10
