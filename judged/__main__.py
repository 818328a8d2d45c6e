"""Run the judges: `make judged`.

python -m judged                    run all, write build/judged/ and docs/judged.md
python -m judged --only bandit      run one, write nothing
python -m judged --no-lab           run all that need no running cluster, write the same
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


def _tell(name: str) -> None:
    print(f"{name} …", file=sys.stderr, flush=True)


def main() -> int:
    """Exit codes: 0 every finding is waived and every waiver matches, 1 otherwise, 2 the waivers cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m judged", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", choices=list(run.RUN), help="run this judge alone; repeatable")
    parser.add_argument("--no-lab", action="store_true", help="start no lab; its judges are skipped by name")
    arguments = parser.parse_args()
    only = arguments.only
    try:
        accepted = waivers.read()
    except waivers.UnusableWaivers as error:
        print(f"judges: {error}", file=sys.stderr)
        return 2
    verdicts = run.run(tuple(only or run.RUN), _tell, with_lab=not arguments.no_lab)
    if not only:
        verdicts += [Verdict(name, "–", "–", skipped=reason) for name, reason in run.NOT_RUN.items()]
    judged = waivers.weigh(verdicts, accepted, dt.datetime.now(dt.UTC).date())
    print(report.table(judged))
    if only:
        print("\n".join(line for verdict in verdicts for line in verdict.details))
    for problem in judged.problems:
        print(problem, file=sys.stderr)
    if not only:
        try:
            seeded, on_aws = run.seeded_faults(), run.seeded_aws_faults()
        except SkippedJudge as reason:
            print(f"seeded faults were not judged: {reason}", file=sys.stderr)
            seeded, on_aws = {}, {}
        OUT.mkdir(parents=True, exist_ok=True)
        (OUT / "judged.sarif").write_text(report.as_text(judged), "utf-8")
        PAGE.write_text(report.page(judged, checklists.read(), seeded, on_aws), "utf-8")
    return 1 if judged.problems else 0


if __name__ == "__main__":
    sys.exit(main())
