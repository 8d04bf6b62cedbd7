"""What a page uses it imports itself: each way to forget is found, each right way passes."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ci import imports
from ci.check import check
from ci.imports import Question, check_imports, folders, read_uses, search_path
from ci.project import BookError, Project
from ci.run import run
from tests.conftest import Make, cell, ci, make_tiny, page, parsed, quiet


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Return a project whose memory all tests here share, and install the package ``boxes``.

    ``boxes`` brings ``boxes.open`` at once and ``boxes.lazy`` when it is asked for; ``boxes.shut``
    and what lies in it must be imported; ``boxes.crash`` ends the interpreter.
    """
    folder = tmp_path_factory.mktemp("imports")
    files = {
        "boxes/__init__.py": """
            from boxes import open
            twice = 2

            def __getattr__(name):
                if name == "lazy":
                    import boxes.lazy
                    return boxes.lazy
                raise AttributeError(name)
            """,
        "boxes/open.py": "x = 1", "boxes/lazy.py": "import boxes.shut", "boxes/twice.py": "x = 1",
        "boxes/shut/__init__.py": "", "boxes/shut/inner.py": "x = 1",
        "boxes/both.py": "import boxes.shut", "boxes/crash.py": "import os\nos._exit(3)",
        "boxes/hang.py": "import time\ntime.sleep(600)",
        "boxes/taken.py": "print('ANSWERS [', end='')",
    }
    for name, text in files.items():
        path = folder / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder / "site"))
        for cached in (folders, search_path):
            cached.cache_clear()
        yield make_tiny(folder, {})
    for cached in (folders, search_path):
        cached.cache_clear()


def found(project: Project, *cells: str) -> list[str]:
    """Return what is wrong with the imports of a page of these cells."""
    text = page("# One", *[part for n, one in enumerate(cells) for part in (f"x{n}", cell(one))])
    return [f"{p.what}. {p.way_out}" for p in check_imports(project, [parsed(text)])["one"]]


def lacks(name: str, number: int = 1) -> str:
    return (f"cell {number} uses {name}, which nothing in the page imports. "
            f"Write `import {name}` before it")


@pytest.mark.parametrize(("cells", "name", "number"), [
    (["import boxes", "boxes.shut.x"], "boxes.shut", 2),
    (["import boxes", "boxes.shut.inner.x"], "boxes.shut.inner", 2),
    (["import boxes as b", "b.shut"], "boxes.shut", 2),
    (["import boxes", "boxes.shut", "import boxes.shut"], "boxes.shut", 2),
    (["import boxes\nboxes.shut\nimport boxes.shut"], "boxes.shut", 1),
    (["import boxes.shut", "boxes.shut.inner"], "boxes.shut.inner", 2),
    (["from boxes import shut", "shut.inner.x"], "boxes.shut.inner", 2),
    (["import boxes", "boxes.shut.x = 1"], "boxes.shut", 2),
    (["import boxes", "def f(x=boxes.shut):\n    pass"], "boxes.shut", 2),
    (["import boxes", "def f(x: boxes.shut):\n    pass"], "boxes.shut", 2),
    (["import boxes", "def f():\n    return [boxes.shut for _ in 'ab']"], "boxes.shut", 2),
    (["import boxes", "f = lambda: boxes.shut"], "boxes.shut", 2),
    (["import boxes", "class C(boxes.shut.C):\n    pass"], "boxes.shut", 2),
    (["import boxes", "class C:\n    def f(self):\n        boxes.shut"], "boxes.shut", 2),
    # The function is called before the import: what it needs must stand before its own cell's end.
    (["import boxes", "def f():\n    boxes.shut", "f()", "import boxes.shut"], "boxes.shut", 2),
    (["def f():\n    boxes.shut", "import boxes"], "boxes.shut", 1),
    # Another function's import does not count before that function is called.
    (["import boxes", "def f():\n    import boxes.shut", "boxes.shut"], "boxes.shut", 3),
    (["try:\n    import boxes\nexcept ImportError:\n    boxes = None", "boxes.shut"],
     "boxes.shut", 2),
    (["import boxes", "%matplotlib inline\nboxes.shut"], "boxes.shut", 2),
    (["import concurrent", "concurrent.futures.ThreadPoolExecutor"], "concurrent.futures", 2),
    (["import importlib", "importlib.util.find_spec('x')"], "importlib.util", 2),
    (["import xml", "xml.dom.minidom.parseString"], "xml.dom.minidom", 2),
])
def test_a_submodule_that_nothing_imports(project: Project, cells: list[str], name: str,
                                          number: int) -> None:
    assert found(project, *cells) == [lacks(name, number)]


