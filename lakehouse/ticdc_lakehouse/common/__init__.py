"""Errors of targets, and what all Spark statements need: texts as written, frames computed once."""
