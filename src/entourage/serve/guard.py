"""Protection of the local server: hosts, origins, the token, and the size of requests.

A page of any web site can send requests to a server on this machine. Such a page can neither read the token, nor send
requests whose headers `Host` and `Origin` are those of this server.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
MAX_BODY = 2**20  # bytes
MAX_PATH = 2**12
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class BodyTooLargeError(Exception):
    """The body of a request is larger than `MAX_BODY`; the application answers with status 413."""

    def __init__(self) -> None:
        super().__init__(f"the body has more than {MAX_BODY} bytes; expected fewer")


class Guard:
    """ASGI middleware that rejects requests that are not of the page itself.

    Args:
        app: the application.
        token: secret of the first address; it is exchanged for a cookie.
        cookie: name of the cookie.
        hosts: names that the header `Host` may have, with any port, because SSH may forward another one.
    """

    def __init__(self, app: ASGIApp, token: str, cookie: str, hosts: Collection[str] = LOCAL_HOSTS) -> None:
        self.app, self.token, self.cookie, self.hosts = app, token, cookie, frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or reject it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        send = _with_headers(send)
        answer = self._answer(scope, headers)
        if answer is not None:
            await answer(scope, receive, send)
            return
        await self.app(scope, _bounded(receive), send)

    def _answer(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the answer to a request that the application must not see, or None."""
        host = headers.get("host", "")
        if _host_name(host) not in self.hosts:
            return _rejection(403, "Host: not a name of this machine; expected 127.0.0.1 or localhost")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return _rejection(403, "Origin: another site; expected this page")
        if headers.get("sec-fetch-site", "none") == "cross-site" and scope["method"] != "GET":
            return _rejection(403, "Sec-Fetch-Site: another site; expected this page")
        if len(scope.get("raw_path", b"")) + len(scope["query_string"]) > MAX_PATH:
            return _rejection(414, f"the address has more than {MAX_PATH} bytes; expected fewer")
        length = headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length) > MAX_BODY:
            return _rejection(413, str(BodyTooLargeError()))
        path = scope["path"]
        if path == "/" and scope["query_string"]:
            return self._log_in(scope["query_string"].decode("latin-1"))
        if (path == "/api" or path.startswith("/api/")) and not self._is_authorized(headers):
            return _rejection(403, "token: missing or wrong; expected the address that the command printed")
        return None

    def _log_in(self, query: str) -> Response:
        given = parse_qs(query).get("token", [""])[0]
        if not _equal(given, self.token):
            return PlainTextResponse("token: wrong; expected the address that the command printed", 403)
        answer = RedirectResponse("./", 303)  # relative: a proxy may add a prefix
        answer.set_cookie(self.cookie, self.token, httponly=True, samesite="strict", path="/")
        return answer

    def _is_authorized(self, headers: Headers) -> bool:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _equal(bearer, self.token):
            return True
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        return self.cookie in cookies and _equal(cookies[self.cookie].value, self.token)


def _equal(first: str, second: str) -> bool:
    return hmac.compare_digest(first.encode("utf-8", "replace"), second.encode())


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _rejection(status: int, problem: str) -> Response:
    return JSONResponse({"error": problem}, status)


def _bounded(receive: Receive) -> Receive:
    """Count the bytes of a body, whose length a request need not state."""
    total = 0

    async def receive_bounded() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > MAX_BODY:
            raise BodyTooLargeError
        return message

    return receive_bounded


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return sending
