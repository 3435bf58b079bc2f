"""Encoders of the wire formats, for tests alone: from a true event to the record that TiCDC sends of it.

They share nothing with the product, and count because they rebuild TiCDC's own messages from the truth beside them
(tests/corpus/test_encoders.py).
"""
