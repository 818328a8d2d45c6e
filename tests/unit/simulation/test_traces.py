"""Traces: our own columns, those of public traces, and what is said about a wrong one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tenancy.cli import main
from tenancy.rules.catalogue import Violation
from tenancy.simulation import trace, trace_files
from tenancy.simulation.changes import with_changes
from tenancy.simulation.generate import generate
from tenancy.simulation.trace import Job, Trace
from tenancy.spec.loader import Loaded
from tenancy.spec.reading.problems import Problem, SpecError
from tests.conftest import every


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trace.csv"


def read(file: Path, loaded: Loaded, text: str, **mapped: str) -> Trace:
    file.write_text(text, "utf-8")
    return trace_files.read(file, loaded, mapped)


def problems(file: Path, loaded: Loaded, text: str, **mapped: str) -> tuple[Problem, ...]:
    with pytest.raises(SpecError) as refused:
        read(file, loaded, text, **mapped)
    return refused.value.problems


def test_four_columns_are_a_trace(file: Path, loaded: Loaded) -> None:
    parsed = read(file, loaded, "submit,tenant,gpus,duration\n10,fraud,16,600\n0,research,2,60\n")
    first, second = parsed.jobs
    assert (first.tenant, first.namespace, first.flavor, first.gpus, first.gpus_per_pod) == (
        "research",
        "main",
        "a100",
        2,
        2,
    )
    assert (second.submit, second.namespace, second.gpus_per_pod, second.tier) == (10, "train", 8, "batch"), (
        "8 GPUs on a node"
    )
    assert first.checkpoint is None


def test_what_is_written_is_read_again(file: Path, loaded: Loaded) -> None:
    jobs = (
        Job("a", 0, "fraud", "train", "a100", 12, 6, 100, "batch", 10),
        Job("b", 5, "fraud", "serve", "a100-1g.5gb", 2, 1, 7, "production", None, "default", 7),
        Job("c", 6, "fraud", "train", "a100", 1, 1, 100, "batch", busy=0),
    )
    assert read(file, loaded, trace.write(jobs)).jobs == jobs


def test_pods_are_as_large_as_goes_evenly() -> None:
    assert [trace.pods_of(gpus, 8) for gpus in (1, 8, 12, 16, 200, 7, 11)] == [1, 8, 6, 8, 8, 7, 1]


def test_times_with_a_date_count_from_the_first(file: Path, loaded: Loaded) -> None:
    text = "submit,tenant,gpus,duration\n2026-01-31T08:00:00+01:00,fraud,1,60\n2026-01-31 07:30:00,fraud,1,60\n"
    assert [job.submit for job in read(file, loaded, text).jobs] == [0, 1800]


def test_seconds_since_1970_count_from_the_first(file: Path, loaded: Loaded) -> None:
    parsed = read(file, loaded, "submit,tenant,gpus,duration\n1700000300,fraud,1,60\n1700000000,fraud,1,60\n")
    assert [job.submit for job in parsed.jobs] == [0, 300], "a run of 53 years would be none"
    assert any("since 1970" in note for note in parsed.notes)


@pytest.mark.parametrize("between", [";", "\t"])
def test_spreadsheets_write_other_marks_than_commas(file: Path, loaded: Loaded, between: str) -> None:
    text = "\ufeffsubmit,tenant,gpus,duration\r\n0,fraud,8,60\r\n".replace(",", between)
    assert [(job.gpus, job.duration) for job in read(file, loaded, text).jobs] == [(8, 60)]
    text = "submit,tenant,gpus,duration,name\n0,fraud,8,60,a;b;c;d;e\n"
    assert [job.name for job in read(file, loaded, text).jobs] == ["a;b;c;d;e"], "the first line says"


def test_ten_columns_with_names_are_no_pai_table(file: Path, loaded: Loaded) -> None:
    parsed = read(file, loaded, "a,vc,gpu_num,submit_time,runtime,b,c,d,e,f\n,fraud,8,0,60,,,,,\n")
    assert [(job.gpus, job.duration) for job in parsed.jobs] == [(8, 60)]


def test_helios_is_read_as_it_comes(file: Path, loaded: Loaded) -> None:
    text = (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "j1,u1,vcA,8,64,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:05,2020-04-01 01:00:05,3600,5\n"
        "j2,u1,vcA,0,64,1,COMPLETED,2020-04-01 00:00:01,2020-04-01 00:00:05,2020-04-01 01:00:05,3600,5\n"
    )
    parsed = read(file, loaded, text, vcA="fraud")
    (job,) = parsed.jobs
    assert (job.name, job.tenant, job.gpus, job.duration, job.queue) == ("j1", "fraud", 8, 3600, None)
    assert any("1 lines left out" in note for note in parsed.notes)


def test_acme_has_users_and_no_virtual_clusters(file: Path, loaded: Loaded) -> None:
    text = (
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
        "d1,uf794,2,16,64,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:00:59+00:00,,18,0,288\n"
    )
    parsed = read(file, loaded, text)
    assert parsed.jobs[0].gpus == 16
    assert any("mapped to a tenant by hash" in note for note in parsed.notes), "the rule is said in the report"


def test_a_duration_that_counts_the_wait_is_not_the_run_time(file: Path, loaded: Loaded) -> None:
    header = "job_id,user,gpu_num,submit_time,start_time,end_time,duration,queue\n"
    kalos = "d1,u1,64,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,18,10.0\n"
    seren = "d2,u1,8,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,2023-03-01 00:20:51+08:00,117,32\n"
    assert [job.duration for job in read(file, loaded, header + kalos).jobs] == [8]
    assert any("the latter is what counts" in note for note in read(file, loaded, header + kalos).notes)
    assert not any("the latter is" in note for note in read(file, loaded, header + seren).notes)


def test_alibabas_pods_of_2023_run_from_when_they_were_scheduled(file: Path, loaded: Loaded) -> None:
    parsed = read(
        file,
        loaded,
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "openb-pod-0035,16000,32768,1,460,V100M16|V100M32,LS,Running,9967058,9968575,9967063.0\n"
        "openb-pod-0036,16000,32768,1,1000,,LS,Pending,9967059,9968575,\n"
        "openb-pod-0037,16000,32768,0,0,,LS,Running,9967059,9968575,9967063.0\n",
    )
    (job,) = parsed.jobs
    assert (job.name, job.submit, job.gpus, job.duration) == ("openb-pod-0035", 0, 1, 9968575 - 9967063)
    assert any("2 lines left out" in note for note in parsed.notes)
    assert any("gpu_milli" in note for note in parsed.notes)


@pytest.mark.parametrize("header", [True, False])
def test_pai_counts_hundredths_for_each_instance(file: Path, loaded: Loaded, header: bool) -> None:
    names = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
    text = "a1,worker,3.0,Terminated,100.0,400.5,600.0,29.3,50.0,T4\na2,ps,1.0,Terminated,90.0,95.0,600.0,29.3,,\n"
    parsed = read(file, loaded, (names if header else "") + text)
    (job,) = parsed.jobs
    assert (job.name, job.gpus, job.duration) == ("a1", 3, 301), "a part of a GPU is a whole one here"
    assert any("submitted when they started" in note for note in parsed.notes)
    assert any("a line is a task" in note for note in parsed.notes)


def test_philly_is_json_with_attempts(file: Path, loaded: Loaded) -> None:
    machines = [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0", "gpu1"]}]
    job = {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": "application_1",
        "submitted_time": "2017-10-01 00:00:00",
        "user": "ce2ab1",
        "attempts": [
            {"start_time": "2017-10-01 00:01:00", "end_time": "2017-10-01 00:02:00", "detail": machines[:1]},
            {"start_time": "2017-10-01 00:03:00", "end_time": "2017-10-01 00:05:00", "detail": machines},
        ],
    }
    (parsed_job,) = read(file, loaded, json.dumps([job])).jobs
    assert (parsed_job.name, parsed_job.gpus, parsed_job.duration) == ("application_1", 4, 180)


def test_times_that_philly_did_not_record_are_none(file: Path, loaded: Loaded) -> None:
    run = {"start_time": "2017-10-01 00:01:00", "end_time": "2017-10-01 00:02:00", "detail": [{"gpus": ["gpu0"]}]}
    complete_job = {"submitted_time": "2017-10-01 00:00:00", "vc": "fraud", "jobid": "a", "attempts": [run]}
    jobs = [
        complete_job,
        complete_job | {"submitted_time": "None"},
        complete_job | {"attempts": []},
        complete_job | {"attempts": None},
        complete_job | {"attempts": [run | {"end_time": "None"}, run, run | {"start_time": None}]},
    ]
    parsed = read(file, loaded, json.dumps(jobs))
    assert [job.duration for job in parsed.jobs] == [60, 60], "as its authors' notebook reads them"
    assert any("3 lines left out" in note for note in parsed.notes)


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ("7", "3:1: given 'int' object is not subscriptable; rule a job has submitted_time"),
        ('{"vc": "a"}', "3:1: given no 'attempts'; rule a job has submitted_time"),
        ('{"attempts": [7]}', "3:1: given 'int' object is not subscriptable"),
        ('{"attempts": [{"start_time": [1], "end_time": null}]}', "3:1: given [1]"),
        ('{"attempts": [{"start_time": "soon", "end_time": ""}]}', "3:1: given 'soon'"),
        ('{"attempts": []} {', "3:18: given no list of jobs"),
        ("[" * 100_000, "3:1: given no list of jobs"),
    ],
)
def test_a_wrong_job_of_philly_names_its_line(file: Path, loaded: Loaded, job: str, expected: str) -> None:
    messages = [str(problem) for problem in problems(file, loaded, f'[\n  {{"attempts": []}},\n{job}]')]
    assert any(expected in text for text in messages), messages


def test_a_name_goes_to_the_same_tenant_every_time(file: Path, loaded: Loaded) -> None:
    text = "submit,user,gpus,duration\n" + "".join(f"{n},user{n % 7},1,60\n" for n in range(28))
    first, again = read(file, loaded, text), read(file, loaded, text)
    assert first == again
    assert len({job.tenant for job in first.jobs}) == 2, "both tenants get some"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1:1: given an empty file"),
        ("submit,tenant,gpus\n0,fraud,1\n", "1:1: duration: given no such column"),
        ("submit,tenant,gpus,duration\n0,froud,1,60\n", "2:3: tenant: given 'froud'; rule a tenant that has GPUs"),
        ("submit,tenant,gpus,duration\n0,fraud,eight,60\n", "2:9: gpus: given 'eight'; rule a whole number"),
        ("submit,tenant,gpus,duration\n0,fraud,1.5,60\n", "2:9: gpus: given '1.5'"),
        ("submit,tenant,gpus,duration\nsoon,fraud,1,60\n", "2:1: submit: given 'soon'"),
        ("submit,tenant,gpus,duration\n0,fraud,1,-6\n", "2:11: duration: given '-6'; rule seconds"),
        ("submit,tenant,gpus,duration,flavor\n0,fraud,1,60,h100\n", "2:14: flavor: given 'h100'"),
        ("submit,tenant,gpus,duration,tier\n0,fraud,1,60,gold\n", "2:14: tier: given 'gold'; rule a tier"),
        (
            "submit,tenant,gpus,duration,tier,namespace\n0,fraud,1,60,production,train\n",
            "2:14: tier: given production; rule no",
        ),
        ("submit,tenant,gpus,duration,namespace\n0,fraud,1,60,nowhere\n", "2:14: namespace: given 'nowhere'"),
        ("submit,tenant,gpus,duration,gpus-per-pod\n0,fraud,16,60,5\n", "2:15: gpus-per-pod: given 5 of 16"),
        ("submit,tenant,gpus,duration,checkpoint\n0,fraud,1,60,0\n", "2:14: checkpoint: given '0'"),
        ("submit,tenant,gpus,duration,busy\n0,fraud,1,60,61\n", "2:14: busy: given '61'; rule seconds of the run time"),
        ("submit,tenant,gpus,duration,busy\n0,fraud,1,60,-1\n", "2:14: busy: given '-1'; rule seconds of the run time"),
        ("submit,tenant,gpus,duration,busy\n0,fraud,1,60,half\n", "from 0 to 60; change: write when its GPUs become"),
        ("submit,tenant,gpus,duration,queue\n0,fraud,1,60,fast\n", "2:14: queue: given 'fast'"),
        ("submit,tenant,gpus,duration\n1700000000000,fraud,1,60\n", "2:1: submit: given '1700000000000'; rule seconds"),
        ("submit,tenant,gpus,duration\n-5,fraud,1,60\n", "2:1: submit: given '-5'; rule from the start"),
        (
            "submit,tenant,gpus,duration\n0,fraud,1,60\n2026-01-31,fraud,1,60\n",
            "3:1: submit: given '2026-01-31'; rule from the start of the trace, and within a year",
        ),
        ("submit,tenant,gpus,duration\n0,fraud,1,1e300\n", "2:11: duration: given '1e300'; rule seconds, of a year"),
        ("submit,tenant,gpus,duration\n0,fraud,1,1_0\n", "2:11: duration: given '1_0'"),
        ("submit,tenant,gpus,duration\n0,fraud,1e20,60\n", "2:9: gpus: given '1e20'; rule a whole number up to"),
        ("submit,tenant,gpus,duration\n0,fraud,\u0663,60\n", "2:9: gpus: given '\u0663'"),
        (
            "submit,tenant,gpus,start_time,end_time\n0,fraud,1,1,2026-01-31\n",
            "duration: given 1769817599 s from start to end; rule a job runs a year",
        ),
        (f"submit,tenant,gpus,duration,checkpoint\n0,fraud,1,60,{'9' * 5000}\n", "2:14: checkpoint: given"),
        ("  \n\n", "1:1: given an empty file"),
        ("submit,tenant,gpus,duration\n0,fraud,1,60,9\n", "2:1: given 5 cells; rule 4, as the first line has"),
        ("submit,tenant,gpus,duration,gpus\n0,fraud,1,60,2\n", "1:1: gpus: given 2 columns; rule each column once"),
        (
            "submit,tenant,duration\n",
            "1:1: gpus: given no such column; rule a trace has submit, tenant, gpus, duration; "
            "change: add it, or call one gpu_num or plan_gpu or num_gpus",
        ),
        ("a1,worker,x,Terminated,100.0,400.5,600.0,29.3,50.0,T4\n", "gpus: given inst_num 'x'"),
        ("submit,tenant,gpus,duration\n0,fraud,0,60\n", "no job that asks for a GPU"),
        ("[1, 2", "no list of jobs"),
    ],
)
def test_a_wrong_trace_names_its_line_and_column(file: Path, loaded: Loaded, text: str, expected: str) -> None:
    messages = [str(problem) for problem in problems(file, loaded, text)]
    assert any(expected in text for text in messages), messages


def test_of_many_mistakes_some_are_named_and_the_rest_is_not_hidden(file: Path, loaded: Loaded) -> None:
    trace_problems = problems(file, loaded, "submit,tenant,gpus,duration\n" + "0,froud,1,60\n" * 1000)
    assert len(trace_problems) == trace_files.MAX_PROBLEMS + 1
    assert trace_problems[-1].given == "more mistakes", "who mends what is named is not done"


def test_a_mapping_of_a_user_who_is_not_in_the_file_is_noted(file: Path, loaded: Loaded) -> None:
    parsed = read(file, loaded, "submit,user,gpus,duration\n0,u1,1,60\n", u1="fraud", u2="research")
    assert "--map-user has names that are not in the file: u2" in parsed.notes
    assert read(file, loaded, "submit,user,gpus,duration\n0,u1,1,60,,\n", u1="fraud").notes == ()


def test_a_mapping_names_a_tenant(file: Path, loaded: Loaded) -> None:
    (problem,) = problems(file, loaded, "submit,user,gpus,duration\n0,u,1,60\n", u="missing")
    assert "--map-user" in problem.field


def test_a_file_that_is_not_there_is_a_problem(tmp_path: Path, loaded: Loaded) -> None:
    with pytest.raises(SpecError, match="name a file that can be read"):
        trace_files.read(tmp_path / "none.csv", loaded)


def test_the_same_seed_makes_the_same_bytes(loaded: Loaded) -> None:
    assert trace.write(generate(loaded, 300, 24, 7)) == trace.write(generate(loaded, 300, 24, 7))
    assert trace.write(generate(loaded, 300, 24, 7)) != trace.write(generate(loaded, 300, 24, 8))


def test_a_made_trace_is_one_that_is_read(file: Path, loaded: Loaded) -> None:
    generated = generate(loaded, 400, 24, 1)
    assert len(generated) == 400
    assert every(0 <= job.submit < 24 * 3600 for job in generated)
    assert list(read(file, loaded, trace.write(generated)).jobs) == generated


def test_a_made_trace_has_the_borrower_the_lender_and_the_burst(loaded: Loaded) -> None:
    generated = generate(loaded, 400, 24, 1)
    retraining = [job for job in generated if job.name == "fraud-retraining"]
    assert [job.gpus for job in retraining] == [8], "half of what the lender is promised"
    sweep = [job for job in generated if "-sweep-" in job.name]
    assert len(sweep) == 40
    assert len({job.submit for job in sweep}) == 1, "a tenth of the jobs at once"


def test_notebooks_become_idle_and_leave_the_other_jobs_as_they_are(file: Path, loaded: Loaded) -> None:
    generated = generate(loaded, 400, 24, 1, 50)
    notebooks = [job for job in generated if "-notebook-" in job.name]
    assert len(notebooks) == 50
    assert [job for job in generated if job not in notebooks] == generate(loaded, 400, 24, 1)
    assert every(0 < (job.busy or 0) <= job.duration for job in notebooks)
    assert sum(job.idle_from(0) is not None for job in notebooks) > 40
    assert every(loaded.environment.tiers[job.tier].interruptible for job in notebooks), "others are never suspended"
    assert list(read(file, loaded, trace.write(generated)).jobs) == generated


def test_a_change_is_judged_like_any_file(loaded: Loaded) -> None:
    more = with_changes(loaded, ["fraud:gpus.a100.guaranteed=17", "environment:pools.train.nodes=5"])
    fraud = more.tenants[0]
    assert fraud.gpus["a100"].guaranteed == 17
    assert more.environment.pools["train"].nodes.max == 5
    assert with_changes(loaded, ["research:weight=3"]).tenants[1].weight == 3, "a field that was not written before"
    assert with_changes(
        loaded, ["fraud:gpus.a100-1g.5gb.guaranteed=7", "fraud:namespaces.1.gpus.a100-1g.5gb=7"]
    ).tenants
    with pytest.raises(SpecError) as refused:
        with_changes(loaded, ["fraud:gpus.a100.guaranteed=320"])
    assert "pool-03" in [problem.id for problem in refused.value.problems]
    assert {Path(problem.file).name for problem in refused.value.problems} <= {
        "fraud.yaml (changed)",
        "research.yaml (changed)",
        "environment.yaml (changed)",
    }, "a person knows the file, not the copy"


@pytest.mark.parametrize(
    "change",
    [
        "fraud",
        "fraud:weight",
        "missing:weight=2",
        "fraud:people=[]",
        "fraud:team.x=1",
        "fraud:namespaces.7.tier=batch",
        "fraud:namespaces.-1.tier=batch",
        "fraud:gpus.a100.=1",
        "fraud:.=1",
    ],
)
def test_a_change_that_is_none_says_how_to_write_one(loaded: Loaded, change: str) -> None:
    with pytest.raises(Violation):
        with_changes(loaded, [change])


def test_two_values_of_one_field_are_no_change(loaded: Loaded) -> None:
    with pytest.raises(Violation, match="give one value"):
        with_changes(loaded, ["fraud:weight=2", "fraud:weight=3"])
    assert with_changes(loaded, ["fraud:weight=2", "fraud:weight=2"]).tenants[0].weight == 2


def test_a_folder_without_a_spec_file_is_no_change(loaded: Loaded, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="given no spec file"):
        with_changes(loaded, [str(tmp_path)])


def test_a_folder_of_files_is_a_change(loaded: Loaded, tmp_path: Path) -> None:
    text = (loaded.folder / "tenants" / "research.yaml").read_text("utf-8")
    (tmp_path / "tenants").mkdir()
    (tmp_path / "tenants" / "research.yaml").write_text(text + "weight: 5\n", "utf-8")
    assert with_changes(loaded, [str(tmp_path)]).tenants[1].weight == 5
    assert with_changes(loaded, [str(loaded.folder)]).tenants == loaded.tenants


def test_a_change_that_is_a_link_is_not_read(loaded: Loaded, tmp_path: Path) -> None:
    foreign_folder, change = tmp_path / "theirs", tmp_path / "change"
    (foreign_folder / "tenants").mkdir(parents=True)
    (foreign_folder / "tenants" / "research.yaml").write_bytes(
        (loaded.folder / "tenants" / "research.yaml").read_bytes()
    )
    change.mkdir()
    assert with_changes(loaded, [str(foreign_folder)]).tenants
    for link, target in (
        (tmp_path / "whole", foreign_folder),
        (change / "tenants", foreign_folder / "tenants"),
        (change / "research.yaml", foreign_folder / "tenants" / "research.yaml"),
    ):
        link.symlink_to(target)
        with pytest.raises(SpecError) as refused:
            with_changes(loaded, [str(tmp_path / "whole" if link.name == "whole" else change)])
        assert [problem.given for problem in refused.value.problems] == ["a link"]
        link.unlink()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--trace", "{trace}", "--jobs", "2"], "given --jobs with --trace"),
        (["--start-hour", "2"], "given --start-hour without --trace; rule: a generated trace starts at 0"),
        (
            ["--trace", "{trace}", "--start-hour", "2"],
            "given --start-hour 2 and {trace}, whose last job is submitted in hour 0; rule: ",
        ),
        (["--trace", "{trace}", "--seed", "1"], "given --seed with --trace"),
        (["--trace", "{trace}", "--notebooks", "1"], "given --notebooks with --trace"),
        (["--map-user", "u=fraud"], "given --map-user without --trace"),
        (["--out", "{folder}/none/page.html"], "given --out {folder}/none/page.html; rule: a file that can be written"),
        (["--write-trace", "{trace}/x.csv"], "given --write-trace {trace}/x.csv"),
        (["--trace", "{trace}", "--write-trace", "/dev/full"], "No space left"),
        (["--trace", "{trace}", "--map-user", "u"], "given --map-user 'u'; rule: a name and a tenant"),
    ],
)
def test_options_that_cannot_be_met_end_before_anything_starts(
    file: Path, loaded: Loaded, more: list[str], expected: str
) -> None:
    file.write_text("submit,tenant,gpus,duration\n0,fraud,1,60\n", "utf-8")
    options = [text.format(trace=file, folder=file.parent) for text in more]
    result = CliRunner().invoke(main, ["simulate", str(loaded.folder), *options])
    assert result.exit_code == 2, result.output
    assert expected.format(trace=file, folder=file.parent) in result.output


def test_a_part_of_a_trace_starts_at_its_first_hour(file: Path, loaded: Loaded) -> None:
    lines = "".join(f"{hour * 3600 + 60},fraud,1,600\n" for hour in range(5))
    file.write_text(f"submit,tenant,gpus,duration\n{lines}", "utf-8")
    part = trace.select_hours(trace_files.read(file, loaded), 2, 2)
    assert [job.submit for job in part.jobs] == [60, 3660]
    assert part.notes[-1] == "hours 2 to 4: 2 of 5 jobs, on a cluster empty at the start"


def test_more_jobs_than_a_run_takes_are_refused_and_a_part_of_them_is_not(
    file: Path, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenancy.cli.simulate.MAX_JOBS", 3)
    lines = "".join(f"{hour * 3600},fraud,1,600\n" for hour in range(5))
    file.write_text(f"submit,tenant,gpus,duration\n{lines}", "utf-8")
    part = file.with_name("part.csv")
    arguments = ["simulate", str(loaded.folder), "--trace", str(file), "--write-trace", str(part)]
    refused = CliRunner().invoke(main, arguments)
    assert refused.exit_code == 2
    assert f"given {file} with 5 jobs; rule: a run has at most 3" in refused.stderr
    assert CliRunner().invoke(main, [*arguments, "--hours", "3"]).exit_code == 0
    assert len(part.read_text("utf-8").splitlines()) == 4
