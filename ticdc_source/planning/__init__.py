"""What the driver plans once per query, without Spark: options → offset ranges → sample → read schema."""