@pytest.mark.parametrize("cells", [
    ["import boxes.shut", "boxes.shut.x"],
    ["import boxes", "import boxes.shut.inner as i", "boxes.shut.inner.x", "boxes.shut", "i.x"],
    ["import boxes", "from boxes import shut", "boxes.shut.x"],
    ["import boxes", "from boxes.shut import inner", "boxes.shut.inner"],
    ["import boxes", "import importlib\n\nimportlib.import_module('boxes.shut')", "boxes.shut"],
    ["from importlib import import_module\nimport boxes", "import_module('boxes.shut')",
     "boxes.shut"],
    # brought by what the page imports
    ["import boxes", "boxes.open.x"],
    ["import boxes", "boxes.lazy"],
    ["import boxes, boxes.both", "boxes.shut"],
    ["import boxes", "boxes.twice + 1"],  # a number that has the name of a submodule
    ["import os", "os.path.join"],
    ["import concurrent", "import asyncio", "concurrent.futures"],
    # declared where it is used
    ["import boxes", "def f():\n    import boxes.shut\n    return boxes.shut.x", "f()"],
    ["def f():\n    return boxes.shut.x", "import boxes.shut", "f()"],
    ["class C:\n    import boxes.shut", "import boxes", "boxes.shut"],
    ["try:\n    import boxes.shut\nexcept ImportError:\n    boxes = None", "boxes.shut"],
    ["import boxes\nif boxes.twice == 2:\n    import boxes.shut", "boxes.shut"],
    # other things of that name
    ["import boxes", "def f(boxes):\n    return boxes.shut"],
    ["import boxes", "def f():\n    boxes = C()\n    return boxes.shut", "C = object"],
    ["import boxes", "boxes = boxes.open", "boxes.shut"],
    ["import boxes", "[boxes.shut for boxes in []]"],
    ["from boxes import twice", "twice.shut"],
    ["import boxes", "for boxes in []:\n    boxes.shut"],
    ["import no_such_package", "no_such_package.part.other"],
    ["import sys", "sys.modules['__main__']; sys.modules[__name__]"],
    ["import boxes\nimport sys", "sys.modules['boxes'], 'boxes.open' in sys.modules"],
    ["import boxes.both\nimport sys", "sys.modules['boxes.shut']"],
    ["x = {'boxes': 1}", "x['boxes'], x.get('boxes'), 'boxes' in x"],
])
def test_what_is_imported_or_brought_passes(project: Project, cells: list[str]) -> None:
    assert found(project, *cells) == []


@pytest.mark.parametrize("use", [
    "sys.modules['boxes']", "sys.modules.get('boxes')", "print('boxes' in sys.modules)",
    "print('boxes' not in sys.modules)", "from sys import modules\nmodules['boxes']",
])
def test_a_module_out_of_the_list_of_loaded_ones(project: Project, use: str) -> None:
    assert found(project, "import sys", use) == [
        "cell 2 takes boxes from sys.modules, which nothing in the page imports. "
        "Write `import boxes` before it"]


def test_one_import_mends_all_uses_so_the_first_is_named(project: Project) -> None:
    text = page("# One", "a", cell("import boxes"), "b", cell("# first\n\nboxes.shut"), "c",
                cell("boxes.shut"))
    problems = check_imports(project, [parsed(text)])["one"]
    assert [text.splitlines()[p.line - 1] for p in problems] == ["boxes.shut"]
    assert problems[0].what.startswith("cell 2 ")


@pytest.mark.parametrize(("cells", "names"), [
    (["np.zeros(3)", "import numpy as np"], ["np"]),
    (["print(total)"], ["total"]),
    (["def f():\n    return totl", "total = 1"], ["totl"]),
    (["x = 1", "del x", "print(x)"], ["x"]),
    (["def f():\n    inner = 1", "print(inner)"], ["inner"]),
    # A name that a program brings counts inside functions only: they may be sent there.
    (["program = 'import json, os as system'", "json", "def f():\n    json, system"], ["json"]),
])
def test_a_name_that_nothing_defines(project: Project, cells: list[str], names: list[str]) -> None:
    said = found(project, *cells)
    assert [s.split(" uses ")[1].split(",")[0] for s in said] == names
    assert all("no cell up to there defines. Import or define it before" in s for s in said)


