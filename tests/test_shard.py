"""The shares of the pages: the same on each machine, even, and every page exactly once."""

from __future__ import annotations

import json
import random
import re
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci.check import check
from ci.cli import main
from ci.project import BookError, Project
from ci.record import Failure, Record, write_record
from ci.shard import by_framework, expected_seconds, keep_seconds, seconds_file, split
from tests.conftest import Make, cell, make_tiny, page

PAGES = {name: page(f"# {name}", cell("1")) for name in "gfedcba"}  # not in alphabetical order


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project of seven pages with code, which no test changes but for its seconds."""
    return make_tiny(tmp_path_factory.mktemp("shards"), {**PAGES, "prose": "# Only prose\n"})


def record_of(name: str, seconds: float, failure: Failure | None = None) -> Record:
    """Return a record that says so many seconds in cells."""
    status = "failed" if failure else "ok"
    return Record(name, status, "k", "t", seconds + 3, seconds, 9.0, 1, "cpu", "3", "Linux", {},
                  "r", "c", {}, "", failure)


def given(project: Project, seconds: object) -> Project:
    """Give the project a list of seconds."""
    seconds_file(project).write_text(json.dumps(seconds, indent=1), encoding="utf-8")
    return project


def invoke(project: Project, *arguments: str) -> tuple[int, str]:
    """Call the command line in this process; return its exit status and all that it printed."""
    done = CliRunner().invoke(main, ["--root", str(project.root), *arguments])
    return done.exit_code, done.output


# ------------------------------------------------------------------ the split

def largest(project: Project, shares: list[list[str]]) -> float:
    seconds = expected_seconds(project)
    return max(sum(seconds[slug] for slug in share) for share in shares)


@pytest.mark.parametrize("n", range(1, 10))
def test_every_page_exactly_once_in_the_order_of_the_contents(project: Project, n: int) -> None:
    given(project, {"a": 30, "c": 3, "g": 0})
    shares = split(project, n)
    assert len(shares) == n
    assert sorted(slug for share in shares for slug in share) == sorted(PAGES)
    order = list(PAGES)
    assert all(share == sorted(share, key=order.index) for share in shares)
    assert all(shares[:7])  # no share is empty while another could give


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("n", [2, 3])
def test_the_largest_share_is_near_the_best_possible(project: Project, n: int, seed: int) -> None:
    """Graham's bound for longest first, against the best of all splits."""
    dice = random.Random(seed)
    numbers = [dice.choice([1, 2, 5, 9, 15, 40]) + dice.randrange(9) for _ in PAGES]
    given(project, dict(zip(PAGES, numbers, strict=True)))
    best = min(
        max(sum(s for s, place in zip(numbers, places, strict=True) if place == share)
            for share in range(n))
        for places in product(range(n), repeat=len(numbers)))
    assert best <= largest(project, split(project, n)) <= (4 / 3 - 1 / (3 * n)) * best


def test_the_longest_goes_first(project: Project) -> None:
    """In the order of the contents, the last and longest page would come on top of others."""
    given(project, {**dict.fromkeys("gfedcb", 10), "a": 30})
    assert split(project, 3) == [["a"], ["g", "e", "c"], ["f", "d", "b"]]


def test_equal_pages_go_in_the_order_of_the_contents(project: Project) -> None:
    given(project, dict.fromkeys("abcdefg", 0))
    assert split(project, 2) == [["g", "e", "c", "a"], ["f", "d", "b"]]


def test_a_page_without_an_entry_counts_as_the_median(project: Project) -> None:
    given(project, {"a": 4, "b": 8, "c": 100, "gone": 1000})
    assert expected_seconds(project) == {
        "a": 4.0, "b": 8.0, "c": 100.0, "d": 8.0, "e": 8.0, "f": 8.0, "g": 8.0}
    given(project, {"gone": 1000})
    assert set(expected_seconds(project).values()) == {20.0}
    seconds_file(project).unlink()
    assert expected_seconds(project) == dict.fromkeys(PAGES, 20.0)
    assert list(expected_seconds(project)) == list(PAGES)


def test_what_a_machine_has_measured_does_not_move_the_split(tiny: Make) -> None:
    project = given(tiny(PAGES), {"a": 5, "b": 50})
    before = split(project, 3), expected_seconds(project)
    for number, name in enumerate(PAGES):
        write_record(project, record_of(name, 1000.0 * number))
    assert (split(project, 3), expected_seconds(project)) == before


# ------------------------------------------------------------------ wrong usage

@pytest.mark.parametrize("value", ["0/3", "4/3", "x", "1/0", "-1/3", "1/3/5", "1", "1/", "",
                                   "1.0/2", "١/٣", "1/99999"])
def test_a_share_that_is_none(project: Project, value: str) -> None:
    status, said = invoke(project, "run", f"--shard={value}")
    assert status == 2
    assert "Invalid value for '--shard'" in said
    assert f"{value!r} is not a share. Write i/n with i from 1 to n, as in 2/3" in said
    assert not project.build.exists()


def test_a_share_follows_from_its_number_alone(project: Project) -> None:
    status, said = invoke(project, "run", "a", "--shard", "1/3")
    assert status == 2 and "--shard takes no page names" in said
    status, said = invoke(project, "run", "--keep-seconds", "--shard", "1/3")
    assert status == 2 and "--shard takes no --keep-seconds" in said
    assert not project.build.exists()


