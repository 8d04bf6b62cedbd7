"""Warm kernels: what a page sees is what it sees in a kernel of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import nbformat
import pytest

from ci.project import Project
from ci.record import read_record
from ci.run import run
from ci.warm import plan, settings, supported, top_imports, wanted
from tests.conftest import Make, cell, make_tiny, page, parsed, quiet

pytestmark = pytest.mark.skipif(not supported(), reason="forking is safe on Linux only")

SURROUNDINGS = cell("""
import os
import signal
import sys
import threading

import numpy as np

ours = {"PROOF_BY_RUNNING_PAGE", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "TMPDIR", "JPY_PARENT_PID",
        "MPLCONFIGDIR"}
print(sorted((k, v) for k, v in os.environ.items() if k not in ours))
print(ours - os.environ.keys())
print(os.path.basename(sys.argv[0]), sys.argv[1], sys.path, sys.flags, sys.executable)
print(os.listdir("."), os.path.basename(os.getcwd()))
print(os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid())
print([signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), os.read(0, 1))
print(sorted(globals().keys() - {"_i", "_ii", "_iii"}), __name__, sys.modules["__main__"].__dict__
      is globals())
""")
FOLDER = cell("""
from pathlib import Path

Path("beside.py").write_text("told = 'a module of the page itself'")
import beside

print(beside.told)
""")
CHILDREN = cell("""
import subprocess
import tempfile

script = '''
import multiprocessing as mp
import os

def double(n):
    return 2 * n

if __name__ == "__main__":
    with mp.get_context("spawn").Pool(2) as pool:
        print(pool.map(double, [1, 2, 3]), len(os.environ["PROOF_BY_RUNNING_PAGE"]))
'''
Path("children.py").write_text(script)
print(subprocess.run([sys.executable, "children.py"], check=True, capture_output=True,
                     text=True).stdout)
print(tempfile.gettempdir() == os.environ["TMPDIR"])
""")
FIGURE = cell("""
import matplotlib
import matplotlib.pyplot as plt

print(matplotlib.get_backend())
plt.plot([0, 1], [0, 1])
""")
LATE = cell("""
def later():
    import colorsys  # imported by no cell at its own level: the parent lacks it

    return colorsys.rgb_to_hsv(1, 0, 0)


print(later())
np.random.seed(3)
print(np.random.rand())
""")
SPOILS = cell("""
import os
import sys

import numpy as np

np.pi = 3
np.random.seed(1)
os.environ["SPOILED"] = "yes"
sys.modules["json"] = None
print(np.pi)
""")
SEES = cell("""
import json
import os

import numpy as np

print(round(np.pi, 4), os.environ.get("SPOILED"), json.dumps(1))
""")
DRAWS = cell("""
import random

import numpy as np
import torch

