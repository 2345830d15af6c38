-- What is known of the cause of each call without a usable count: which hook answered before the
-- meter had its turn, which stream broke (`starved/redactor`, `stream_broken/503`, `not_reported`).

CREATE OR REPLACE VIEW v_unmetered_between AS
SELECT
    c.* EXCEPT (about_call),
    if(c.served_by = 'unknown', 'served_by_unknown', 'usage_' || c.usage_state) AS reason,
    a.kinds AS anomalies,
    a.cause AS cause
FROM (SELECT *, 'model_call/' || call_key AS about_call FROM tachograph.v_model_calls_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})) AS c
LEFT JOIN
(
    SELECT
        tenant AS of_tenant, app AS of_app, invocation_id AS of_invocation, about,
        arraySort(groupUniqArray(kind)) AS kinds,
        maxIf(detail, kind = 'unmetered_call') AS cause
    FROM tachograph.current_anomalies_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
    GROUP BY of_tenant, of_app, of_invocation, about
) AS a
ON a.of_tenant = c.tenant AND a.of_app = c.app AND a.of_invocation = c.invocation_id
    AND a.about = c.about_call
-- A call that failed before any content misses no usage: it has none by nature.
WHERE c.is_unmetered OR c.usage_state IN ('partial', 'invalid') OR c.served_by != 'model'
SETTINGS join_use_nulls = 0, aggregate_functions_null_for_empty = 0,
    prefer_column_name_to_alias = 0
COMMENT 'Model calls whose usage is missing, partial or invalid, and why, between two instants';

CREATE OR REPLACE VIEW v_unmetered AS
SELECT * FROM tachograph.v_unmetered_between(
    from = '1900-01-01 00:00:00', to = '2262-04-11 00:00:00.000000001')
COMMENT 'Model calls whose usage is missing, partial or invalid, and why';
