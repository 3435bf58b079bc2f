"""The client library kafka-python. Only this folder imports it, and `connect.py` is the way in."""
