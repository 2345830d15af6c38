-- The tables of tachograph, schema version 1: one per fact, see the specification of facts.
--
-- Applied by `tachograph schema apply`, or by hand with the database chosen on the connection:
-- names are unqualified on purpose. Statements end with a semicolon at the end of a line.
--
-- Rows collapse on ORDER BY, which is the identity of the fact and nothing else; of several the
-- largest `version` wins, so writing a row twice is harmless. The partition is the day of a time
-- that no later evidence changes. Merges are late and never cross partitions: read the views
-- (0002_views.sql), which collapse by themselves.
--
-- Texts are never NULL: empty means unknown or none. Instants, durations, counts and money are
-- NULL where they are unknown, never 0.
--
-- Inserts are synced to disk before they are acknowledged; parts stay compact up to 128 MiB, so
-- that this costs a dozen syncs an insert instead of several for each column. There is no default
-- TTL; `ALTER TABLE ... MODIFY TTL toDateTime(segment_logged_at) + INTERVAL 400 DAY` sets one.

CREATE TABLE IF NOT EXISTS schema_migrations
(
    number UInt32 COMMENT 'Number of the file, from 1',
    name String COMMENT 'Name of the file',
    checksum String COMMENT 'SHA-256 of the file, hex',
    applied_at DateTime64(9, 'UTC') DEFAULT now64(9) COMMENT 'When it was applied, UTC'
)
ENGINE = ReplacingMergeTree(applied_at)
ORDER BY number
COMMENT 'Files of deploy/clickhouse that were applied to this database';

