-- Auditor: which guardrail decided what, when, was it enforced, what followed, and where is the
-- record? Decisions that were not enforced come first.
SELECT
    decided_at, tenant, app, invocation_id, agent, stage,
    policy, actor_name AS actor, decision, action, mode, outcome, basis,
    enforced, bypassed,
    followed_by, followed_name, followed_status,
    concat(first_topic, '/', toString(first_partition), '/', toString(first_offset)) AS record
FROM v_guardrail_audit_between(from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
ORDER BY bypassed DESC, decided_at, tenant, app, invocation_id, stage, `order`