def test_a_share_without_a_page_says_so(tiny: Make) -> None:
    project = tiny({"a": PAGES["a"]})
    status, said = invoke(project, "run", "--shard", "2/2")
    assert status == 0 and said == "shard 2/2: no page: the 1 pages with code are in the other " \
        "shards\n"
    data = json.loads((project.build / "shard.json").read_text())
    assert (data["i"], data["n"], data["pages"], data["commit"]) == (2, 2, [], "none")
    assert data["requirements"] and data["python"].startswith("3.") and data["format"] == 1


# ------------------------------------------------------------------ the list of seconds

def kept(project: Project) -> dict[str, int]:
    data = json.loads(seconds_file(project).read_text())
    assert isinstance(data, dict)
    return data


def test_a_number_is_replaced_where_it_is_well_off(tiny: Make) -> None:
    project = given(tiny(PAGES), {"a": 10, "b": 10, "c": 100, "d": 100, "e": 2, "gone": 7})
    changed = keep_seconds(project, [
        record_of("a", 11.9),   # 19 %: stays
        record_of("b", 12.4),   # 24 % and 2.4 s: goes
        record_of("c", 118.0),  # 18 %: stays, though 18 s
        record_of("d", 60.2),
        record_of("e", 3.9),    # 95 %, but 1.9 s: stays
        record_of("f", 0.2),    # new, and at least one second
        record_of("elsewhere", 5.0),
        record_of("prose", 5.0),
    ])
    assert changed == ["b", "d", "f", "gone"]
    assert kept(project) == {"a": 10, "b": 12, "c": 100, "d": 60, "e": 2, "f": 1}
    assert list(kept(project)) == sorted(kept(project))
    assert not list(seconds_file(project).parent.glob(".*"))


def test_the_list_is_not_touched_for_nothing(tiny: Make) -> None:
    project = given(tiny(PAGES), {"b": 10, "a": 10})  # not even its order
    before = seconds_file(project).stat().st_mtime_ns, seconds_file(project).read_bytes()
    assert keep_seconds(project, [record_of("a", 10.4)]) == []
    assert (seconds_file(project).stat().st_mtime_ns, seconds_file(project).read_bytes()) == before


def test_a_failed_page_has_no_seconds(tiny: Make) -> None:
    project = given(tiny(PAGES), {"a": 10})
    failure = Failure("a", 1, "1 / 0", "ZeroDivisionError", "python -m ci run a")
    assert keep_seconds(project, [record_of("a", 99.0, failure)]) == []
    assert kept(project) == {"a": 10}


def test_check_finds_an_entry_of_no_page(tiny: Make) -> None:
    project = given(tiny({**PAGES, "prose": "# Only prose\n"}), {"a": 1, "gone": 2, "prose": 3})
    found = [str(f) for f in check(project) if f.file == "book/_data/seconds.json"]
    assert found == [f"book/_data/seconds.json:{line}: {name} is not a page with code in _toc.yml."
                     " Remove the line, or run `python -m ci run --keep-seconds`"
                     for line, name in ((3, "gone"), (4, "prose"))]
    given(project, {"a": 1})
    assert not [f for f in check(project) if f.file == "book/_data/seconds.json"]


@pytest.mark.parametrize(("text", "line", "what"), [
    ('{\n "a": 1,\n<<<<<<< ours\n "b": 2\n}\n', ":3", "double quotes"),
    ('{\n "a": 1,\n "b": 2.5\n}\n', ":3", "b has 2.5, not whole seconds"),
    ('{\n "a": -1\n}\n', ":2", "a has -1, not whole seconds"),
    ('{\n "a": true\n}\n', ":2", "a has True, not whole seconds"),
    ("[]\n", "", "not a JSON object"),
    ("\udcff", "", "can't decode byte 0xff"),  # not UTF-8
])
def test_a_broken_list_is_refused_and_found(tiny: Make, text: str, line: str, what: str) -> None:
    project = tiny(PAGES)
    seconds_file(project).write_text(text, encoding="utf-8", errors="surrogateescape")
    pattern = re.escape(f"book/_data/seconds.json{line}: ") + ".*" + re.escape(what)
    for use in (split, lambda p, n: keep_seconds(p, [])):
        with pytest.raises(BookError, match=pattern):
            use(project, 2)
    status, said = invoke(project, "run", "--shard", "1/2")
    assert status == 1 and re.search(pattern, said) and "Traceback" not in said
    assert any(f.file == "book/_data/seconds.json" and what in f.what for f in check(project))


def test_the_books_own_list_is_in_order() -> None:
    """Sorted and in the form in which it is written, so that a change is a change of a number."""
    path = seconds_file(Project(Path(__file__).resolve().parent.parent))
    data = json.loads(path.read_text(encoding="utf-8"))
    assert path.read_text(encoding="utf-8") == json.dumps(data, indent=1, sort_keys=True) + "\n"


def test_by_framework_the_pages_about_tensorflow_are_the_second_share(tiny: Make) -> None:
    code = page("# Page", cell("print(1)"))
    project = tiny(dict.fromkeys(("own", "one", "two", "six"), code))
    project.topics_file.write_text(
        "one: {framework: PyTorch, en: a, zh: b}\ntwo: {framework: TensorFlow, en: a, zh: b}\n"
        "six: {framework: both, en: a, zh: b}\n", encoding="utf-8")
    assert by_framework(project) == [["own", "one", "six"], ["two"]]
    assert invoke(project, "run", "--by-framework")[0] == 2
    assert invoke(project, "run", "--by-framework", "--shard", "1/3")[0] == 2
    code_, said = invoke(project, "run", "--cold", "--by-framework", "--shard", "2/2")
    assert code_ == 0 and "shard 2/2: 1 of 4 pages" in said
