"""Notebook to executed notebook and record: the ends a page can come to."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest

from ci import record as records
from ci import run as runs
from ci.pair import pair
from ci.project import PARTIAL, BookError, Project
from ci.record import Machine, doubts, is_current, page_key, read_record
from ci.run import Limits, Report, report_lines, run
from tests.conftest import ROOT, Make, cell, ci, make_tiny, page, parsed, quiet

GOOD = page("# Good", cell("print('hello')"), "Then.", cell("assert 1 + 1 == 2"))


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Run one page for each way to fail, two at a time, beside one that is well."""
    first = cell("before = 1")
    pages = {
        "good": GOOD,
        "raises": page("# R", first, "x", cell("def f():\n    return 1 / 0\n\n\nf()"), "x",
                       cell("print('never')")),
        "slow-cell": page("# S", first, "x", cell("import time\n\ntime.sleep(60)")),
        "slow-page": page("# S", *[p for n in range(9) for p in
                                   (f"x{n}", cell(f"import time\n\ntime.sleep(2)  # {n}"))]),
        "hog": page("# H", first, "x",
                    cell("import time\n\nhog = bytearray(700 * 2**20)\ntime.sleep(30)")),
        "exits": page("# E", first, "x", cell("import sys\n\nsys.exit(0)"), "x",
                      cell("print('never')")),
        "dies": page("# D", first, "x", cell("import os\n\nos._exit(1)"), "x", cell("1")),
        "asks": page("# A", first, "x", cell("input('name?')")),
        "litters": page("# L", cell(
            "import pathlib\nimport subprocess\nimport sys\n\n"
            "code = 'import time, os; os.setsid(); time.sleep(600)'\n"
            "child = subprocess.Popen([sys.executable, '-c', code])\n"
            "print('child', child.pid)\n"
            "assert list(pathlib.Path.cwd().iterdir()) == []\n"
            "pathlib.Path('made').write_text('x')")),
    }
    project = make_tiny(tmp_path_factory.mktemp("faults"), pages)
    run(project, jobs=2, limits=Limits(5, 14, 500), say=quiet)
    return project


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project whose one page has been run."""
    project = make_tiny(tmp_path_factory.mktemp("ran"), {"one": GOOD})
    run(project, say=quiet)
    return project


def failure(project: Project, slug: str) -> records.Failure:
    record = read_record(project, slug)
    assert record is not None and record.status == "failed"
    assert record.failure is not None
    assert not project.executed_notebook(slug).exists()
    assert record.failure.rerun == f"python -m ci run {slug}"
    return record.failure


def test_a_good_page_gets_outputs_and_a_whole_record(faults: Project) -> None:
    record = read_record(faults, "good")
    assert record is not None and record.ok and record.failure is None
    assert record.cells == 2
    assert 0 < record.cell_seconds <= record.seconds
    assert record.peak_mib > 20
    assert record.versions["ipykernel"]
    assert record.device and record.requirements and record.started.endswith("+00:00")
    notebook = nbformat.read(faults.executed_notebook("good"), as_version=4)
    assert notebook.cells[1].outputs[0].text == "hello\n"
    assert "papermill" not in notebook.metadata
    assert all("papermill" not in c.metadata and "execution" not in c.metadata
               for c in notebook.cells)


def test_a_line_that_comes_in_pieces_is_one_line(tiny: Make) -> None:
    pieces = ("import sys\nimport time\n\nprint('a ', end='', flush=True)\ntime.sleep(0.5)\n"
              "print('b', flush=True)\nprint('oh', file=sys.stderr, flush=True)\n"
              "time.sleep(0.5)\nprint('c')")
    project = tiny({"one": page("# One", cell(pieces))})
    assert not run(project, say=quiet).failed
    executed = nbformat.read(project.executed_notebook("one"), as_version=4)
    assert [(one.name, one.text) for one in executed.cells[1].outputs] == [
        ("stdout", "a b\nc\n"), ("stderr", "oh\n")]


def test_a_cell_that_raises(faults: Project) -> None:
    found = failure(faults, "raises")
    assert found.cell == 2
    assert found.error == "ZeroDivisionError: division by zero"
    assert "return 1 / 0" in found.source
    partial = nbformat.read(faults.failed / "raises.ipynb", as_version=4)
    assert partial.cells[1].execution_count == 1


def test_a_cell_over_its_time(faults: Project) -> None:
    found = failure(faults, "slow-cell")
    assert found.cell == 2 and "CellTimeoutError" in found.error


def test_a_page_over_its_time(faults: Project) -> None:
    found = failure(faults, "slow-page")
    assert found.error == "more than 14 s for the page"
    assert 1 <= found.cell <= 8 and "time.sleep(2)" in found.source


def test_a_page_over_its_memory(faults: Project) -> None:
    found = failure(faults, "hog")
    assert found.cell == 2 and found.error == "more than 500 MiB of memory"


def test_sys_exit_does_not_pass(faults: Project) -> None:
    found = failure(faults, "exits")
    assert found.cell == 2
    assert found.error == "the cell ends the page (sys.exit, exit or quit)"


def test_exit_does_not_pass(tiny: Make) -> None:
    project = tiny({"one": page("# One", cell("exit()"))})
    run(project, say=quiet)
    assert failure(project, "one").error == "the cell ends the page (sys.exit, exit or quit)"


def test_a_kernel_that_dies(faults: Project) -> None:
    found = failure(faults, "dies")
    assert found.cell == 2 and found.error == "the kernel ended with status 1"


def test_input_fails_at_once(faults: Project) -> None:
    found = failure(faults, "asks")
    assert found.cell == 2 and "StdinNotImplemented" in found.error


def test_a_page_starts_in_an_empty_folder_and_leaves_no_process(faults: Project) -> None:
    record = read_record(faults, "litters")
    assert record is not None and record.ok, record
    output = nbformat.read(faults.executed_notebook("litters"), as_version=4).cells[1].outputs[0]
    child = int(output.text.split()[1])
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie"
    assert not (faults.root / "made").exists()


def test_the_report_and_the_exit_status(faults: Project) -> None:
    done = ci(faults, "run", "raises")
    assert done.returncode == 1
    assert "FAILED raises, code cell 2: ZeroDivisionError: division by zero" in done.stdout
    assert "return 1 / 0" in done.stdout
    assert "run it again alone: python -m ci run raises" in done.stdout
    assert "1 pages: 0 ok, 1 failed" in done.stdout


def test_the_site_refuses_a_failed_page(faults: Project) -> None:
    done = ci(faults, "site")
    assert done.returncode == 1
    assert "raises.md: failed in its last run, in code cell 2" in done.stderr
    assert "python -m ci run raises" in done.stderr
    assert not faults.html.exists()


def test_unknown_page_and_wrong_usage(faults: Project) -> None:
    done = ci(faults, "run", "nowhere")
    assert done.returncode == 1 and "nowhere.md: not a page with code" in done.stderr
    assert ci(faults, "run", "--jobs", "0").returncode == 2
    assert ci(faults, "dance").returncode == 2


def test_only_what_changed_runs(tiny: Make) -> None:
    """Prose may change; code, options, requirements and device may not without a run."""
    project = tiny({"one": GOOD, "two": GOOD})
    assert set(run(project, say=quiet).executed) == {"one", "two"}
    assert run(project, say=quiet).executed == ()
    project.text("one").write_text(GOOD.replace("Then.", "Then, at last."))
    pair(project)
    assert run(project, say=quiet).executed == ()
    project.text("one").write_text(GOOD.replace("hello", "good bye"))
    pair(project)
    assert run(project, say=quiet).executed == ("one",)
    text = nbformat.read(project.executed_notebook("one"), as_version=4).cells[1].outputs[0].text
    assert text == "good bye\n"


def test_the_key_covers_what_outputs_depend_on() -> None:
    here = Machine("cpu", "abc", "3.11.1", "Linux")
    key = page_key(parsed(GOOD), here)
    assert page_key(parsed(GOOD.replace("Then.", "Now.")), here) == key
    assert page_key(parsed(GOOD.replace("hello", "hullo")), here) != key
    tagged = GOOD.replace("print(", ":tags: [hide-cell]\n\nprint(")
    assert page_key(parsed(tagged), here) != key
    assert page_key(parsed(GOOD.replace("name: python3", "name: other")), here) != key
    for other in (Machine("gpu", "abc", "3.11.1", "Linux"),
                  Machine("cpu", "abd", "3.11.1", "Linux"),
                  Machine("cpu", "abc", "3.12.1", "Linux")):
        assert page_key(parsed(GOOD), other) != key


def test_a_changed_or_foreign_output_is_not_current(tiny: Make) -> None:
    project = tiny({"one": GOOD})
    run(project, say=quiet)
    machine = Machine.here(project)
    page_now = parsed(GOOD)
    assert is_current(project, page_now, machine)
    path = project.executed_notebook("one")
    whole = path.read_text()
    path.write_text(whole.replace("hello", "forged"))
    assert not is_current(project, page_now, machine)
    path.write_text(whole)
    data = json.loads(project.record("one").read_text())
    project.record("one").write_text(json.dumps({**data, "format": 0}))
    assert not is_current(project, page_now, machine)
    for broken in ("{ cut", "3", '"abc"', "[" * 9999, "[]", '{"page": "one"}'):
        project.record("one").write_text(broken)
        assert not is_current(project, page_now, machine)


def test_longest_first_by_the_last_record(tiny: Make) -> None:
    short = page("# S", cell("1"))
    long = page("# L", cell("import time\n\ntime.sleep(3)"))
    project = tiny({"short": short, "long": long})
    run(project, jobs=1, say=quiet)
    lines: list[str] = []
    run(project, jobs=1, force=True, say=lines.append)
    assert [line.split()[0] for line in lines] == ["long", "short"]
    assert " s " in lines[0] and "MiB" in lines[0]


def test_a_stale_notebook_is_refused(tiny: Make) -> None:
    project = tiny({"one": GOOD})
    project.text("one").write_text(GOOD.replace("hello", "other"))
    with pytest.raises(BookError, match="not in step with its text"):
        run(project, say=quiet)
    project.notebook("one").write_text("{ cut")
    with pytest.raises(BookError, match="not a notebook"):
        run(project, say=quiet)


def test_a_page_cannot_import_this_package(tiny: Make) -> None:
    text = page("# One", cell("try:\n    import ci.project\n    print('found')\n"
                              "except ImportError:\n    print('alone')"))
    project = tiny({"one": text})
    run(project, say=quiet)
    notebook = nbformat.read(project.executed_notebook("one"), as_version=4)
    assert notebook.cells[1].outputs[0].text == "alone\n"


def started_for_a_page(process: psutil.Process) -> bool:
    try:
        return "JUPYTER_RUNTIME_DIR" in process.environ()
    except psutil.Error:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(tiny: Make, number: signal.Signals) -> None:
    project = tiny({"one": page("# One", cell("import time\n\ntime.sleep(300)"))})
    process = subprocess.Popen(
        [sys.executable, "-m", "ci", "--root", str(project.root), "run"], cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    kernels: list[psutil.Process] = []
    deadline = time.monotonic() + 300
    while not kernels and time.monotonic() < deadline:
        time.sleep(0.1)
        kernels = [p for p in psutil.Process(process.pid).children(recursive=True)
                   if started_for_a_page(p)]
    assert kernels
    process.send_signal(number)
    process.communicate(timeout=300)
    assert process.returncode != 0
    assert not project.record("one").exists()
    assert not project.executed_notebook("one").exists()
    assert not [p for p in psutil.process_iter() if p in kernels and p.is_running()
                and p.status() != "zombie"]
    assert not list(Path("/tmp").glob(f"pbr-{process.pid}-*"))
    assert not list(project.build.rglob(".*.json.*"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_drops_ends_the_run_all_the_same(
        tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception from a signal that falls into a destructor is printed and forgotten."""
    project = tiny({"one": page("# One", cell("import time\n\ntime.sleep(300)"))})
    wait, asked = runs._Run._wait, []

    class Last:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def wait_and_drop(self: runs._Run) -> None:
        if not asked:
            asked.append(True)
            Last()
        wait(self)

    monkeypatch.setattr(runs._Run, "_wait", wait_and_drop)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run(project, say=quiet)
    assert not project.record("one").exists()
    assert signal.getsignal(signal.SIGINT) is before