def test_names_that_are_defined_pass(project: Project) -> None:
    assert found(
        project, "%matplotlib inline\nx = [n for n in range(3)]\nget_ipython()",
        "display(x), _, __, In, Out, __name__, print",
        "def f():\n    return later, x", "later = f",
        "try:\n    import no_such\nexcept ImportError as error:\n    print(error)",
        "with open('x') as file, suppress(OSError):\n    file", "from contextlib import suppress",
    ) == ["cell 6 uses suppress, which no cell up to there defines. Import or define it before"]


def test_a_cell_that_is_no_python_is_left_to_the_other_rules(project: Project) -> None:
    assert found(project, "import boxes", "x = (", "print(unknown, boxes.shut)") == [
        lacks("boxes.shut", 3)]


# ------------------------------------------------------------------ the memory

@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return a list that grows with each interpreter that is started, by its questions."""
    calls: list[list[str]] = []
    really = imports.ask

    def ask(project: Project, questions: list[Question]) -> list[bool]:
        calls.append([str(one) for one in questions])
        return really(project, questions)

    monkeypatch.setattr(imports, "ask", ask)
    return calls


SHUT = ["import boxes", "boxes.open, boxes.shut"]


def test_what_is_known_is_not_asked_again(project: Project, asked: list[list[str]],
                                          tmp_path: Path) -> None:
    own = replace(project, out=tmp_path / "out")
    assert found(own, *SHUT) == [lacks("boxes.shut", 2)]
    # One question for the package alone; it says no to one name. Nothing more is imported, so
    # there is nothing more to ask.
    assert asked == [["import boxes -> boxes.open", "import boxes -> boxes.shut"]]
    assert found(own, *SHUT) == [lacks("boxes.shut", 2)]
    assert found(own, "import boxes as b", "def f():\n    b.open") == []
    assert len(asked) == 1
    assert found(own, "import boxes, json", "boxes.shut, boxes.lazy") == [lacks("boxes.shut", 2)]
    assert asked[1:] == [["import boxes -> boxes.lazy"],
                         ["import boxes; import json -> boxes.shut"]]


def test_questions_of_all_pages_share_an_interpreter(project: Project, asked: list[list[str]],
                                                     tmp_path: Path) -> None:
    own = replace(project, out=tmp_path / "out")
    pages = [parsed(page("# P", "a", cell("import json\nimport boxes"), "b", cell(use)), slug)
             for slug, use in [("one", "boxes.open"), ("two", "boxes.lazy"), ("three", "1")]]
    assert check_imports(own, pages) == {"one": [], "two": [], "three": []}
    assert asked == [["import boxes -> boxes.open", "import boxes -> boxes.lazy"]]


def test_one_answer_does_not_bring_the_next(project: Project, tmp_path: Path) -> None:
    """Reaching ``boxes.lazy`` loads ``boxes.shut``: asked after it, it must not be there."""
    own = replace(project, out=tmp_path / "out")
    assert found(own, "import boxes", "boxes.lazy", "boxes.shut") == [lacks("boxes.shut", 3)]


@pytest.mark.parametrize("broken", [
    "{", "[]", "3", "{}", '{"for": 1}', '{"for": "FOR", "answers": []}',
    '{"for": "other", "answers": {"import boxes -> boxes.shut": true}}',
])
def test_a_memory_that_is_broken_or_of_other_versions_is_remade(
        project: Project, asked: list[list[str]], tmp_path: Path, broken: str) -> None:
    own = replace(project, out=tmp_path / "out")
    own.build.mkdir()
    path = own.build / "imports.json"
    path.write_text(broken.replace("FOR", imports.Memory(own).holds_for))
    assert found(own, *SHUT) == [lacks("boxes.shut", 2)]
    assert len(asked) == 1
    assert json.loads(path.read_text())["answers"] == {
        "import boxes -> boxes.open": True, "import boxes -> boxes.shut": False}
    assert [p.name for p in own.build.iterdir() if p.is_file()] == ["imports.json"]


def test_other_requirements_are_asked_anew(project: Project, asked: list[list[str]],
                                           tmp_path: Path) -> None:
    own = make_tiny(tmp_path, {})
    found(own, *SHUT)
    own.requirements.write_text("click==9\n", encoding="utf-8")
    found(own, *SHUT)
    assert len(asked) == 2


# ------------------------------------------------------------------ the interpreter

def test_an_import_that_ends_the_interpreter_is_named(project: Project, tmp_path: Path) -> None:
    with pytest.raises(BookError, match=r"end the interpreter with status 3: import boxes; "
                                        r"import boxes.crash"):
        found(replace(project, out=tmp_path), "import boxes, boxes.crash", "boxes.shut")


def test_an_import_that_hangs_is_named(project: Project, monkeypatch: pytest.MonkeyPatch,
                                       tmp_path: Path) -> None:
    monkeypatch.setattr(imports, "PATIENCE", 2)
    with pytest.raises(BookError, match=r"take more than 2 s: import boxes; import boxes.hang"):
        found(replace(project, out=tmp_path), "import boxes, boxes.hang", "boxes.shut")


def test_what_an_import_prints_is_no_answer(project: Project) -> None:
    assert found(project, "import boxes, boxes.taken", "boxes.shut") == [lacks("boxes.shut", 2)]


def test_nothing_is_imported_here_to_find_a_module(project: Project) -> None:
    assert folders("boxes") and folders("boxes.shut") and folders("boxes.shut.inner") == ()
    assert folders("boxes.none") is None and folders("sys") is None and folders("ci") is None
    assert "boxes" not in sys.modules


# ------------------------------------------------------------------ as a rule of `check`

FORGETS = page("# Forgets", "a", cell("import matplotlib"), "b",
               cell("print(matplotlib.pyplot.__name__)"))
DECLARES = FORGETS.replace("import matplotlib\n", "import matplotlib.pyplot\n")


def test_check_reports_it_with_its_line(tiny: Make) -> None:
    project = tiny({"one": FORGETS, "two": DECLARES})
    line = FORGETS.splitlines().index("print(matplotlib.pyplot.__name__)") + 1
    wanted = (f"book/one.md:{line}: cell 2 uses matplotlib.pyplot, which nothing in the page "
              "imports. Write `import matplotlib.pyplot` before it")
    for arguments in (["check"], ["check", "one"]):
        done = ci(project, *arguments)
        assert done.returncode == 1
        assert wanted in done.stdout.splitlines()
        assert "two.md" not in "".join(s for s in done.stdout.splitlines(True) if "uses" in s)
    assert (project.build / "imports.json").is_file()


def test_check_goes_on_when_the_interpreter_ends(tiny: Make, monkeypatch: pytest.MonkeyPatch
                                                 ) -> None:
    def ask(project: Project, questions: list[Question]) -> list[bool]:
        raise BookError("book", "these imports end the interpreter", "Try them")

    monkeypatch.setattr(imports, "ask", ask)
    findings = check(tiny({"one": FORGETS}), ["one"])
    assert any("end the interpreter" in str(one) for one in findings)
    assert any("'Short answer' is missing" in one.what for one in findings)


@pytest.mark.skipif(sys.platform != "linux", reason="pages start warm on Linux only")
def test_the_check_finds_what_a_warm_kernel_hides(tmp_path: Path) -> None:
    """Another page has the parent import ``matplotlib.pyplot``; the page that forgets it runs."""
    project = make_tiny(tmp_path, {"forgets": FORGETS, "declares": DECLARES})
    warm, cold = (
        {record.page: record.ok for record in
         run(replace(project, out=tmp_path / name), say=quiet, warm=name == "warm").records}
        for name in ("warm", "cold"))
    assert warm == {"forgets": True, "declares": True}  # else this check has lost its purpose
    assert cold == {"forgets": False, "declares": True}
    pages = [parsed(text, slug) for slug, text in (("forgets", FORGETS), ("declares", DECLARES))]
    found = check_imports(project, pages)
    assert [p.what for p in found["forgets"]] == [
        "cell 2 uses matplotlib.pyplot, which nothing in the page imports"]
    assert found["declares"] == []


def test_uses_are_in_the_order_of_their_lines() -> None:
    text = page("# One", "a", cell("import concurrent, xml"), "b",
                cell("def f():\n    concurrent.futures\n\n\nxml.dom"))
    assert [use.question.name for use in read_uses(parsed(text))] == [
        "concurrent.futures", "xml.dom"]
