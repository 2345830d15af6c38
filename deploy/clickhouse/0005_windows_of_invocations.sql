-- A window of invocations costs what is in it: the fold reads the segments and calls of those that
-- started in the window and of what they started, no longer those of the days around.

-- Invocations of which a segment began between two instants: all that the fold may show, and some
-- that began before.
CREATE OR REPLACE VIEW invocations_begun_between AS
SELECT DISTINCT tenant, app, invocation_id
FROM tachograph.current_invocations_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
WHERE coalesce(started_at, segment_logged_at) >= {from:DateTime64(9, 'UTC')}
    AND coalesce(started_at, segment_logged_at) < {to:DateTime64(9, 'UTC')}
COMMENT 'Invocations of which a segment began between two instants';

-- The segments of those, as `invocation_segments_between` tells them.
CREATE OR REPLACE VIEW begun_segments_between AS
SELECT
    *,
    if(number = 1, toDecimal128(0, 6),
        toDecimal128(toUnixTimestamp64Nano(started_at) - toUnixTimestamp64Nano(waits_from), 6)
            / 1000000) AS wait_before_ms
FROM
(
    SELECT
        *,
        (segment_logged_at, first_topic, first_partition, first_offset) AS place,
        row_number() OVER w AS number,
        lagInFrame(ended_at) OVER w AS waits_from
    FROM
    (
        SELECT *, min(headless) OVER (PARTITION BY tenant, app, invocation_id) AS is_headless
        FROM tachograph.current_invocations_between(
            from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
        WHERE (tenant, app, invocation_id) IN (SELECT tenant, app, invocation_id
        FROM tachograph.invocations_begun_between(
            from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')}))
    )
    WHERE headless = is_headless
    WINDOW w AS (PARTITION BY tenant, app, invocation_id
        ORDER BY segment_logged_at, first_topic, first_partition, first_offset
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
)
COMMENT 'Segments that speak for their invocation, with the wait before each';

-- Those with all that they started, as `invocation_lineage_between` tells it.
CREATE OR REPLACE VIEW begun_lineage_between AS
WITH RECURSIVE lineage AS
(
    SELECT DISTINCT
        tenant, app AS root_app, invocation_id AS root_id, app, invocation_id,
        toUInt16(0) AS depth
    FROM tachograph.invocations_begun_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
    UNION ALL
    SELECT
        lineage.tenant, lineage.root_app, lineage.root_id, links.app, links.invocation_id,
        toUInt16(lineage.depth + 1) AS depth
    FROM lineage
    INNER JOIN
    (
        SELECT
            tenant, app, invocation_id,
            argMinIf(parent_invocation_id,
                (segment_logged_at, first_topic, first_partition, first_offset),
                parent_invocation_id != '') AS parent_id
        FROM tachograph.current_invocations_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
        GROUP BY tenant, app, invocation_id
        HAVING parent_id NOT IN ('', invocation_id)
    ) AS links
    ON links.tenant = lineage.tenant AND links.parent_id = lineage.invocation_id
    WHERE lineage.depth < 16
)
SELECT tenant, root_app, root_id, app, invocation_id, min(depth) AS depth
FROM lineage
GROUP BY tenant, root_app, root_id, app, invocation_id
SETTINGS join_use_nulls = 0, aggregate_functions_null_for_empty = 0,
    prefer_column_name_to_alias = 0
COMMENT 'Pairs of an invocation and one that it started, directly or not; depth 0 is itself';

-- The sums of all these, as `invocation_usage_between` tells them.
CREATE OR REPLACE VIEW begun_usage_between AS
SELECT
    tenant, app, invocation_id,
    countIf(served_by = 'model') AS model_call_count,
    countIf(served_by = 'model' AND usage_state = 'missing') AS usage_missing_calls,
    countIf(served_by = 'model' AND usage_state != 'reported') AS usage_incomplete_calls,
    sumIf(u.input_total, counts) AS input_total,
    sumIf(u.input_uncached, counts) AS input_uncached,
    sumIf(u.cache_read, counts) AS cache_read,
    sumIf(u.cache_write, counts) AS cache_write,
    sumIf(u.tool_use_input, counts) AS tool_use_input,
    sumIf(u.output_total, counts) AS output_total,
    sumIf(u.reasoning, counts) AS reasoning,
    sumIf(u.total, counts) AS total,
    sumIf(toDecimal256(u.cost_usd, 12), served_by = 'model') AS cost_usd,
    countIf(served_by = 'model' AND (u.cost_usd IS NULL OR cost_is_lower_bound))
        AS cost_incomplete_calls
FROM
(
    SELECT *, served_by = 'model' AND usage_state IN ('reported', 'partial') AS counts
    FROM tachograph.current_model_calls_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
    WHERE (tenant, app, invocation_id) IN (SELECT tenant, app, invocation_id
        FROM tachograph.begun_lineage_between(
            from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')}))
) AS u
GROUP BY tenant, app, invocation_id
SETTINGS join_use_nulls = 0, aggregate_functions_null_for_empty = 0,
    prefer_column_name_to_alias = 0
COMMENT 'Sums over the own model calls of each invocation';

CREATE OR REPLACE VIEW v_invocations_between AS
SELECT
    f.*,
    toUInt64(u.own_calls) AS own_model_call_count,
    toUInt64(u.own_missing) AS own_usage_missing_calls,
    toBool(u.own_incomplete = 0) AS own_usage_complete,
    if(u.own_calls = 0, 0, u.own_input_total) AS own_input_total,
    if(u.own_calls = 0, 0, u.own_input_uncached) AS own_input_uncached,
    if(u.own_calls = 0, 0, u.own_cache_read) AS own_cache_read,
    if(u.own_calls = 0, 0, u.own_cache_write) AS own_cache_write,
    if(u.own_calls = 0, 0, u.own_tool_use_input) AS own_tool_use_input,
    if(u.own_calls = 0, 0, u.own_output_total) AS own_output_total,
    if(u.own_calls = 0, 0, u.own_reasoning) AS own_reasoning,
    if(u.own_calls = 0, 0, u.own_total) AS own_total,
    if(u.own_calls = 0, 0, u.own_cost_usd) AS own_cost_usd,
    toBool(u.own_cost_incomplete > 0) AS own_cost_is_lower_bound,
    toUInt64(u.descendants) AS descendant_count,
    toUInt64(u.all_calls) AS with_descendants_model_call_count,
    toUInt64(u.all_missing) AS with_descendants_usage_missing_calls,
    toBool(u.all_incomplete = 0) AS with_descendants_usage_complete,
    if(u.all_calls = 0, 0, u.all_input_total) AS with_descendants_input_total,
    if(u.all_calls = 0, 0, u.all_input_uncached) AS with_descendants_input_uncached,
    if(u.all_calls = 0, 0, u.all_cache_read) AS with_descendants_cache_read,
    if(u.all_calls = 0, 0, u.all_cache_write) AS with_descendants_cache_write,
    if(u.all_calls = 0, 0, u.all_tool_use_input) AS with_descendants_tool_use_input,
    if(u.all_calls = 0, 0, u.all_output_total) AS with_descendants_output_total,
    if(u.all_calls = 0, 0, u.all_reasoning) AS with_descendants_reasoning,
    if(u.all_calls = 0, 0, u.all_total) AS with_descendants_total,
    if(u.all_calls = 0, 0, u.all_cost_usd) AS with_descendants_cost_usd,
    toBool(u.all_cost_incomplete > 0) AS with_descendants_cost_is_lower_bound,
    toUInt64(l.answers) AS local_answer_count,
    toUInt64(t.calls) AS tool_call_count
FROM
(
    SELECT
        tenant, app, invocation_id,
        argMaxIf(s.session_id, place, s.session_id != '') AS session_id,
        argMaxIf(s.user_key, place, s.user_key != '') AS user_key,
        argMax(s.status, place) AS status,
        count() AS segments,
        argMax(s.segment, place) AS last_segment,
        argMax(s.run_id, place) AS run_id,
        min(s.started_at) AS started_at,
        tupleElement(argMax(tuple(s.ended_at), place), 1) AS ended_at,
        multiIf(
            count() = 1, toDecimal128(any(s.wall_ms), 6),
            has(argMin(s.flags, place), 'start_unseen'), NULL,
            toDecimal128(toUnixTimestamp64Nano(ended_at) - toUnixTimestamp64Nano(started_at), 6)
                / 1000000) AS wall_ms,
        if(countIf(s.wall_ms IS NULL) > 0, NULL, sum(toDecimal128(s.wall_ms, 6))) AS active_ms,
        if(countIf(wait_before_ms IS NULL OR wait_before_ms < 0) > 0, NULL, sum(wait_before_ms))
            AS wait_ms,
        argMinIf(s.root_agent, place, s.root_agent != '') AS root_agent,
        argMinIf(s.trigger, place, s.trigger != '') AS trigger,
        argMaxIf(s.runtime, place, s.runtime != '') AS runtime,
        argMaxIf(s.runtime_version, place, s.runtime_version != '') AS runtime_version,
        argMinIf(s.parent_invocation_id, place, s.parent_basis != '') AS parent_invocation_id,
        argMinIf(s.parent_run_id, place, s.parent_basis != '') AS parent_run_id,
        argMinIf(s.parent_call_id, place, s.parent_basis != '') AS parent_call_id,
        argMinIf(s.parent_basis, place, s.parent_basis != '') AS parent_basis,
        argMax(s.`limit`, place) AS `limit`,
        argMax(s.error_code, place) AS error_code,
        sum(s.records) AS records,
        arrayFold((all, one) -> CAST(mapUpdate(all, one), 'Map(LowCardinality(String), String)'),
            arrayMap(x -> x.2, arraySort(groupArray((place, s.attributes)))),
            CAST(map(), 'Map(LowCardinality(String), String)')) AS attributes,
        arraySort(groupUniqArrayArray(s.flags)) AS flags,
        min(s.segment_logged_at) AS segment_logged_at,
        argMin(s.first_topic, place) AS first_topic,
        argMin(s.first_partition, place) AS first_partition,
        argMin(s.first_offset, place) AS first_offset,
        argMax(s.last_topic, place) AS last_topic,
        argMax(s.last_partition, place) AS last_partition,
        argMax(s.last_offset, place) AS last_offset
    FROM tachograph.begun_segments_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')}) AS s
    GROUP BY tenant, app, invocation_id
) AS f
LEFT JOIN
(
    SELECT
        g.tenant AS of_tenant, g.root_app AS of_app, g.root_id AS of_invocation,
        countIf(g.depth > 0) AS descendants,
        sumIf(c.model_call_count, g.depth = 0) AS own_calls,
        sumIf(c.usage_missing_calls, g.depth = 0) AS own_missing,
        sumIf(c.usage_incomplete_calls, g.depth = 0) AS own_incomplete,
        sumIf(c.input_total, g.depth = 0) AS own_input_total,
        sumIf(c.input_uncached, g.depth = 0) AS own_input_uncached,
        sumIf(c.cache_read, g.depth = 0) AS own_cache_read,
        sumIf(c.cache_write, g.depth = 0) AS own_cache_write,
        sumIf(c.tool_use_input, g.depth = 0) AS own_tool_use_input,
        sumIf(c.output_total, g.depth = 0) AS own_output_total,
        sumIf(c.reasoning, g.depth = 0) AS own_reasoning,
        sumIf(c.total, g.depth = 0) AS own_total,
        sumIf(c.cost_usd, g.depth = 0) AS own_cost_usd,
        sumIf(c.cost_incomplete_calls, g.depth = 0) AS own_cost_incomplete,
        sum(c.model_call_count) AS all_calls,
        sum(c.usage_missing_calls) AS all_missing,
        sum(c.usage_incomplete_calls) AS all_incomplete,
        sum(c.input_total) AS all_input_total,
        sum(c.input_uncached) AS all_input_uncached,
        sum(c.cache_read) AS all_cache_read,
        sum(c.cache_write) AS all_cache_write,
        sum(c.tool_use_input) AS all_tool_use_input,
        sum(c.output_total) AS all_output_total,
        sum(c.reasoning) AS all_reasoning,
        sum(c.total) AS all_total,
        sum(c.cost_usd) AS all_cost_usd,
        sum(c.cost_incomplete_calls) AS all_cost_incomplete
    FROM tachograph.begun_lineage_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')}) AS g
    LEFT JOIN tachograph.begun_usage_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')}) AS c
    ON c.tenant = g.tenant AND c.app = g.app AND c.invocation_id = g.invocation_id
    GROUP BY g.tenant, g.root_app, g.root_id
) AS u
ON u.of_tenant = f.tenant AND u.of_app = f.app AND u.of_invocation = f.invocation_id
LEFT JOIN
(
    SELECT tenant AS of_tenant, app AS of_app, invocation_id AS of_invocation,
        count() AS answers
    FROM tachograph.current_local_answers_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
    WHERE (tenant, app, invocation_id) IN (SELECT tenant, app, invocation_id
        FROM tachograph.invocations_begun_between(
            from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')}))
    GROUP BY of_tenant, of_app, of_invocation
) AS l
ON l.of_tenant = f.tenant AND l.of_app = f.app AND l.of_invocation = f.invocation_id
LEFT JOIN
(
    SELECT tenant AS of_tenant, app AS of_app, invocation_id AS of_invocation,
        uniqExact(call_key, execution) AS calls
    FROM tachograph.current_tool_calls_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
    WHERE (tenant, app, invocation_id) IN (SELECT tenant, app, invocation_id
        FROM tachograph.invocations_begun_between(
            from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')}))
    GROUP BY of_tenant, of_app, of_invocation
) AS t
ON t.of_tenant = f.tenant AND t.of_app = f.app AND t.of_invocation = f.invocation_id
WHERE coalesce(f.started_at, f.segment_logged_at) >= {from:DateTime64(9, 'UTC')}
    AND coalesce(f.started_at, f.segment_logged_at) < {to:DateTime64(9, 'UTC')}
SETTINGS join_use_nulls = 0, aggregate_functions_null_for_empty = 0,
    prefer_column_name_to_alias = 0
COMMENT 'Invocations, folded over their segments, that started between two instants';

CREATE OR REPLACE VIEW v_invocations AS
SELECT * FROM tachograph.v_invocations_between(
    from = '1900-01-01 00:00:00', to = '2262-04-11 00:00:00.000000001')
COMMENT 'Invocations, folded over their segments';
