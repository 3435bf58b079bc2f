"""A token endpoint on this machine, with the keys that a broker checks its tokens with."""

import base64
import json
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from typing import Any
from urllib.parse import parse_qsl

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT, CLIENT_SECRET = "ticdc-reader", "cl13nt-s3cr3t/+ä"
AUDIENCE = "kafka"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class TokenServer:
    """What it answers, and what it was asked."""

    def __init__(self, *, tls: SSLContext | None = None) -> None:
        self.seconds = 3600.0
        self.answer: tuple[int, bytes] | None = None
        self.requests: list[dict[str, str]] = []
        self.tokens: list[str] = []
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        owner = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._say(200, json.dumps({"keys": [owner._public()]}).encode())

            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"]))
                self._say(*owner._answer(form.decode(), self.headers))

            def _say(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                if status == 302:
                    self.send_header("Location", owner.url)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Be silent."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self._http.daemon_threads = True
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        address = f"{'http' if tls is None else 'https'}://127.0.0.1:{self._http.server_port}"
        self.url, self.jwks_url = f"{address}/oauth2/token", f"{address}/jwks"

    @contextmanager
    def running(self) -> "Iterator[TokenServer]":
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            self._http.server_close()
            thread.join()

    def jaas(self, secret: str = CLIENT_SECRET, more: str = "") -> str:
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
        return f'{module} required clientId="{CLIENT}" clientSecret="{secret}" scope="read write"{more};'

    def options(self, **more: str) -> dict[str, str]:
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": self.url,
            "sasl.jaas.config": self.jaas(),
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def _public(self) -> Mapping[str, str]:
        numbers = self._key.public_key().public_numbers()
        return {
            "kty": "RSA",
            "alg": "RS256",
            "use": "sig",
            "kid": "1",
            "n": _base64(numbers.n.to_bytes(256, "big")),
            "e": _base64(numbers.e.to_bytes(3, "big")),
        }

    def _answer(self, form: str, headers: Any) -> tuple[int, bytes]:
        user = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
        request = {**dict(parse_qsl(form)), "user": user}
        self.requests.append(request)
        if self.answer is not None:
            return self.answer
        if user != f"{CLIENT}:{CLIENT_SECRET}" or request.get("grant_type") != "client_credentials":
            # Some endpoints repeat what they were sent.
            said = {"error": "invalid_client", "error_description": f"unknown client or secret {user}"}
            return 401, json.dumps(said).encode()
        token = self.token()
        self.tokens.append(token)
        return 200, json.dumps(
            {"access_token": token, "token_type": "Bearer", "expires_in": int(self.seconds)}
        ).encode()

    def token(self, **claims: object) -> str:
        now = time.time()
        whole = {
            "iss": "test",
            "aud": AUDIENCE,
            "sub": CLIENT,
            "scope": "read write",
            "jti": uuid.uuid4().hex,
            "iat": int(now),
            # In whole seconds, and not before the answer says: brokers want no second login within a second (KIP-368).
            "exp": int(now + self.seconds) + 2,
            **claims,
        }
        head = {"alg": "RS256", "typ": "JWT", "kid": "1"}
        text = ".".join(_base64(json.dumps(part).encode()) for part in (head, whole))
        return f"{text}.{_base64(self._key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"
