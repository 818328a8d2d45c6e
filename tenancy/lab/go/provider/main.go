// Command pulumi-resource-kubernetes serves the upstream Kubernetes provider.
// Upstream's own main embeds files that its release build generates; the two
// files embedded here are copied out of the same module by the build.
package main

import (
	_ "embed"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
)

// Set by the linker.
var version string

//go:embed schema.json
var schema []byte

//go:embed terraform-mapping.json
var mapping []byte

func main() {
	provider.Serve("kubernetes", version, schema, mapping)
}
