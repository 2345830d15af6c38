-- The views of tachograph: the collapsed truth, exact before any background merge.
--
-- Each view has a twin `..._between(from, to)` with half-open bounds, for dashboards:
--   SELECT * FROM v_model_calls_between(from = '2026-03-01 00:00:00', to = '2026-03-02 00:00:00')
-- The twin reads only the table partitions from the day before `from` to the day after `to`, by
-- broker time: a run longer than that, or events that reached the log days late, are whole in the
-- plain view only, which is its twin over all of time.
--
-- Collapsing does not depend on the settings of the session: FINAL, its settings and the choice of
-- partitions are said here. Filters on time come after collapsing, so that an older version of a
-- row never comes back. `_partition_id` is a property of whole parts, so a filter on it prunes
-- under FINAL in every version of the server. The views need the analyzer (`enable_analyzer = 1`,
-- the default since 24.3).
--
-- Calls of twins name their database, which the server does not fix when a view is made: where it
-- is not called `tachograph`, `tachograph schema apply` puts its name there; by hand, replace it.
--
-- A later file that adds a column to a table replaces the plain views too: their columns are fixed
-- when they are made.

-- ---- Collapsed rows, one helper per table -----------------------------------------------------

CREATE OR REPLACE VIEW current_invocations_between AS
SELECT * FROM invocations FINAL
WHERE _partition_id BETWEEN toString(toYYYYMMDD(toDate32({from:DateTime64(9, 'UTC')}) - 1))
                        AND toString(toYYYYMMDD(toDate32({to:DateTime64(9, 'UTC')}) + 1))
SETTINGS do_not_merge_across_partitions_select_final = 0, optimize_move_to_prewhere_if_final = 0
COMMENT 'Segments, the newest version of each; partitions of the days from - 1 to to + 1';

CREATE OR REPLACE VIEW current_model_calls_between AS
SELECT * FROM model_calls FINAL
WHERE _partition_id BETWEEN toString(toYYYYMMDD(toDate32({from:DateTime64(9, 'UTC')}) - 1))
                        AND toString(toYYYYMMDD(toDate32({to:DateTime64(9, 'UTC')}) + 1))
SETTINGS do_not_merge_across_partitions_select_final = 0, optimize_move_to_prewhere_if_final = 0
COMMENT 'Model calls, the newest version of each; partitions of the days from - 1 to to + 1';

CREATE OR REPLACE VIEW current_local_answers_between AS
SELECT * FROM local_answers FINAL
WHERE _partition_id BETWEEN toString(toYYYYMMDD(toDate32({from:DateTime64(9, 'UTC')}) - 1))
                        AND toString(toYYYYMMDD(toDate32({to:DateTime64(9, 'UTC')}) + 1))
SETTINGS do_not_merge_across_partitions_select_final = 0, optimize_move_to_prewhere_if_final = 0
COMMENT 'Local answers, the newest version of each; partitions of the days from - 1 to to + 1';

CREATE OR REPLACE VIEW current_tool_calls_between AS
SELECT * FROM tool_calls FINAL
WHERE _partition_id BETWEEN toString(toYYYYMMDD(toDate32({from:DateTime64(9, 'UTC')}) - 1))
                        AND toString(toYYYYMMDD(toDate32({to:DateTime64(9, 'UTC')}) + 1))
SETTINGS do_not_merge_across_partitions_select_final = 0, optimize_move_to_prewhere_if_final = 0
COMMENT 'Tool calls, the newest version of each; partitions of the days from - 1 to to + 1';

CREATE OR REPLACE VIEW current_guardrail_decisions_between AS
SELECT * FROM guardrail_decisions FINAL
WHERE _partition_id BETWEEN toString(toYYYYMMDD(toDate32({from:DateTime64(9, 'UTC')}) - 1))
                        AND toString(toYYYYMMDD(toDate32({to:DateTime64(9, 'UTC')}) + 1))
