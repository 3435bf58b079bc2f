"""Tests through a real SparkSession and a real broker."""
