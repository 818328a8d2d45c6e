module gpu-tenancy/tests/flux-kustomize

go 1.26.0

require github.com/fluxcd/kustomize-controller v1.9.5
