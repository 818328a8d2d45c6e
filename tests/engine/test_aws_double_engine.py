"""The AWS double in the real engine: what it lets a program's tests see."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_double import AwsDouble
from aws_double_types import UNKNOWN
from engine_project import CommandResult

from tenancy.lab import control_plane, tools
from tenancy.lab.layout import Lab, environ
from tests.waiting import PATIENCE

pytestmark = [
    pytest.mark.chapters,
    pytest.mark.exhaustive(
        reason="judges the tests' own double of AWS in the real engine; the product's tests run on it in `make test`"
    ),
]

# One node group by the SDK's classes, one as a plain resource with the properties that go over the wire.
PROGRAM = """\
import json, pathlib, pulumi, pulumi_aws as aws

values = {"label": "a", "instances": ["p4d.24xlarge"], "disk": 100}
values |= json.loads(pathlib.Path("values.json").read_text())
provider = aws.Provider("ireland", region="eu-west-1", default_tags={"tags": {"owner": "platform"}})
options = pulumi.ResourceOptions(provider=provider)

vpc = aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16", opts=options)
subnet = aws.ec2.Subnet("subnet", vpc_id=vpc.id, cidr_block="10.0.1.0/24", tags={"tier": "private"}, opts=options)
role = aws.iam.Role("role", assume_role_policy=json.dumps({"Version": "2012-10-17", "Statement": []}), opts=options)
cluster = aws.eks.Cluster("cluster", role_arn=role.arn, vpc_config={"subnet_ids": [subnet.id]}, opts=options)
template = aws.ec2.LaunchTemplate(
    "template",
    block_device_mappings=[{"device_name": "/dev/xvda", "ebs": {"volume_size": values["disk"]}}],
    user_data=pulumi.Output.secret("cGFzc3dvcmQ="),
    opts=options,
)
aws.eks.NodeGroup(
    "by-sdk",
    cluster_name=cluster.name,
    node_role_arn=role.arn,
    subnet_ids=[subnet.id],
    scaling_config={"min_size": 0, "max_size": 2, "desired_size": 1},
    instance_types=values["instances"],
    labels={"team": values["label"]},
    launch_template={"id": template.id, "version": template.latest_version.apply(str)},
    opts=options,
)
raw = {
    "clusterName": cluster.name,
    "nodeGroupName": "raw",
    "nodeRoleArn": role.arn,
    "subnetIds": [subnet.id],
    "scalingConfig": {"minSize": 0, "maxSize": 2, "desiredSize": 1},
    "instanceTypes": values["instances"],
    "labels": {"team": values["label"]},
} | values.get("raw", {})
pulumi.CustomResource("aws:eks/nodeGroup:NodeGroup", "by-hand", raw, options)
aws.s3.Bucket("elsewhere")
pulumi.export("issuer", cluster.identities[0].oidcs[0].issuer)
pulumi.export("group", cluster.vpc_config.cluster_security_group_id)
pulumi.export("ca", cluster.certificate_authority.data)
pulumi.export("region", aws.get_region(opts=pulumi.InvokeOptions(provider=provider)).region)
"""
NAMES = ["vpc", "role", "subnet", "cluster", "template", "by-sdk", "by-hand", "elsewhere"]


class Program:
    """A project with a state of its own, in an engine whose AWS is the double."""

    def __init__(self, folder: Path, aws: AwsDouble) -> None:
        self.folder, self.aws = folder, aws
        lab = Lab(folder, folder / ".lab")
        lab.state.mkdir(parents=True)
        tool_names = ("pulumi", "pulumi-language-python-exec", "pulumi-resource-kubernetes")
        control_plane._link_plugins(lab, tools.ensure(only=tool_names))
        runtime = {"name": "python", "options": {"virtualenv": sys.prefix}}
        (folder / "Pulumi.yaml").write_text(json.dumps({"name": "double", "runtime": runtime}))
        (folder / "Pulumi.dev.yaml").write_text(json.dumps({"config": {"aws:region": "eu-central-1"}}))
        (folder / "__main__.py").write_text(PROGRAM)
        self.set()
        assert self.pulumi("stack", "init", "dev").code == 0

    def set(self, **values: Any) -> None:
        (self.folder / "values.json").write_text(json.dumps(values))

    def pulumi(self, *arguments: str) -> CommandResult:
        self.aws.calls.clear()
        command = ["pulumi", *arguments, "--non-interactive"]
        env = environ(self.folder) | self.aws.environ
        ran = subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        return CommandResult(ran.returncode, ran.stdout, ran.stderr)

    def up(self, **values: Any) -> CommandResult:
        self.set(**values)
        return self.pulumi("up", "--yes", "--skip-preview", "--stack", "dev")

    def preview(self, **values: Any) -> dict[str, str]:
        """The operation that the engine plans for each resource."""
        self.set(**values)
        result = self.pulumi("preview", "--json", "--stack", "dev")
        assert result.code == 0, result.text
        steps = {step["urn"].rpartition("::")[2]: step["op"] for step in json.loads(result.out)["steps"]}
        return {name: steps[name] for name in NAMES if name in steps}


@pytest.fixture(scope="module")
def aws() -> Iterator[AwsDouble]:
    with AwsDouble() as double:
        yield double


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, aws: AwsDouble) -> Iterator[Program]:
    """The tests build on one another, in their order: nothing is there, everything is, it changes, it goes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPU_TENANCY_LAB", raising=False)
        yield Program(tmp_path_factory.mktemp("double"), aws)