SETTINGS do_not_merge_across_partitions_select_final = 0, optimize_move_to_prewhere_if_final = 0
COMMENT 'Verdicts, the newest version of each; partitions of the days from - 1 to to + 1';

CREATE OR REPLACE VIEW current_anomalies_between AS
SELECT * FROM anomalies FINAL
WHERE _partition_id BETWEEN toString(toYYYYMMDD(toDate32({from:DateTime64(9, 'UTC')}) - 1))
                        AND toString(toYYYYMMDD(toDate32({to:DateTime64(9, 'UTC')}) + 1))
SETTINGS do_not_merge_across_partitions_select_final = 0, optimize_move_to_prewhere_if_final = 0
COMMENT 'Anomalies, the newest version of each; partitions of the days from - 1 to to + 1';

-- ---- Model calls and what they used -----------------------------------------------------------

CREATE OR REPLACE VIEW v_model_calls_between AS
SELECT * FROM tachograph.current_model_calls_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
WHERE billed_at >= {from:DateTime64(9, 'UTC')} AND billed_at < {to:DateTime64(9, 'UTC')}
COMMENT 'Model calls billed between two instants: one row a call';

CREATE OR REPLACE VIEW v_model_calls AS
SELECT * FROM tachograph.v_model_calls_between(
    from = '1900-01-01 00:00:00', to = '2262-04-11 00:00:00.000000001')
COMMENT 'Model calls: one row a call';

-- Counted are the calls that a model answered. A sum is over what is known, NULL where nothing is:
-- `complete` and `cost_complete` say whether anything is missing from it. Money is summed in 76
-- digits, since a sum of Decimal(38, 12) wraps silently.
CREATE OR REPLACE VIEW v_usage_daily_between AS
SELECT
    toDate32(billed_at, {tz:String}) AS day,
    {tz:String} AS time_zone,
    tenant, app, agent, provider, model,
    countIf(served_by = 'model') AS calls,
    countIf(served_by = 'model' AND usage_state = 'missing') AS calls_usage_missing,
    countIf(served_by = 'model' AND usage_state = 'partial') AS calls_lower_bound,
    countIf(served_by = 'model' AND usage_state = 'invalid') AS calls_invalid,
    countIf(served_by != 'model') AS calls_unknown,
    toBool(countIf(served_by = 'model' AND usage_state != 'reported') = 0) AS complete,
    sumIf(u.input_total, counts) AS input_total,
    sumIf(u.input_uncached, counts) AS input_uncached,
    sumIf(u.cache_read, counts) AS cache_read,
    sumIf(u.cache_write, counts) AS cache_write,
    sumIf(u.cache_write_5m, counts) AS cache_write_5m,
    sumIf(u.cache_write_1h, counts) AS cache_write_1h,
    sumIf(u.tool_use_input, counts) AS tool_use_input,
    sumIf(u.output_total, counts) AS output_total,
    sumIf(u.reasoning, counts) AS reasoning,
    sumIf(u.audio_input, counts) AS audio_input,
    sumIf(u.audio_output, counts) AS audio_output,
    sumIf(u.image_input, counts) AS image_input,
    sumIf(u.image_output, counts) AS image_output,
    sumIf(u.total, counts) AS total,
    sumIf(toDecimal256(u.cost_usd, 12), served_by = 'model') AS cost_usd,
    countIf(served_by = 'model' AND u.cost_usd IS NULL) AS calls_unpriced,
    toBool(countIf(served_by = 'model' AND (u.cost_usd IS NULL OR cost_is_lower_bound)) = 0)
        AS cost_complete
FROM
(
    SELECT *, served_by = 'model' AND usage_state IN ('reported', 'partial') AS counts
    FROM tachograph.v_model_calls_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
) AS u
GROUP BY day, time_zone, tenant, app, agent, provider, model
SETTINGS join_use_nulls = 0, aggregate_functions_null_for_empty = 0,
    prefer_column_name_to_alias = 0
COMMENT 'Usage and cost by day in the zone `tz`, with completeness, between two instants';

