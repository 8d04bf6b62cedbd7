"""The audit: what it counts as a miss, on a page that misses everything; how it serves a site."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from ci import audit as audits
from ci.audit import GOALS, WIRE, Seen, audit, lighthouse, missed, pages_of, served, table
from ci.project import BookError, Project
from tests.conftest import ci, quiet

BAD = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Bad</title></head>
<body><main><h1>Bad</h1><img src="a.png"><p id="late"></p><p style="color:#aaa">faint</p>
<img src="https://elsewhere.example/pixel.png" alt="a pixel of others">
<script>setTimeout(() => { late.style.height = "300px"; }, 100)</script>
<script src="heavy.js"></script><script src="gone.js"></script></main></body></html>"""
GOOD = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Good</title></head>
<body><main><h1>Good</h1><p>All of it.</p></main></body></html>"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    for name in ("_config.yml", "_toc.yml"):
        (tmp_path / name).write_text("", encoding="utf-8")
    return Project(tmp_path)


def make(project: Project, **pages: str) -> None:
    project.html.mkdir(parents=True)
    for name, text in pages.items():
        (project.html / f"{name}.html").write_text(text, encoding="utf-8")


def test_a_page_that_misses_every_goal_is_told_so(project: Project) -> None:
    make(project, index=BAD)
    (project.html / "a.png").write_bytes(b"")
    (project.html / "heavy.js").write_text(f"// {os.urandom(WIRE).hex()}", encoding="utf-8")
    lines: list[str] = []
    found = "\n".join(audit(project, graded=False, say=lines.append))
    assert f"{WIRE} allowed" in found
    assert "the layout shifts by" in found
    assert "asks another host: https://elsewhere.example/pixel.png" in found
    assert "404" in found and "gone.js" in found
    assert "axe, light: image-alt" in found and "axe, dark: color-contrast" in found
    assert lines[0].split()[:2] == ["page", "requests"] and lines[1].startswith("index")
    assert lines[-1].endswith("goals missed")


def test_a_good_page_meets_them_and_the_exit_status_says_which(project: Project) -> None:
    make(project, index=GOOD, old='<meta http-equiv="refresh" content="0; url=index.html">')
    assert pages_of(project.html) == ["index"]
    assert audit(project, graded=False, say=quiet) == []
    assert ci(project, "audit", "--no-lighthouse").returncode == 0
    (project.html / "index.html").write_text(BAD, encoding="utf-8")
    done = ci(project, "audit", "--no-lighthouse")
    assert done.returncode == 1 and "asks another host" in done.stdout


def test_a_grade_below_its_goal_is_a_miss() -> None:
    best = dict.fromkeys(GOALS, 100)
    assert missed([Seen("one", grades=best)]) == []
    for name, goal in GOALS.items():
        assert missed([Seen("one", grades={**best, name: goal - 1})]) == [
            f"one: {name} {goal - 1}, {goal} wanted"]
    assert table([Seen("one", grades={**best, "seo": 91})])[1].split()[-1] == "91"


def test_without_a_site_or_without_node_the_way_out_is_named(
        project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BookError, match=r"there is no site.*ci book"):
        audit(project, say=quiet)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(BookError, match=r"needs node.*--no-lighthouse"):
        lighthouse(project, quiet)


def test_the_site_is_served_as_a_static_host_does(project: Project, tmp_path: Path) -> None:
    make(project, index=GOOD, **{"404": "nowhere"})
    (project.html / "picture.png").write_bytes(b"picture")
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    with served(project.html) as base:
        def get(name: str) -> tuple[bytes, str, str]:
            request = urllib.request.Request(base + name, headers={"Accept-Encoding": "gzip"})
            with urllib.request.urlopen(request) as answer:
                return (answer.read(), answer.headers["Content-Type"],
                        answer.headers["Content-Encoding"] or "")

        data, kind, packed = get("")
        assert gzip.decompress(data).decode() == GOOD
        assert (kind, packed) == ("text/html; charset=utf-8", "gzip")
        assert get("picture.png") == (b"picture", "image/png", "")
        for name in ("gone.html", "../../secret.txt"):
            with pytest.raises(urllib.error.HTTPError) as error:
                get(name)
            assert error.value.code == 404
            assert gzip.decompress(error.value.read()) == b"nowhere"


def test_lighthouse_is_installed_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    package = project.build / ".audit" / "node_modules" / "lighthouse" / "package.json"
    package.parent.mkdir(parents=True)
    monkeypatch.setattr(audits.subprocess, "run", None)  # would be npm
    package.write_text(json.dumps({"version": audits.LIGHTHOUSE}), encoding="utf-8")
    assert lighthouse(project, quiet).name == "lighthouse"
    package.write_text('{"version": "1.0.0"}', encoding="utf-8")
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(TypeError):
        lighthouse(project, quiet)
