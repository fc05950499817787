"""Each role of SECURITY.md works with the rights of its row, and not without: as users of a POSIX system, and with policies of S3."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from spark_partq.storage.store import Store
from tests.s3server import BUCKET, S3Server, running
from tests.security.rights import RIGHTS, Rights, table
from tests.security.roles import ROLES, make, outcome

ROOT = Path(__file__).parents[2]
UID = 2001
STORES = {"replicator": 2, "promoter": 2}


def of(role: str, store: str) -> Rights:
    return next(r for r in RIGHTS if (r.role, r.store) == (role, store if role in STORES else ""))


def test_the_table_of_the_document_is_this_one() -> None:
    assert table() in (ROOT / "SECURITY.md").read_text(), "run: python -m tools.rights"


def test_every_role_has_its_rights() -> None:
    assert {r.role for r in RIGHTS} == set(ROLES)
    assert len(RIGHTS) == len(ROLES) + len(STORES)


EXPECTED: Mapping[str, Any] = {
    "producer": 10, "consumer": 5, "reader": 25, "maintainer": 20, "scaler": 3, "administrator": 1, "replicator": 0, "promoter": 1,
}  # fmt: skip


def needed(rights: Rights) -> list[str]:
    """The folders that it must write, each time."""
    return [f for f, name in zip(rights.of("writes"), rights.writes, strict=True) if name not in rights.not_always]


def denied(error: str) -> bool:
    """Whether it says that a right is missing."""
    return re.search("[Pp]ermission|NotPermitted|AccessDenied|403 Forbidden", error) is not None


@dataclass
class Places:
    primary: str
    replica: str

    def of(self, role: str) -> list[str]:
        places = [self.primary, self.replica][: STORES.get(role, 1)]
        return places[::-1] if role == "promoter" else places


# ---- POSIX: each folder of the table has a group of its own
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
FOLDERS = ["queues", "queues/q", "queues/q/control", "queues/q/partitions", "queues/q/manifests", "queues/q/replica", "groups", "groups/g", "groups/other"]  # fmt: skip
READERS = 3000
GIDS = {(store, folder): READERS + 1 + i for i, (store, folder) in enumerate((s, f) for s in ("primary", "replica") for f in FOLDERS)}  # fmt: skip


def writers(role: str, without: tuple[str, str] = ("", "")) -> set[int]:
    """The groups of a role: those of the folders that it writes, and of what is below them; without one folder of a store."""
    return {
        gid
        for (store, folder), gid in GIDS.items()
        for written in of(role, store).of("writes")
        if f"{folder}/".startswith(f"{written}/") and (store, written) != without
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store that each test gets a copy of."""
    store = tmp_path_factory.mktemp("made") / "primary"
    make(Store(str(store)))
    return store


@pytest.fixture
def places(made: Path) -> Iterator[Places]:
    folder = Path(tempfile.mkdtemp(prefix="pt", dir="/tmp"))  # a folder that others may enter
    os.chmod(folder, 0o755)
    found = Places(str(folder / "primary"), str(folder / "replica"))
    shutil.copytree(made, found.primary)
    yield found
    shutil.rmtree(folder)


def share(places: Places) -> None:
    for store, root in (("primary", places.primary), ("replica", places.replica)):
        for folder in ("queues", "groups"):
            os.makedirs(f"{root}/{folder}", exist_ok=True)
        for path in [Path(root), *Path(root).rglob("*")]:
            relative = path.relative_to(root).as_posix()
            owning = [f for f in FOLDERS if f"{relative}/".startswith(f"{f}/")]
            os.chown(path, 0, GIDS[store, max(owning, key=len)] if owning else READERS)
            os.chmod(path, (0o2775 if owning else 0o2750) if path.is_dir() else 0o664)


