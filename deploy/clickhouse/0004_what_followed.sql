-- What followed a verdict that named no call: the model or tool call that it turned out to be
-- about, or that started after it all the same.

ALTER TABLE guardrail_decisions
    ADD COLUMN IF NOT EXISTS followed_kind LowCardinality(String)
        COMMENT 'model or tool: what a deny turned out to be about. Empty: as target, or nothing'
        AFTER content_already_delivered,
    ADD COLUMN IF NOT EXISTS followed_key String
        COMMENT 'Key of the call that a deny turned out to be about. Empty: as target, or nothing'
        AFTER followed_kind;

CREATE OR REPLACE VIEW current_guardrail_decisions_between AS
SELECT * FROM guardrail_decisions FINAL
WHERE _partition_id BETWEEN toString(toYYYYMMDD(toDate32({from:DateTime64(9, 'UTC')}) - 1))
                        AND toString(toYYYYMMDD(toDate32({to:DateTime64(9, 'UTC')}) + 1))
SETTINGS do_not_merge_across_partitions_select_final = 0, optimize_move_to_prewhere_if_final = 0
COMMENT 'Verdicts, the newest version of each; partitions of the days from - 1 to to + 1';

-- Each decision with what became of its target and the coordinates of its record. The target is
-- the call that followed where the verdict named none. `bypassed`: what it forbade started all the
-- same, although its mode enforces.
CREATE OR REPLACE VIEW v_guardrail_audit_between AS
SELECT
    d.*,
    toBool(ifNull(d.enforced = false, false) AND d.mode != 'monitor') AS bypassed,
    multiIf(m.is_known, 'model_call', t.is_known, 'tool_call', '') AS followed_by,
    multiIf(m.is_known, toString(m.model), t.is_known, toString(t.tool), '') AS followed_name,
    multiIf(m.is_known, toString(m.status), t.is_known, toString(t.status), '')
        AS followed_status,
    multiIf(m.is_known, m.started_at, t.is_known, t.started_at, NULL) AS followed_started_at,
    multiIf(m.is_known, m.ended_at, t.is_known, t.ended_at, NULL) AS followed_ended_at,
    if(m.is_known, m.output_total, NULL) AS followed_output_total,
    if(t.is_known, toString(t.executed), '') AS followed_executed
FROM tachograph.current_guardrail_decisions_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')}) AS d
LEFT JOIN
(
    SELECT tenant AS of_tenant, app AS of_app, invocation_id AS of_invocation,
        call_key, 'model' AS kind, true AS is_known,
        model, status, started_at, ended_at, output_total
    FROM tachograph.current_model_calls_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
) AS m
ON m.of_tenant = d.tenant AND m.of_app = d.app AND m.of_invocation = d.invocation_id
    AND m.call_key = if(d.followed_key != '', d.followed_key, d.target_call_id)
    AND m.kind = if(d.followed_key != '', d.followed_kind, d.target_kind)
LEFT JOIN
(
    SELECT tenant AS of_tenant, app AS of_app, invocation_id AS of_invocation,
        call_key, 'tool' AS kind, true AS is_known,
        argMax(c.tool, execution) AS tool,
        argMax(c.status, execution) AS status,
        argMax(c.executed, execution) AS executed,
        min(c.started_at) AS started_at,
        tupleElement(argMax(tuple(c.ended_at), execution), 1) AS ended_at
    FROM tachograph.v_tool_calls_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')}) AS c
    GROUP BY of_tenant, of_app, of_invocation, call_key
) AS t
ON t.of_tenant = d.tenant AND t.of_app = d.app AND t.of_invocation = d.invocation_id
    AND t.call_key = if(d.followed_key != '', d.followed_key, d.target_call_id)
    AND t.kind = if(d.followed_key != '', d.followed_kind, d.target_kind)
WHERE coalesce(d.decided_at, d.segment_logged_at) >= {from:DateTime64(9, 'UTC')}
    AND coalesce(d.decided_at, d.segment_logged_at) < {to:DateTime64(9, 'UTC')}
SETTINGS join_use_nulls = 0, aggregate_functions_null_for_empty = 0,
    prefer_column_name_to_alias = 0
COMMENT 'Verdicts between two instants, with what followed and where their records lie in the log';

CREATE OR REPLACE VIEW v_guardrail_audit AS
SELECT * FROM tachograph.v_guardrail_audit_between(
    from = '1900-01-01 00:00:00', to = '2262-04-11 00:00:00.000000001')
COMMENT 'Verdicts, with what followed and where their records lie in the log';
