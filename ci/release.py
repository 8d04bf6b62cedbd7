"""What people download with a release: site, notebooks, bill of materials, licences, checksums.

``python -m ci release v1.2.3`` puts it into ``_build/release``, and the notes, the release's
section of CHANGELOG.md, beside it. The tag, the citation file and the changelog must agree.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from ci.archive import course, zip_site
from ci.project import BookError, Project, load_yaml, write_atomic
from ci.sphinx_ext.licences import NAME as LICENCES
from ci.supply import bill_of_materials

CHANGELOG = "CHANGELOG.md"


def release(project: Project, tag: str, say: Callable[[str], None] = print) -> list[Path]:
    """Make the files of a release; return them, the checksums last.

    Args:
        project: the checkout, with its site built.
        tag: the tag, ``v`` and the version of CITATION.cff.
        say: takes a line for each file.

    Raises:
        BookError: tag, citation and changelog do not agree, or the site is not current; an older
            release's files stay as they were.
    """
    notes = notes_of(project, tag)
    sums, out = project.build / ".release", project.build / "release"
    shutil.rmtree(sums, ignore_errors=True)
    sums.mkdir(parents=True)
    for path in (zip_site(project, say), *course(project, say)):
        shutil.copyfile(path, sums / path.name)
    shutil.copyfile(project.root / "CITATION.cff", sums / "CITATION.cff")
    shutil.copyfile(project.html / LICENCES, sums / LICENCES)
    bill_of_materials(project, sums / "bom.cdx.json")
    files = sorted(sums.iterdir())
    (sums / "SHA256SUMS").write_text("".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files),
        encoding="utf-8")
    shutil.rmtree(out, ignore_errors=True)
    sums.replace(out)
    write_atomic(project.build / "release-notes.md", notes)
    made = [out / path.name for path in [*files, sums / "SHA256SUMS"]]
    for path in made:
        say(f"{project.relative(path)}: {path.stat().st_size / 1e6:.2f} MB")
    return made


def notes_of(project: Project, tag: str) -> str:
    """Return a release's section of the changelog.

    Raises:
        BookError: the tag is not the version of CITATION.cff, or the changelog lacks the section,
            or gives it another day.
    """
    cff = load_yaml(project.root / "CITATION.cff")
    version, day = str(cff["version"]), str(cff["date-released"])
    if tag != f"v{version}":
        raise BookError("CITATION.cff", f"has version {version}, and the tag is {tag}",
                        f"Tag v{version}, or mend the file")
    path = project.root / CHANGELOG
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    match = re.search(rf"^## {re.escape(version)} \((.*?)\)\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if not match or not match[2].strip():
        raise BookError(CHANGELOG, f"has no section `## {version} ({day})` that says something",
                        "Write what has changed for readers")
    if match[1] != day:
        raise BookError(CHANGELOG, f"dates {version} {match[1]}, and CITATION.cff {day}",
                        "Make them the same")
    return match[2].strip() + "\n"
