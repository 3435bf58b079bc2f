"""A folder for PYTHONPATH: Python runs `sitecustomize.py` when it starts."""
