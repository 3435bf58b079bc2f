"""The demo: real messages of TiCDC, read by Spark, and the tables rebuilt from them compared with SQL's.

`pipeline.py` is the part to copy from. `python -m examples.demo`, or `make demo`, runs it.
"""