def test_the_report_names_verdicts() -> None:
    claims = {"holds": 2, "wrong": 1}
    record = records.Record("one", "ok", "k", "t", 3.0, 2.0, 100.0, 4, "cpu", "3", "Linux", {},
                            "r", "c", claims)
    text = "\n".join(report_lines(Report((record,), ("one",), 3.0)))
    assert "2 holds, 1 wrong" in text and "1 ok, 0 failed; 1 executed" in text




def test_a_run_removes_what_a_killed_one_left_half_written(ran: Project) -> None:
    for folder in (ran.records, ran.executed, ran.build):
        (folder / f".one.json.abc{PARTIAL}").write_text("{ cut")
    run(ran, say=quiet)
    assert not list(ran.build.rglob(f"*{PARTIAL}"))


@pytest.mark.parametrize(("changes", "why"), [
    ({}, ""),
    ({"commit": ""}, "does not say its commit"),
    ({"device": "", "python": ""}, "does not say its python, device"),
    ({"device": "another"}, "has changed since"),  # the key speaks of the device that made it
    ({"requirements": "0" * 64}, "with other versions"),
    ({"cells": 1}, "1 cells that ran, and 2 code cells"),
    ({"cells": 0}, "0 cells that ran, and 2 code cells"),
    ({"key": "0" * 64}, "has changed since"),
    ({"notebook": "0" * 64}, "its record does not know"),
    ({"status": "failed"}, "failed in its last run"),
    ({"format": 1}, "has not been run"),
])
def test_what_a_record_must_say_before_its_outputs_are_shown(
        ran: Project, changes: dict[str, Any], why: str) -> None:
    path = ran.record("one")
    whole = path.read_text(encoding="utf-8")
    try:
        path.write_text(json.dumps({**json.loads(whole), **changes}), encoding="utf-8")
        said = doubts(ran, parsed(GOOD), read_record(ran, "one"))
        assert why in said if why else said == ""
    finally:
        path.write_text(whole, encoding="utf-8")


def test_outputs_of_another_device_are_shown_but_do_not_count_as_this_machines(
        ran: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "detect_device", lambda: "Some GPU")
    assert doubts(ran, parsed(GOOD), read_record(ran, "one")) == ""
    assert not is_current(ran, parsed(GOOD), Machine.here(ran))
    ran.executed_notebook("one").rename(ran.executed_notebook("away"))
    assert "has lost its executed notebook" in doubts(ran, parsed(GOOD), read_record(ran, "one"))
    ran.executed_notebook("away").rename(ran.executed_notebook("one"))
    assert "has changed" in doubts(ran, parsed(GOOD.replace("hello", "bye")),
                                   read_record(ran, "one"))
