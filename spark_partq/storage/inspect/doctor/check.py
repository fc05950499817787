"""What the checks of queues and of groups have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from spark_partq.core.errors import NewerStoreError, PartqError, StoreUnavailableError
from spark_partq.core.stored import MALFORMED
from spark_partq.storage.files import FileMissing, is_temporary
from spark_partq.storage.inspect.doctor.findings import FAULT, WARNING, Diagnosis, Finding
from spark_partq.storage.log import DeltaLog
from spark_partq.storage.store import Store

LOOK_AGAIN = "look again when it can be read; nothing says that it is damaged"
RESTORE = "restore {0} from a backup, while no program uses the store"
# The remedy for a group whose facts or acknowledgements were read and are damaged. For a group that may be whole, deletion is not suggested.
RESTORE_GROUP = (
    "restore its folder from a backup, while no program uses the store. Or start its queries with new checkpoints, as a group of another name, from the startingOffsets at which "
    "they are to go on, and only then delete this group (spark-partq delete-group): until then it keeps its messages from being removed"
)
NEXT_SYNC = (
    "it is a replica, and a pass has not ended: unless one is under way just now, replicate it again, or promote it"
)

# The names of files of a first commit begin with this.
_FIRST = f"{0:020d}-"


class Check:
    """Collects the findings about one thing of the store."""

    def __init__(self, store: Store, about: str, found: Diagnosis) -> None:
        self.store, self.about, self.found = store, about, found

    def fault(self, what: str, remedy: str) -> None:
        self.found.findings.append(Finding(FAULT, self.about, what, remedy))

    def warn(self, what: str, remedy: str) -> None:
        self.found.findings.append(Finding(WARNING, self.about, what, remedy))

    def readable(self, read: Callable[[], object], remedy: str) -> bool:
        """Whether `read` succeeds. If not, the reason is a fault."""
        try:
            read()
        except (PartqError, *MALFORMED) as error:
            self.unreadable(error, remedy)
            return False
        return True

    def guarded(self, check: Callable[[], None], remedy: str) -> None:
        """Run a check. An error of the check is a fault, and the next thing is checked."""
        try:
            check()
        except (PartqError, FileMissing, *MALFORMED) as error:
            self.unreadable(error, remedy)

    def unreadable(self, error: BaseException, remedy: str, what: str = "") -> None:
        """Report something that cannot be read. If it cannot be reached, or not by this process or this release, it may be whole."""
        if isinstance(error, NewerStoreError):
            self.fault(str(error), f"check it with {error.params['upgrade']} or newer")
            return
        away = isinstance(error, StoreUnavailableError)
        text = text_of(error)
        if what:
            text = f"{what} ({text})"
        elif away:
            text = f"could not be looked at: {text}"
        self.fault(text, LOOK_AGAIN if away else remedy)

    def holds(self, names: Sequence[str], is_part: Callable[[str], object], folder: str) -> bool:
        """Whether some of these folders belong to the store. If none does, another program may have made them, which is a warning."""
        if any(is_part(name) for name in names):
            return True
        more = ", …" if len(names) > 3 else ""
        self.warn(
            f"it has nothing but folders that are not the store's: {', '.join(names[:3])}{more}",
            f"if a queue or group was there, restore {folder} from a backup; if not, leave the folder to its owner: it does no harm",
        )
        return False

    def check_files(self, log: DeltaLog, remedy: str) -> bool:
        """Whether every file that the log names exists, and has the size that the log says."""
        live = log.snapshot.files
        there = self.files(log.folder)  # listed after the log was read, so the files that it names exist by then
        wrong = []
        for name, add in live.items():
            if name not in there:
                wrong.append(f"{name} is missing")
            elif there[name] != add.size:
                wrong.append(f"{name} has {there[name]} bytes instead of {add.size}: it was replaced")
        if wrong:
            more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
            self.fault(
                f"of {len(live)} files, {'; '.join(sorted(wrong)[:3])}{more}",
                f"put only these files back, from a backup; if the backup does not have them, {remedy}",
            )
        return not wrong

    def has_only_first_files(self, folder: str) -> bool:
        """Whether a table without a log has no file of a later commit than the first: a process that made it may have ended before that commit."""
        return all(name.startswith(_FIRST) or is_temporary(name) for name in self.files(folder))

    def files(self, folder: str) -> dict[str, int]:
        return {info.name: info.size for info in self.store.files.list_files(folder)}


def text_of(error: BaseException) -> str:
    """The text of an error in one line, without its class."""
    text = " ".join(str(error).split())
    return re.sub(r"^\[[A-Z_]+\] ", "", text) or type(error).__name__
