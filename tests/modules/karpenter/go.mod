module gpu-tenancy/tests/karpenter

go 1.26.6

require github.com/aws/karpenter-provider-aws v1.14.1
