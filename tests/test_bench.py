"""What measures must measure: on tiny books, once."""

from __future__ import annotations

import pytest

from ci.bench import bench, exponent
from ci.project import Project
from tests.conftest import CONFIG, Make, cell, ci, page


def test_the_exponent_is_the_slope() -> None:
    assert exponent([10, 100, 1000], [1.0, 10.0, 100.0]) == pytest.approx(1)
    assert exponent([10, 100, 1000], [1.0, 100.0, 10000.0]) == pytest.approx(2)
    assert exponent([10], [1.0]) != exponent([10], [1.0])  # not a number


def test_a_bench_of_a_tiny_book(tiny: Make) -> None:
    """All numbers are there, the checkout is untouched, and the parts make up the whole."""
    text = page("# One", "## Short answer\n\nYes.", cell("import time\n\ntime.sleep(1)"))
    project: Project = tiny({"one": text, "two": text}, config=CONFIG)
    toc = (project.root / "_toc.yml").read_text()
    lines: list[str] = []
    bench(project, 1, [3, 6], 2, False, lines.append)
    told = {line[:34].strip(): line[34:].split() for line in lines if line[:1].strip()}
    assert lines[0].startswith("4 pages, 1 rounds in turns")  # each page twice
    limit, warm = float(told["limit (cells / cores)"][0]), float(told["warm"][0])
    assert limit >= 2 and warm >= limit
    parts = sum(float(told[name][0]) for name in (
        "imports of the parent, all wait", "pages outside cells, / cores",
        "one core idle at the end, rest"))
    assert warm == pytest.approx(limit + parts, abs=0.5)
    assert {"warm / limit", "warm / cold"} <= told.keys() and "warm / papermill" not in told
    for name in ("nothing", "prose", "code"):
        assert float(told[name][0]) > 0
    growth = [line.split() for line in lines if line.startswith(("pair ", "site, from nothing "))]
    assert len(growth) == 2 and all(float(n) > 0 for row in growth for n in row[-3:-1])
    assert (project.root / "_toc.yml").read_text() == toc
    assert not project.build.exists()


def test_wrong_usage(tiny: Make) -> None:
    done = ci(tiny({"one": page("# One", cell("1"))}), "bench", "--sizes", "many")
    assert done.returncode == 2 and "'many' is not a list of numbers, as in 30,100" in done.stderr
