"""Credentials stay where they were given: in storage options. They are in no URI, which is stored and shown, and in no error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from spark_partq.core.errors import InvalidArgumentError

# Storage options, without their provider, whose values an error may show.
_PUBLIC = {
    "account_name", "allow_http", "bucket", "bucket_name", "container_name", "default_region", "endpoint", "endpoint_url", "region",
}  # fmt: skip
# URIs in which a container stands where others have a user.
_CONTAINER_FIRST = ("abfs", "abfss", "wasb", "wasbs")
_PROVIDER = re.compile("^(aws|azure_storage|azure|google)_")
_SHORTEST = 6  # a shorter value would be found in ordinary words
_HIDDEN = "***"


def check_uri(uri: str) -> None:
    """Refuse a URI of an object store that holds credentials, or a part of which would be left out.

    Raises
    ------
    InvalidArgumentError
        Without the URI in its text.
    """
    try:
        parts = urlsplit(uri)
        user = parts.netloc.rpartition("@")[0]
        container = parts.scheme in _CONTAINER_FIRST and not set(user) & set(":@")
        _ = parts.port  # raises ValueError if what is behind the colon is none
        if (not user or container) and not parts.query and not parts.fragment:
            return
    except ValueError:  # a port that is none, as the rest of a password would be
        pass
    scheme = uri.partition(":")[0]
    raise InvalidArgumentError(
        f"the store's URI {scheme}://{_HIDDEN} has a user, a password, or something behind ? or #. A store's URI is stored and shown, so it "
        "must hold no credentials: pass them as storage options",
        scheme=scheme,
    )


def redacted(text: str, options: Mapping[str, str]) -> str:
    """The text without the values of storage options, but those that are no secret, and without users and passwords in URLs."""
    for name, value in options.items():
        if len(value) >= _SHORTEST and _PROVIDER.sub("", name.lower()) not in _PUBLIC:
            for shown in (value, quote(value), quote(value, safe="")):
                text = text.replace(shown, _HIDDEN)
    return re.sub(r"//[^/\s@]+@", f"//{_HIDDEN}@", text)