def test_a_preview_makes_nothing_and_knows_what_it_can(program: Program, aws: AwsDouble) -> None:
    assert program.preview() == dict.fromkeys(NAMES, "create")
    assert not aws.live
    assert aws.order("create") == [], "a preview only asks what would come of it"
    group = next(call for call in aws.calls if call.kind == "check" and call.name == "by-hand")
    assert group.inputs["subnetIds"] == [UNKNOWN], "only AWS gives ids"
    assert group.inputs["nodeGroupName"] == "raw"


def test_a_wrong_property_fails_the_preview_and_names_it(program: Program) -> None:
    program.set(raw={"taints": [{"key": "gpu", "efect": "NO_SCHEDULE"}]})
    result = program.pulumi("preview", "--stack", "dev")
    assert result.code != 0
    assert "taints[0].efect" in result.text
    assert "did you mean `effect`?" in result.text
    assert program.preview(raw={"taints": [{"key": "gpu", "effect": "NO_SCHEDULE"}]})["by-hand"] == "create"


def test_everything_is_made_once_in_the_order_of_its_references(program: Program, aws: AwsDouble) -> None:
    result = program.up()
    assert result.code == 0, result.text
    order = aws.order("create")
    assert sorted(order) == sorted(f"create {name}" for name in NAMES)
    for pair in ("vpc subnet", "subnet cluster", "role cluster", "cluster by-hand", "template by-sdk"):
        first, second = pair.split()
        assert order.index(f"create {first}") < order.index(f"create {second}")
    group, subnet, role = (aws.find(f"::{name}").id for name in ("by-hand", "subnet", "role"))
    assert group == f"{aws.find('::cluster').id}:raw", "an EKS node group's id holds its cluster's"
    assert aws.find("::by-hand").inputs["subnetIds"] == [subnet]
    assert aws.find("::by-sdk").inputs["nodeRoleArn"] == f"arn:aws:iam::111122223333:role/{role}"
    assert aws.find("::by-sdk").inputs["launchTemplate"]["version"] == "1"


def test_each_provider_has_its_own_region_and_tags(aws: AwsDouble) -> None:
    subnet, bucket = aws.find("::subnet").outputs, aws.find("::elsewhere").outputs
    assert subnet["region"] == "eu-west-1"
    assert subnet["tagsAll"] == {"owner": "platform", "tier": "private"}
    assert bucket["region"] == "eu-central-1"
    assert bucket["tagsAll"] == {}