CREATE TABLE IF NOT EXISTS invocations
(
    tenant LowCardinality(String)
        COMMENT 'Tenant. Empty: no record and no configuration names one',
    app LowCardinality(String)
        COMMENT 'Application. Empty: no record and no configuration names one',
    invocation_id String
        COMMENT 'The runtime\'s own id of the invocation, at most 256 bytes',
    session_id String
        COMMENT 'Session of the invocation. Empty: unknown',
    user_key String
        COMMENT 'Hash of the user, never a name or an address. Empty: unknown',
    segment String
        COMMENT 'Id of the stretch of the invocation that the row is about',
    status LowCardinality(String)
        COMMENT 'open, waiting, completed, completed_inferred, error, cancelled, limited, ...',
    headless Bool
        COMMENT 'True where its first record came later than silence_max',
    run_id String
        COMMENT 'One execution of a runner. Empty: unknown',
    started_at Nullable(DateTime64(9, 'UTC'))
        COMMENT 'First instant of the segment, UTC, by the emitter. NULL: unknown',
    ended_at Nullable(DateTime64(9, 'UTC'))
        COMMENT 'End of the segment, UTC, by the emitter. NULL: not ended, or unknown',
    wall_ms Nullable(Decimal(18, 6))
        COMMENT 'From start to end in milliseconds. NULL: unknown',
    root_agent LowCardinality(String)
        COMMENT 'Agent that the run started with. Empty: unknown',
    trigger LowCardinality(String)
        COMMENT 'message, resume, api. Empty: unknown',
    runtime LowCardinality(String)
        COMMENT 'Runtime, such as adk-python. Empty: unknown',
    runtime_version LowCardinality(String)
        COMMENT 'Version of the runtime. Empty: unknown',
    parent_invocation_id String
        COMMENT 'Invocation that started this one. Empty: none known',
    parent_run_id String
        COMMENT 'Run that started this one. Empty: none known',
    parent_call_id String
        COMMENT 'Tool call that started this one. Empty: none known',
    parent_basis LowCardinality(String)
        COMMENT 'declared, inferred. Empty: no parent known',
    `limit` LowCardinality(String)
        COMMENT 'The limit that ended it: max_steps, max_llm_calls, timeout, ... Empty: none',
    error_code LowCardinality(String)
        COMMENT 'The runtime\'s or provider\'s own code, as written. Empty: none',
    own_model_call_count UInt64
        COMMENT 'Calls of the segment that a model answered (served_by = model)',
    own_usage_missing_calls UInt64
        COMMENT 'Those among them whose usage is missing',
    own_usage_complete Bool
        COMMENT 'True where usage of none of them is missing, partial or invalid',
    own_input_total Nullable(UInt64)
        COMMENT 'Tokens billed as input over them. NULL: none of the calls is known',
    own_input_uncached Nullable(UInt64)
        COMMENT 'Uncached part of input, tokens. NULL: not known of any',
    own_cache_read Nullable(UInt64)
        COMMENT 'Input read from a cache over them, tokens. NULL: not known of any',
    own_cache_write Nullable(UInt64)
        COMMENT 'Input written to a cache over them, tokens. NULL: not known of any',
    own_tool_use_input Nullable(UInt64)
        COMMENT 'Part of input that tool use added, tokens. NULL: not known of any',
    own_output_total Nullable(UInt64)
        COMMENT 'Tokens billed as output over them. NULL: none of the calls is known',
    own_reasoning Nullable(UInt64)
        COMMENT 'Part of output that is reasoning, tokens. NULL: not known of any',
    own_total Nullable(UInt64)
        COMMENT 'Input and output, tokens. NULL: not known of any',
    local_answer_count UInt64
        COMMENT 'Answers that a hook or a cache gave instead of a model',
    tool_call_count UInt64
        COMMENT 'Tool calls of the segment',
    records UInt64
        COMMENT 'Records that speak for the segment',
    events UInt64
        COMMENT 'Native events among the records',
    user_messages UInt64
        COMMENT 'User messages, a repeated one counted once',
    retries UInt64
        COMMENT 'Times the invocation was started again with the same user message',
    attributes Map(LowCardinality(String), String)
        COMMENT 'Small values that the emitter added, at most 16 of 128 bytes',
    flags Array(LowCardinality(String))
        COMMENT 'What a reader must know about the row: words such as start_unseen',
    segment_logged_at DateTime64(9, 'UTC')
        COMMENT 'Broker time of the segment\'s first record, UTC. Never changes',
    first_topic LowCardinality(String)
        COMMENT 'Kafka topic of the first record that speaks for the row',
    first_partition Int32
        COMMENT 'Kafka partition of the first record that speaks for the row',
    first_offset Int64
        COMMENT 'Kafka offset of the first record that speaks for the row',
    last_topic LowCardinality(String)
        COMMENT 'Kafka topic of the last record that speaks for the row',
    last_partition Int32
        COMMENT 'Kafka partition of the last record that speaks for the row',
    last_offset Int64
        COMMENT 'Kafka offset of the last record that speaks for the row',
    schema_version UInt16
        COMMENT 'Version of the meaning of the columns; 1',
    version UInt64
        COMMENT 'Rules revision (8 bits), records (20), last offset (36): largest wins'
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY toDate(segment_logged_at)
ORDER BY (tenant, app, invocation_id, segment)
SETTINGS
    old_parts_lifetime = 480,
    fsync_after_insert = 1,
    fsync_part_directory = 1,
    min_rows_to_fsync_after_merge = 1,
    min_bytes_for_wide_part = 134217728,
    non_replicated_deduplication_window = 0
COMMENT 'One row per segment of an invocation; v_invocations folds segments into invocations';

CREATE TABLE IF NOT EXISTS branches
(
    tenant LowCardinality(String)
        COMMENT 'Tenant. Empty: no record and no configuration names one',
    app LowCardinality(String)
        COMMENT 'Application. Empty: no record and no configuration names one',
    invocation_id String
        COMMENT 'The runtime\'s own id of the invocation, at most 256 bytes',
    session_id String
        COMMENT 'Session of the invocation. Empty: unknown',
    user_key String
        COMMENT 'Hash of the user, never a name or an address. Empty: unknown',
    segment String
        COMMENT 'Id of the stretch of the invocation that the row is about',
    branch String
        COMMENT 'Branch path. Empty: the root',
    occurrence UInt32
        COMMENT 'Which pass over the branch, from 0',
    parent_branch String
        COMMENT 'Path of the parent branch. Empty: the root, or the row is the root',
    forked_at Nullable(DateTime64(9, 'UTC'))
        COMMENT 'When the branch began, UTC. NULL: unknown',
    joined_at Nullable(DateTime64(9, 'UTC'))
        COMMENT 'When the branch ended, UTC. NULL: unknown',
    duration_ms Nullable(Decimal(18, 6))
        COMMENT 'From fork to join in milliseconds. NULL: unknown',
    own_ms Nullable(Decimal(18, 6))
        COMMENT 'Covered by its own model calls and tools, milliseconds. NULL: unknown',
    waiting_ms Nullable(Decimal(18, 6))
        COMMENT 'The rest: waiting for others, milliseconds. NULL: unknown',
    own_model_call_count UInt64
        COMMENT 'Calls of the branch that a model answered (served_by = model)',
    own_usage_missing_calls UInt64
        COMMENT 'Those among them whose usage is missing',
    own_usage_complete Bool
        COMMENT 'True where usage of none of them is missing, partial or invalid',
    own_input_total Nullable(UInt64)
        COMMENT 'Tokens billed as input over them. NULL: none of the calls is known',
    own_input_uncached Nullable(UInt64)
        COMMENT 'Uncached part of input, tokens. NULL: not known of any',
    own_cache_read Nullable(UInt64)
        COMMENT 'Input read from a cache over them, tokens. NULL: not known of any',
    own_cache_write Nullable(UInt64)
        COMMENT 'Input written to a cache over them, tokens. NULL: not known of any',
    own_tool_use_input Nullable(UInt64)
        COMMENT 'Part of input that tool use added, tokens. NULL: not known of any',
    own_output_total Nullable(UInt64)
        COMMENT 'Tokens billed as output over them. NULL: none of the calls is known',
    own_reasoning Nullable(UInt64)
        COMMENT 'Part of output that is reasoning, tokens. NULL: not known of any',
    own_total Nullable(UInt64)
        COMMENT 'Input and output, tokens. NULL: not known of any',
    tool_call_count UInt64
        COMMENT 'Tool calls of the branch',
    records UInt64
        COMMENT 'Records on the branch. 0: it only occurs as the prefix of others',
    flags Array(LowCardinality(String))
        COMMENT 'What a reader must know about the row: words such as start_unseen',
    segment_logged_at DateTime64(9, 'UTC')
        COMMENT 'Broker time of the segment\'s first record, UTC. Never changes',
    first_topic LowCardinality(String)
        COMMENT 'Kafka topic of the first record that speaks for the row',
    first_partition Int32
        COMMENT 'Kafka partition of the first record that speaks for the row',
    first_offset Int64
        COMMENT 'Kafka offset of the first record that speaks for the row',
    last_topic LowCardinality(String)
        COMMENT 'Kafka topic of the last record that speaks for the row',
    last_partition Int32
        COMMENT 'Kafka partition of the last record that speaks for the row',
    last_offset Int64
        COMMENT 'Kafka offset of the last record that speaks for the row',
    schema_version UInt16
        COMMENT 'Version of the meaning of the columns; 1',
    version UInt64
        COMMENT 'Rules revision (8 bits), records (20), last offset (36): largest wins'
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY toDate(segment_logged_at)
ORDER BY (tenant, app, invocation_id, segment, branch, occurrence)
SETTINGS
    old_parts_lifetime = 480,
    fsync_after_insert = 1,
    fsync_part_directory = 1,
    min_rows_to_fsync_after_merge = 1,
    min_bytes_for_wide_part = 134217728,
    non_replicated_deduplication_window = 0
COMMENT 'One row per occurrence of a branch within a segment';

CREATE TABLE IF NOT EXISTS agent_runs
(
    tenant LowCardinality(String)
        COMMENT 'Tenant. Empty: no record and no configuration names one',
    app LowCardinality(String)
        COMMENT 'Application. Empty: no record and no configuration names one',
    invocation_id String
        COMMENT 'The runtime\'s own id of the invocation, at most 256 bytes',
    session_id String
        COMMENT 'Session of the invocation. Empty: unknown',
    user_key String
        COMMENT 'Hash of the user, never a name or an address. Empty: unknown',
    segment String
        COMMENT 'Id of the stretch of the invocation that the row is about',
    branch String
        COMMENT 'Branch path. Empty: the root',
    agent LowCardinality(String)
        COMMENT 'Agent. Empty: unknown',
    occurrence UInt32
        COMMENT 'Which pass over the same branch and agent, from 0',
    node_path String
        COMMENT 'Graph node path (ADK 2.x). Empty: none',
    agent_kind LowCardinality(String)
        COMMENT 'Kind of agent. Empty: unknown',
    status LowCardinality(String)
        COMMENT 'open, completed, error, cancelled, transferred, intercepted, unknown, incomplete',
    started_at Nullable(DateTime64(9, 'UTC'))
        COMMENT 'Start, UTC. NULL: unknown',
    ended_at Nullable(DateTime64(9, 'UTC'))
        COMMENT 'End, UTC. NULL: not ended, or unknown',
    duration_ms Nullable(Decimal(18, 6))
        COMMENT 'From start to end in milliseconds. NULL: unknown',
    handoff_to LowCardinality(String)
        COMMENT 'Agent that it handed over to. Empty: none',
    error_code LowCardinality(String)
        COMMENT 'The runtime\'s or provider\'s own code, as written. Empty: none',
    own_model_call_count UInt64
        COMMENT 'Calls of the agent run that a model answered (served_by = model)',
    own_usage_missing_calls UInt64
        COMMENT 'Those among them whose usage is missing',
    own_usage_complete Bool
        COMMENT 'True where usage of none of them is missing, partial or invalid',
    own_input_total Nullable(UInt64)
        COMMENT 'Tokens billed as input over them. NULL: none of the calls is known',
    own_input_uncached Nullable(UInt64)
        COMMENT 'Uncached part of input, tokens. NULL: not known of any',
    own_cache_read Nullable(UInt64)
        COMMENT 'Input read from a cache over them, tokens. NULL: not known of any',
    own_cache_write Nullable(UInt64)
        COMMENT 'Input written to a cache over them, tokens. NULL: not known of any',
    own_tool_use_input Nullable(UInt64)
        COMMENT 'Part of input that tool use added, tokens. NULL: not known of any',
    own_output_total Nullable(UInt64)
        COMMENT 'Tokens billed as output over them. NULL: none of the calls is known',
    own_reasoning Nullable(UInt64)
        COMMENT 'Part of output that is reasoning, tokens. NULL: not known of any',
    own_total Nullable(UInt64)
        COMMENT 'Input and output, tokens. NULL: not known of any',
    tool_call_count UInt64
        COMMENT 'Tool calls of the agent run',
    flags Array(LowCardinality(String))
        COMMENT 'What a reader must know about the row: words such as start_unseen',
    segment_logged_at DateTime64(9, 'UTC')
        COMMENT 'Broker time of the segment\'s first record, UTC. Never changes',
    first_topic LowCardinality(String)
        COMMENT 'Kafka topic of the first record that speaks for the row',
    first_partition Int32
        COMMENT 'Kafka partition of the first record that speaks for the row',
    first_offset Int64
        COMMENT 'Kafka offset of the first record that speaks for the row',
    last_topic LowCardinality(String)
        COMMENT 'Kafka topic of the last record that speaks for the row',
    last_partition Int32
        COMMENT 'Kafka partition of the last record that speaks for the row',
    last_offset Int64
        COMMENT 'Kafka offset of the last record that speaks for the row',
    schema_version UInt16
        COMMENT 'Version of the meaning of the columns; 1',
    version UInt64
        COMMENT 'Rules revision (8 bits), records (20), last offset (36): largest wins'
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY toDate(segment_logged_at)
ORDER BY (tenant, app, invocation_id, segment, branch, agent, occurrence)
SETTINGS
    old_parts_lifetime = 480,
    fsync_after_insert = 1,
    fsync_part_directory = 1,
    min_rows_to_fsync_after_merge = 1,
    min_bytes_for_wide_part = 134217728,
    non_replicated_deduplication_window = 0
COMMENT 'One row per pass of an agent over a branch within a segment';

CREATE TABLE IF NOT EXISTS model_calls
(
    tenant LowCardinality(String)
        COMMENT 'Tenant. Empty: no record and no configuration names one',
    app LowCardinality(String)
        COMMENT 'Application. Empty: no record and no configuration names one',
    invocation_id String
        COMMENT 'The runtime\'s own id of the invocation, at most 256 bytes',
    session_id String
        COMMENT 'Session of the invocation. Empty: unknown',
    user_key String
        COMMENT 'Hash of the user, never a name or an address. Empty: unknown',
    segment String
        COMMENT 'Id of the stretch of the invocation that the row is about',
    call_key String
        COMMENT 'Id of the call, else of the event or span that opened it, else its place',
    call_id String
        COMMENT 'Call id of the runtime. Empty: it has none',
    branch String
        COMMENT 'Branch path. Empty: the root',
    agent LowCardinality(String)
        COMMENT 'Agent. Empty: unknown',
    occurrence UInt32
        COMMENT 'Occurrence of the agent run that made the call, from 0',
    node_path String
        COMMENT 'Graph node path (ADK 2.x). Empty: none',
    seq UInt32
        COMMENT 'Order of the call in its segment, from 0',
    operation LowCardinality(String)
        COMMENT 'chat, generate_content, embeddings, ...',
    model LowCardinality(String)
        COMMENT 'Model that answered, else the one asked, as it came. Empty: unknown',
    requested_model LowCardinality(String)
        COMMENT 'The model that was asked. Empty: unknown',
    provider LowCardinality(String)
        COMMENT 'Provider. Empty: not named',
    served_by LowCardinality(String)
        COMMENT 'model, unknown. Only model counts as a call in sums',
    status LowCardinality(String)
        COMMENT 'ok, error, blocked, cancelled, incomplete',
    attempts UInt32
        COMMENT 'Attempts known, the first included',
    attempt_errors Map(LowCardinality(String), UInt64)
        COMMENT 'Failed attempts by error code, a count each',
    streaming Nullable(Bool)
        COMMENT 'True where the answer was streamed. NULL: unknown',
    started_at Nullable(DateTime64(9, 'UTC'))
        COMMENT 'When the request left, UTC, by the emitter. NULL: unknown',
    first_chunk_at Nullable(DateTime64(9, 'UTC'))
        COMMENT 'First chunk with generated content, UTC. NULL: unknown',
    ended_at Nullable(DateTime64(9, 'UTC'))
        COMMENT 'End of the call, UTC. NULL: not ended, or unknown',
    billed_at DateTime64(9, 'UTC')
        COMMENT 'End of the call, else its last evidence, UTC. Chooses day and price',
    ttfc_ms Nullable(Decimal(18, 6))
        COMMENT 'Request to first chunk with content, milliseconds; streaming only. NULL: unknown',
    ttft_visible_ms Nullable(Decimal(18, 6))
        COMMENT 'Request to first visible text, milliseconds. NULL: unknown',
    completion_ms Nullable(Decimal(18, 6))
        COMMENT 'Request to last response with content, milliseconds. NULL: unknown',
    total_with_retries_ms Nullable(Decimal(18, 6))
        COMMENT 'First request to the end of the attempt served, milliseconds. NULL: unknown',
    measured LowCardinality(String)
        COMMENT 'How the emitter knows: wrapper, hook, native, derived. Empty: unknown',
    chunks Nullable(UInt64)
        COMMENT 'Chunks of the answer. NULL: unknown',
    usage_state LowCardinality(String)
        COMMENT 'Whether usage is known: reported, partial (a lower bound), missing, invalid',
    input_total Nullable(UInt64)
        COMMENT 'Uncached + cache_read + cache_write + tool_use_input, tokens. NULL: unknown',
    input_uncached Nullable(UInt64)
        COMMENT 'Input that no cache served, tokens. NULL: unknown',
    cache_read Nullable(UInt64)
        COMMENT 'Input read from a cache, tokens. NULL: unknown',
    cache_write Nullable(UInt64)
        COMMENT 'Input written to a cache, tokens. NULL: unknown',
    cache_write_5m Nullable(UInt64)
        COMMENT 'Part of cache_write with a life of 5 minutes, tokens. NULL: unknown',
    cache_write_1h Nullable(UInt64)
        COMMENT 'Part of cache_write with a life of 1 hour, tokens. NULL: unknown',
    tool_use_input Nullable(UInt64)
        COMMENT 'Input that tool use added, tokens. NULL: unknown',
    output_total Nullable(UInt64)
        COMMENT 'Tokens billed as output: answer + reasoning. NULL: unknown',
    reasoning Nullable(UInt64)
        COMMENT 'Part of output_total that is reasoning, tokens. NULL: unknown',
    audio_input Nullable(UInt64)
        COMMENT 'Audio part of input, tokens. NULL: unknown',
    audio_output Nullable(UInt64)
        COMMENT 'Audio part of output, tokens. NULL: unknown',
    image_input Nullable(UInt64)
        COMMENT 'Image part of input, tokens. NULL: unknown',
    image_output Nullable(UInt64)
        COMMENT 'Image part of output, tokens. NULL: unknown',
    total Nullable(UInt64)
        COMMENT 'input_total + output_total, tokens. NULL: unknown',
    provider_total Nullable(UInt64)
        COMMENT 'The total that the provider said, tokens. NULL: not said',
    unattributed Nullable(Int64)
        COMMENT 'provider_total - total, tokens. NULL: they agree or are unknown',
    raw_prompt String
        COMMENT 'Prompt count of the provider as decimal text, tokens. Empty: none',
    is_unmetered Bool
        COMMENT 'Usage should have been reported and was not',
    cost_usd Nullable(Decimal(38, 12))
        COMMENT 'What counts, US dollars: as reported, else by list. NULL: no price known',
    list_cost_usd Nullable(Decimal(38, 12))
        COMMENT 'By the price book at billed_at, US dollars. NULL: no price known',
    provider_cost_usd Nullable(Decimal(38, 12))
        COMMENT 'As the provider reported it, US dollars. NULL: not reported',
    cost_is_lower_bound Bool
        COMMENT 'True where the real cost may be higher',
    price_id String
        COMMENT 'Entry of the price book. Empty: none',
    tier LowCardinality(String)
        COMMENT 'Service tier: standard, priority, flex, ... Empty: unknown',
    price_tier LowCardinality(String)
        COMMENT 'Context tier of the price book: base, above_200k, ... Empty: no price',
    finish_reason LowCardinality(String)
        COMMENT 'stop, length, tool_calls, content_filter, error, other. Empty: unknown',
    finish_reason_raw LowCardinality(String)
        COMMENT 'The provider\'s own word. Empty: unknown',
    error_code LowCardinality(String)
        COMMENT 'The runtime\'s or provider\'s own code, as written. Empty: none',
    recovered Bool
        COMMENT 'True where an error handler answered in its place',
    sources Array(LowCardinality(String))
        COMMENT 'Dialects that told of the call: lifecycle, adk, ...',
    trace_id String
        COMMENT 'Trace id, hex. Empty: none',
    span_id String
        COMMENT 'Span id, hex. Empty: none',
    event_id String
        COMMENT 'Id of the native event that closed the call. Empty: none',
    attributes Map(LowCardinality(String), String)
        COMMENT 'Small values that the emitter added, at most 16 of 128 bytes',
    flags Array(LowCardinality(String))
        COMMENT 'What a reader must know about the row: words such as start_unseen',
    segment_logged_at DateTime64(9, 'UTC')
        COMMENT 'Broker time of the segment\'s first record, UTC. Never changes',
    first_topic LowCardinality(String)
        COMMENT 'Kafka topic of the first record that speaks for the row',
    first_partition Int32
        COMMENT 'Kafka partition of the first record that speaks for the row',
    first_offset Int64
        COMMENT 'Kafka offset of the first record that speaks for the row',
    last_topic LowCardinality(String)
        COMMENT 'Kafka topic of the last record that speaks for the row',
    last_partition Int32
        COMMENT 'Kafka partition of the last record that speaks for the row',
    last_offset Int64
        COMMENT 'Kafka offset of the last record that speaks for the row',
    schema_version UInt16
        COMMENT 'Version of the meaning of the columns; 1',
    version UInt64
        COMMENT 'Rules revision (8 bits), records (20), last offset (36): largest wins'
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY toDate(segment_logged_at)
ORDER BY (tenant, app, invocation_id, call_key)
SETTINGS
    old_parts_lifetime = 480,
    fsync_after_insert = 1,
    fsync_part_directory = 1,
    min_rows_to_fsync_after_merge = 1,
    min_bytes_for_wide_part = 134217728,
    non_replicated_deduplication_window = 0
COMMENT 'Calls that a model answered or may have answered, one row each';

CREATE TABLE IF NOT EXISTS local_answers
(
    tenant LowCardinality(String)
        COMMENT 'Tenant. Empty: no record and no configuration names one',
    app LowCardinality(String)
        COMMENT 'Application. Empty: no record and no configuration names one',
    invocation_id String
        COMMENT 'The runtime\'s own id of the invocation, at most 256 bytes',
    session_id String
        COMMENT 'Session of the invocation. Empty: unknown',
    user_key String
        COMMENT 'Hash of the user, never a name or an address. Empty: unknown',
    segment String
        COMMENT 'Id of the stretch of the invocation that the row is about',
    branch String
        COMMENT 'Branch path. Empty: the root',
    agent LowCardinality(String)
        COMMENT 'Agent. Empty: unknown',
    `order` UInt32
        COMMENT 'Order within branch and agent, from 0',
    served_by LowCardinality(String)
        COMMENT 'hook, cache',
    hook LowCardinality(String)
        COMMENT 'Hook point, such as before_model. Empty: unknown',
    actor_type LowCardinality(String)
        COMMENT 'plugin, callback, hook, provider, service, human. Empty: unknown',
    actor_name LowCardinality(String)
        COMMENT 'Name of who answered. Empty: unknown',
    call_id String
        COMMENT 'Id of the model call that was spared. Empty: unknown',
    requested_model LowCardinality(String)
        COMMENT 'The model that was asked. Empty: unknown',
    answered_at Nullable(DateTime64(9, 'UTC'))
        COMMENT 'When the answer came, UTC. NULL: unknown',
    replayed_state LowCardinality(String)
        COMMENT 'Usage that it repeated: reported, partial (a lower bound), missing, invalid',
    replayed_input_total Nullable(UInt64)
        COMMENT 'Uncached + cache_read + cache_write + tool_use_input, tokens. NULL: unknown',
    replayed_input_uncached Nullable(UInt64)
        COMMENT 'Input that no cache served, tokens. NULL: unknown',
    replayed_cache_read Nullable(UInt64)
        COMMENT 'Input read from a cache, tokens. NULL: unknown',
    replayed_cache_write Nullable(UInt64)
        COMMENT 'Input written to a cache, tokens. NULL: unknown',
    replayed_cache_write_5m Nullable(UInt64)
        COMMENT 'Part of cache_write with a life of 5 minutes, tokens. NULL: unknown',
    replayed_cache_write_1h Nullable(UInt64)
        COMMENT 'Part of cache_write with a life of 1 hour, tokens. NULL: unknown',
    replayed_tool_use_input Nullable(UInt64)
        COMMENT 'Input that tool use added, tokens. NULL: unknown',
    replayed_output_total Nullable(UInt64)
        COMMENT 'Tokens billed as output: answer + reasoning. NULL: unknown',
    replayed_reasoning Nullable(UInt64)
        COMMENT 'Part of output_total that is reasoning, tokens. NULL: unknown',
    replayed_audio_input Nullable(UInt64)
        COMMENT 'Audio part of input, tokens. NULL: unknown',
    replayed_audio_output Nullable(UInt64)
        COMMENT 'Audio part of output, tokens. NULL: unknown',
    replayed_image_input Nullable(UInt64)
        COMMENT 'Image part of input, tokens. NULL: unknown',
    replayed_image_output Nullable(UInt64)
        COMMENT 'Image part of output, tokens. NULL: unknown',
    replayed_total Nullable(UInt64)
        COMMENT 'input_total + output_total, tokens. NULL: unknown',
    replayed_provider_total Nullable(UInt64)
        COMMENT 'The total that the provider said, tokens. NULL: not said',
    replayed_unattributed Nullable(Int64)
        COMMENT 'provider_total - total, tokens. NULL: they agree or are unknown',
    replayed_raw_prompt String
        COMMENT 'Prompt count of the provider as decimal text, tokens. Empty: none',
    event_id String
        COMMENT 'Id of the native event with the answer. Empty: none',
    flags Array(LowCardinality(String))
        COMMENT 'What a reader must know about the row: words such as start_unseen',
    segment_logged_at DateTime64(9, 'UTC')
        COMMENT 'Broker time of the segment\'s first record, UTC. Never changes',
    first_topic LowCardinality(String)
        COMMENT 'Kafka topic of the first record that speaks for the row',
    first_partition Int32
        COMMENT 'Kafka partition of the first record that speaks for the row',
    first_offset Int64
        COMMENT 'Kafka offset of the first record that speaks for the row',
    last_topic LowCardinality(String)
        COMMENT 'Kafka topic of the last record that speaks for the row',
    last_partition Int32
        COMMENT 'Kafka partition of the last record that speaks for the row',
    last_offset Int64
        COMMENT 'Kafka offset of the last record that speaks for the row',
    schema_version UInt16
        COMMENT 'Version of the meaning of the columns; 1',
    version UInt64
        COMMENT 'Rules revision (8 bits), records (20), last offset (36): largest wins'
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY toDate(segment_logged_at)
ORDER BY (tenant, app, invocation_id, segment, branch, agent, `order`)
SETTINGS
    old_parts_lifetime = 480,
    fsync_after_insert = 1,
    fsync_part_directory = 1,
    min_rows_to_fsync_after_merge = 1,
    min_bytes_for_wide_part = 134217728,
    non_replicated_deduplication_window = 0
COMMENT 'Answers that a hook or a cache gave instead of a model; never summed with calls';

CREATE TABLE IF NOT EXISTS tool_calls
(
    tenant LowCardinality(String)
        COMMENT 'Tenant. Empty: no record and no configuration names one',
    app LowCardinality(String)
        COMMENT 'Application. Empty: no record and no configuration names one',
    invocation_id String
        COMMENT 'The runtime\'s own id of the invocation, at most 256 bytes',
    session_id String
        COMMENT 'Session of the invocation. Empty: unknown',
    user_key String
        COMMENT 'Hash of the user, never a name or an address. Empty: unknown',
    segment String
        COMMENT 'Id of the stretch of the invocation that the row is about',
    call_key String
        COMMENT 'Id of the call, else of what opened it, else its place',
    execution UInt32
        COMMENT 'Which run of the call, from 1',
    call_id String
        COMMENT 'The runtime\'s call id. Empty: it has none',
    tool LowCardinality(String)
        COMMENT 'Name of the tool',
    is_invented Bool
        COMMENT 'True where no tool of that name was found',
    origin LowCardinality(String)
        COMMENT 'local, mcp, agent, transfer, unknown. Empty: not said',
    branch String
        COMMENT 'Branch path. Empty: the root',
    agent LowCardinality(String)
        COMMENT 'Agent. Empty: unknown',
    occurrence UInt32
        COMMENT 'Occurrence of the agent run that made the call, from 0',
    status LowCardinality(String)
        COMMENT 'ok, error, refused, deferred, skipped, cancelled, timeout, unanswered',
    executed LowCardinality(String)
        COMMENT 'Whether the tool ran: yes, no, unknown',
    started_at Nullable(DateTime64(9, 'UTC'))
        COMMENT 'Start, UTC. NULL: unknown',
    ended_at Nullable(DateTime64(9, 'UTC'))
        COMMENT 'End or answer, UTC. NULL: unknown',
    duration_ms Nullable(Decimal(18, 6))
        COMMENT 'How long it ran, milliseconds. NULL: unknown',
    wait_ms Nullable(Decimal(18, 6))
        COMMENT 'Long-running: from call to answer, milliseconds. NULL: no such call, or unknown',
    long_running Bool
        COMMENT 'True where the tool answers later by design',
    retries Nullable(UInt64)
        COMMENT 'Retries inside the tool. NULL: not said',
    error_code LowCardinality(String)
        COMMENT 'The runtime\'s or provider\'s own code, as written. Empty: none',
    flags Array(LowCardinality(String))
        COMMENT 'What a reader must know about the row: words such as start_unseen',
    segment_logged_at DateTime64(9, 'UTC')
        COMMENT 'Broker time of the segment\'s first record, UTC. Never changes',
    first_topic LowCardinality(String)
        COMMENT 'Kafka topic of the first record that speaks for the row',
    first_partition Int32
        COMMENT 'Kafka partition of the first record that speaks for the row',
    first_offset Int64
        COMMENT 'Kafka offset of the first record that speaks for the row',
    last_topic LowCardinality(String)
        COMMENT 'Kafka topic of the last record that speaks for the row',
    last_partition Int32
        COMMENT 'Kafka partition of the last record that speaks for the row',
    last_offset Int64
        COMMENT 'Kafka offset of the last record that speaks for the row',
    schema_version UInt16
        COMMENT 'Version of the meaning of the columns; 1',
    version UInt64
        COMMENT 'Rules revision (8 bits), records (20), last offset (36): largest wins'
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY toDate(segment_logged_at)
ORDER BY (tenant, app, invocation_id, segment, call_key, execution)
SETTINGS
    old_parts_lifetime = 480,
    fsync_after_insert = 1,
    fsync_part_directory = 1,
    min_rows_to_fsync_after_merge = 1,
    min_bytes_for_wide_part = 134217728,
    non_replicated_deduplication_window = 0
COMMENT 'Executions of tool calls, one row per segment; v_tool_calls joins segments';

CREATE TABLE IF NOT EXISTS guardrail_decisions
(
    tenant LowCardinality(String)
        COMMENT 'Tenant. Empty: no record and no configuration names one',
    app LowCardinality(String)
        COMMENT 'Application. Empty: no record and no configuration names one',
    invocation_id String
        COMMENT 'The runtime\'s own id of the invocation, at most 256 bytes',
    session_id String
        COMMENT 'Session of the invocation. Empty: unknown',
    user_key String
        COMMENT 'Hash of the user, never a name or an address. Empty: unknown',
    segment String
        COMMENT 'Id of the stretch of the invocation that the row is about',
    stage LowCardinality(String)
        COMMENT 'run_input, model_input, model_output, tool_input, tool_output, run_output, ...',
    actor_type LowCardinality(String)
        COMMENT 'plugin, callback, hook, provider, service, human. Empty: unknown',
    actor_name LowCardinality(String)
        COMMENT 'Name of who decided. Empty: unknown',
    target_kind LowCardinality(String)
        COMMENT 'model, tool, run, agent. Empty: not said',
    target_call_id String
        COMMENT 'Call that the verdict is about. Empty: not said',
    target_name LowCardinality(String)
        COMMENT 'Name of the target. Empty: not said',
    `order` UInt32
        COMMENT 'Order in the segment, from 0',
    decided_at Nullable(DateTime64(9, 'UTC'))
        COMMENT 'When it was decided, UTC. NULL: unknown',
    decision LowCardinality(String)
        COMMENT 'allow, deny, modify, warn, escalate. Empty: none, or an unknown word',
    decision_native LowCardinality(String)
        COMMENT 'The guard\'s own word, at most 64 characters. Empty: none',
    action LowCardinality(String)
        COMMENT 'none, allow, block, modify, confirm. Empty: not said',
    mode LowCardinality(String)
        COMMENT 'enforce, monitor. Empty: not said',
    outcome LowCardinality(String)
        COMMENT 'decided, failed_open, failed_closed. Empty: not said',
    enforced Nullable(Bool)
        COMMENT 'True where nothing forbidden started after it. NULL: not known yet, or ever',
    policy LowCardinality(String)
        COMMENT 'Id of the policy. Empty: not said',
    policy_version LowCardinality(String)
        COMMENT 'Version of the policy. Empty: not said',
    rule LowCardinality(String)
        COMMENT 'Rule of the policy. Empty: not said',
    reason_code LowCardinality(String)
        COMMENT 'Reason as a code. Empty: none',
    reason String
        COMMENT 'Reason as text, only where store_reasons is configured. Empty: none',
    branch String
        COMMENT 'Branch path. Empty: the root',
    agent LowCardinality(String)
        COMMENT 'Agent. Empty: unknown',
    findings Map(LowCardinality(String), UInt64)
        COMMENT 'Findings inside the verdict: decision each would have meant, count',
    entity_types Array(LowCardinality(String))
        COMMENT 'Kinds of matched entities, never the matched text',
    duration_ms Nullable(Decimal(18, 6))
        COMMENT 'How long the guard took, milliseconds. NULL: unknown',
    basis LowCardinality(String)
        COMMENT 'How it is known: declared, inferred, provider',
    model_call_prevented Bool
        COMMENT 'True where the verdict spared a model call',
    content_already_delivered Nullable(Bool)
        COMMENT 'True where content had left before the verdict. NULL: nothing tells',
    flags Array(LowCardinality(String))
        COMMENT 'What a reader must know about the row: words such as start_unseen',
    segment_logged_at DateTime64(9, 'UTC')
        COMMENT 'Broker time of the segment\'s first record, UTC. Never changes',
    first_topic LowCardinality(String)
        COMMENT 'Kafka topic of the first record that speaks for the row',
    first_partition Int32
        COMMENT 'Kafka partition of the first record that speaks for the row',
    first_offset Int64
        COMMENT 'Kafka offset of the first record that speaks for the row',
    last_topic LowCardinality(String)
        COMMENT 'Kafka topic of the last record that speaks for the row',
    last_partition Int32
        COMMENT 'Kafka partition of the last record that speaks for the row',
    last_offset Int64
        COMMENT 'Kafka offset of the last record that speaks for the row',
    schema_version UInt16
        COMMENT 'Version of the meaning of the columns; 1',
    version UInt64
        COMMENT 'Rules revision (8 bits), records (20), last offset (36): largest wins'
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY toDate(segment_logged_at)
ORDER BY
(
    tenant,
    app,
    invocation_id,
    segment,
    stage,
    actor_type,
    actor_name,
    target_kind,
    target_call_id,
    target_name,
    `order`
)
SETTINGS
    old_parts_lifetime = 480,
    fsync_after_insert = 1,
    fsync_part_directory = 1,
    min_rows_to_fsync_after_merge = 1,
    min_bytes_for_wide_part = 134217728,
    non_replicated_deduplication_window = 0
COMMENT 'Verdicts of guards, one row each; v_guardrail_audit adds what followed';

CREATE TABLE IF NOT EXISTS recovery_decisions
(
    tenant LowCardinality(String)
        COMMENT 'Tenant. Empty: no record and no configuration names one',
    app LowCardinality(String)
        COMMENT 'Application. Empty: no record and no configuration names one',
    invocation_id String
        COMMENT 'The runtime\'s own id of the invocation, at most 256 bytes',
    session_id String
        COMMENT 'Session of the invocation. Empty: unknown',
    user_key String
        COMMENT 'Hash of the user, never a name or an address. Empty: unknown',
    segment String
        COMMENT 'Id of the stretch of the invocation that the row is about',
    phase LowCardinality(String)
        COMMENT 'model, tool, callback, render',
    call_id String
        COMMENT 'Call that failed. Empty: unknown',
    attempt UInt32
        COMMENT 'Attempt that failed',
    handler LowCardinality(String)
        COMMENT 'Name of the handler. Empty: unknown',
    action LowCardinality(String)
        COMMENT 'throw, skip, abort, retry, fallback, pass',
    decided_at Nullable(DateTime64(9, 'UTC'))
        COMMENT 'When it was decided, UTC. NULL: unknown',
    branch String
        COMMENT 'Branch path. Empty: the root',
    agent LowCardinality(String)
        COMMENT 'Agent. Empty: unknown',
    error_code LowCardinality(String)
        COMMENT 'The runtime\'s or provider\'s own code, as written. Empty: none',
    flags Array(LowCardinality(String))
        COMMENT 'What a reader must know about the row: words such as start_unseen',
    segment_logged_at DateTime64(9, 'UTC')
        COMMENT 'Broker time of the segment\'s first record, UTC. Never changes',
    first_topic LowCardinality(String)
        COMMENT 'Kafka topic of the first record that speaks for the row',
    first_partition Int32
        COMMENT 'Kafka partition of the first record that speaks for the row',
    first_offset Int64
        COMMENT 'Kafka offset of the first record that speaks for the row',
    last_topic LowCardinality(String)
        COMMENT 'Kafka topic of the last record that speaks for the row',
    last_partition Int32
        COMMENT 'Kafka partition of the last record that speaks for the row',
    last_offset Int64
        COMMENT 'Kafka offset of the last record that speaks for the row',
    schema_version UInt16
        COMMENT 'Version of the meaning of the columns; 1',
    version UInt64
        COMMENT 'Rules revision (8 bits), records (20), last offset (36): largest wins'
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY toDate(segment_logged_at)
ORDER BY (tenant, app, invocation_id, segment, phase, call_id, attempt, handler)
SETTINGS
    old_parts_lifetime = 480,
    fsync_after_insert = 1,
    fsync_part_directory = 1,
    min_rows_to_fsync_after_merge = 1,
    min_bytes_for_wide_part = 134217728,
    non_replicated_deduplication_window = 0
COMMENT 'What error handlers decided, one row each';

CREATE TABLE IF NOT EXISTS anomalies
(
    tenant LowCardinality(String)
        COMMENT 'Tenant. Empty: no record and no configuration names one',
    app LowCardinality(String)
        COMMENT 'Application. Empty: no record and no configuration names one',
    invocation_id String
        COMMENT 'The runtime\'s own id of the invocation, at most 256 bytes',
    session_id String
        COMMENT 'Session of the invocation. Empty: unknown',
    user_key String
        COMMENT 'Hash of the user, never a name or an address. Empty: unknown',
    segment String
        COMMENT 'Id of the stretch of the invocation that the row is about',
    about String
        COMMENT 'What it is about, such as model_call/c1, tool_call/t1, invocation',
    kind LowCardinality(String)
        COMMENT 'orphan_end, clock_skew, usage_shrank, verdict_not_enforced, ...',
    branch String
        COMMENT 'Branch path. Empty: the root',
    agent LowCardinality(String)
        COMMENT 'Agent. Empty: unknown',
    at Nullable(DateTime64(9, 'UTC'))
        COMMENT 'When, UTC. NULL: unknown',
    count Nullable(UInt64)
        COMMENT 'How many: lost records, attempts. NULL: does not apply',
    detail LowCardinality(String)
        COMMENT 'A closed word that says more. Empty: none',
    flags Array(LowCardinality(String))
        COMMENT 'What a reader must know about the row: words such as start_unseen',
    segment_logged_at DateTime64(9, 'UTC')
        COMMENT 'Broker time of the segment\'s first record, UTC. Never changes',
    first_topic LowCardinality(String)
        COMMENT 'Kafka topic of the first record that speaks for the row',
    first_partition Int32
        COMMENT 'Kafka partition of the first record that speaks for the row',
    first_offset Int64
        COMMENT 'Kafka offset of the first record that speaks for the row',
    last_topic LowCardinality(String)
        COMMENT 'Kafka topic of the last record that speaks for the row',
    last_partition Int32
        COMMENT 'Kafka partition of the last record that speaks for the row',
    last_offset Int64
        COMMENT 'Kafka offset of the last record that speaks for the row',
    schema_version UInt16
        COMMENT 'Version of the meaning of the columns; 1',
    version UInt64
        COMMENT 'Rules revision (8 bits), records (20), last offset (36): largest wins'
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY toDate(segment_logged_at)
ORDER BY (tenant, app, invocation_id, segment, about, kind)
SETTINGS
    old_parts_lifetime = 480,
    fsync_after_insert = 1,
    fsync_part_directory = 1,
    min_rows_to_fsync_after_merge = 1,
    min_bytes_for_wide_part = 134217728,
    non_replicated_deduplication_window = 0
COMMENT 'What should not be, one row per thing and kind';
