{{ config(
    materialized='incremental',
    incremental_strategy='merge',
    unique_key='order_id',
    on_schema_change='append_new_columns',
) }}

SELECT * EXCEPT (_sequence), _sequence.commit_ts AS commit_ts
FROM {{ source('shop', 'orders') }}
{% if is_incremental() %}
WHERE _sequence.commit_ts > (SELECT max(commit_ts) FROM {{ this }})
{% endif %}
