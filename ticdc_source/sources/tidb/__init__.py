"""Tables of TiDB as of a TSO: which ranges of rows there are, and a range → chunks."""