print(random.random(), np.random.rand(), torch.rand(1).item(), torch.initial_seed())
""")


def outputs(project: Project, slug: str) -> list[str]:
    """Return the texts and the kinds of all outputs of a page."""
    notebook = nbformat.read(project.executed_notebook(slug), as_version=4)
    found = []
    for one in (o for c in notebook.cells if c.cell_type == "code" for o in c.outputs):
        found.append(one.text if "text" in one else " ".join(sorted(one.data)))
    return found


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Project]:
    """Run the same pages warm and cold; return both projects."""
    folder = tmp_path_factory.mktemp("warm")
    project = make_tiny(folder, {
        "around": page("# A", SURROUNDINGS, "x", FOLDER, "y", CHILDREN, "z", FIGURE, "u", LATE),
        "spoils": page("# B", SPOILS), "sees": page("# C", SEES),
        "draws": page("# D", DRAWS), "draws-too": page("# E", DRAWS),
        "asks": page("# F", cell("import os\n\nos.environ['OPENBLAS_VERBOSE'] = '2'\n"
                                 "import numpy as np\n\nprint(np.ones(2))")),
    })
    warm, cold = replace(project, out=folder / "w"), replace(project, out=folder / "c")
    assert not run(warm, warm=True, say=quiet).failed
    assert not run(cold, warm=False, say=quiet).failed
    return warm, cold


def test_a_page_sees_the_same_warm_and_cold(both: tuple[Project, Project]) -> None:
    warm, cold = both
    for slug in ("around", "spoils", "sees", "asks"):
        assert outputs(warm, slug) == outputs(cold, slug)
    assert len(outputs(warm, "around")) == 7
    assert "image/png text/plain" in outputs(warm, "around")


def test_records_say_how_a_page_started(both: tuple[Project, Project]) -> None:
    warm, cold = both
    started = {slug: getattr(read_record(warm, slug), "warm", None)
               for slug in ("around", "sees", "asks")}
    # The last one sets what numpy reads when it is loaded: a warm kernel would be too late.
    assert started == {"around": True, "sees": True, "asks": False}
    assert getattr(read_record(cold, "around"), "warm", None) is False


def test_pages_share_no_state(both: tuple[Project, Project]) -> None:
    warm, _ = both
    assert outputs(warm, "spoils") == ["3\n"]
    assert outputs(warm, "sees") == ["3.1416 None 1\n"]


def test_every_page_draws_its_own_numbers(both: tuple[Project, Project]) -> None:
    warm, _ = both
    one, two = outputs(warm, "draws")[0].split(), outputs(warm, "draws-too")[0].split()
    assert len(one) == 4
    assert not set(one) & set(two)


def test_frameworks_start_processes(tiny: Make) -> None:
    """torchrun and TF_CONFIG workers, from pages whose kernels are warm."""
    torchrun = cell("""
        import subprocess
        import sys
        from pathlib import Path

        import torch

        Path("ranks.py").write_text('''
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        total = torch.tensor([1.0 + dist.get_rank()])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print("sum", total.item())
        dist.destroy_process_group()
        '''.replace("\\n        ", "\\n"))
        done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone",
                               "--nproc-per-node", "2", "ranks.py"], check=True,
                              capture_output=True, text=True, timeout=100)
        print(done.stdout)
        """)
    workers = cell("""
        import json
        import os
        import socket
        import subprocess
        import sys
        from pathlib import Path

        import tensorflow as tf

        Path("worker.py").write_text('''
        import tensorflow as tf

        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with strategy.scope():
            ones = strategy.run(lambda: tf.ones(()))
        print("sum", float(strategy.reduce("SUM", ones, axis=None)))
        '''.replace("\\n        ", "\\n"))
        places = []
        for _ in range(2):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                places.append(f"127.0.0.1:{free.getsockname()[1]}")
        processes = [
            subprocess.Popen([sys.executable, "worker.py"], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True,
                             env={**os.environ, "TF_CONFIG": json.dumps({
                                 "cluster": {"worker": places},
                                 "task": {"type": "worker", "index": index}})})
            for index in range(2)]
        print([process.communicate(timeout=100)[0].strip() for process in processes])
        """)
    project = tiny({"one": page("# One", torchrun), "two": page("# Two", workers)})
    report = run(project, warm=True, say=quiet)
    assert not report.failed, report.failed
    assert all(record.warm for record in report.records)
    assert outputs(project, "one") == ["sum 3.0\n\n"]
    assert outputs(project, "two")[-1] == "['sum 2.0', 'sum 2.0']\n"


def test_a_parent_that_dies_costs_time_only(tiny: Make, tmp_path: Path,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that ends the process at its import ends the warm start, not the run."""
    (tmp_path / "ends_all.py").write_text("import os\nos._exit(3)\n")
    (tmp_path / "raises_one.py").write_text("raise RuntimeError('not today')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    fine = page("# One", cell("print('fine')"))
    project = tiny({"one": fine, "two": page("# Two", cell(
        "try:\n    import raises_one\nexcept RuntimeError as error:\n    print(error)"))})
    (project.root / "pyproject.toml").write_text(
        "[tool.proof-by-running]\npreload = ['raises_one']\n")
    report = run(project, warm=True, say=quiet)
    assert not report.failed and all(record.warm for record in report.records)
    assert outputs(project, "two") == ["not today\n"]

    (project.root / "pyproject.toml").write_text(
        "[tool.proof-by-running]\npreload = ['ends_all']\n")
    lines: list[str] = []
    report = run(project, warm=True, force=True, say=lines.append)
    assert not report.failed and not any(record.warm for record in report.records)
    assert any("the parent of warm kernels ended" in line for line in lines)


def test_a_page_that_ends_the_parent_harms_no_other(tiny: Make) -> None:
    """The other page is run again; only the one that did it can fail."""
    kills = cell("""
        import os
        import signal
        import time

        import psutil

        time.sleep(1)  # the other page is in the middle of its cell
        if "nursery" in " ".join(psutil.Process(os.getppid()).parent().cmdline()):
            os.kill(psutil.Process(os.getppid()).ppid(), signal.SIGKILL)
            time.sleep(60)
        """)
    project = tiny({"kills": page("# K", kills),
                    "beside": page("# B", cell("import time\n\ntime.sleep(4)"))})
    lines: list[str] = []
    report = run(project, jobs=2, warm=True, say=lines.append)
    assert not report.failed, report.failed
    assert sum("the parent of warm kernels ended while it ran" in line for line in lines) == 2
    assert not any(record.warm for record in report.records)


def test_what_the_parent_imports(tiny: Make) -> None:
    one = page("# One", cell("import os\nimport tensorflow as tf\nimport no_such_module"),
               "x", cell("from torch import nn\nfrom torch.utils.data import DataLoader"))
    project = tiny({"one": one})
    (project.root / "pyproject.toml").write_text(
        "[tool.proof-by-running]\npreload = ['keras', 'no_such_either']\n")
    modules = wanted(project, [parsed(one)])
    # PyTorch's part comes first: after TensorFlow, it can end the process.
    assert [m for m in modules if m != "triton"] == ["torch", "tensorflow", "torch.utils.data",
                                                     "keras"]
    assert top_imports("def f():\n    import late") == []


@pytest.mark.parametrize(("source", "made"), [
    ("import os\nos.environ['TF_X'] = '1'\nimport tensorflow", {"TF_X": "1"}),
    ("import os\nos.environ.setdefault('TF_X', '1')\nimport tensorflow", {"TF_X": "1"}),
    ("import os\nif True:\n    os.putenv('TF_X', '1')\nimport tensorflow", {"TF_X": "1"}),
    ("import os\nos.environ['TF_X'] = str(1)\nimport tensorflow", {"TF_X": None}),
    ("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\nimport tensorflow", {}),
    ("import os\nimport tensorflow\nos.environ['TF_X'] = '1'", {}),
    ("import os\nprint(os.environ['TF_X'])\nimport tensorflow", {}),
    ("import os\nos.environ['TF_X'] = '1'", None),
])
def test_what_a_page_sets_before_a_library_reads_it(source: str,
                                                    made: dict[str, str] | None) -> None:
    assert settings(parsed(page("# One", cell(source))), ["tensorflow"]) == made


def test_the_parent_imports_as_most_pages_do(tiny: Make) -> None:
    def sets(value: str) -> str:
        return page("# P", cell(f"import os\n{value}\nimport tensorflow"))

    usual = "os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'"
    pages = [parsed(sets(usual), "one"), parsed(sets(usual), "two"),
             parsed(sets("os.environ['TF_CPP_MIN_LOG_LEVEL'] = '0'"), "three"),
             parsed(sets("os.environ['TF_CPP_MIN_LOG_LEVEL'] = os.sep"), "four"),
             parsed(sets("pass"), "five"), parsed(page("# P", cell("import os")), "six")]
    made = plan(tiny({}), pages)
    assert made.env == {"TF_CPP_MIN_LOG_LEVEL": "3"}
    assert made.cold == {"three", "four", "five"}
