"""Schemas of Avro messages, by their id: from a registry with Confluent's API, or from AWS Glue."""
