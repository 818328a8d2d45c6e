"""AWS as a program finds it by its look-ups."""

from __future__ import annotations

from typing import Any

from aws_double_facts import add_on_version

from tenancy.components.aws.network import NO_ENDPOINT, SEVERAL_ENDPOINTS

MAIN, SECONDARY = "rtb-main", "100.64.0.0/16"
VPC = {
    "mainRouteTableId": MAIN,
    "enableDnsSupport": True,
    "enableDnsHostnames": True,
    "cidrBlock": "10.0.0.0/16",
    "cidrBlockAssociations": [
        {"associationId": "vpc-cidr-assoc-1", "cidrBlock": "10.0.0.0/16", "state": "associated"},
        {"associationId": "vpc-cidr-assoc-2", "cidrBlock": SECONDARY, "state": "associated"},
        {"associationId": "vpc-cidr-assoc-3", "cidrBlock": "10.9.0.0/16", "state": "disassociated"},
    ],
}
TABLES = {"subnet-0a": ["rtb-own"], "subnet-0b": [], "subnet-0c": []}
"""The subnets without a table of their own use the VPC's main one."""


def refused(reason: str) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """An answer of the provider's that is an error."""
    return {}, [("", reason)]


class Answers:
    """Answers of AWS to the program's look-ups, with the look-ups themselves."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.missing: set[str] = set()
        self.twice: set[str] = set()
        self.switched_off: set[str] = set()
        """Attributes of the VPC."""
        self.images: dict[str, str] = {}
        """Descriptions of images by name."""
        self.add_ons: dict[str, tuple[str, str]] = {}
        """EKS' default version and the most recent one, by add-on."""

    def __call__(self, _: object, call: Any) -> Any:
        name = call.token.rpartition("/")[2].partition(":")[0]
        self.asked.append((name, dict(call.args)))
        return getattr(self, name)(call.args)

    def getParameter(self, arguments: Any) -> dict[str, Any]:  # noqa: N802 (AWS' name)
        """EKS' public parameter of an image: of the minor and the day that its name has."""
        parts = arguments["name"].split("/")
        return {"value": f"{parts[5]}.3-{parts[-2].rpartition('-v')[2]}"}

    def getAddonVersion(self, arguments: Any) -> dict[str, Any]:  # noqa: N802 (AWS' name)
        """EKS' default version or the most recent one; both newer than any floor unless set."""
        if versions := self.add_ons.get(arguments["addonName"]):
            return {"version": versions[bool(arguments["mostRecent"])]}
        return {"version": add_on_version(arguments)}

    def getAmi(self, arguments: Any) -> Any:  # noqa: N802 (AWS' name)
        (only,) = arguments["filters"]
        assert (only["name"], arguments["owners"]) == ("name", ["amazon"])
        image = self.images.get(only["values"][0])
        if image is None:
            return refused("Your query returned no results. Please change your search criteria and try again.")
        return {"description": image}

    def getVpc(self, _: Any) -> dict[str, Any]:  # noqa: N802 (AWS' name)
        return {**VPC, **dict.fromkeys(self.switched_off, False)}

    def getRouteTables(self, arguments: Any) -> dict[str, Any]:  # noqa: N802 (AWS' name)
        (only,) = arguments["filters"]
        assert only["name"] == "association.subnet-id"
        return {"ids": TABLES[only["values"][0]]}

    def getVpcEndpoint(self, arguments: Any) -> Any:  # noqa: N802 (AWS' name)
        """S3 has both kinds of endpoint; every other service has one."""
        short = arguments["serviceName"].rpartition("eu-central-1.")[2]
        kinds = {kind for filter_item in arguments.get("filters") or () for kind in filter_item["values"]}
        if short in self.missing:
            return refused(NO_ENDPOINT)
        if short in self.twice or (short == "s3" and not kinds):
            return refused(f"{SEVERAL_ENDPOINTS}; use additional constraints")
        return {"id": "vpce-1", "vpcEndpointType": kinds.pop()}

    def kinds(self) -> dict[str, str]:
        """Kinds of the endpoints that were looked up, by service."""
        endpoint_arguments = (arguments for name, arguments in self.asked if name == "getVpcEndpoint")
        return {
            endpoint["serviceName"].rpartition("eu-central-1.")[2]: endpoint["filters"][0]["values"][0]
            for endpoint in endpoint_arguments
        }
