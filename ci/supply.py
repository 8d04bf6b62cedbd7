"""What the book is made of: known weaknesses of its versions, and a bill of materials.

pip-audit asks the advisories of PyPI for each version in requirements.txt. A finding is mended by
another version, or answered in ``.github/weaknesses.yml`` with a reason and a day until which the
answer holds. An answer that nothing asks for any more is told too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from ci.project import BookError, Project, load_yaml

ANSWERS = ".github/weaknesses.yml"


@dataclass(frozen=True)
class Weakness:
    """One advisory about a version that is in use."""

    id: str
    package: str
    version: str
    mended: tuple[str, ...]  # versions without it

    def __str__(self) -> str:
        instead = f"mended in {', '.join(self.mended)}" if self.mended else "not mended yet"
        return f"{self.package} {self.version}: {self.id}, {instead}"


def supply(project: Project, say: Callable[[str], None] = print) -> list[str]:
    """Return what is wrong: findings without an answer, answers that are over or idle.

    Args:
        project: the checkout.
        say: takes a line for each finding that is answered, and the sum.

    Raises:
        BookError: the advisories cannot be asked, or the file of answers is broken.
    """
    answers = read_answers(project)
    found, asked = audit(project)
    today = datetime.now(UTC).date()
    wrong = []
    for one in found:
        answer = answers.get(one.id)
        if answer is None:
            wrong.append(f"requirements.txt: {one}. Take a version without it (`make lock`), or "
                         f"answer it in {ANSWERS}")
        elif answer["until"] < today:
            wrong.append(f"{ANSWERS}: the answer to {one.id} held until {answer['until']}. Look "
                         "again")
        else:
            say(f"answered until {answer['until']}: {one}: {answer['reason']}")
    for name in answers.keys() - {one.id for one in found}:
        wrong.append(f"{ANSWERS}: nothing asks for the answer to {name} any more. Remove it")
    say(f"supply: {asked} versions asked about, {len(found)} weaknesses known")
    return wrong


def read_answers(project: Project) -> dict[str, dict[str, Any]]:
    """Return the answers by the advisory's id.

    Raises:
        BookError: one of them lacks its reason or its day.
    """
    path = project.root / ANSWERS
    if not path.is_file():
        return {}
    answers: dict[str, dict[str, Any]] = load_yaml(path) or {}
    for name, one in answers.items():
        try:
            until = one["until"]
            one["until"] = until if isinstance(until, date) else date.fromisoformat(str(until))
            if not str(one["reason"]).strip():
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise BookError(ANSWERS, f"{name} needs a `reason` and a day `until`",
                            "As in `until: 2027-03-01`") from None
    return answers


def audit(project: Project) -> tuple[list[Weakness], int]:
    """Return the known weaknesses of the versions, and how many versions were asked about.

    Raises:
        BookError: pip-audit failed, or knew not one of the packages: there is no way to PyPI.
    """
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", "-r", str(project.requirements), "--no-deps",
         "--disable-pip", "--format", "json", "--progress-spinner", "off"],
        capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise BookError("requirements.txt", f"pip-audit failed: {last}", "See its message"
                        ) from None
    known = [one for one in packages if "skip_reason" not in one]
    if not known:
        raise BookError("requirements.txt", "PyPI's advisories cannot be asked from here",
                        "Try again where there is a way to pypi.org")
    found = [Weakness(weakness["id"], one["name"], one["version"],
                      tuple(weakness.get("fix_versions", ())))
             for one in known for weakness in one.get("vulns", ())]
    return found, len(known)


def bill_of_materials(project: Project, out: Path) -> None:
    """Write every package and version of requirements.txt as a CycloneDX bill of materials.

    Raises:
        BookError: it could not be made.
    """
    done = subprocess.run(
        [sys.executable, "-m", "cyclonedx_py", "requirements", str(project.requirements),
         "--pyproject", str(project.root / "pyproject.toml"), "--output-reproducible",
         "--of", "JSON", "-o", str(out)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise BookError("requirements.txt", f"no bill of materials: {last}", "See its message")
