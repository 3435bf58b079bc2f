"""What every statement to Spark needs: texts as they are written, and frames that are computed once."""
