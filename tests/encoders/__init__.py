"""Encoders of the protocols, for tests only: they write the record that TiCDC sends for a true event.

They share nothing with the product. They are evidence because they rebuild TiCDC's own messages from the truth beside
them (tests/corpus/test_encoders.py).
"""
