from __future__ import annotations

import re

import pulumi
import pulumi_aws as aws

from tenancy.planning.aws.cluster import NodeGroupPlan

_KUBELET = re.compile(r"\(k8s: (\d+\.\d+\.\d+)[,)]")
"""In the description of every EKS image: "(k8s: 1.36.2, containerd: 2.2.5-1.amzn2023.0.4)", seen of
amazon-eks-node-al2023-x86_64-standard-1.36-v20260727."""


def image_release(plan: NodeGroupPlan, kubernetes: str, parent: pulumi.Resource) -> str:
    """EKS' full release version of a group's image, such as 1.36.3-20260903.

    From EKS' public parameter of the image; where there is none, from the description of the image itself, which has
    the kubelet's version. Raises RunError where AWS has neither.
    """
    opts = pulumi.InvokeOptions(parent=parent)
    try:
        return aws.ssm.get_parameter(name=plan.release, opts=opts).value
    except Exception as error:  # the SDK raises nothing narrower
        answer = str(error)
    name_filter = aws.ec2.GetAmiFilterArgs(name="name", values=[plan.image])
    try:
        image = aws.ec2.get_ami(owners=["amazon"], filters=[name_filter], opts=opts)
    except Exception as error:  # as above
        answer = f"{answer}; {error}"
    else:
        if version := _KUBELET.search(image.description or ""):
            return f"{version[1]}-{plan.image.rpartition('-v')[2]}"
    raise pulumi.RunError(
        f"given ami-release {plan.image_release} on Kubernetes {kubernetes}, for which AWS has no image "
        f"{plan.image}; rule: the release has an image for the cluster's Kubernetes; change: write a release whose "
        "notes (github.com/awslabs/amazon-eks-ami/releases) list that name with another day as aws.ami-release, or "
        f"the pool's. AWS answered: {' '.join(answer.split())[:400]}"
    )
