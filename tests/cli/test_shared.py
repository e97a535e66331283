"""`headgate shared`: a store seen from outside, and its removal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headgate import Limiter
from headgate.cli import main
from headgate.engine import NATIVE
from headgate.layout import HEADER_WORDS, MAGIC, PARTICIPANTS, TEXT_AT, WORD
from headgate.stores.shared import SharedStore
from headgate.stores.shared.holders import holders

pytestmark = pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")

BUCKET_BYTES = 30_080
"""1,000 keys make 1,336 slots of 2 words; a header of 512; 64 stripes of 8 words and a journal of 1."""
TAKE_PART = """
import sys
from headgate.stores.shared import SharedStore
store = SharedStore(sys.argv[1])
print("in", flush=True)
sys.stdin.read()
"""


def facts(page: str) -> dict[str, str]:
    """The lines of `stat` by their names."""
    return {line[:14].rstrip(): line[14:] for line in page.splitlines()}


def everything_in(path: str) -> dict[str, tuple[bytes, int, int]]:
    """Content, time of the last change and mode of every file."""
    return {
        file.name: (file.read_bytes(), file.stat().st_mtime_ns, file.stat().st_mode) for file in Path(path).iterdir()
    }


def table_of(path: str) -> Path:
    """The file of the only table."""
    (file,) = Path(path).glob("*.table")
    return file


def test_words_of_the_size():
    """The size that the tests below expect is the one that the layout gives."""
    assert BUCKET_BYTES == 8 * (512 + 64 * (8 + 1) + 1_336 * 2)


def test_ls_shows_a_row_for_each_table(run, path, store):
    """Namespace, what limits have in common, keys and how many fit, fill, evictions and bytes; sorted, in columns."""
    log = Limiter("3/hour by sliding-log as login", store=store, namespace="accounts")
    log.hit("ann")
    assert run("ls", path) == (
        0,
        "namespace  limits                     keys  max_keys  fill  evictions  bytes\n"
        "accounts   sliding-log hour, up to 3     1      1002  0.1%          0  73344\n"
        "default    token-bucket minute          20      1002  1.5%          0  30080\n",
        "",
    )


def test_holders_shows_who_is_in_flight_the_oldest_first(run, path):
    """The page has a line for each permit that is held: its limit, its age, its units and its process."""
    limiter = Limiter("5 in flight per user", store=SharedStore(path))
    limiter.permit("a", 3)
    limiter.permit("b")
    limiter.permit("c").release()
    code, page, _ = run("holders", path)
    head, oldest, newest = (line.split() for line in page.splitlines())
    assert (code, head) == (0, ["namespace", "limit", "age", "units", "key", "process"])
    assert oldest[:6] == ["default", "5", "in", "flight", "as", "user"]
    assert (oldest[8], oldest[-1], newest[8], newest[-1]) == ("3", "0", "1", "0")
    assert [each.units for each in holders(path)] == [3, 1]


@pytest.mark.parametrize(("held", "last"), [(2, None), (3, "and 1 younger permits"), (5, "and 3 younger permits")])
def test_holders_counts_what_a_long_page_leaves_out(run, path, monkeypatch, held, last):
    """A page of two rows, and below it how many permits are younger than these."""
    monkeypatch.setattr("headgate.cli.shared.MOST_ROWS", 2)
    limiter = Limiter("5 in flight", store=SharedStore(path))
    for _ in range(held):
        limiter.permit("a")
    _, *rows = run("holders", path)[1].splitlines()
    assert rows[2:] == ([] if last is None else [last])


def test_holders_says_whose_process_is_gone(run, path):
    """A permit of a process that has ended without a release is marked so, also when another has taken its place."""
    code = "import sys; from headgate import Limiter; Limiter('5 in flight', store=sys.argv[1]).permit('a')"
    subprocess.run([sys.executable, "-c", code, f"shared://{path}"], check=True)
    assert run("holders", path)[1].splitlines()[1].split()[-1] == "gone"
    heir = Limiter("5 in flight", store=SharedStore(path))
    heir.permit("b")
    assert [line.split()[-1] for line in run("holders", path)[1].splitlines()[1:]] == ["gone", "0"]


def test_ls_counts_evictions(run, path):
    """Keys that were forgotten before their reset are shown as the store counts them."""
    store = SharedStore(path, max_keys=6)
    limiter = Limiter("100/minute", store=store)
    for number in range(50):
        limiter.hit(str(number))
    assert store.evictions() == 42
    assert run("ls", path)[1].splitlines()[1].split()[2:] == ["minute", "8", "6", "100.0%", "42", "8832"]


def test_ls_of_an_empty_store(run, path):
    """A store that no limit has used yet has no rows, only their names."""
    SharedStore(path)
    assert run("ls", path) == (0, "namespace  limits  keys  max_keys  fill  evictions  bytes\n", "")


@pytest.mark.parametrize("verb", ["ls", "stat"])
def test_a_url_is_a_path(run, path, store, verb):
    """The URL that the limiter was given is understood, its options and escapes too."""
    assert run(verb, f"shared://{path}?max_keys=1000&mode=0700") == run(verb, path)
    assert run(verb, f"shared://{path.replace('a', '%61')}") == run(verb, path)


def test_a_path_may_be_relative(run, path, store, monkeypatch):
    """A path is read from where the command runs."""
    monkeypatch.chdir(Path(path).parent)
    assert run("ls", "api") == run("ls", path)


def test_stat_shows_the_whole(run, path, store):
    """Path, mode, owner, boot, participants, tables, keys, evictions and the bytes of all files."""
    code, out, err = run("stat", path)
    told = facts(out)
    assert (code, err) == (0, "")
    assert told.pop("owner").endswith(f"uid {os.getuid()})")
    assert told == {
        "path": path,
        "mode": "0700",
        "made": "in this boot",
        "participants": "1",
        "tables": "1",
        "keys": "20",
        "evictions": "0",
        "bytes": str(sum(file.stat().st_size for file in Path(path).iterdir())),
    }


def test_stat_counts_whoever_takes_part(run, path, store):
    """Each process that has the store open is counted, and no longer when it is killed; looking takes no place."""
    command = [sys.executable, "-c", TAKE_PART, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"in\n"
        assert [facts(run("stat", path)[1])["participants"] for _ in range(3)] == ["2", "2", "2"]
        other.kill()
        other.wait()
        assert facts(run("stat", path)[1])["participants"] == "1"


def test_stat_counts_the_last_byte_too(run, path, store):
    """Every byte of the roll is looked at, wherever its holder stands."""
    import fcntl

    with open(f"{path}/roll", "r+b") as roll:
        fcntl.lockf(roll, fcntl.LOCK_EX, 1, PARTICIPANTS - 1)
        code = "import sys; from headgate.cli import main; main(['shared', 'stat', sys.argv[1]])"
        out = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True).stdout
    assert facts(out)["participants"] == "2"


def test_stat_of_an_earlier_boot(run, path, store):
    """A store that outlived a reboot is shown as what it is, and not started anew by looking."""
    meta = Path(path, "meta")
    raw = meta.read_bytes()
    meta.write_bytes(raw[:16] + (int.from_bytes(raw[16:24], "little") ^ 1).to_bytes(8, "little") + raw[24:])
    before = everything_in(path)
    assert facts(run("stat", path)[1])["made"] == "in an earlier boot; the next process to open it empties it"
    assert everything_in(path) == before


def test_looking_changes_nothing(run, path, store):
    """`ls` and `stat` write no byte, make no file and leave no trace."""
    before = everything_in(path)
    run("ls", path)
    run("stat", path)
    assert everything_in(path) == before
    assert os.listdir(os.path.dirname(path)) == ["api"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write what it may only read")
def test_looking_needs_no_right_to_write(run, path, store):
    """A user that may only read the files can list them and see their numbers."""
    for file in Path(path).iterdir():
        file.chmod(0o400)
    os.chmod(path, 0o500)
    shown = run("ls", path), run("stat", path)
    os.chmod(path, 0o700)
    assert [code for code, _, _ in shown] == [0, 0]
    assert facts(shown[1][1])["participants"] == "1"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is cut short: 0 bytes do not hold a header; remove it"),
        (b"x" * 4096, "is not a table of headgate; remove it, or use another directory"),
        (
            MAGIC.to_bytes(8, "little") + (99).to_bytes(8, "little") + bytes(4080),
            "has layout 99, this headgate knows 2; remove it",
        ),
    ],
    ids=["empty", "foreign", "another layout"],
)
def test_what_is_no_table_is_said_in_its_row(run, path, store, content, why):
    """A file with a table's name that is none has a row that says why; the others are shown as always."""
    whole = run("ls", path)[1]
    broken = Path(path, "0123456789abcd.table")
    broken.write_bytes(content)
    assert run("ls", path) == (0, f"{whole}{str(broken)!r} {why}\n", "")
    assert facts(run("stat", path)[1])["tables"] == "1, and 1 other files: see ls"