class Players:
    """The program `roles`, which plays one role after another."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.security.roles"]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def play(self, role: str, gids: set[int], places: Places) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        asked = {"uid": UID, "gids": sorted(gids), "role": role, "places": places.of(role)}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))


@pytest.fixture(scope="module")
def players() -> Iterator[Players]:
    made = Players()
    yield made
    made.process.kill()
    made.process.wait()


def prepare(role: str, places: Places) -> None:
    if role == "promoter":
        assert outcome("replicator", Store(places.primary), Store(places.replica)) == {"value": 0}


@needs_root
@pytest.mark.parametrize("role", ROLES)
def test_on_a_disk(role: str, places: Places, players: Players) -> None:
    prepare(role, places)
    share(places)
    assert players.play(role, {READERS, *writers(role)}, places) == {"value": EXPECTED[role]}


@needs_root
@pytest.mark.parametrize("role", [role for role in ROLES if role not in ("reader", "maintainer")])
def test_on_a_disk_without_the_right_to_write(role: str, places: Places, players: Players) -> None:
    prepare(role, places)
    share(places)
    assert denied(players.play(role, {READERS}, places)["error"])


@needs_root
@pytest.mark.parametrize(
    ("role", "store", "folder"), [(r.role, r.store or "primary", f) for r in RIGHTS for f in needed(r)]
)
def test_on_a_disk_each_right_is_needed(role: str, store: str, folder: str, places: Places, players: Players) -> None:
    """Whoever may write all but one of the folders is refused; what a maintainer may not write it leaves, or says so."""
    prepare(role, places)
    share(places)
    told = players.play(role, {READERS, *writers(role, (store, folder))}, places)
    assert denied(told["error"])


@needs_root
def test_on_a_disk_without_the_right_to_read(places: Places, players: Players) -> None:
    share(places)
    assert "error" in players.play("reader", set(), places)


@needs_root
def test_rights_end_at_the_folder(places: Places, players: Players) -> None:
    """A producer is no consumer, and the other way round."""
    share(places)
    assert denied(players.play("consumer", {READERS, *writers("producer")}, places)["error"])
    assert denied(players.play("producer", {READERS, *writers("consumer")}, places)["error"])


# ---- S3: a policy for each row
def policy(
    role: str, places: Places, without: tuple[str, str, str] = ("", "", ""), queue: str = "q", group: str = "g"
) -> dict[str, Any]:
    """What the row of a role says as a policy of S3; without one right: a store, an action and a folder ("" for all)."""
    statements = [{"Effect": "Allow", "Action": "s3:ListBucket", "Resource": f"arn:aws:s3:::{BUCKET}"}]
    for store, place in (("primary", places.primary), ("replica", places.replica)):
        if store == "primary" or role in STORES:
            row, root = of(role, store), place.removeprefix("s3://")
            for action, right in (
                ("s3:GetObject", "reads"),
                ("s3:PutObject", "writes"),
                ("s3:DeleteObject", "deletes"),
            ):
                folders = [
                    f for f in row.of(right, queue, group) if without not in ((store, right, f), (store, right, ""))
                ]
                resources = [f"arn:aws:s3:::{root}/{folder}/*" for folder in folders]
                if (
                    folders and action == "s3:DeleteObject"
                ):  # one request deletes several; moto asks for the bucket then
                    resources.append(f"arn:aws:s3:::{BUCKET}")
                if resources:
                    statements.append({"Effect": "Allow", "Action": action, "Resource": resources})
    return {"Version": "2012-10-17", "Statement": statements}


@dataclass
class Account:
    """An S3 server that checks what each user may do."""

    server: S3Server

    @property
    def _admin(self) -> dict[str, str]:
        keys = {"aws_access_key_id": "admin", "aws_secret_access_key": "admin"}
        return {"endpoint_url": self.server.endpoint, "region_name": "us-east-1", **keys}

    def check(self, wanted: bool) -> None:
        """From now on every request needs a policy, or none does."""
        address, first = f"{self.server.endpoint}/moto-api/reset-auth", b"0" if wanted else b"inf"
        request = urllib.request.Request(address, first, {"Content-Type": "text/plain"})
        urllib.request.urlopen(request).close()

    def user(self, name: str, allowed: dict[str, Any]) -> dict[str, str]:
        """Storage options of a new user with this policy."""
        iam = boto3.client("iam", **self._admin)
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="role", PolicyDocument=json.dumps(allowed))
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return {
            **self.server.options,
            "aws_access_key_id": key["AccessKeyId"],
            "aws_secret_access_key": key["SecretAccessKey"],
        }


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    with running() as server:
        yield Account(server)


@pytest.fixture
def stores(account: Account, made: Path) -> Iterator[Places]:
    prefix = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    found = Places(f"{prefix}/primary", f"{prefix}/replica")
    files = Store(found.primary, account.server.options).files
    for path in made.rglob("*"):
        if path.is_file():
            files.put(path.relative_to(made).as_posix(), path.read_bytes())
    yield found
    account.check(False)


def play(account: Account, role: str, stores: Places, allowed: dict[str, Any]) -> dict[str, Any]:
    admin = account.server.options
    if role == "promoter":
        assert outcome("replicator", Store(stores.primary, admin), Store(stores.replica, admin)) == {"value": 0}
    options = account.user(uuid.uuid4().hex, allowed)
    account.check(True)
    used = [Store(place, options) for place in stores.of(role)]
    return outcome(role, used[0], used[1] if len(used) > 1 else None)


@pytest.mark.parametrize("role", ROLES)
def test_in_an_object_store(account: Account, role: str, stores: Places) -> None:
    assert play(account, role, stores, policy(role, stores)) == {"value": EXPECTED[role]}


@pytest.mark.parametrize(
    "role",
    [pytest.param(role, marks=[] if role == "consumer" else [pytest.mark.long]) for role in ROLES if role != "reader"],
)
def test_in_an_object_store_with_the_rights_of_a_reader(account: Account, role: str, stores: Places) -> None:
    refused = play(account, role, stores, policy("reader", stores))
    assert denied(refused["error"])


def test_in_an_object_store_without_any_right(account: Account, stores: Places) -> None:
    nothing = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Action": "s3:*", "Resource": "*"}]}
    assert denied(play(account, "reader", stores, nothing)["error"])


@pytest.mark.parametrize("role", ["maintainer", "administrator"])
def test_in_an_object_store_without_the_right_to_delete(account: Account, role: str, stores: Places) -> None:
    """Only who removes messages, queues or groups cannot do without."""
    told = play(account, role, stores, policy(role, stores, ("primary", "deletes", "")))["error"]
    assert "[NOT_PERMITTED]" in told


@pytest.mark.parametrize("may_attach", [True, False])
def test_a_group_that_is_new_attaches(account: Account, stores: Places, may_attach: bool) -> None:
    """When its group joins the queue for the first time a consumer writes the queue's control table; later it need not."""
    without = ("", "", "") if may_attach else ("primary", "writes", "queues/q/control")
    told = play(account, "consumer of a group that is new", stores, policy("consumer", stores, without, group="late"))
    assert told == {"value": 25} if may_attach else denied(told["error"])
    account.check(False)
    assert play(account, "consumer", stores, policy("consumer", stores, ("primary", "writes", "queues/q/control"))) == {
        "value": EXPECTED["consumer"]
    }


@pytest.mark.long
@pytest.mark.parametrize(
    ("role", "store", "right", "folder"),
    [
        (r.role, r.store, right, folder)
        for r in RIGHTS
        for right, folders in (("reads", r.of("reads")), ("writes", needed(r)))
        for folder in folders
    ],
)
def test_in_an_object_store_each_right_is_needed(
    account: Account, role: str, store: str, right: str, folder: str, stores: Places
) -> None:
    allowed = policy(role, stores, (store or "primary", right, folder))
    assert denied(play(account, role, stores, allowed)["error"])
