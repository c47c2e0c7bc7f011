"""Adds up the JUnit files of a ./check run; usage: summary.py FOLDER. The last line is `N passed, N failed, N skipped`.

A test that could not be run at all counts as failed, and so does a stage that broke off: it left STAGE.broken.
What failed in STAGE.xml and passed in STAGE.again.xml, the second try that CELLBLOCK_RETRY=1 asks for, counts as
passed and is named. With CELLBLOCK_NO_SKIP=1 skipped tests are failures.
"""

import os
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def outcome(case):
    """(passed, failed or skipped; why)"""
    for tag in ("failure", "error"):
        found = case.find(tag)
        if found is not None:
            return "failed", found.get("message") or ""
    if case.get("status") == "disabled":
        return "skipped", "disabled"
    found = case.find("skipped")
    if found is None:
        return "passed", ""
    why = found.get("message") or ""
    # ctest says "skipped" also of a program that is missing
    return ("failed" if case.get("status") == "notrun" and "SKIP" not in why else "skipped"), why


def short(why, most):
    return " ".join(why.split())[:most]


def skipped_inside(case):
    """Names of cases that a cmocka program skipped, though it passed as a whole."""
    said = case.findtext("system-out") or ""
    listed = re.split(r"\[  SKIPPED \] \d+ test\(s\), listed below:", said)
    return re.findall(r"\[  SKIPPED \] (\w+)", listed[1]) if len(listed) > 1 else []


def read(path):
    """What a file's tests came to, as (outcome, name, why)."""
    try:
        cases = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as e:
        yield "failed", path.name, f"can't be read: {e}"
        return
    for case in cases.iter("testcase"):
        name, where = case.get("name"), case.get("classname")
        name = name if where in (None, "", name) else f"{where}.{name}"
        result, why = outcome(case)
        yield result, name, why
        for inside in skipped_inside(case):
            yield "skipped", f"{name}: {inside}", "see the program's output"


def main(folder):
    count = {"passed": 0, "failed": 0, "skipped": 0}
    wrong = []  # said last, where it can't be lost among what was skipped
    unsteady = 0
    for path in sorted(p for p in folder.glob("*.xml") if not p.name.endswith(".again.xml")):
        here = dict.fromkeys(count, 0)
        again = path.with_suffix(".again.xml")
        second = {name: result for result, name, _why in read(again)} if again.exists() else {}
        for result, name, why in read(path):
            if result == "failed" and second.get(name) == "passed":
                wrong.append(f"UNSTEADY {path.stem}: {name}: passed at the second try; first: {short(why, 600)}")
                unsteady += 1
                result = "passed"
            here[result] += 1
            if result == "failed":
                wrong.append(f"FAILED {path.stem}: {name}: {short(why, 600)}")
            elif result == "skipped":
                print(f"SKIPPED {path.stem}: {name}: {short(why, 160)}")
        print(f"{path.stem}: " + ", ".join(f"{n} {what}" for what, n in here.items()))
        for what, n in here.items():
            count[what] += n
    for stage in sorted(folder.glob("*.broken")):
        wrong.append(f"FAILED {stage.stem}: broke off")
        count["failed"] += 1
    if count["skipped"] and os.environ.get("CELLBLOCK_NO_SKIP") == "1":
        print(f"CELLBLOCK_NO_SKIP=1: the {count['skipped']} skipped tests are failures")
        count["failed"] += count["skipped"]
        count["skipped"] = 0
    elif count["skipped"]:
        print(f"NOTE: {count['skipped']} tests were SKIPPED: what they would show was not shown here (reasons above)")
    for line in wrong:
        print(line)
    if unsteady:
        print(f"NOTE: {unsteady} tests passed at the SECOND try only (named above)")
    print(", ".join(f"{n} {what}" for what, n in count.items()))
    return 1 if count["failed"] or not count["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