def test_a_table_that_was_cut_short(run, path, store):
    """A truncated table is told from a whole one by its size; nobody maps it."""
    table = table_of(path)
    copy = Path(path, "0123456789abcd.table")
    copy.write_bytes(table.read_bytes()[:-8])
    assert f"{str(copy)!r} has 30072 bytes where its header says 30080: cut short; remove it\n" in run("ls", path)[1]


def test_files_of_other_kinds(run, path, store):
    """A link, a pipe and a directory in place of a table, somebody's notes and an unfinished file: a row each."""
    os.symlink("/etc/passwd", f"{path}/00000000000001.table")
    os.mkfifo(f"{path}/00000000000002.table")
    os.mkdir(f"{path}/00000000000003.table")
    Path(path, "building-1-00").touch()
    Path(path, "notes").touch()
    code, out, err = run("ls", path)
    assert (code, err) == (0, "")
    assert out.splitlines()[2:] == [
        f"'{path}/00000000000001.table' cannot be opened: it is a symbolic link",
        f"'{path}/00000000000002.table' is not a plain file",
        f"'{path}/building-1-00' is being made, or was left by a process that was killed",
        f"'{path}/00000000000003.table' is not headgate's",
        f"'{path}/notes' is not headgate's",
    ]
    assert run("rm", path)[0] == 1
    os.rmdir(f"{path}/00000000000003.table")
    os.unlink(f"{path}/notes")
    assert run("rm", path)[0] == 0
    assert os.path.exists("/etc/passwd")


