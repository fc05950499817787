"""Credentials are in no URI, no table, no error and no description."""

from __future__ import annotations

import json
import logging
import re
import traceback
from pathlib import Path

import pytest
from obstore.exceptions import BaseError

import spark_partq as partq
from spark_partq.spark.options import Options
from spark_partq.storage.files.credentials import redacted
from spark_partq.storage.files.objects import ObjectFiles
from spark_partq.storage.store import Store
from tests.helpers import put
from tests.s3server import BUCKET, S3Server

SECRET = "SUPERSECRET/123+"
KEY = "AKIATESTKEY"


def shown(error: BaseException) -> str:
    """All that a traceback shows, and the parameters."""
    return "".join(traceback.format_exception(error)) + str(getattr(error, "params", ""))


@pytest.mark.parametrize(
    "uri",
    [
        f"s3://{KEY}:{SECRET}@bucket/store",
        f"s3://{KEY}:SUPERSECRET@bucket/store",
        "s3://SUPERSECRET@bucket/store",
        f"s3://bucket/store?secret={SECRET}",
        f"s3://bucket/store#{SECRET}",
        "abfss://container:SUPERSECRET@account.dfs.core.windows.net/store",
        "abfss://container@account.dfs.core.windows.net/store?sv=2020&sig=SUPERSECRET",
        "https://SUPERSECRET@account.blob.core.windows.net/container",
        "s3://[SUPERSECRET",
    ],
)
def test_a_uri_with_credentials_is_refused(uri: str) -> None:
    with pytest.raises(partq.InvalidArgumentError, match="pass them as storage options") as caught:
        Store(uri)
    assert "SUPER" not in shown(caught.value) and KEY not in shown(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket/store",
        "abfss://container@account.dfs.core.windows.net/store",
        "gs://bucket/a@b",
        "s3://bucket:9000/a",
    ],
)
def test_other_uris_are_taken(uri: str) -> None:
    assert Store(uri).uri == uri


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    for name in ("a?b", "a#b", "user:word@host"):
        assert Store(tmp_path / name).uri == str(tmp_path / name)


def test_such_a_place_for_a_replica_is_written_nowhere(store: str) -> None:
    partq.create_queue(store, "q", "v bigint", partitions=1)
    with pytest.raises(partq.InvalidArgumentError):
        partq.replicate(store, "q", f"s3://{KEY}:SUPERSECRET@bucket/store")
    assert partq.describe_queue(store, "q").replicas == ()
    assert files_with(Path(store), "SUPERSECRET", KEY) == []


def files_with(folder: Path, *texts: str) -> list[Path]:
    return [
        path for path in folder.rglob("*") if path.is_file() and any(t.encode() in path.read_bytes() for t in texts)
    ]


def test_representations_hide_them() -> None:
    options = {"aws_secret_access_key": SECRET, "aws_access_key_id": KEY}
    parsed = Options.parse({"path": "s3://b/x", "queue": "q", **{f"storageOptions.{n}": v for n, v in options.items()}})
    assert parsed.storageOptions == options and parsed.store == Store("s3://b/x", options)
    for thing in (Store("s3://b/x", options), parsed, parsed.consumer):
        for text in (repr(thing), str(thing), f"{thing}"):
            assert "SUPERSECRET" not in text and KEY not in text


@pytest.mark.parametrize(
    "given",
    [
        {"storageOptions": SECRET},
        {"storageOption.aws_secret_access_key": SECRET},
        {"storageOptions": SECRET, "storageOptions.aws_region": "eu-west-1"},
        {"storageOptions.aws_region": "eu-west-1", "storageoptions": SECRET},
    ],
)
def test_a_misspelt_option_does_not_show_it(given: dict[str, str]) -> None:
    with pytest.raises(partq.InvalidArgumentError, match="storageOption") as caught:
        Options.parse({"path": "s3://b/x", "queue": "q", **given})
    assert SECRET not in shown(caught.value)


# ---- errors of the client library
@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("s3://bucket/store", {"aws_secret_access_key": "good", "timeout": SECRET}),
        ("s3://bucket/store", {"aws_skip_signature": SECRET}),
        ("abfss://c@account.dfs.core.windows.net/x", {"azure_storage_sas_key": f"%%{SECRET}"}),
        ("abfss://c@account.dfs.core.windows.net/x", {"azure_storage_account_key": f"!!{SECRET}"}),
        ("gs://bucket/store", {"google_service_account_key": f"{{bad {SECRET}"}),
    ],
)
def test_options_that_are_refused(uri: str, options: dict[str, str]) -> None:
    with pytest.raises(partq.StoreUnavailableError) as caught:
        partq.list_queues(uri, storage_options=options)
    assert SECRET not in shown(caught.value) and uri in str(caught.value)


