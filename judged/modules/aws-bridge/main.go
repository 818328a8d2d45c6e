// Terraform's AWS provider as the plugin `pulumi-resource-aws`: the engine talks to it under pulumi-aws' type tokens.
//
// JUDGED_AWS_PROVIDER is the provider's program, JUDGED_AWS_TOKENS the file that judged/aws/tokens.py writes. This
// program is started under two names: as `terraform-provider-aws` it becomes the provider, which then ends when the
// process ends that started it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"

	"github.com/pulumi/pulumi-terraform-bridge/v3/dynamic/internal/fixup"
	"github.com/pulumi/pulumi-terraform-bridge/v3/dynamic/internal/shim/run"
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/pf/proto"
	pfbridge "github.com/pulumi/pulumi-terraform-bridge/v3/pkg/pf/tfbridge"
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge"
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge/info"
	shim "github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfshim"
)

const providerName = "terraform-provider-aws"

// Mapping is what Pulumi calls a type of Terraform's, and where their forms differ.
type Mapping struct {
	Token string `json:"token"`
	// Pulumi's name of a property, by Terraform's.
	Names map[string]string `json:"names"`
	// Paths, in Terraform's names, of lists that are one object in Pulumi.
	Single []string `json:"single"`
	// Paths, in Pulumi's names, that older providers do not have; dropped where the schema lacks them.
	Newer []string `json:"newer"`
	// Whether the program names it, so that the old one has to go before the new one can come.
	DeletesFirst bool `json:"deletesFirst"`
}

// Tokens is the content of JUDGED_AWS_TOKENS, by Terraform's type.
type Tokens struct {
	Version   string             `json:"version"`
	Resources map[string]Mapping `json:"resources"`
	Functions map[string]string  `json:"functions"`
}

func main() {
	var err error
	if filepath.Base(os.Args[0]) == providerName {
		err = becomeProvider(os.Getenv("JUDGED_AWS_PROVIDER"))
	} else {
		err = serve(context.Background(), os.Getenv("JUDGED_AWS_TOKENS"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "aws-bridge:", err)
		os.Exit(1)
	}
}

func becomeProvider(program string) error {
	if err := endWithParent(); err != nil {
		return err
	}
	return syscall.Exec(program, append([]string{program}, os.Args[1:]...), os.Environ())
}

func serve(ctx context.Context, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var table Tokens
	if err := json.Unmarshal(text, &table); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	// The link beside the one by which this program was started.
	server, err := run.LocalProvider(ctx, filepath.Join(filepath.Dir(os.Args[0]), providerName))
	if err != nil {
		return err
	}
	defer server.Close()
	provider, err := describe(proto.New(ctx, server), table)
	if err != nil {
		return err
	}
	schema, err := json.Marshal(map[string]string{"name": provider.Name, "version": provider.Version})
	if err != nil {
		return err
	}
	pfbridge.Main(ctx, provider.Name, provider, pfbridge.ProviderMetadata{
		XGetSchema: func(context.Context, plugin.GetSchemaRequest) ([]byte, error) { return schema, nil },
	})
	return nil
}

func describe(provider shim.Provider, table Tokens) (info.Provider, error) {
	result := info.Provider{
		P: provider, Name: "aws", Version: table.Version, ResourcePrefix: "aws",
		MetadataInfo: &info.Metadata{Data: tfbridge.ProviderMetadata(nil)},
		Resources:    map[string]*info.Resource{},
		DataSources:  map[string]*info.DataSource{},
		Config:       properties(Mapping{Single: []string{"default_tags"}}),
	}
	for name, mapping := range table.Resources {
		if _, ok := provider.ResourcesMap().GetOk(name); !ok {
			return result, fmt.Errorf("the provider has no resource %s, for %s", name, mapping.Token)
		}
	}
	for name, resource := range provider.ResourcesMap().Range {
		if mapping, ok := table.Resources[name]; ok {
			result.Resources[name] = describeResource(resource, mapping)
		} else {
			result.IgnoreMappings = append(result.IgnoreMappings, name)
		}
	}
	for name := range provider.DataSourcesMap().Range {
		if token, ok := table.Functions[name]; ok {
			result.DataSources[name] = &info.DataSource{Tok: tokens.ModuleMember(token)}
		} else {
			result.IgnoreMappings = append(result.IgnoreMappings, name)
		}
	}
	if err := fixup.Default(&result); err != nil {
		return result, err
	}
	result.SetAutonaming(255, "-")
	return result, nil
}

func describeResource(resource shim.Resource, mapping Mapping) *info.Resource {
	result := &info.Resource{
		Tok:                 tokens.Type(mapping.Token),
		Fields:              properties(mapping),
		DeleteBeforeReplace: mapping.DeletesFirst,
	}
	var unknown [][]string
	for _, path := range mapping.Newer {
		if names := strings.Split(path, "."); !knows(resource.Schema(), result.Fields, names) {
			unknown = append(unknown, names)
		}
	}
	if len(unknown) > 0 {
		result.PreCheckCallback = dropper(unknown)
	}
	return result
}

func properties(mapping Mapping) map[string]*info.Schema {
	result := map[string]*info.Schema{}
	for terraform, pulumi := range mapping.Names {
		property(result, []string{terraform}).Name = pulumi
	}
	single := true
	for _, path := range mapping.Single {
		property(result, strings.Split(path, ".")).MaxItemsOne = &single
	}
	return result
}

func property(properties map[string]*info.Schema, path []string) *info.Schema {
	schema := properties[path[0]]
	if schema == nil {
		schema = &info.Schema{}
		properties[path[0]] = schema
	}
	if len(path) == 1 {
		return schema
	}
	if schema.Elem == nil {
		schema.Elem = &info.Schema{Fields: map[string]*info.Schema{}}
	}
	return property(schema.Elem.Fields, path[1:])
}

func knows(schemas shim.SchemaMap, fields map[string]*info.Schema, path []string) bool {
	schema, ok := schemas.GetOk(tfbridge.PulumiToTerraformName(path[0], schemas, fields))
	if !ok || len(path) == 1 {
		return ok
	}
	block, ok := schema.Elem().(shim.Resource)
	return ok && knows(block.Schema(), nil, path[1:])
}

func dropper(paths [][]string) func(context.Context, resource.PropertyMap, resource.PropertyMap) (
	resource.PropertyMap, error,
) {
	return func(_ context.Context, inputs, _ resource.PropertyMap) (resource.PropertyMap, error) {
		for _, path := range paths {
			drop(resource.NewObjectProperty(inputs), path)
		}
		return inputs, nil
	}
}

func drop(value resource.PropertyValue, path []string) {
	if value.IsArray() {
		for _, item := range value.ArrayValue() {
			drop(item, path)
		}
	}
	if !value.IsObject() {
		return
	}
	if key := resource.PropertyKey(path[0]); len(path) == 1 {
		delete(value.ObjectValue(), key)
	} else {
		drop(value.ObjectValue()[key], path[1:])
	}
}
