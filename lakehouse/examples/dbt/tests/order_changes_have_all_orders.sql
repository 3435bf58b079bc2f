-- The rows of the source that the incremental model lacks, or has as they were before a change.
SELECT order_id, _sequence.commit_ts, _is_deleted FROM {{ source('shop', 'orders') }}
EXCEPT
SELECT order_id, commit_ts, _is_deleted FROM {{ ref('order_changes') }}