def test_outputs_are_there_for_what_builds_on_them(program: Program) -> None:
    outputs = json.loads(program.pulumi("stack", "output", "--json", "--stack", "dev").out)
    assert outputs["issuer"].startswith("https://oidc.eks.eu-west-1.amazonaws.com/id/")
    assert outputs["group"].startswith("sg-")
    assert outputs["ca"]
    assert outputs["region"] == "eu-west-1"


def test_secrets_stay_secret_in_the_state(program: Program, aws: AwsDouble) -> None:
    assert "cGFzc3dvcmQ=" not in program.pulumi("stack", "export", "--stack", "dev").out
    assert aws.find("::template").inputs["userData"]["value"] == "cGFzc3dvcmQ=", "AWS got the value itself"


def test_a_second_up_changes_nothing(program: Program, aws: AwsDouble) -> None:
    assert program.up().code == 0
    assert {call.kind for call in aws.calls} == {"configure", "check", "diff", "invoke"}


def test_a_label_updates_in_place_however_the_group_is_written(program: Program, aws: AwsDouble) -> None:
    assert program.preview(label="b") == {"by-sdk": "update", "by-hand": "update"}
    assert program.up(label="b").code == 0
    assert sorted(aws.order("create", "update", "delete")) == ["update by-hand", "update by-sdk"]
    assert aws.find("::by-hand").outputs["labels"] == {"team": "b"}


def test_a_fault_strikes_where_it_was_told_to_and_once(program: Program, aws: AwsDouble) -> None:
    aws.fail_on("::by-sdk", "update", "InvalidRequestException: update in progress")
    result = program.up()
    assert result.code != 0
    assert "InvalidRequestException: update in progress" in result.text
    assert aws.find("::by-sdk").outputs["labels"] == {"team": "b"}
    # Whether the engine had come to the other one before the first failed is a race.
    assert program.up().code == 0
    assert {aws.find(f"::{name}").outputs["labels"]["team"] for name in ("by-sdk", "by-hand")} == {"a"}


def test_a_changed_template_moves_the_groups_on_it_to_its_next_version(program: Program, aws: AwsDouble) -> None:
    assert program.preview(disk=200) == {"template": "update", "by-sdk": "update"}
    assert program.up(disk=200).code == 0
    assert aws.order("create", "update", "delete") == ["update template", "update by-sdk"]
    assert aws.find("::by-sdk").inputs["launchTemplate"]["version"] == "2"


def test_an_instance_type_replaces_and_a_given_name_goes_first(program: Program, aws: AwsDouble) -> None:
    result = program.up(disk=200, instances=["g6.12xlarge"])
    assert result.code == 0, result.text
    order = aws.order("create", "update", "delete")
    assert sorted(order) == ["create by-hand", "create by-sdk", "delete by-hand", "delete by-sdk"]
    assert order.index("create by-sdk") < order.index("delete by-sdk"), "an automatic name leaves room for two"
    assert order.index("delete by-hand") < order.index("create by-hand"), "AWS takes a name only once"


def test_a_refresh_sees_what_changed_and_what_is_gone(program: Program, aws: AwsDouble) -> None:
    aws.drift("::by-hand", labels={"team": "stranger"})
    aws.lose("::by-sdk")
    result = program.pulumi("refresh", "--yes", "--skip-preview", "--stack", "dev")
    assert result.code == 0, result.text
    plan = program.preview(disk=200, instances=["g6.12xlarge"])
    assert plan == {"by-sdk": "create", "by-hand": "update"}


def test_a_destroy_goes_backwards_and_leaves_nothing(program: Program, aws: AwsDouble) -> None:
    result = program.pulumi("destroy", "--yes", "--skip-preview", "--stack", "dev")
    assert result.code == 0, result.text
    assert not aws.live
    order = aws.order("delete")
    for pair in ("by-hand cluster", "cluster role", "cluster subnet", "subnet vpc"):
        first, second = pair.split()
        assert order.index(f"delete {first}") < order.index(f"delete {second}")
