"""Faults, injected for real, end as the table in ci/README.md says; and the looking sees."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci import cli
from ci import faults as injected
from ci.faults import BEGIN, END, FAULTS, README, Place, Row, committed, named, well, write_table
from ci.project import BookError
from ci.record import Failure, Record
from tests.conftest import ROOT, quiet

ROW = Row("a cell raises", "`1 / 0`", "`a | b`", "page, cell 2, cause", "1", "unharmed", "clean")


@pytest.fixture(scope="module")
def seen() -> dict[str, Row]:
    """Inject them all, once."""
    return {row.fault: row for row in injected.faults(say=quiet)}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_ends_as_the_table_says(seen: dict[str, Row], fault: str) -> None:
    row = seen[fault]
    if row.skipped:
        pytest.skip(row.skipped)
    assert not row.troubles, "\n".join(row.troubles)
    assert row.line == committed()[fault]


def test_the_table_holds_every_fault_once_and_no_other() -> None:
    assert list(committed()) == list(FAULTS)
    assert len(set(FAULTS)) == len(FAULTS)


def test_every_module_has_its_line() -> None:
    text = README.read_text(encoding="utf-8")
    modules = sorted(path.name for path in (ROOT / "ci").glob("*.py") if path.name[0] != "_")
    assert [name for name in modules if f"`{name}`" not in text] == []


def test_writing_changes_the_tried_rows_only(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(f"Before.\n\n{BEGIN}\n{END}\nAfter.\n", encoding="utf-8")
    other = replace(ROW, fault="wrong usage")
    write_table([other, ROW], path)
    assert list(committed(path)) == ["a cell raises", "wrong usage"]
    write_table([replace(ROW, status="7"), replace(other, skipped="no root")], path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("Before.\n") and text.endswith(f"{END}\nAfter.\n")
    assert committed(path)["a cell raises"] == replace(ROW, status="7").line
    assert committed(path)["wrong usage"] == other.line
    assert "a \\| b" in text
    path.write_text("nothing", encoding="utf-8")
    with pytest.raises(BookError, match="faults: begin"):
        write_table([ROW], path)


def test_the_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [ROW, replace(ROW, fault="wrong usage", skipped="it rains")]
    monkeypatch.setattr(injected, "faults", lambda only, say: rows)
    good = CliRunner().invoke(cli.main, ["--root", str(ROOT), "faults"])
    assert good.exit_code == 0 and ROW.line in good.output and "it rains" in good.output
    rows[0] = replace(ROW, troubles=("a process lives on",))
    bad = CliRunner().invoke(cli.main, ["--root", str(ROOT), "faults"])
    assert bad.exit_code == 1 and "a cell raises: a process lives on" in bad.output
    unknown = CliRunner().invoke(cli.main, ["--root", str(ROOT), "faults", "--only", "rain"])
    assert unknown.exit_code == 2 and "segmentation fault" in unknown.output


def test_an_unknown_fault() -> None:
    with pytest.raises(BookError, match="no fault is named rain"):
        injected.faults(["rain"])


def test_litter_is_seen(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write({"one": well("one")})
    assert place.litter() == []
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", place.tag],
                             env={}, start_new_session=True)
    try:
        place.project.records.mkdir(parents=True)
        for name in (".one.json.abcd1234", "one.ipynb.raw", "two.json"):
            (place.project.records / name).write_text("{ cut", encoding="utf-8")
        (place.temporary / "pbr-1-x").mkdir()
        found = "\n".join(place.litter())
    finally:
        place.end()
    assert child.wait() != 0
    assert f"process {child.pid} lives" in found and "pbr-1-x" in found
    assert "half-written file: _build/records/.one.json.abcd1234" in found
    assert "half-written file: _build/records/one.ipynb.raw" in found
    assert "half a file: _build/records/two.json" in found


def test_a_record_that_names_something_else_is_seen() -> None:
    failure = Failure("one", 2, "1 / 0", "ZeroDivisionError: x", "python -m ci run one")
    record = Record("one", "failed", "k", "t", 3.0, 2.0, 100.0, 4, "cpu", "3", "Linux", {},
                    "r", "c", {}, failure=failure)
    assert named(record, "one", 2, "ZeroDivisionError", "1 / 0") == []
    assert named(None, "one", 2, "Z", "1 / 0") == ["one has no record"]
    assert named(replace(record, failure=None), "one", 2, "Z", "1 / 0")
    for change in ({"page": "two"}, {"cell": 1}, {"source": "2"}, {"error": "?"}, {"rerun": "?"}):
        wrong = replace(record, failure=replace(failure, **change))  # type: ignore[arg-type]
        assert len(named(wrong, "one", 2, "Zero", "1 / 0")) == 1, change
