"""Arguments of the command ``spark-partq``."""

from __future__ import annotations

from spark_partq.core.errors import (
    GroupNotFoundError,
    InvalidArgumentError,
    NewerStoreError,
    NotAStoreError,
    QueueAlreadyExistsError,
    QueueNotFoundError,
    QueueNotReadyError,
    ReplicaError,
)
from tests.refused import damage, others
from tests.refused.case import Case, command

# fmt: off
CASES: dict[str, list[Case]] = {
    "Commands": [
        command("nonsense", None, "No such command 'nonsense'."),
        command("create-queue new", None, "Missing option '--schema'."),
        command("create-queue new --schema 'v long' --partitions many", None, "Invalid value for '--partitions': Input should be a valid integer, unable to parse string as an integer"),
        command("list --no-such-option", None, "No such option: --no-such-option"),
        command("--storage-option novalue list", None, "Invalid value: an argument is not of the form name=value"),
        command("--storage-option @nowhere.txt list", None, "Invalid value: file nowhere.txt cannot be read: No such file or directory"),
        command("create-queue new --schema 'v wrong'", InvalidArgumentError, "schema 'v wrong' is not Spark DDL such as 'order_id string, amount decimal(10,2)': Expecting ). Line 2, Col: 7."),
        command("create-queue new --schema 'v long' --key nope", InvalidArgumentError, "key column 'nope' is not in the schema; its columns are ['v']"),
        command("create-queue new --schema 'v long' --partitions 5000", InvalidArgumentError, "partitions=5000: a queue has 1 to 4096 partitions, or 0 for an exclusive queue"),
        command("create-queue new --schema 'v long' --retention-ms soon", InvalidArgumentError, "'soon' is no duration; give milliseconds, or a number with ms, s, m, h or d"),
        command("create-queue new --schema 'v long' --settings FOLDER/wrong.toml", InvalidArgumentError, "'7 weeks' is no duration; give milliseconds, or a number with ms, s, m, h or d", others.a_settings_file),
        command("create-queue new --schema 'v long' --settings FOLDER/nowhere.toml", InvalidArgumentError, "--settings FOLDER/nowhere.toml: [Errno 2] No such file or directory: 'FOLDER/nowhere.toml'"),
        command("create-queue q --schema 'v long'", QueueAlreadyExistsError, "queue 'q' already exists in STORE (status Ready, 2 partitions); choose another name, or delete it first"),
        command("alter-queue q", None, "Invalid value: nothing to change: give --set NAME=VALUE, --reset NAME or --add-column 'NAME TYPE'"),
        command("alter-queue q --set retention_ms", None, "Invalid value: --set 'retention_ms' is not of the form name=value"),
        command("alter-queue q --set retention_ms=soon", InvalidArgumentError, "queue settings: retention_ms: Input should be a valid integer. Known settings:"),
        command("tail q --key nope=1", InvalidArgumentError, "'nope' is no column of the key of queue 'q'; its key:"),
        command("describe-queue nowhere", QueueNotFoundError, "there is no queue 'nowhere' in STORE; its queues: other, q"),
        command("describe-group nowhere", GroupNotFoundError, "there is no group 'nowhere' in STORE; its groups: g"),
        command("describe-queue q", QueueNotReadyError, "queue 'q' in STORE is Deleting: that was interrupted or is under way; wait for it, or delete it again to finish it", others.half_deleted),
        command("history g --partition 9", InvalidArgumentError, "group 'g' never had a partition 9; its queues: q"),
        command("scale q 3 --timeout soon", InvalidArgumentError, "'soon' is no duration; give milliseconds, or a number with ms, s, m, h or d"),
        command("scale q 3 --confirm-lost 1", None, "Invalid value: --confirm-lost is for --mode delete; live loses nothing"),
        command("scale q 1 --mode delete", InvalidArgumentError, "mode delete would lose 6 messages of queue 'q' that not every group has acknowledged, and nothing was confirmed;"),
        command("scale q many", None, "Invalid value for 'N': Input should be a valid integer, unable to parse string as an integer"),
        command("ingress disable nowhere", QueueNotFoundError, "there is no queue 'nowhere' in STORE; its queues: other, q"),
        command("delete-queue nowhere --yes", QueueNotFoundError, "there is no queue 'nowhere' in STORE; its queues: other, q"),
        command("doctor --group nowhere", GroupNotFoundError, "there is no group 'nowhere' in STORE; its groups: g"),
        command("reset-offsets g --to first --yes", InvalidArgumentError, "to='first' is none of earliest, latest, time:2026-11-01T00:00:00Z, by:P1D (one day back), {queue: {partition: offset}}"),
        command("reset-offsets g --to by:1D --yes", InvalidArgumentError, "to=by:1D: that is no duration of ISO 8601 such as P1D, PT12H or PT90S"),
        command("reset-offsets g --to time:yesterday --yes", InvalidArgumentError, "to=time:yesterday: that is no time of ISO 8601 such as 2026-11-01T00:00:00Z"),
        command("reset-offsets g --to earliest --queue other --yes", InvalidArgumentError, "group 'g' does not read queue 'other'; it reads q"),
        command("reset-offsets g --to earliest", InvalidArgumentError, "the positions of group 'g' were not set: not confirmed (--yes does not ask, --dry-run says what would be set)"),
        command("reset-offsets g", None, "Missing option '--to'."),
        command("reset-offsets nowhere --to earliest --yes", GroupNotFoundError, "there is no group 'nowhere' in STORE; its groups: g"),
        command("delete-group g", InvalidArgumentError, "group 'g' was not deleted: not confirmed (--yes does not ask)"),
        command("explain q 9 --group g", InvalidArgumentError, "group 'g' has no partition 9 of queue 'q'; it has 0 to 1"),
        command("explain other 0 --group g", InvalidArgumentError, "group 'g' does not read queue 'other'; it reads q"),
        command("check nowhere", GroupNotFoundError, "there is no group 'nowhere' in STORE; its groups: g"),
        command("check g --within soon", InvalidArgumentError, "'soon' is no duration; give milliseconds, or a number with ms, s, m, h or d"),
        command("metrics --port 70000", None, "Invalid value for '--port': Input should be less than or equal to 65535"),
        command("metrics --host no.such.host.invalid", InvalidArgumentError, "nobody can listen on no.such.host.invalid, port 9464"),
        command("console --port 70000", None, "Invalid value for '--port': Input should be less than or equal to 65535"),
        command("console --every 0", None, "Invalid value for '--every': Input should be greater than or equal to 0.05"),
        command("console --host no.such.host.invalid", InvalidArgumentError, "nobody can listen on no.such.host.invalid, port 8765"),
        command("replicate q", None, "Missing option '--to'."),
        command("replicate q --to THERE --every 0", None, "Invalid value for '--every': Input should be greater than or equal to 0.05"),
        command("replicate q --to THERE --watch --remove", None, "Invalid value: --watch follows the queue, and --remove ends that"),
        command("promote q", ReplicaError, "queue 'q' in STORE is no replica, so it cannot be promoted"),
        command("maintain q", NewerStoreError, "the control table of queue 'q' in STORE needs reader version 2, and this program (spark_partq 0.1.0) has 1:", damage.a_newer_queue),
        command("--store FOLDER/nowhere list", NotAStoreError, "FOLDER/nowhere is not a store: it holds nothing. Check the path, or create a queue there first"),
    ],
}
# fmt: on
