#!/usr/bin/env python3
"""The twenty slowest tests of the last run of `cargo nextest`, in seconds.

    python3 scripts/slowest.py target/nextest/default/junit.xml
"""

import sys
from xml.etree import ElementTree

SHOWN = 20


def main(report):
    cases = ElementTree.parse(report).iter("testcase")
    timed = sorted(((float(case.get("time")), case.get("classname"), case.get("name")) for case in cases), reverse=True)
    print(f"{len(timed)} tests, {sum(time for time, _, _ in timed):.0f} s in all; the slowest:")
    for time, suite, name in timed[:SHOWN]:
        print(f"{time:8.1f}  {suite}  {name}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
