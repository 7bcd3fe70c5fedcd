"""How the progress bar of ``permvi match`` moves on large files, and how soon Ctrl-C is heard.

``python -m benchmarks.linear_watch NAME ...`` runs the large files of `benchmarks.linear` with
standard error on a terminal of its own, and prints the longest time for which the picture of the
bar stood still, and the remaining time that it showed at a quarter, half and three quarters of the
run. With ``--interrupt SECONDS ...`` it presses Ctrl-C after so many seconds instead, and prints
how long it took until the process said so and until it ended.
"""

import argparse
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.linear import LARGE

_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_REMAINING = re.compile(r"(\d+):(\d\d):(\d\d)\s*$")


class Picture(NamedTuple):
    """What the terminal showed from a time on."""

    at: float
    raw: str
    text: str

    def remaining(self) -> float | None:
        """Return the remaining seconds that the bar shows, if it does."""
        found = _REMAINING.search(self.text)
        if found is None:
            return None
        hours, minutes, seconds = map(int, found.groups())
        return 3600.0 * hours + 60.0 * minutes + seconds


def watch(task: Sequence[str], interrupt: float | None) -> dict[str, Any]:
    """Run a command line of permvi on a terminal and return what was to be seen."""
    main, terminal = pty.openpty()
    # A shell may have started this process with the signal ignored.
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = [sys.executable, "-c", f"{start}from permvi.cli import main; main()", *task]
    environment = {**os.environ, "COLUMNS": "120", "TERM": "xterm-256color"}
    begin, pictures, pressed = time.monotonic(), [Picture(0.0, "", "")], None
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=terminal, env=environment)
        os.close(terminal)
        while True:
            now = time.monotonic() - begin
            if interrupt is not None and pressed is None and now >= interrupt:
                process.send_signal(signal.SIGINT)
                pressed = now
            if select.select([main], [], [], 0.05)[0]:
                try:
                    chunk = os.read(main, 65536).decode(errors="replace")
                except OSError:  # the other end is closed
                    break
                lines = [
                    line for line in re.split(r"[\r\n]+", chunk) if _STYLE.sub("", line).strip()
                ]
                if lines and lines[-1] != pictures[-1].raw:
                    text = _STYLE.sub("", lines[-1]).strip()
                    pictures.append(Picture(time.monotonic() - begin, lines[-1], text))
            elif process.poll() is not None:
                break
        process.wait()
        wall = time.monotonic() - begin
        os.close(main)
        printed.seek(0)
        output = printed.read()
    if pressed is not None:
        stage = _stage(next((p for p in pictures[::-1] if p.at <= pressed), pictures[0]))
        said = [p.at for p in pictures if p.at > pressed and _stage(p) != stage]
        marked = re.search(r"verdict: .*", output)
        return {
            "interrupted_s": pressed, "stage": stage, "ended_after_s": wall - pressed,
            "heard_after_s": min([*said, wall]) - pressed, "status": process.returncode,
            "verdict": marked[0][:120] if marked else "none printed",
        }  # fmt: skip
    ends = [*(picture.at for picture in pictures[1:]), wall]
    gaps = [(end - picture.at, picture.text) for picture, end in zip(pictures, ends, strict=True)]
    shown = {}
    for part in (0.25, 0.5, 0.75):
        seen = [p for p in pictures if p.at <= part * wall]
        shown[f"shown_at_{part:g}"] = (seen[-1].remaining(), round((1 - part) * wall, 1))
    return {"wall_s": wall, "longest_still": max(gaps), **shown, "status": process.returncode}


def _stage(picture: Picture) -> str:
    return (picture.text.split() or [""])[0]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", choices=list(LARGE))
    parser.add_argument(
        "--interrupt", type=float, nargs="+", help="seconds after which Ctrl-C is pressed"
    )
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for name in given.names:
        write, n, *_ = LARGE[name]
        with tempfile.TemporaryDirectory() as folder:
            files = write(Path(folder), n, given.seed)
            task = ["match", *files, "--csv", str(Path(folder, "fit.csv"))]
            for interrupt in given.interrupt or [None]:
                print(json.dumps({"file": name, "n": n, **watch(task, interrupt)}), flush=True)


if __name__ == "__main__":
    main()