def test_a_request_that_fails() -> None:
    options = {
        "aws_endpoint_url": "http://user:SUPERSECRET@127.0.0.1:9",
        "aws_secret_access_key": SECRET,
        "aws_access_key_id": KEY,
    }
    files = ObjectFiles("s3://bucket/store", options)
    text = f"Error performing GET {options['aws_endpoint_url']}/x with {SECRET}"
    with pytest.raises(partq.StoreUnavailableError, match=re.escape("http://***@127.0.0.1:9/x with ***")) as caught:  # noqa: SIM117
        with files._explained("x", "read"):
            raise BaseError(text)
    assert "SUPERSECRET" not in shown(caught.value)


@pytest.mark.parametrize("options", [{"aws_endpoint": "localhost:9"}, {"aws_session_token": "se\ncret"}])
def test_options_that_no_request_can_have(options: dict[str, str]) -> None:
    """The client library ends in a panic there."""
    given = {"aws_access_key_id": "id", "aws_secret_access_key": "secret", "aws_region": "us-east-1", **options}
    with pytest.raises(partq.StoreUnavailableError, match="Check the URI and the storage options") as caught:
        partq.list_queues("s3://bucket/x", storage_options=given)
    assert "cret" not in str(caught.value).replace("credentials", "")


def test_what_is_no_secret_stays() -> None:
    options = {
        "aws_region": "eu-west-1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
        "allow_http": "true",
        "token": "true-token",
    }
    assert (
        redacted("eu-west-1 http://127.0.0.1:9000 true true-token", options)
        == "eu-west-1 http://127.0.0.1:9000 true ***"
    )
    assert redacted("a%2Fb%2Bcdef", {"secret": "a/b+cdef"}) == "***"


# ---- a replica with credentials of its own
def test_a_replica_with_credentials_of_its_own(store: str, s3: S3Server, caplog: pytest.LogCaptureFixture) -> None:
    """S7: both stores, all descriptions and the log are free of them; scaling reaches the replica."""
    options = {**s3.options, "aws_access_key_id": KEY, "aws_secret_access_key": SECRET}
    there = f"s3://{BUCKET}/credentials"
    partq.create_queue(store, "q", "k string, v bigint", key="k", partitions=2)
    put(store, 0, range(5))
    with caplog.at_level(logging.DEBUG):
        status = partq.replicate(store, "q", there, replica_options=options)
        described = partq.scale(store, "q", 3, replica_options=options)
        (after,) = partq.replicas(store, "q", replica_options=options)
    assert status.total_lag == after.total_lag == 0
    copied = partq.describe_queue(there, "q", storage_options=options)
    assert copied.configured_partitions == described.configured_partitions == 3 and described.replicas == (there,)
    assert files_with(Path(store), SECRET, KEY) == []
    texts = [json.dumps(found.to_dict()) + repr(found) for found in (status, after, described, copied)]
    assert SECRET not in "".join(texts) + caplog.text and KEY not in "".join(texts) + caplog.text
    files = Store(there, options).files
    found: list[str] = [meta["path"] for page in files._store.list("") for meta in page]  # type: ignore[attr-defined]
    assert len(found) > 5
    assert [path for path in found if SECRET.encode() in files.read(path) or KEY.encode() in files.read(path)] == []


def test_a_drain_reaches_a_replica_with_credentials_of_its_own(store: str, s3: S3Server) -> None:
    """The count changes once the replica has everything."""
    there = f"s3://{BUCKET}/drained"
    partq.create_queue(store, "q", "v bigint", partitions=2)
    partq.replicate(store, "q", there, replica_options=s3.options)
    partq.scale(store, "q", 3, "drain", replica_options=s3.options)
    assert partq.describe_queue(there, "q", storage_options=s3.options).configured_partitions == 3


def test_credentials_from_the_environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.options.items():
        monkeypatch.setenv(name.upper(), value)
    place = f"s3://{BUCKET}/environment"
    partq.create_queue(place, "q", "v bigint", partitions=1)
    assert partq.list_queues(place) == ["q"]
