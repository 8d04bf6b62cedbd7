"""The verbs as a person meets them; new pages; the lock."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from ci.cli import EXAMPLES, main
from ci.lock import clean
from ci.new import new
from ci.pages import read_page
from ci.project import BookError, Project
from tests.conftest import ROOT, Make, cell, ci, page, whole_page


def test_help_shows_each_verb_with_an_example() -> None:
    done = subprocess.run([sys.executable, "-m", "ci", "--help"], cwd=ROOT, capture_output=True,
                          text=True, check=True)
    assert set(EXAMPLES) == set(main.commands)
    for verb, example in EXAMPLES.items():
        assert re.search(rf"^  {verb} ", done.stdout, re.M)
        assert example in done.stdout
        assert example.startswith(f"python -m ci {verb}")


def test_make_help_and_one_line_per_verb() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True,
                           check=True).stdout
    for verb in EXAMPLES:
        assert re.search(rf"^{verb}: \$\(READY\) ## .+\n\t\$\(PY\) -m ci {verb}\b.*\n(\n|$)", text,
                         re.M), verb
        assert f"make {verb}" in shown


def test_outside_a_checkout_it_says_so() -> None:
    done = subprocess.run([sys.executable, "-P", "-c",
                           f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
                           "from ci.cli import main; main(['check'])"],
                          cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: /: no _config.yml and _toc.yml")
    assert "Traceback" not in done.stderr


def test_a_new_page_waits_for_its_claims(tiny: Make) -> None:
    guide = (ROOT / "book" / "style-guide.md").read_text(encoding="utf-8")
    project = tiny({"style-guide": guide})
    path = new(project, "one")
    made = read_page(path)
    assert made.title == "What is two and two?"
    assert "parameters" in made.code[1].tags
    assert "[!NOTE]" not in made.text and "<!--" in made.text
    toc = project.root / "_toc.yml"
    toc.write_text(toc.read_text() + "      - file: one\n")
    done = ci(project, "check", "one")
    assert "claim one-01 has no verdict" in done.stdout
    assert "section" not in done.stdout and "kernelspec" not in done.stdout
    assert "jupytext's own form" not in done.stdout
    with pytest.raises(BookError, match="exists already"):
        new(project, "one")
    with pytest.raises(BookError, match="not a name for a page"):
        new(project, "Two Words")


def test_clean_removes_the_build_only(tiny: Make) -> None:
    project = tiny({"one": whole_page()})
    (project.build / "html").mkdir(parents=True)
    assert ci(project, "clean").returncode == 0
    assert not project.build.exists() and project.notebook("one").exists()


def test_the_lock_leaves_cuda_to_torch_and_builds_to_the_machine() -> None:
    text = clean("click==8.1\nnvidia-cublas==13 ; sys_platform == 'linux'\ntriton==3\n"
                 "torch==2.13.0+cpu\ncuda-bindings==13\nnumpy==2 ; python_version > '3'\n")
    packages = [line for line in text.splitlines() if not line.startswith("#")]
    assert packages == ["click==8.1", "torch==2.13.0", "numpy==2 ; python_version > '3'"]


def test_the_lock_holds_every_direct_dependency() -> None:
    done = ci(Project(ROOT), "lock", "--check")
    assert done.returncode == 0, done.stderr
    pins = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    for pin in ("torch==2.13.0", "tensorflow==2.21.0", "tensorboard==",
                "jupyter-book==1.0.4.post1"):
        assert re.search(rf"^{re.escape(pin)}", pins, re.M)


def test_serve_rebuilds_on_save(tiny: Make) -> None:
    """A saved text reaches the served page; a failing page leaves the old site standing."""
    text = page("# One", "Before.", cell("print('first')"))
    project = tiny({"one": text})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "ci", "--root", str(project.root), "serve", "--port", str(port)],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def wait_for(wanted: str) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                address = f"http://127.0.0.1:{port}/one.html"
                with urllib.request.urlopen(address, timeout=5) as answer:
                    if wanted in answer.read().decode():
                        return
            time.sleep(0.3)
        pytest.fail(f"{wanted!r} was not served")

    try:
        wait_for("Before.")
        project.text("one").write_text(text.replace("Before.", "After."))
        wait_for("After.")
        project.text("one").write_text(text.replace("print('first')", "1 / 0"))
        deadline = time.monotonic() + 120
        while not (project.failed / "one.ipynb").exists() and time.monotonic() < deadline:
            time.sleep(0.3)
        wait_for("After.")
        project.text("one").write_text(text.replace("first", "second"))
        wait_for("second")
    finally:
        process.terminate()
        process.wait(timeout=30)
