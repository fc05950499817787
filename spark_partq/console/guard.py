"""Checks before every answer: the name by which the browser asked for the page, headers for the browser, and the token of the actions."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SENT_AS = "x-partq-token"  # the name of the header in the page's requests

# Everything that the page loads comes from here, and no text of the store can become markup or a script in it.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Guard:
    """Answers only requests that name this machine by one of its own names.

    A request from a foreign page, whose name leads to this machine for a moment (DNS rebinding), is refused: the browser still asks for that name.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app, self._host = app, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        asked = Headers(scope=scope).get("host", "")
        if is_own_name(asked, self._host):
            await self._app(scope, receive, with_headers)
        else:
            text = f"the console is not at {asked!r}; ask for it by the name that --host gives, or by the address of its machine\n"
            await PlainTextResponse(text, 421)(scope, receive, with_headers)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`."""
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def is_own_name(asked: str, host: str) -> bool:
    """Whether a Host header names the server that listens on `host`; the header's port may be that of a tunnel.

    Examples
    --------
    >>> is_own_name("localhost:8765", "127.0.0.1"), is_own_name("evil.example:8765", "127.0.0.1"), is_own_name("10.0.0.7", "0.0.0.0")
    (True, False, True)
    """
    try:
        name = (urlsplit(f"//{asked}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if name in ("localhost", host.lower()) or is_loopback(name):
        return True
    if is_loopback(host):
        return False
    return _address(name) is not None or name in (socket.gethostname().lower(), socket.getfqdn().lower())


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def new_token() -> str:
    return secrets.token_urlsafe(32)


def may_act(headers: Headers, token: str | None) -> bool:
    """Whether a request may change something: it comes from the page itself, and has the token."""
    host = headers.get("host", "").lower()
    from_here = headers.get("origin", "").lower() in (f"http://{host}", f"https://{host}")
    given = headers.get(_SENT_AS, "")
    return token is not None and from_here and hmac.compare_digest(given.encode(), token.encode())
