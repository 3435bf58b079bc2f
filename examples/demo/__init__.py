"""The demo: Spark reads real messages of TiCDC, rebuilds the tables, and compares them with SQL's.

`pipeline.py` is the part to copy. `python -m examples.demo`, or `make demo`, runs it.
"""
