module gpu-tenancy/tests/nodeadm

go 1.26.0

require github.com/awslabs/amazon-eks-ami/nodeadm v0.0.0-20240229193347-cfab22a10647
