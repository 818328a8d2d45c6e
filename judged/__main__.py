"""Run the judges: `make judged`.

python -m judged                    run all, write build/judged/ and docs/judged.md
python -m judged --only bandit      run one, write nothing
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys

from judged import checklists, report, run, waivers
from judged.homes import ROOT
from judged.model import SkippedJudge, Verdict

OUT = ROOT / "build" / "judged"
PAGE = ROOT / "docs" / "judged.md"


def main() -> int:
    """Exit codes: 0 every finding is waived and every waiver matches, 1 otherwise, 2 the waivers cannot be read."""
    told = argparse.ArgumentParser(prog="python -m judged", description=(__doc__ or "").splitlines()[0])
    told.add_argument("--only", action="append", choices=list(run.RUN), help="run this judge alone; repeatable")
    only = told.parse_args().only
    try:
        accepted = waivers.read()
    except waivers.UnusableWaivers as error:
        print(f"judges: {error}", file=sys.stderr)
        return 2
    verdicts = run.run(tuple(only or run.RUN), lambda name: print(f"{name} …", file=sys.stderr, flush=True))
    if not only:
        verdicts += [Verdict(name, "–", "–", skipped=reason) for name, reason in run.NOT_RUN.items()]
    judged = waivers.weigh(verdicts, accepted, dt.datetime.now(dt.UTC).date())
    print(report.table(judged))
    for problem in judged.problems:
        print(problem, file=sys.stderr)
    if not only:
        try:
            seeded = run.seeded_faults()
        except SkippedJudge as reason:
            print(f"seeded faults were not judged: {reason}", file=sys.stderr)
            seeded = {}
        OUT.mkdir(parents=True, exist_ok=True)
        (OUT / "judged.sarif").write_text(report.as_text(judged), "utf-8")
        PAGE.write_text(report.page(judged, checklists.read(), seeded), "utf-8")
    return 1 if judged.problems else 0


if __name__ == "__main__":
    sys.exit(main())
