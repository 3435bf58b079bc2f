"""The tour: a topic read with Spark, in pictures on one HTML page.

`queries.py` is the part to copy: what a table's columns are, what happened to one row, which events came when, how late
they came, and how far the watermarks are. `python -m examples.tour`, or `make tour`, runs it on the demo's messages.
"""
