module gpu-tenancy/tests/argo-cd

go 1.26.0

require github.com/argoproj/argo-cd/v3 v3.4.13