def test_a_roll_that_is_none(run, path, store):
    """Without a roll nobody takes part; a link in its place is told, and not followed."""
    roll = Path(path, "roll")
    roll.unlink()
    assert facts(run("stat", path)[1])["participants"] == "0"
    roll.symlink_to("meta")
    assert facts(run("stat", path)[1])["participants"] == "0"
    assert run("ls", path)[1].splitlines()[2:] == [f"'{path}/roll' cannot be opened: it is a symbolic link"]


def test_a_random_header_is_survived(run, path, store):
    """Whatever stands in a table's header, `ls` and `stat` end well."""
    table = table_of(path)
    whole = table.read_bytes()
    for at in range(0, 13 * WORD, WORD):
        for word in (b"\0" * 8, b"\xff" * 8, b"\x7f" * 8):
            table.write_bytes(whole[:at] + word + whole[at + WORD :])
            assert (run("ls", path)[0], run("stat", path)[0]) == (0, 0)


def test_words_cannot_steer_a_terminal(run, path, store):
    """The words of a table are shown without control characters; missing words are empty."""
    table = table_of(path)
    whole = table.read_bytes()
    for words, shown in ((b"\x1b[2Jx\0fam\nily\0limit", "\\x1b[2Jx   fam\\nily"), (b"\xff", "\ufffd"), (b"", "")):
        page = whole[:TEXT_AT] + words.ljust(HEADER_WORDS * WORD - TEXT_AT, b"\0")
        table.write_bytes(page + whole[HEADER_WORDS * WORD :])
        assert run("ls", path)[1].splitlines()[1].startswith(shown)


def test_shared_alone_is_a_usage_error(capsys):
    """`headgate shared` without a verb ends with 2 and names none."""
    with pytest.raises(SystemExit) as ended:
        main(["shared"])
    assert ended.value.code == 2
    assert capsys.readouterr().out == ""


def test_it_works_as_a_command(path, store):
    """`python -m headgate shared ls`, in a pipe, on the pure engine too: it reads files and decides nothing."""
    command = [sys.executable, "-m", "headgate", "shared", "ls", path]
    for pure in ("0", "1"):
        environment = os.environ | {"HEADGATE_PURE": pure}
        ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ended.stdout.splitlines()[1].split() == [
            "default",
            "token-bucket",
            "minute",
            "20",
            "1002",
            "1.5%",
            "0",
            "30080",
        ]
