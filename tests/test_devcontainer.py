"""The container for working on the book elsewhere: one list of versions, the same verbs."""

from __future__ import annotations

import json
import re
import subprocess

from ci.check import direct
from ci.cli import main
from ci.project import Project
from ci.sets import canonical
from tests.conftest import ROOT

FOLDER = ROOT / ".devcontainer"
TEXT = (FOLDER / "devcontainer.json").read_text(encoding="utf-8")
CONTAINER = json.loads(TEXT)


def test_it_installs_by_the_verbs_from_the_one_list_of_versions() -> None:
    command = CONTAINER["postCreateCommand"]
    ready = command.split(" && ")[0].removeprefix("make ")
    makes = subprocess.run(["make", "-s", "--eval", "show:; @echo $(READY)", "show"], cwd=ROOT,
                           capture_output=True, text=True, check=True)
    assert makes.stdout.strip() == ready
    assert "$(READY): requirements.txt\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    # The browser's version is that of the tests' package in the list.
    assert re.search(r"\.venv/bin/python -m playwright install\b.* chromium", command)
    assert "playwright" in direct(Project(ROOT))
    interpreter = CONTAINER["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"]
    assert interpreter.endswith("/.venv/bin/python")


def test_it_names_no_version_of_a_package_and_no_package_of_its_own() -> None:
    everything = "".join(p.read_text(encoding="utf-8") for p in FOLDER.rglob("*") if p.is_file())
    without_image = everything.replace(CONTAINER["image"], "")
    assert not re.search(r"[=~<>]=|\d+\.\d+|@\d", without_image)
    assert "pip install" not in everything and "features" not in CONTAINER
    pins = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    names = {canonical(line.partition("==")[0]) for line in pins.splitlines() if "==" in line}
    words = set(re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)*", without_image.lower()))
    assert words & names <= {"playwright", "ruff", "jupyter"}  # a command and editor extensions


def test_the_python_of_its_image_is_pinned_and_supported() -> None:
    image, _, tag = CONTAINER["image"].rpartition(":")
    assert image and re.match(r"3\.11-[a-z]+", tag)
    assert 'requires-python = ">=3.11' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_port_is_the_one_of_serve() -> None:
    port = next(one.default for one in main.commands["serve"].params if one.name == "port")
    assert CONTAINER["forwardPorts"] == [port]
    assert list(CONTAINER["portsAttributes"]) == [str(port)]
