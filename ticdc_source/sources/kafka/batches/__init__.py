"""Record batches: the bytes of a fetch → chunks."""
