"""Monitoring says how far a stream is and how late: watermarks, lags, and the listener that reports them."""
