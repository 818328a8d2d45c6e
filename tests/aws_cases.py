"""The small environment on AWS, and what breaks each rule on an account."""

# ruff: noqa: E501 - a case is a row

from __future__ import annotations

from tests.spec_cases import ENV, FRAUD, RESEARCH, Case

ROLE = "arn:aws:iam::111122223333:role/"
POINT = "arn:aws:elasticfilesystem:eu-central-1:111122223333:access-point/fsap-0123abcd"
KEY = "arn:aws:kms:eu-central-1:111122223333:key/0f1e2d3c"
ON_AWS = f"""\
  cni: vpc-cni
aws:
  enabled: true
  account: "111122223333"
  region: eu-central-1
  zones: [eu-central-1a, eu-central-1b]
  platform-role: {ROLE}platform
  group-roles:
    fraud-engineers: {ROLE}fraud
    researchers: {ROLE}research
  break-glass: {{trusted-principals: [{ROLE}jane], mail: security@bank.example}}
  service-quotas: {{}}
"""
BUCKETS = f"""\
buckets:
  datasets: {{}}
  models: {{}}
  scratch: {{versioning: false}}
  vault: {{tenant: fraud}}
  old: {{existing: true, kms-key-arn: "{KEY}"}}
efs-access-points:
  "{POINT}": {{}}
"""
MORE_OF_FRAUD = f"""\
ci: {{github: bank/fraud-models, branch: main}}
aws-resources:
  repositories: [scoring]
  secrets: [card]
  efs-access-points:
    - {{file-system: fs-0123abcd, access-point: "{POINT}"}}
"""
MORE_OF_RESEARCH = "ci: {gitlab: bank/risk/models, branch: main}\n"
OWN_GRANT = "{bucket: datasets, prefix: teams/fraud/, access: read-write}"
SHARED_GRANT = "{bucket: datasets, prefix: fraud--train/, access: read-write, namespaces: [train]}"


