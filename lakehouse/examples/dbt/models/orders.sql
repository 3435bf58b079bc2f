{{ config(materialized='view') }}

SELECT * EXCEPT (_is_deleted, _sequence)
FROM {{ source('shop', 'orders') }}
WHERE NOT _is_deleted
