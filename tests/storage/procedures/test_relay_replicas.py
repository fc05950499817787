"""A queue that has positions of a group, and whose replica takes over without it: what the pass left is gone on with (S7, H4)."""

from __future__ import annotations

from pathlib import Path

import pytest

import spark_partq as partq
from spark_partq.core.queue.manifest import Manifest, ManifestName
from spark_partq.storage.procedures import scale
from spark_partq.storage.procedures.replicate import replicate
from spark_partq.storage.queue.manifests import Manifests
from spark_partq.storage.replica import manifest_copy
from spark_partq.storage.replica.manifest_copy import ManifestCopy
from spark_partq.storage.store import Store
from tests.helpers import opened
from tests.relays import Relay, arrived, manifests, take_over
from tests.scaled import Crash, make
from tests.storage.procedures.test_positions_queue import half_of_a_batch


@pytest.fixture(name="there")
def there_fixture(tmp_path: Path) -> str:
    """The path of the replica's store, which does not exist yet."""
    return str(tmp_path / "there")


@pytest.mark.parametrize("gone_on", [True, False])
def test_a_pass_that_puts_a_manifest_late(
    store: str, there: str, monkeypatch: pytest.MonkeyPatch, gone_on: bool
) -> None:
    """It sleeps until the replica has taken over, and perhaps consumers have gone on there: the manifest of the lost primary counts nothing."""
    make(store, 2)
    relay = Relay(store)
    relay.deliver({0: (0, 5)})
    replicate(Store(store), "q", there)
    relay.deliver({0: (5, 10)})
    relay.deliver({0: (10, 15)})
    put_same = manifest_copy.put_same

    def late(*args: object) -> None:
        take_over(store, there)
        if gone_on:
            Relay(there).deliver({0: (0, 8)})
        put_same(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(manifest_copy, "put_same", late)
    ManifestCopy(Store(store), Store(there), "q", relay.queue.state.queue_id).copy()
    assert len(manifests(there).names()) == (2 if gone_on else 3)
    assert Relay(there).deliver({0: (0, 20)})
    assert arrived(there) == list(range(20)) and len(manifests(there).names()) == 1


@pytest.mark.parametrize("discards", [False, True])
def test_a_batch_whose_map_is_lost(store: str, there: str, monkeypatch: pytest.MonkeyPatch, discards: bool) -> None:
    """The count changes, and a batch begins, after the pass has read the control table, and then the pass dies: its rows are placed by the map that is there."""
    make(store, 2, reject_to_sender="off")
    Relay(store).deliver({0: (0, 5)})
    replicate(Store(store), "q", there)
    copy = ManifestCopy.copy

    def late(manifests: ManifestCopy) -> None:
        monkeypatch.setattr(ManifestCopy, "copy", copy)
        scale.scale(opened(store), 5)
        if discards:
            partq.set_ingress(store, "q", False)
            Relay(store).deliver({0: (0, 10)})
        else:
            half_of_a_batch(store)
        copy(manifests)
        raise Crash

    monkeypatch.setattr(ManifestCopy, "copy", late)
    monkeypatch.setattr(scale, "update_replicas", lambda *_: None)  # who scales cannot reach it
    with pytest.raises(Crash):
        replicate(Store(store), "q", there)
    take_over(store, there)
    assert opened(there).state.generation == 0
    assert Relay(there).deliver({0: (0, 12)})
    assert arrived(there) == [*range(5), *range(10 if discards else 5, 12)]
    assert partq.describe_queue(there, "q").discarded == (5 if discards else 0)


def test_a_sink_that_goes_on_while_its_manifest_is_copied(
    store: str, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy has a later one then: without any nobody could write there."""
    make(store, 2)
    relay, read = Relay(store), Manifests.read
    relay.deliver({0: (0, 5)})
    replicate(Store(store), "q", there)
    relay.deliver({0: (5, 10)})
    last = [10]

    def late(manifests: Manifests, name: ManifestName) -> Manifest:
        if last[0] < 20 and manifests.store.uri == store:
            monkeypatch.setattr(Manifests, "read", read)
            relay.deliver({0: (last[0], last[0] + 5)})
            monkeypatch.setattr(Manifests, "read", late)
            last[0] += 5
        return read(manifests, name)

    monkeypatch.setattr(Manifests, "read", late)
    replicate(Store(store), "q", there)
    assert last == [20] and [name.batch_id for name in manifests(there).names()] == [3]
    replicate(Store(store), "q", there)
    take_over(store, there)
    assert Relay(there).deliver({0: (0, 30)})
    assert arrived(there) == list(range(30))