CREATE OR REPLACE VIEW v_usage_daily AS
SELECT * FROM tachograph.v_usage_daily_between(
    from = '1900-01-01 00:00:00', to = '2262-04-11 00:00:00.000000001',
    tz = 'UTC')
COMMENT 'Usage and cost by day in UTC, with their completeness';

-- What no meter saw, with what is known of the cause.
CREATE OR REPLACE VIEW v_unmetered_between AS
SELECT
    c.* EXCEPT (about_call),
    if(c.served_by = 'unknown', 'served_by_unknown', 'usage_' || c.usage_state) AS reason,
    a.kinds AS anomalies
FROM (SELECT *, 'model_call/' || call_key AS about_call FROM tachograph.v_model_calls_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})) AS c
LEFT JOIN
(
    SELECT
        tenant AS of_tenant, app AS of_app, invocation_id AS of_invocation,
        about, arraySort(groupUniqArray(kind)) AS kinds
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
COMMENT 'Model calls whose usage is missing, partial or invalid, between two instants';

CREATE OR REPLACE VIEW v_unmetered AS
SELECT * FROM tachograph.v_unmetered_between(
    from = '1900-01-01 00:00:00', to = '2262-04-11 00:00:00.000000001')
COMMENT 'Model calls whose usage is missing, partial or invalid';

-- ---- Tool calls -------------------------------------------------------------------------------

-- A call that began in one segment and was answered in another has a row in each: last status,
-- first start, last end, and the wait between.
CREATE OR REPLACE VIEW v_tool_calls_between AS
SELECT
    tenant, app, invocation_id,
    argMax(t.session_id, place) AS session_id,
    argMax(t.user_key, place) AS user_key,
    argMax(t.segment, place) AS segment,
    argMin(t.segment, place) AS first_segment,
    count() AS segments,
    call_key, execution,
    argMaxIf(t.call_id, place, t.call_id != '') AS call_id,
    argMaxIf(t.tool, place, t.tool != '') AS tool,
    max(t.is_invented) AS is_invented,
    argMaxIf(t.origin, place, t.origin != '') AS origin,
    argMinIf(t.branch, place, t.branch != '') AS branch,
    argMinIf(t.agent, place, t.agent != '') AS agent,
    argMin(t.occurrence, place) AS occurrence,
    argMax(t.status, place) AS status,
    multiIf(countIf(t.executed = 'yes') > 0, 'yes', argMax(t.executed, place) = 'no', 'no',
        'unknown') AS executed,
    min(t.started_at) AS started_at,
    tupleElement(argMax(tuple(t.ended_at), place), 1) AS ended_at,
    tupleElement(argMax(tuple(t.duration_ms), place), 1) AS duration_ms,
    if(count() = 1,
        toDecimal128(any(t.wait_ms), 6),
        toDecimal128(toUnixTimestamp64Nano(ended_at) - toUnixTimestamp64Nano(started_at), 6)
            / 1000000) AS wait_ms,
    max(t.long_running) AS long_running,
    argMaxIf(t.retries, place, t.retries IS NOT NULL) AS retries,
    argMax(t.error_code, place) AS error_code,
    arraySort(groupUniqArrayArray(t.flags)) AS flags,
    min(t.segment_logged_at) AS segment_logged_at,
    argMin(t.first_topic, place) AS first_topic,
    argMin(t.first_partition, place) AS first_partition,
    argMin(t.first_offset, place) AS first_offset,
    argMax(t.last_topic, place) AS last_topic,
    argMax(t.last_partition, place) AS last_partition,
    argMax(t.last_offset, place) AS last_offset
FROM
(
    SELECT *, (segment_logged_at, first_topic, first_partition, first_offset) AS place
    FROM tachograph.current_tool_calls_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
) AS t
GROUP BY tenant, app, invocation_id, call_key, execution
HAVING coalesce(started_at, ended_at, segment_logged_at) >= {from:DateTime64(9, 'UTC')}
    AND coalesce(started_at, ended_at, segment_logged_at) < {to:DateTime64(9, 'UTC')}
SETTINGS join_use_nulls = 0, aggregate_functions_null_for_empty = 0,
    prefer_column_name_to_alias = 0
COMMENT 'Tool calls, one row an execution over all segments, between two instants';

CREATE OR REPLACE VIEW v_tool_calls AS
SELECT * FROM tachograph.v_tool_calls_between(
    from = '1900-01-01 00:00:00', to = '2262-04-11 00:00:00.000000001')
COMMENT 'Tool calls, one row an execution over all segments';

-- ---- Invocations ------------------------------------------------------------------------------

-- Segments that speak for the invocation, in the order of the log, each with the wait before it. A
-- headless segment adds its calls and nothing else, unless the invocation has no other.
CREATE OR REPLACE VIEW invocation_segments_between AS
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
    )
    WHERE headless = is_headless
    WINDOW w AS (PARTITION BY tenant, app, invocation_id
        ORDER BY segment_logged_at, first_topic, first_partition, first_offset
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
)
COMMENT 'Segments that speak for their invocation, with the wait before each';