ECR = "111122223333.dkr.ecr.eu-central-1.amazonaws.com/"
MANY_ROLES = [f"{ROLE}{'x' * 40}-{number}" for number in range(30)]
CASES = (
    Case("a bucket that the environment does not list", "ref-01", RESEARCH, "storage[0].bucket", "bucket: datasets", "bucket: vault", "bucket: models"),
    Case("a group that no tenant has", "ref-01", ENV, "aws.group-roles.researcher", "    researchers:", "    researcher:", "    researchers:"),
    Case("append-only without versions", "stor-05", FRAUD, "storage[0].access", OWN_GRANT, "{bucket: scratch, prefix: teams/fraud/, access: append-only}", "{bucket: scratch, prefix: teams/fraud/, access: read-write}"),
    Case("write-once without versions", "stor-05", FRAUD, "storage[0].access", OWN_GRANT, "{bucket: scratch, prefix: teams/fraud/, access: write-once}", "{bucket: datasets, prefix: teams/fraud/, access: write-once}"),
    Case("wider than the tier", "stor-06", ENV, "storage[0].access", "priority: 1000\n", "priority: 1000\n    max-storage-access: append-only\n", "priority: 1000\n    max-storage-access: read-write\n", FRAUD),
    Case("wider than the tier of one namespace", "stor-06", ENV, "storage[0].access", "interruptible: true\n", "interruptible: true\n    max-storage-access: read-only\n", "interruptible: true\n", FRAUD),
    Case("one inside the other", "stor-07", FRAUD, "storage[1].prefix", "prefix: shared/}", "prefix: teams/fraud/raw/}", "prefix: teams/fraud-raw/}"),
    Case("one around the other", "stor-07", FRAUD, "storage[1].prefix", "prefix: shared/}", "prefix: teams/}", "prefix: team/}"),
    Case("one prefix twice", "stor-07", FRAUD, "storage[1].prefix", "prefix: teams/fraud/, access: read-write}\n  - {bucket: datasets, prefix: shared/}", "prefix: x/, access: write-once, namespaces: [train]}\n  - {bucket: datasets, prefix: x/}", "prefix: x/, access: write-once, namespaces: [train]}\n  - {bucket: datasets, prefix: x/, namespaces: [serve]}"),
    Case("people of another account", "aws-01", ENV, "aws.group-roles.researchers", f"{ROLE}research", "arn:aws:iam::444455556666:role/research", f"{ROLE}researchers"),
    Case("people of another partition", "aws-01", ENV, "aws.group-roles.researchers", f"{ROLE}research", "arn:aws-cn:iam::111122223333:role/research", f"{ROLE}researchers"),
    Case("the platform of another account", "aws-01", ENV, "aws.platform-role", f"{ROLE}platform", "arn:aws:iam::444455556666:role/platform", f"{ROLE}admin"),
    Case("boundary of another account", "aws-01", ENV, "aws.permissions-boundary", "  service-quotas: {}", "  permissions-boundary: arn:aws:iam::444455556666:policy/all", "  permissions-boundary: arn:aws:iam::111122223333:policy/all"),
    Case("key of another region", "aws-01", ENV, "aws.kms-key-arn", "  service-quotas: {}", f"  kms-key-arn: {KEY.replace('central', 'west')}", f"  kms-key-arn: {KEY}"),
    Case("key of another account's bucket", "aws-01", ENV, "buckets.old.kms-key-arn", KEY, KEY.replace("111122223333", "444455556666"), KEY + "4b"),
    Case("key of another region's logs", "aws-01", ENV, "aws.tenant-log-kms-key-arn", "  service-quotas: {}", f"  tenant-log-kms-key-arn: {KEY.replace('central', 'west')}", f"  tenant-log-kms-key-arn: {KEY}"),
    Case("folder of another account", "aws-01", ENV, f"efs-access-points.{POINT.replace('111122223333', '444455556666')}", f'"{POINT}": {{}}', f'"{POINT}": {{}}\n  {POINT.replace("111122223333", "444455556666")}: {{}}', f'"{POINT}": {{}}\n  {POINT}ff: {{}}'),
    Case("folder that is not declared", "ref-01", FRAUD, "aws-resources.efs-access-points[0].access-point", POINT, POINT + "ff", POINT),
    Case("folder of another tenant", "ref-01", ENV, "aws-resources.efs-access-points[0].access-point", f'"{POINT}": {{}}', f'"{POINT}": {{tenant: research}}', f'"{POINT}": {{tenant: fraud}}', FRAUD),
    Case("a host that is no forge of the environment", "ref-01", RESEARCH, "ci.host", "branch: main", "branch: main, host: gitlab.bank.example", "branch: main, host: gitlab.com"),
    Case("GitHub where it is no forge", "ref-01", ENV, "ci.github", "  service-quotas: {}", "  ci-hosts: [gitlab.com]", "  ci-hosts: [gitlab.com, github.com]", FRAUD),
    Case("a GitLab where it is no forge", "ref-01", ENV, "ci.gitlab", "  service-quotas: {}", "  ci-hosts: [github.com, gitlab.bank.example]", "  ci-hosts: [github.com, gitlab.com]", RESEARCH),
    Case("many who break the glass", "aws-02", ENV, "aws.break-glass.trusted-principals", f"{ROLE}jane", ", ".join(MANY_ROLES), ", ".join(MANY_ROLES[:15])),
    Case("more roles than there may be", "aws-03", ENV, "aws.service-quotas.roles", "service-quotas: {}", "service-quotas: {roles: 10}", "service-quotas: {roles: 11}"),
    Case("writing what is not its own", "aws-04", FRAUD, "storage[0].prefix", SHARED_GRANT, OWN_GRANT, SHARED_GRANT, shared=True),
    Case("writing for another namespace", "aws-04", FRAUD, "storage[0].prefix", SHARED_GRANT, SHARED_GRANT.replace("[train]", "[train, serve]"), SHARED_GRANT, shared=True),
    Case("access points of a shared role", "aws-04", ENV, "storage[0].bucket", "  datasets: {}", "  datasets: {access-points: true}", "  datasets: {expiration-days: 90}", FRAUD, shared=True),
    Case("a tenant's key for a shared role", "aws-04", ENV, "storage[0].bucket", "  datasets: {}", "  datasets: {kms-key-scope: tenant}", "  datasets: {kms-key-scope: bucket}", FRAUD, shared=True),
    Case("secrets of a shared role", "aws-04", FRAUD, "aws-resources.secrets", "aws-resources:\n", "aws-resources:\n  secrets: [card]\n", "aws-resources:\n", shared=True),
    Case("every branch", "aws-05", FRAUD, "ci.branch", "branch: main", "branch: '*'", "branch: release"),
    Case("every branch of a kind", "aws-05", FRAUD, "ci.branch", "branch: main", "branch: 'release/*'", "branch: release/1"),
    Case("every repository", "aws-05", FRAUD, "ci.github", "github: bank/fraud-models", "github: 'bank/*'", "github: bank/fraud"),
    Case("any letter", "aws-05", FRAUD, "ci.github", "github: bank/fraud-models", "github: 'bank/fraud?models'", "github: bank/fraud.models"),
    Case("a policy variable", "aws-05", FRAUD, "ci.branch", "branch: main", "branch: '${aws:username}'", "branch: username"),
    Case("a subject within the branch", "aws-05", FRAUD, "ci.branch", "branch: main", "branch: 'main:environment'", "branch: main-environment"),
    Case("a quote, which a policy escapes", "aws-05", FRAUD, "ci.branch", "branch: main", """branch: 'ma"in'""", """branch: "ma'in\""""),
    Case("a ref", "aws-05", FRAUD, "ci.branch", "branch: main", "branch: refs/heads/main", "branch: heads/main"),
    Case("a tag", "aws-05", FRAUD, "ci.branch", "branch: main", "branch: refs/tags/v1", "branch: tags/v1"),
    Case("an organisation", "aws-05", FRAUD, "ci.github", "github: bank/fraud-models", "github: bank", "github: bank/x"),
    Case("a deeper repository on GitHub", "aws-05", FRAUD, "ci.github", "github: bank/fraud-models", "github: bank/fraud/models", "github: bank/models"),
    Case("a path upwards", "aws-05", RESEARCH, "ci.gitlab", "gitlab: bank/risk/models", "gitlab: bank/../models", "gitlab: bank/models"),
    Case("no branch", "aws-05", FRAUD, "ci", "github: bank/fraud-models, branch: main", "github: bank/fraud-models", "github: bank/fraud-models, environment: cluster"),
    Case("branch and environment", "aws-05", FRAUD, "ci", "branch: main", "branch: main, environment: cluster", "environment: cluster"),
    Case("one pipeline for two", "aws-05", RESEARCH, "ci", "gitlab: bank/risk/models, branch: main", "github: bank/fraud-models, branch: main", "github: bank/fraud-models, branch: research"),
    Case("one role for two groups", "aws-06", ENV, "aws.group-roles.researchers", f"researchers: {ROLE}research", f"researchers: {ROLE}fraud", f"researchers: {ROLE}fraud-2"),
    Case("the platform's role", "aws-06", ENV, "aws.group-roles.researchers", f"researchers: {ROLE}research", f"researchers: {ROLE}platform", f"researchers: {ROLE}platform-2"),
    Case("the default service account", "aws-07", FRAUD, "namespaces[0].service-account", "purpose: nightly retraining", "service-account: default", "service-account: trainer"),
    Case("a folder of all tenants' repositories", "img-03", ENV, "images.registries[0]", "[registry.bank.example/shared/", f"[{ECR}small/, registry.bank.example/shared/", f'["{ECR}small/{{tenant}}/", registry.bank.example/shared/'),
    Case("the whole registry", "img-03", ENV, "images.registries[0]", "[registry.bank.example/shared/", f"[{ECR}, registry.bank.example/shared/", f"[{ECR}small/shared/, registry.bank.example/shared/"),
    *(Case(f"an API server for {about}", "eks-01", ENV, "aws.public-access-cidrs[0]", "  service-quotas: {}", f"  public-access-cidrs: [{bad}]", f"  public-access-cidrs: [{good}]") for about, bad, good in (
        ("a company's own addresses", "10.1.0.0/16", "11.1.0.0/16"),
        ("a carrier's own addresses", "100.64.0.0/24", "100.128.0.0/24"),
        ("the API server itself", "127.0.0.0/8", "126.0.0.0/8"),
        ("link-local addresses", "169.254.1.0/24", "169.253.1.0/24"),
        ("groups of receivers", "224.0.0.0/24", "223.0.0.0/24"),
        ("reserved addresses", "240.0.0.0/24", "203.0.113.0/24"),
        ("a range around private ones", "192.0.0.0/8", "193.0.0.0/8"),
        ("an address that poses as a range", "203.0.113.7/24", "203.0.113.7/32"),
    )),
    Case("an API server for too many", "eks-01", ENV, "aws.public-access-cidrs", "  service-quotas: {}", f"  public-access-cidrs: {[f'198.51.{n}.0/24' for n in range(41)]}", f"  public-access-cidrs: {[f'198.51.{n}.0/24' for n in range(40)]}"),
    Case("two dashes in the cluster's name", "name-01", ENV, "cluster.name", "  name: small", "  name: small--fraud", "  name: small-fraud"),
)  # fmt: skip
