module gpu-tenancy/tests/nfd

go 1.26.0

require sigs.k8s.io/node-feature-discovery v0.18.2
