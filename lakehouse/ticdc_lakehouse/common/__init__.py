"""Errors of targets, and what every statement to Spark needs: texts as written, frames computed once."""
