"""An S3-compatible server in this process."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import pytest
from pyarrow import fs


@contextmanager
def s3_server(bucket: str) -> Iterator[str]:
    """Start a server with a bucket; yield the query of its URIs. It takes any credentials; skips without moto."""
    server_of = pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[server]'")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = server_of.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        query = f"endpoint_override={quote(f'http://{host}:{port}', safe='')}&scheme=http&region=us-east-1"
        system, _ = fs.FileSystem.from_uri(f"s3://key:secret@{bucket}?{query}&allow_bucket_creation=true")
        system.create_dir(bucket)
        yield query
    finally:
        server.stop()