-- Own sums of each invocation over its model calls; NULL where nothing is known, also over no call.
CREATE OR REPLACE VIEW invocation_usage_between AS
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
) AS u
GROUP BY tenant, app, invocation_id
SETTINGS join_use_nulls = 0, aggregate_functions_null_for_empty = 0,
    prefer_column_name_to_alias = 0
COMMENT 'Sums over the own model calls of each invocation';

-- Each invocation with itself (depth 0) and those it started, by parent link within the tenant,
-- down to depth 16. An invocation has one parent, so that even a circle of links stays small.
CREATE OR REPLACE VIEW invocation_lineage_between AS
WITH RECURSIVE lineage AS
(
    SELECT DISTINCT
        tenant, app AS root_app, invocation_id AS root_id, app, invocation_id,
        toUInt16(0) AS depth
    FROM tachograph.current_invocations_between(
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

-- The fold: status of the last segment, sums over all calls, `wait_ms` between segments. A sum over
-- no call is 0, over calls none of which is known NULL.
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
    FROM tachograph.invocation_segments_between(
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
    FROM tachograph.invocation_lineage_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')}) AS g
    LEFT JOIN tachograph.invocation_usage_between(
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
    GROUP BY of_tenant, of_app, of_invocation
) AS l
ON l.of_tenant = f.tenant AND l.of_app = f.app AND l.of_invocation = f.invocation_id
LEFT JOIN
(
    SELECT tenant AS of_tenant, app AS of_app, invocation_id AS of_invocation,
        uniqExact(call_key, execution) AS calls
    FROM tachograph.current_tool_calls_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')})
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

-- ---- Timeline and audit -----------------------------------------------------------------------

-- One row per piece of a lane: model calls, tool executions, waits between segments, verdicts.
CREATE OR REPLACE VIEW v_timeline_between AS
SELECT *
FROM
(
    SELECT
        tenant, app, invocation_id, session_id, segment,
        branch AS branch,
        agent AS agent,
        'model' AS kind,
        if(x.model != '', x.model, x.requested_model) AS label,
        toString(x.status) AS status,
        x.call_key AS call_key,
        x.started_at AS started_at,
        x.first_chunk_at AS first_chunk_at,
        x.ended_at AS ended_at,
        CAST(x.completion_ms AS Nullable(Decimal(38, 6))) AS duration_ms,
        x.input_total AS input_total,
        x.output_total AS output_total,
        segment_logged_at, first_topic, first_partition, first_offset
    FROM tachograph.current_model_calls_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')}) AS x
    UNION ALL
    SELECT
        tenant, app, invocation_id, session_id, segment,
        branch AS branch,
        agent AS agent,
        'tool' AS kind,
        toString(x.tool) AS label,
        toString(x.status) AS status,
        x.call_key AS call_key,
        x.started_at AS started_at,
        CAST(NULL AS Nullable(DateTime64(9, 'UTC'))) AS first_chunk_at,
        x.ended_at AS ended_at,
        CAST(x.duration_ms AS Nullable(Decimal(38, 6))) AS duration_ms,
        CAST(NULL AS Nullable(UInt64)) AS input_total,
        CAST(NULL AS Nullable(UInt64)) AS output_total,
        segment_logged_at, first_topic, first_partition, first_offset
    FROM tachograph.v_tool_calls_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')}) AS x
    UNION ALL
    SELECT
        tenant, app, invocation_id, session_id, segment,
        '' AS branch,
        '' AS agent,
        'wait' AS kind,
        'between segments' AS label,
        '' AS status,
        '' AS call_key,
        x.waits_from AS started_at,
        CAST(NULL AS Nullable(DateTime64(9, 'UTC'))) AS first_chunk_at,
        x.started_at AS ended_at,
        x.wait_before_ms AS duration_ms,
        CAST(NULL AS Nullable(UInt64)) AS input_total,
        CAST(NULL AS Nullable(UInt64)) AS output_total,
        segment_logged_at, first_topic, first_partition, first_offset
    FROM tachograph.invocation_segments_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')}) AS x
    WHERE number > 1
    UNION ALL
    SELECT
        tenant, app, invocation_id, session_id, segment,
        branch AS branch,
        agent AS agent,
        'verdict' AS kind,
        arrayStringConcat(arrayFilter(w -> w != '',
            [toString(x.decision), toString(x.stage), toString(x.policy)]), ' ') AS label,
        toString(x.outcome) AS status,
        x.target_call_id AS call_key,
        x.decided_at AS started_at,
        CAST(NULL AS Nullable(DateTime64(9, 'UTC'))) AS first_chunk_at,
        x.decided_at AS ended_at,
        CAST(x.duration_ms AS Nullable(Decimal(38, 6))) AS duration_ms,
        CAST(NULL AS Nullable(UInt64)) AS input_total,
        CAST(NULL AS Nullable(UInt64)) AS output_total,
        segment_logged_at, first_topic, first_partition, first_offset
    FROM tachograph.current_guardrail_decisions_between(
        from = {from:DateTime64(9, 'UTC')}, to = {to:DateTime64(9, 'UTC')}) AS x
)
WHERE coalesce(started_at, ended_at, segment_logged_at) >= {from:DateTime64(9, 'UTC')}
    AND coalesce(started_at, ended_at, segment_logged_at) < {to:DateTime64(9, 'UTC')}
COMMENT 'Pieces of lanes that began between two instants: model, tool, wait, verdict';

CREATE OR REPLACE VIEW v_timeline AS
SELECT * FROM tachograph.v_timeline_between(
    from = '1900-01-01 00:00:00', to = '2262-04-11 00:00:00.000000001')
COMMENT 'Pieces of lanes: model, tool, wait, verdict';

-- Each decision with what became of its target and the coordinates of its record. `bypassed`: what
-- it forbade started all the same, although its mode enforces.
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
    AND m.call_key = d.target_call_id AND m.kind = d.target_kind
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
    AND t.call_key = d.target_call_id AND t.kind = d.target_kind
WHERE coalesce(d.decided_at, d.segment_logged_at) >= {from:DateTime64(9, 'UTC')}
    AND coalesce(d.decided_at, d.segment_logged_at) < {to:DateTime64(9, 'UTC')}
SETTINGS join_use_nulls = 0, aggregate_functions_null_for_empty = 0,
    prefer_column_name_to_alias = 0
COMMENT 'Verdicts between two instants, with what followed and where their records lie in the log';

CREATE OR REPLACE VIEW v_guardrail_audit AS
SELECT * FROM tachograph.v_guardrail_audit_between(
    from = '1900-01-01 00:00:00', to = '2262-04-11 00:00:00.000000001')
COMMENT 'Verdicts, with what followed and where their records lie in the log';
