"""How long one waits for the command line: `driftwise --help`, and `import driftwise`.

    python benchmarks/bench_startup.py [--turns 15]

Fresh processes by the clock; `import torch` stands beside them as what neither has to wait for.
"""

from __future__ import annotations

import subprocess
import sys

from ratios import arguments, begin, clocked, finish, head, show, take_turns

COMMANDS = {
    "driftwise --help": ["-m", "driftwise", "--help"],
    "import driftwise": ["-c", "import driftwise"],
    "python by itself": ["-c", "pass"],
    "import torch": ["-c", "import torch"],
}
GOALS = {"driftwise --help": 0.5}
"""seconds at most"""


def start(words: list[str]) -> None:
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)


def main() -> None:
    options = arguments(__doc__, turns=15).parse_args()
    begin(options)
    head("")
    sides = {name: lambda words=words: start(words) for name, words in COMMANDS.items()}
    times = take_turns(sides, turns=options.turns)
    findings = [clocked("start", name, times[name], GOALS.get(name)) for name in COMMANDS]
    for finding in findings:
        show(finding)
    finish("startup", findings, options)


if __name__ == "__main__":
    main()
