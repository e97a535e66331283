"""Errors of `headgate shared`: paths that are no store, and stores of other users."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from headgate.cli import main
from headgate.engine import NATIVE
from headgate.stores.shared.survey import remove, survey
from tests.support.flight import in_child

pytestmark = pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")


@pytest.mark.parametrize("verb", ["ls", "stat", "rm"])
class TestErrors:
    """What cannot be done is one line on stderr, nothing on stdout, and 1."""

    def test_no_such_directory(self, run, path, verb):
        """A path that leads nowhere; it is not made."""
        assert run(verb, path) == (1, "", f"headgate: cannot open the directory {path!r}: No such file or directory\n")
        assert not os.path.exists(path)

    def test_a_file(self, run, path, verb):
        """A path that leads to a file."""
        Path(path).touch()
        assert run(verb, path) == (1, "", f"headgate: cannot open the directory {path!r}: Not a directory\n")

    def test_a_link(self, run, path, store, verb):
        """A link to a store is not followed."""
        os.symlink(path, f"{path}2")
        assert run(verb, f"{path}2") == (
            1,
            "",
            f"headgate: cannot open the directory {path + '2'!r}: it is a symbolic link\n",
        )
        assert len(os.listdir(path)) == 4

    def test_not_a_store(self, run, path, verb):
        """A directory without a store's mark stays as it is."""
        os.mkdir(path)
        Path(path, "roll").touch()
        why = "it has no file 'meta' of headgate's"
        assert run(verb, path) == (1, "", f"headgate: {path!r} is not a shared store: {why}\n")
        for content in (b"", b"x" * 48):
            Path(path, "meta").write_bytes(content)
            why = "its file 'meta' is not headgate's"
            assert run(verb, path) == (1, "", f"headgate: {path!r} is not a shared store: {why}\n")
        assert sorted(os.listdir(path)) == ["meta", "roll"]

    @pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root is always permitted")
    def test_not_permitted(self, run, path, store, verb):
        """A directory that may not be read."""
        os.chmod(path, 0)
        ended = run(verb, path)
        os.chmod(path, 0o700)
        assert ended == (1, "", f"headgate: cannot open the directory {path!r}: Permission denied\n")

    @pytest.mark.parametrize("arguments", [[], ["a", "b"], ["shared://dev/shm/api"], ["shared://"], ["--all", "a"]])
    def test_usage(self, capsys, verb, arguments):
        """A command that cannot be read ends with 2 and says how it is written."""
        with pytest.raises(SystemExit) as ended:
            main(["shared", verb, *arguments])
        out, err = capsys.readouterr()
        assert (ended.value.code, out) == (2, "")
        assert err.startswith("usage: headgate ")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_somebody_elses_store(path, store):
    """Another user sees nothing of a store with mode 0700, and cannot remove one that may be read."""
    os.chmod(path, 0o755)
    for file in Path(path).iterdir():
        file.chmod(0o644)
    os.chmod(os.path.dirname(path), 0o777)
    assert as_nobody(survey, path) == "20 keys"
    assert as_nobody(remove, path) == f"cannot remove {path!r}: Permission denied"
    os.chmod(path, 0o700)
    assert as_nobody(survey, path) == f"cannot open the directory {path!r}: Permission denied"
    assert len(os.listdir(path)) == 4


def as_nobody(look, path: str) -> str:
    """What another user is told, by a child that becomes one; it may not search where pytest keeps its files."""

    def looked() -> str:
        os.chdir(os.path.dirname(path))
        os.setuid(65534)
        try:
            return f"{look('api').tables[0].keys} keys"
        except BaseException as error:
            return str(error).replace("'api'", repr(path))

    return str(ast.literal_eval(in_child(looked)))
